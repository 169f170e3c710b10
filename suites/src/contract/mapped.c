/* Writes to files of the image through mappings and handles, and prints what came of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char *map(const char *path, int flags, int protection, int kind)
{
	int file = open(path, flags);
	char *at = mmap(0, 4096, protection, kind, file, 0);
	if (file < 0 || at == MAP_FAILED) {
		printf("%s: %s\n", path, strerror(errno));
		exit(1);
	}
	close(file);
	return at;
}

static char first(const char *path)
{
	char byte = 0;
	int file = open(path, O_RDONLY);
	if (read(file, &byte, 1) != 1) byte = '?';
	close(file);
	return byte;
}

int main(void)
{
	char *at = map("/data/early", O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED);
	at[0] = 'O';
	msync(at, 4096, MS_SYNC);
	printf("written: %c\n", first("/data/early"));

	at = map("/data/read", O_RDONLY, PROT_READ, MAP_SHARED);
	errno = 0;
	mprotect(at, 4096, PROT_READ | PROT_WRITE);
	printf("read only: %s\n", strerror(errno));

	at = map("/data/private", O_RDONLY, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	at[0] = 'O';
	msync(at, 4096, MS_SYNC);
	printf("private: %c\n", first("/data/private"));

	/* A mapping that is older than the copy goes on showing the image's file. */
	char *old = map("/data/late", O_RDONLY, PROT_READ, MAP_SHARED);
	at = map("/data/late", O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED);
	at[0] = 'O';
	printf("late: %c %c\n", first("/data/late"), old[0]);

	/* The file of a program that runs. */
	errno = 0;
	if (open("/bin/mapped", O_WRONLY) >= 0) errno = 0;
	printf("running: %s\n", strerror(errno));

	/* Only the host's root may open by a handle. */
	char space[sizeof(struct file_handle) + MAX_HANDLE_SZ] = {0};
	struct file_handle *handle = (void *)space;
	handle->handle_bytes = MAX_HANDLE_SZ;
	int mount = 0, file = -1, root = open("/data", O_RDONLY);
	if (!name_to_handle_at(AT_FDCWD, "/data/handle", handle, &mount, 0))
		file = open_by_handle_at(root, handle, O_WRONLY);
	printf("handle: %s\n", file >= 0 && write(file, "O", 1) == 1 ? "written" : "no");
	return 0;
}
