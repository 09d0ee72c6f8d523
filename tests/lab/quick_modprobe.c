/*
 * The kernel's way to modprobe in a guest. Each login of ssh asks four times for the kernel's auditing, which the lab's
 * kernel has not got; to find that out costs a modprobe 20 ms, because of the libraries that it loads.
 */
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[argc - 1], "net-pf-16-proto-9"))
		return 1;
	argv[0] = "/sbin/modprobe";
	execv(argv[0], argv);
	return 127;
}
