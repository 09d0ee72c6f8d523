/*
 * Refuses calls into ZFS, as /run/refuse says: a line each of the call's number (hex), an errno, and the dataset that
 * the call has to be about, in its name or in what it is given. All other calls go to the kernel. Each that was refused
 * is a line in /run/refused.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_NAME 4096

/* How zfs_cmd_t begins (sys/zfs_ioctl.h). */
struct command {
	char name[LONGEST_NAME];
	uint64_t given;
	uint64_t given_size;
};

static int
names(const char *text, size_t size, const char *dataset)
{
	size_t length = strlen(dataset);
	const char *at = text, *end = text + size;

	while ((at = memmem(at, (size_t)(end - at), dataset, length)) != NULL) {
		char next = at + length < end ? at[length] : '\0';
		int whole = at == text || at[-1] != '/';

		if (whole && strchr("@#%", next) != NULL)
			return (1);
		at++;
	}
	return (0);
}

static int
refused(unsigned long request, const struct command *command)
{
	FILE *file = fopen("/run/refuse", "re");
	unsigned long number;
	int code, found = 0;
	char dataset[256];

	if (file == NULL)
		return (0);
	while (found == 0 && fscanf(file, "%lx %d %255s", &number, &code, dataset) == 3)
		if (number == request && (names(command->name, strnlen(command->name, LONGEST_NAME), dataset) ||
		    (command->given_size != 0 &&
		    names((const char *)(uintptr_t)command->given, command->given_size, dataset))))
			found = code;
	fclose(file);
	if (found != 0 && (file = fopen("/run/refused", "ae")) != NULL) {
		fprintf(file, "%lx %d %s\n", request, found, dataset);
		fclose(file);
	}
	return (found);
}

int
ioctl(int fd, unsigned long request, ...)
{
	int (*real)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	va_list rest;
	void *argument;
	int code;

	va_start(rest, request);
	argument = va_arg(rest, void *);
	va_end(rest);
	if (request >> 8 == 'Z' && argument != NULL && (code = refused(request, argument)) != 0) {
		errno = code;
		return (-1);
	}
	return (real(fd, request, argument));
}
