/* Calls that an engine without a filter may not catch: opens a file that only the host has by
 * each of them, and prints which ones found it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>
enum { R = PROT_READ, RW = R | PROT_WRITE, RX = R | PROT_EXEC, RWX = RW | PROT_EXEC, PAGE = 4096 };
/* mov $2, %eax; xor %esi, %esi; syscall; ret */
static const unsigned char code[] = { 0xb8, 2, 0, 0, 0, 0x31, 0xf6, 0x0f, 0x05, 0xc3 };
/* push %rbx; mov %edi, %ebx; mov $5, %eax; xor %ecx, %ecx; int $0x80; pop %rbx; cltq; ret */
static const unsigned char narrow[] = { 0x53, 0x89, 0xfb, 0xb8, 5, 0, 0, 0, 0x31, 0xc9, 0xcd, 0x80, 0x5b, 0x48, 0x98, 0xc3 };
static const char *host;

static void tell(const char *name, const void *place)
{
    if (!place || place == MAP_FAILED) { printf("%s: %s\n", name, strerror(errno)); return; }
    long result = ((long (*)(const char *))place)(host);
    if (result >= 0) close(result);
    printf("%s: %s\n", name, result == -ENOENT ? "inside" : result < 0 ? strerror(-result) : "outside");
}

static char *fresh(int rights, int flags, int file)
{
    return mmap(0, PAGE, rights, flags | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
}

/* A file that begins with these bytes and is a page long. */
static int file_of(const void *bytes, size_t length)
{
    static char name[] = "/tmp/code-a";
    char page[PAGE];
    memset(page, 0x90, PAGE);
    memcpy(page, bytes, length);
    name[10]++;
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0700);
    return write(file, page, PAGE) == PAGE ? file : -1;
}

/* Two instructions, the second inside the first. */
asm(".text\ninner: .byte 0x48, 0xb8\nhidden: .byte 0x0f, 0x05, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90\nret\n"
    ".globl into\ninto: mov $2, %eax\nxor %esi, %esi\njmp hidden\n");
extern char into[];

__attribute__((noinline, aligned(4096))) static long victim(const char *path)
{
    asm volatile(".fill 64, 1, 0x90");
    return (long)path;
}

int main(int count, char **words)
{
    char *m, *n;
    int file;
    host = words[1];

    m = fresh(RWX, MAP_PRIVATE, -1);
    memcpy(m, code, sizeof code);
    tell("mapped writable and executable", m);
    m = fresh(RW, MAP_PRIVATE, -1);
    memcpy(m, code, sizeof code);
    tell("made so", mprotect(m, PAGE, RWX) ? 0 : m);
    mprotect(m, PAGE, RX);
    tell("not writable any more", m);
    tell("a file mapped so", fresh(RWX, MAP_PRIVATE, file_of(code, sizeof code)));

    file = memfd_create("twice", 0);
    if (ftruncate(file, PAGE)) return 1;
    m = fresh(RW, MAP_SHARED, file);
    n = fresh(RX, MAP_SHARED, file);
    memcpy(m, code, sizeof code);
    tell("a memory file mapped twice", n);
    tell("a file mapped shared", fresh(RX, MAP_SHARED, file_of(code, sizeof code)));
    file = file_of(code, sizeof code);
    m = fresh(R, MAP_SHARED, file);
    tell("made executable", mprotect(m, PAGE, RX) ? 0 : m);
    unsigned char now[sizeof code];
    if (pread(file, now, sizeof now, 0) != sizeof now) return 1;
    printf("the file then: %s\n", memcmp(now, code, sizeof code) ? "changed" : "as it was");
    close(file_of(code, sizeof code));
    m = fresh(R, MAP_SHARED, open("/tmp/code-e", O_RDONLY));
    tell("opened for reading", mprotect(m, PAGE, RX) ? 0 : m);
    m = fresh(RW, MAP_SHARED, -1);
    memcpy(m, code, sizeof code);
    tell("shared memory made executable", mprotect(m, PAGE, RX) ? 0 : m);
    int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0700);
    m = shmat(id, 0, 0);
    n = shmat(id, 0, SHM_RDONLY | SHM_EXEC);
    shmctl(id, IPC_RMID, 0);
    memcpy(m, code, sizeof code);
    tell("shmat", n);

    file = file_of("", 1);
    m = fresh(RX, MAP_PRIVATE, file);
    if (pwrite(file, code, sizeof code, 0) != sizeof code) return 1;
    tell("written into a file without a call", m);
    char with[2048] = { 0 };
    memcpy(with + 1024, code, sizeof code);
    file = file_of(with, sizeof with);
    m = fresh(RX, MAP_PRIVATE, file);
    if (pwrite(file, code, sizeof code, 0) != sizeof code) return 1;
    printf("into one with a call: %s\n", *(unsigned char *)m == code[0] ? "the new text" : "the old text");
    file = open("/proc/self/mem", O_RDWR);
    if (pwrite(file, code, sizeof code, (off_t)(uintptr_t)victim) != sizeof code) return 1;
    tell("by /proc/self/mem", victim);

    m = mmap((void *)0x20000000, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    memcpy(m, narrow, sizeof narrow);
    strcpy(m + 100, host);
    mprotect(m, PAGE, RX);
    host = m + 100;
    tell("int $0x80", m);
    tell("inside an instruction", into);
    m = mmap(0, 2 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    n = m + PAGE - 8;
    memcpy(n, code, sizeof code);
    mprotect(m, PAGE, RX);
    mprotect(m + PAGE, PAGE, RX);
    tell("half in each of two pieces", n);
    return 0;
}
