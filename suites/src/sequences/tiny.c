/* A program of a few hundred bytes, one for every sequence: its exit status shows its user and
 * group. */
static long call(long number) {
    long value;
    __asm__ volatile("syscall" : "=a"(value) : "a"(number) : "rcx", "r11", "memory");
    return value;
}

void _start(void) {
    /* geteuid, getegid */
    long status = (call(107) & 15) + (call(108) & 7) * 16;
    __asm__ volatile("syscall" : : "a"(231L), "D"(status));
}
