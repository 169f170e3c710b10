/* A caller that comes right after a bind.
 *
 * `race serve COUNT` listens on a new port each time and tells it through a pipe, `race call COUNT
 * HOST` connects to it at once. The pipes `a` and `b` are in the directory of the meetings. */
#include "net.h"

static FILE *pipe_of(const char *name, const char *how) {
    return fopen(text("%s/%s", getenv("MEETINGS"), name), how);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int count = atoi(argv[2]), good = 0, serves = !strcmp(argv[1], "serve");
    FILE *ports = pipe_of("a", serves ? "w" : "r"), *done = pipe_of("b", serves ? "r" : "w");
    char word[64], byte;
    for (int turn = 0; turn < count; turn++) {
        if (serves) {
            int s = tcp();
            REUSE(s);
            bind_to(s, ANY, 0);
            listen(s, 5);
            fprintf(ports, "%d\n", port_of(s));
            fflush(ports);
            int end = accept(s, 0, 0);
            if (end >= 0 && send(end, "x", 1, MSG_NOSIGNAL) == 1) good++;
            close(end);
            close(s);
            if (!fgets(word, sizeof word, done)) return 3;
        } else {
            if (!fgets(word, sizeof word, ports)) return 3;
            int fd = caller(argv[3], atoi(word));
            if (fd >= 0 && recv(fd, &byte, 1, 0) == 1) good++;
            close(fd);
            fprintf(done, "done\n");
            fflush(done);
        }
    }
    line("good %d of %d", good, count);
    return good != count;
}
