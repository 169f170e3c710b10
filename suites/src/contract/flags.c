/* Flags of files (chattr): error numbers. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int change(const char *path, int flags, int without)
{
    int had, descriptor = open(path, O_RDONLY);
    if (descriptor < 0) return -1;
    if (ioctl(descriptor, FS_IOC_GETFLAGS, &had)) return without;
    had |= flags;
    return ioctl(descriptor, FS_IOC_SETFLAGS, &had) ? errno : 0;
}

int main(void)
{
    const char *image = "/etc/passwd";
    int status;
    close(open("/tmp/own", O_CREAT | O_WRONLY, 0644));
    printf("file %d, ", change("/tmp/own", 0, 0));
    printf("directory %d, ", change("/tmp", 0, 0));
    printf("image %d, ", change(image, 0, 95));
    printf("immutable %d ", change("/tmp/own", FS_IMMUTABLE_FL, EPERM));
    printf("%d ", change("/tmp", FS_IMMUTABLE_FL, EPERM));
    printf("%d, ", change(image, FS_IMMUTABLE_FL, EPERM));
    fflush(stdout);
    if (!fork()) {
        if (setgid(33) || setuid(33)) _exit(99);
        _exit(change("/tmp/own", 0, EPERM));
    }
    wait(&status);
    printf("other's %d\n", WEXITSTATUS(status));
    return 0;
}
