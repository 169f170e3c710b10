/* Load on a network with faults: no wrong peer, no damaged byte, no call that never ends.
 *
 * `hammer serve PORT` tells every caller both names of the connection and sends back what it gets.
 * `hammer call HOST PORT SECONDS` connects again and again. It prints how often that went well, how
 * often the network's faults ended it, and every answer that is not right; it fails for those. */
#include "net.h"
#include <time.h>

/* The longest that one step may take; a peer behind a cut link answers nothing for seconds. */
#define LONG 20000

static void whole_name(int fd, int peer, char *to, size_t room) {
    addr a;
    socklen_t length = sizeof a;
    char host[64];
    int failed = peer ? getpeername(fd, &a.any, &length) : getsockname(fd, &a.any, &length);
    if (failed) {
        snprintf(to, room, "%s", strerrorname_np(errno));
        return;
    }
    inet_ntop(AF_INET, &a.v4.sin_addr, host, sizeof host);
    snprintf(to, room, "%s:%d", host, ntohs(a.v4.sin_port));
}

static void serve(int port) {
    int s = listener(ANY, port);
    signal(SIGCHLD, SIG_IGN);
    line("ready");
    for (;;) {
        int end = accept(s, 0, 0);
        if (end < 0) continue;
        if (!fork()) {
            char own[80], peer[80], bytes[65536];
            ssize_t count;
            close(s);
            alarm(60);
            whole_name(end, 0, own, sizeof own);
            whole_name(end, 1, peer, sizeof peer);
            dprintf(end, "%-79s\n%-79s\n", own, peer);
            while ((count = recv(end, bytes, sizeof bytes, 0)) > 0)
                for (ssize_t sent = 0; sent < count;) {
                    ssize_t now = send(end, bytes + sent, count - sent, MSG_NOSIGNAL);
                    if (now <= 0) _exit(0);
                    sent += now;
                }
            _exit(0);
        }
        close(end);
    }
}

/* Waits until a socket is ready; 0 if it is not in time. */
static int is_ready(int fd, int events) {
    struct pollfd one = {.fd = fd, .events = events};
    return poll(&one, 1, LONG) == 1;
}

/* All bytes, or -1. */
static int get_all(int fd, char *to, size_t count) {
    for (size_t got = 0; got < count;) {
        if (!is_ready(fd, POLLIN)) return -1;
        ssize_t now = recv(fd, to + got, count - got, 0);
        if (now <= 0) return -1;
        got += now;
    }
    return 0;
}

/* A server that cannot ask another host knows its callers by that host's address. */
static int wrong, unknown;

/* One connection: 1 if all went well, 0 if a fault ended it. */
static int once(const char *host, int port) {
    static char sent[20000], got[sizeof sent];
    char own[80], told[160], want[80];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), done = 0, error = 0;
    socklen_t length = sizeof error;
    if (connect_to(fd, host, port) < 0 && errno != EINPROGRESS) goto out;
    if (!is_ready(fd, POLLOUT)) goto out;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) || error) goto out;
    if (get_all(fd, told, sizeof told)) goto out;
    snprintf(want, sizeof want, "%s:%d", host, port);
    whole_name(fd, 0, own, sizeof own);
    told[79] = told[159] = 0;
    int is_known = !strncmp(told + 80, "100.80.", 7);
    if (!is_known) unknown++;
    if (strncmp(told, want, strlen(want)) || is_known && strncmp(told + 80, own, strlen(own))) {
        wrong++;
        line("called %s from %s: it is %.40s and knows %.40s", want, own, told, told + 80);
    }
    for (size_t at = 0; at < sizeof sent; at++) sent[at] = rand();
    if (send(fd, sent, sizeof sent, MSG_NOSIGNAL) != sizeof sent) goto out;
    if (get_all(fd, got, sizeof got)) goto out;
    if (memcmp(sent, got, sizeof sent)) {
        wrong++;
        line("damaged bytes from %s", want);
    }
    done = 1;
out:
    close(fd);
    return done;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "serve")) serve(atoi(argv[2]));
    if (argc != 5) return 2;
    time_t end = time(0) + atoi(argv[4]);
    int good = 0, broken = 0;
    srand(getpid());
    while (time(0) < end) {
        if (once(argv[2], atoi(argv[3]))) good++;
        else {
            broken++;
            usleep(20000);
        }
    }
    line("good %d", good);
    line("broken %d", broken);
    line("unknown %d", unknown);
    line("wrong %d", wrong);
    return wrong != 0;
}
