#include <stdio.h>
#include <sys/stat.h>

int main(void) {
    struct stat facts;
    printf("compiled program, in the container: %d\n", stat("/in-the-container", &facts) == 0);
    return 0;
}
