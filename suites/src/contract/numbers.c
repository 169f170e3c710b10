/* Prints the inode number of files by every road, one line for each of the paths that are its
 * arguments, and fails if two roads of one path differ: by name (whole, from a directory, from the
 * working directory), by descriptors, by listing its directory, and in /proc/self/maps. (In
 * /proc/self/fdinfo what is the container's own has the kernel's number.)
 *
 * Output of a line: PATH KIND DEVICE INODE
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char *path;
static struct stat first;
static int failed;

static void differ(const char *road, unsigned long device, unsigned long inode)
{
	if (inode == first.st_ino && device == first.st_dev) return;
	printf("%s: by %s %lx:%lu, by lstat %lx:%lu\n", path, road, device, inode,
	       (unsigned long)first.st_dev, (unsigned long)first.st_ino);
	failed = 1;
}

static void same(const char *road, int result, const struct stat *status)
{
	if (result) {
		printf("%s: by %s: %m\n", path, road);
		failed = 1;
		return;
	}
	differ(road, status->st_dev, status->st_ino);
	if (status->st_mode != first.st_mode || status->st_size != first.st_size ||
	    status->st_uid != first.st_uid || status->st_mtime != first.st_mtime) {
		printf("%s: by %s mode %o size %ld owner %u time %ld\n", path, road,
		       status->st_mode, (long)status->st_size, status->st_uid,
		       (long)status->st_mtime);
		failed = 1;
	}
}

static void by_statx(int from, const char *name, int flags)
{
	struct statx status;
	if (statx(from, name, flags, STATX_BASIC_STATS, &status)) {
		printf("%s: by statx: %m\n", path);
		failed = 1;
		return;
	}
	differ("statx", makedev(status.stx_dev_major, status.stx_dev_minor), status.stx_ino);
}

/* The numbers in /proc/self/maps of a mapping at an address. */
static void by_maps(int file)
{
	char *at = mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 0), line[PATH_MAX + 200];
	if (at == MAP_FAILED) return;
	FILE *maps = fopen("/proc/self/maps", "r");
	int seen = 0;
	while (fgets(line, sizeof line, maps)) {
		unsigned long start, inode;
		unsigned major, minor;
		if (sscanf(line, "%lx-%*x %*s %*x %x:%x %lu", &start, &major, &minor, &inode) != 4)
			continue;
		if (start != (unsigned long)at) continue;
		seen = 1;
		differ("maps", makedev(major, minor), inode);
		char *name = strchr(line, '/');
		if (name) name[strcspn(name, "\n")] = 0;
		if (!name || strcmp(name, path)) {
			printf("%s: in maps %s\n", path, name ? name : "without a name");
			failed = 1;
		}
	}
	if (!seen) {
		printf("%s: not in maps\n", path);
		failed = 1;
	}
	fclose(maps);
	munmap(at, 4096);
}

static void by_name_of_descriptor(int file)
{
	char name[64];
	struct stat status;
	snprintf(name, sizeof name, "/proc/self/fd/%d", file);
	same("/proc/self/fd", stat(name, &status), &status);
	snprintf(name, sizeof name, "/dev/fd/%d", file);
	same("/dev/fd", stat(name, &status), &status);
}

static void by_listing(const char *directory, const char *wanted)
{
	DIR *list = opendir(directory);
	int seen = 0;
	for (struct dirent *entry; list && (entry = readdir(list));)
		if (!strcmp(entry->d_name, wanted)) {
			seen++;
			differ("listing", first.st_dev, entry->d_ino);
		}
	if (seen != 1) {
		printf("%s: %d times in the listing\n", path, seen);
		failed = 1;
	}
	if (list) closedir(list);
}

static void of(void)
{
	struct stat status;
	char directory[PATH_MAX];
	snprintf(directory, sizeof directory, "%s", path);
	char *name = strrchr(directory, '/');
	*name++ = 0;
	const char *above = *directory ? directory : "/";
	if (lstat(path, &first)) {
		printf("%s: %m\n", path);
		failed = 1;
		return;
	}
	int from = open(above, O_RDONLY | O_DIRECTORY);
	same("fstatat", fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW), &status);
	by_statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
	by_statx(from, name, AT_SYMLINK_NOFOLLOW);
	if (chdir(above)) failed = 1;
	same("relative lstat", lstat(name, &status), &status);
	if (chdir("/")) failed = 1;
	if (fchdir(from)) failed = 1;
	same("lstat after fchdir", lstat(name, &status), &status);
	if (chdir("/")) failed = 1;
	by_listing(above, name);
	int place = open(path, O_PATH | O_NOFOLLOW);
	same("fstat of O_PATH", fstat(place, &status), &status);
	same("fstatat of O_PATH", fstatat(place, "", &status, AT_EMPTY_PATH), &status);
	by_statx(place, "", AT_EMPTY_PATH);
	close(place);
	if (S_ISREG(first.st_mode) || S_ISDIR(first.st_mode)) {
		int file = open(path, O_RDONLY);
		same("stat", stat(path, &status), &status);
		same("fstat", fstat(file, &status), &status);
		by_statx(file, "", AT_EMPTY_PATH);
		by_name_of_descriptor(file);
		if (S_ISREG(first.st_mode) && first.st_size) by_maps(file);
		close(file);
		file = openat(from, name, O_RDONLY);
		same("fstat of openat", fstat(file, &status), &status);
		if (S_ISDIR(first.st_mode)) {
			struct stat up;
			if (fstatat(file, ".", &up, 0) || up.st_ino != first.st_ino) failed = 1;
		}
		close(file);
	}
	close(from);
	printf("%s %o %lx %lu\n", path, first.st_mode & S_IFMT, (unsigned long)first.st_dev,
	       (unsigned long)first.st_ino);
}

int main(int argc, char **argv)
{
	for (argv++; *argv; argv++) {
		path = *argv;
		of();
	}
	fflush(stdout);
	return failed;
}
