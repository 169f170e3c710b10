/* Ends: by code, by signal, with descendants that never end. */
#include "check.h"

int main(int count, char **words) {
    if (count != 3) return 98;
    int number = atoi(words[2]);
    if (strcmp(words[1], "exit") == 0) return number;
    if (strcmp(words[1], "signal") == 0) raise(number);
    if (strcmp(words[1], "pid") == 0) {
        printf("%d\n", getpid());
        return 0;
    }
    if (strcmp(words[1], "family") == 0) {
        for (int i = 0; i < number; i++) {
            if (fork() == 0) {
                if (i % 2 == 0) setsid();
                for (;;) {
                    struct stat facts;
                    stat("/etc/passwd", &facts);
                    usleep(1000);
                }
            }
        }
        printf("born\n");
        fflush(stdout);
        for (;;) pause();
    }
    return 97;
}
