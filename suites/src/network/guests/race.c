/* A caller that comes right after a bind.
 *
 * `race serve COUNT` listens on a new port each time and tells it through a pipe, `race call COUNT
 * HOST` connects to it at once. The pipes `a` and `b` are in the directory of the meetings. Both say
 * which call has failed. */
#include "net.h"

static FILE *pipe_of(const char *name, const char *how) {
    return fopen(text("%s/%s", getenv("MEETINGS"), name), how);
}

static int well(int result, int turn, const char *call) {
    if (result < 0) fprintf(stderr, "turn %d: %s: %s\n", turn, call, strerror(errno));
    return result;
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
            well(bind_to(s, ANY, 0), turn, "bind");
            well(listen(s, 5), turn, "listen");
            fprintf(ports, "%d\n", port_of(s));
            fflush(ports);
            int end = well(accept(s, 0, 0), turn, "accept");
            if (end >= 0 && well(send(end, "x", 1, MSG_NOSIGNAL), turn, "send") == 1) good++;
            close(end);
            close(s);
            if (!fgets(word, sizeof word, done)) return 3;
        } else {
            if (!fgets(word, sizeof word, ports)) return 3;
            int fd = well(caller(argv[3], atoi(word)), turn, "connect");
            if (fd >= 0 && well(recv(fd, &byte, 1, 0), turn, "recv") == 1) good++;
            close(fd);
            fprintf(done, "done\n");
            fflush(done);
        }
    }
    line("good %d of %d", good, count);
    return good != count;
}
