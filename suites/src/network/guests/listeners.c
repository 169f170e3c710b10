/* Listening sockets in time: shared, inherited, passed on, ended and begun again. */
#include "net.h"

static void group(const char *host) {
    int s[2], count[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        s[i] = tcp();
        set(s[i], SOL_SOCKET, SO_REUSEPORT, 1);
        line("%s: bind %s", host, success(bind_to(s[i], host, 5432)));
        line("%s: listen %s", host, success(listen(s[i], 128)));
        line("%s: self %s", host, own_name(s[i]));
    }
    int callers[64], failed = 0;
    for (int i = 0; i < 64; i++) failed += (callers[i] = caller(i % 2 ? ONE : host, 5432)) < 0;
    line("%s: not connected %d", host, failed);
    struct pollfd p[2] = {{s[0], POLLIN, 0}, {s[1], POLLIN, 0}};
    while (count[0] + count[1] < 64 && poll(p, 2, PATIENCE * 1000) > 0)
        for (int i = 0; i < 2; i++)
            if (p[i].revents) {
                close(accept(s[i], 0, 0));
                count[i]++;
            }
    line("%s: all %d, both have some: %s", host, count[0] + count[1], count[0] && count[1] ? "yes" : "no");
    for (int i = 0; i < 64; i++) close(callers[i]);
    /* The other one takes over. */
    close(s[0]);
    failed = 0;
    for (int i = 0; i < 16; i++) {
        int fd = caller(ONE, 5432);
        failed += fd < 0;
        close(fd);
    }
    line("%s: not connected to the one left %d", host, failed);
    close(s[1]);
    DO(caller(ONE, 5432));
}

static void groups(void) {
    TITLE("groups");
    group(ANY);
    group(ONE);
}

static void serve(int s, const char *what) {
    addr a;
    socklen_t length = sizeof a;
    line("%s: listener self %s", what, own_name(s));
    int end = accept(s, &a.any, &length);
    if (end < 0) {
        line("%s: accept %s", what, strerrorname_np(errno));
        return;
    }
    limited(end);
    line("%s: accept told %s", what, name(&a, length));
    NAMES(what, end);
    line("%s: heard %s", what, heard(end));
    close(end);
}

static void give(int through, int fd) {
    char space[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {"x", 1};
    struct msghdr m = {0, 0, &part, 1, space, sizeof space, 0};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    /* Without a line on success: both processes write at once. */
    if (sendmsg(through, &m, 0) < 0) line("not passed: %s", strerrorname_np(errno));
}

static int take(int through) {
    char space[CMSG_SPACE(sizeof(int))] = {0}, byte;
    struct iovec part = {&byte, 1};
    struct msghdr m = {0, 0, &part, 1, space, sizeof space, 0};
    int fd = -1;
    if (recvmsg(through, &m, 0) < 0) return -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c) memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static char *self;

static void inherited(void) {
    TITLE("inherited");
    int s = listener(ONE, 80), client = caller(ONE, 80);
    send(client, "fork", 4, 0);
    CHILD("a child serves", serve(s, "child"));
    close(client);
    client = caller(ONE, 80);
    send(client, "exec", 4, 0);
    CHILD("a program serves", execl(self, self, "serve", text("%d", s), (char *)0); line("exec: %s", strerrorname_np(errno)));
    close(client);
    CHILD("a child calls", int fd = caller(ONE, 80); NAMES("child", fd); send(fd, "hello", 5, 0));
    serve(s, "parent");
    /* The parent's copy is closed; the child's goes on. */
    int pipes[2];
    if (pipe(pipes)) exit(3);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(pipes[1]);
        if (read(pipes[0], &byte, 1) != 1) _exit(1);
        serve(s, "the child alone");
        _exit(0);
    }
    close(s);
    int other = tcp();
    DO(bind_to(other, ONE, 80));
    client = caller(ONE, 80);
    line("called: %s", success(client));
    send(client, "alone", 5, MSG_NOSIGNAL);
    if (write(pipes[1], "x", 1) != 1) exit(3);
    ended("child", pid);
    DO(caller(ONE, 80));
    close(other); close(client); close(pipes[0]); close(pipes[1]);
}

static void passed(void) {
    TITLE("passed on");
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit(3);
    limited(pair[0]); limited(pair[1]);
    /* The child is older than the socket. */
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(10);
        int s = take(pair[1]);
        serve(s, "child");
        fflush(stdout);
        /* A connected one, back. */
        int fd = caller(LO, 443);
        NAMES("child calls", fd);
        give(pair[1], fd);
        _exit(0);
    }
    int other = listener(LO, 443), s = listener(ANY, 5435), client = caller(ONE, 5435);
    send(client, "passed", 6, 0);
    give(pair[0], s);
    close(s);
    int back = take(pair[0]);
    ended("child", pid);
    NAMES("taken back", back);
    DO(send(back, "back", 4, MSG_NOSIGNAL));
    serve(other, "other");
    close(back); close(client); close(other); close(pair[0]); close(pair[1]);
}

/* A child that ends says so by a signal that nobody has asked for. */
static void unnoticed(void) {
    TITLE("a child's end, unnoticed");
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit(3);
    limited(pair[0]);
    fflush(stdout);
    pid_t idle = fork();
    if (idle == 0) { usleep(50000); _exit(0); }
    pid_t talks = fork();
    if (talks == 0) { usleep(200000); _exit(send(pair[1], "late", 4, 0) != 4); }
    line("heard %s", heard(pair[0]));
    ended("idle", idle);
    ended("talks", talks);
    close(pair[0]); close(pair[1]);
}

static void quick(void) {
    TITLE("data with the first packet");
    addr a;
    int s = tcp(), value = 5;
    REUSE(s);
    DO(setsockopt(s, IPPROTO_TCP, TCP_FASTOPEN, &value, sizeof value));
    DO(bind_to(s, ONE, 80));
    DO(listen(s, 5));
    for (int turn = 0; turn < 2; turn++) {
        int fd = tcp();
        socklen_t length = put(&a, ONE, 80);
        DO(sendto(fd, "early", 5, MSG_FASTOPEN | MSG_NOSIGNAL, &a.any, length));
        NAMES("client", fd);
        serve(s, "server");
        close(fd);
    }
    int fd = tcp();
    DO(set(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1));
    DO(connect_to(fd, ONE, 80));
    DO(send(fd, "late", 4, MSG_NOSIGNAL));
    PEER(fd);
    serve(s, "server");
    close(fd);
    fd = tcp();
    struct iovec part = {"message", 7};
    struct msghdr m = {&a, put(&a, ONE, 80), &part, 1, 0, 0, 0};
    DO(sendmsg(fd, &m, MSG_FASTOPEN | MSG_NOSIGNAL));
    serve(s, "server");
    close(fd); close(s);
    fd = tcp();
    DO(sendto(fd, "early", 5, MSG_FASTOPEN | MSG_NOSIGNAL, &a.any, put(&a, ONE, 5999)));
    PEER(fd);
    close(fd);
}

static int bound(const char *host, int port, int reuse) {
    int fd = tcp();
    if (reuse) REUSE(fd);
    if (bind_to(fd, host, port) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* What a port's connections forbid after its listener. */
static void after(const char *what, int port, int reuse) {
    static const char *hosts[] = {ONE, LO, ANY};
    for (int h = 0; h < 3; h++) {
        int fd = bound(hosts[h], port, reuse);
        line("%s, then %s: %s", what, hosts[h], success(fd));
        line("%s, %s listens: %s", what, hosts[h], fd < 0 ? "-" : success(listen(fd, 1)));
        close(fd);
    }
}

/* A listener ends before its connection, which stays, or is left by one end first. */
static void again(int port, int reuse, int server_first, int stays) {
    const char *end_of = stays ? "open" : server_first ? "left by the server" : "left by the client";
    char what[80];
    snprintf(what, sizeof what, "reuse %d, %s", reuse, end_of);
    int s = bound(ONE, port, reuse);
    if (s < 0 || listen(s, 1) < 0) line("%s: no listener", what);
    int fd = caller(ONE, port), end = taken(s);
    close(s);
    NAMES("server without a listener", end);
    NAMES("client without a listener", fd);
    line("%s: called %s", what, success(caller(ONE, port)));
    if (!stays) {
        int first = server_first ? end : fd, second = server_first ? fd : end;
        shutdown(first, SHUT_WR);
        heard(second);
        close(second);
        heard(first);
        close(first);
    }
    after(what, port, reuse);
    if (!stays) return;
    struct linger at_once = {1, 0};
    setsockopt(end, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(end);
    line("%s: %s", what, heard(fd));
    close(fd);
    after("after a reset", port, 0);
}

static void restarts(void) {
    TITLE("restarts");
    again(5440, 0, 0, 1);
    again(5441, 1, 0, 1);
    again(5442, 0, 0, 0);
    again(5443, 1, 0, 0);
    again(5444, 1, 1, 0);
    again(5445, 0, 1, 0);
    /* The connection that still waits had not set the option. */
    after("with the option", 5445, 1);
    /* The one that still waits had, but the new socket has not. */
    after("without the option", 5444, 0);
}

static void copies(void) {
    TITLE("copies of a descriptor");
    int s = listener(ONE, 5433), copy = dup(s), client;
    close(s);
    client = caller(ONE, 5433);
    send(client, "copy", 4, MSG_NOSIGNAL);
    serve(copy, "copy");
    close(client);
    close(copy);
    DO(caller(ONE, 5433));
    s = listener(LO, 5433);
    DO(caller(ONE, 5433));
    close(s);
    s = listener(ANY, 5433);
    int high = fcntl(s, F_DUPFD, 200), placed = dup2(high, 100);
    close(s); close(high);
    meet_at("placed", placed, 0, 0, ONE, 5433);
    close(placed);
}

/* A server in a child: it tells by a pipe that it listens. */
static pid_t server(int port) {
    int told[2];
    char byte = 0;
    if (pipe(told)) exit(3);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        int s = listener(ANY, port);
        if (write(told[1], "x", 1) != 1) _exit(1);
        for (;;) {
            int end = taken(s);
            if (end >= 0) send(end, "hello", 5, MSG_NOSIGNAL);
            close(end);
        }
    }
    close(told[1]);
    line("listens: %s", read(told[0], &byte, 1) == 1 ? "yes" : "no");
    close(told[0]);
    return pid;
}

static void killed(void) {
    TITLE("killed");
    for (int turn = 0; turn < 3; turn++) {
        pid_t pid = server(80);
        int fd = caller(ONE, 80);
        line("calls: %s", heard(fd));
        close(fd);
        DO(listener(ONE, 80) < 0);
        kill(pid, SIGKILL);
        ended("server", pid);
        DO(caller(ONE, 80));
        DO(caller(LO, 80));
    }
    /* Another process, and another address of the same port. */
    pid_t pid = server(5434);
    kill(pid, SIGKILL);
    ended("server", pid);
    int s = listener(LO, 5434);
    DO(caller(ONE, 5434));
    meet_at("another", s, 0, 0, LO, 5434);
    close(s);
}

static void *busy(void *number) {
    int base = 7000 + (int)(long)number * 50;
    long good = 0;
    for (int turn = 0; turn < 40; turn++) {
        int port = base + turn, s = tcp();
        REUSE(s);
        if (bind_to(s, turn % 2 ? ONE : ANY, port) == 0 && listen(s, 4) == 0) {
            int fd = caller(ONE, port), end = taken(s);
            if (fd >= 0 && end >= 0 && send(fd, "x", 1, MSG_NOSIGNAL) == 1) {
                char byte;
                good += recv(end, &byte, 1, 0) == 1 && port_of(end) == port;
            }
            close(fd); close(end);
        }
        close(s);
    }
    return (void *)good;
}

static void crowds(void) {
    TITLE("many at once");
    pthread_t threads[4];
    long all = 0;
    void *good;
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, busy, (void *)i);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &good);
        all += (long)good;
    }
    line("threads: %ld", all);
    pid_t pids[4];
    fflush(stdout);
    for (long i = 0; i < 4; i++)
        if ((pids[i] = fork()) == 0) _exit((long)busy((void *)(i + 10)));
    for (int i = 0; i < 4; i++) ended("process", pids[i]);
}

int main(int argc, char **argv) {
    begin();
    self = argv[0];
    if (argc > 2 && !strcmp(argv[1], "serve")) {
        serve(atoi(argv[2]), "program");
        return 0;
    }
    groups();
    inherited();
    passed();
    unnoticed();
    quick();
    copies();
    killed();
    crowds();
    restarts();
    return 0;
}
