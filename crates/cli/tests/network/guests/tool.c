/* Single steps for cases that arrange the rest from outside.
 *
 * `tool serve HOST PORT` listens, prints `ready` and tells every caller its name; `tool receive`
 * is the same for datagrams. `tool call HOST,HOST... PORT` prints what it hears or the error,
 * `tool ask HOST PORT` asks by a connected datagram socket, `tool variables` prints what it was
 * given. */
#include "net.h"

static void serve(const char *host, int port) {
    int s = listener(host, port);
    alarm(100);
    SELF(s);
    line("ready");
    for (;;) {
        int end = taken(s);
        if (end < 0) continue;
        const char *who = peer_name(end);
        line("called by %s", who);
        send(end, who, strlen(who), MSG_NOSIGNAL);
        close(end);
    }
}

static void receive(const char *host, int port) {
    int s = receiver(host, port);
    alarm(100);
    line("ready");
    for (;;) {
        addr a;
        char bytes[32];
        socklen_t length = sizeof a;
        ssize_t count = recvfrom(s, bytes, sizeof bytes, 0, &a.any, &length);
        if (count < 0) continue;
        const char *who = name(&a, length);
        line("asked by %s", who);
        sendto(s, who, strlen(who), 0, &a.any, length);
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "variables")) {
        for (char **one = environ; *one; one++) line("%s", *one);
        return 0;
    }
    if (argc != 4) return 2;
    int port = atoi(argv[3]), fd;
    begin();
    if (!strcmp(argv[1], "serve")) serve(argv[2], port);
    if (!strcmp(argv[1], "receive")) receive(argv[2], port);
    if (!strcmp(argv[1], "call")) {
        for (char *host = strtok(argv[2], ","); host; host = strtok(0, ",")) {
            fd = caller(host, port);
            line("%s", fd < 0 ? strerrorname_np(errno) : heard(fd));
        }
    } else {
        fd = udp();
        line("connect %s", success(connect_to(fd, argv[2], port)));
        line("send %s", success(send(fd, "ask", 3, 0)));
        line("%s", heard(fd));
    }
    return 0;
}
