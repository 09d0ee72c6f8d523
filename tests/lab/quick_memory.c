/*
 * For the Python of a guest: memory that it asks for is there at once.
 *
 * A page that is touched for the first time costs a guest some 18 microseconds, because each fault goes through two
 * processes of the host; one that the kernel fills in as it is mapped costs one. Python asks for memory a mebibyte at a
 * time, and touches nearly all of it.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILLED (4UL << 20)
#define STACK 16384UL
#define STACKS 64

/* Pieces of the stack of Python's frames, which it maps and unmaps at each import. */
static struct {
	_Atomic(void *) piece;
	atomic_bool used;
} stacks[STACKS];

static void *piece_of_stack(void)
{
	for (int i = 0; i < STACKS && stacks[i].piece; i++) {
		bool unused = false;

		if (atomic_compare_exchange_strong(&stacks[i].used, &unused, true))
			return memset(stacks[i].piece, 0, STACK);
	}
	return NULL;
}

static void remember(void *piece)
{
	for (int i = 0; i < STACKS; i++) {
		bool unused = false;

		if (stacks[i].piece || !atomic_compare_exchange_strong(&stacks[i].used, &unused, true))
			continue;
		stacks[i].piece = piece;
		return;
	}
}

void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
	const int wanted = MAP_PRIVATE | MAP_ANONYMOUS;
	const bool fill = flags == wanted && protection == (PROT_READ | PROT_WRITE) && size <= FILLED;
	const bool stack = fill && !address && size == STACK;
	void *found = stack ? piece_of_stack() : NULL;

	if (found)
		return found;
	found = (void *)syscall(SYS_mmap, address, size, protection, flags | (fill ? MAP_POPULATE : 0), file, offset);
	if (stack && found != MAP_FAILED)
		remember(found);
	return found;
}

void *mmap64(void *address, size_t size, int protection, int flags, int file, off_t offset)
	__attribute__((alias("mmap")));

int munmap(void *address, size_t size)
{
	for (int i = 0; size == STACK && i < STACKS && stacks[i].piece; i++) {
		if (stacks[i].piece == address) {
			stacks[i].used = false;
			return 0;
		}
	}
	return syscall(SYS_munmap, address, size);
}

/* What malloc() has: more for a program than for what one line of Python is run for. */
__attribute__((constructor)) static void fill_heap(int argc, char **argv)
{
	const size_t size = argc > 1 && argv[1][0] != '-' ? 16UL << 20 : 1UL << 20;
	const size_t page = sysconf(_SC_PAGESIZE);

	mallopt(M_MMAP_THRESHOLD, 4 << 20);
	mallopt(M_TOP_PAD, size);
	free(malloc(page));
	madvise((void *)(((size_t)sbrk(0) - size + page) & ~(page - 1)), size - 2 * page, MADV_POPULATE_WRITE);
	mallopt(M_TOP_PAD, 1 << 20);
}
