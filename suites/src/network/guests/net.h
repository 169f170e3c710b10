/* What the programs share: sockets with a time limit, addresses as text, one line for each fact.
 *
 * A line says what was done and its result: a number, the error's name, an address. A port that
 * the kernel chose is "ephemeral". Nothing else that differs between two runs may be printed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* The two members of the network, and an address of it that nobody has. */
#define ONE "100.80.0.2"
#define TWO "100.80.0.3"
#define ABSENT "100.80.0.77"
#define ANY "0.0.0.0"
#define LO "127.0.0.1"

/* No call waits longer, so that a fault is a line and not a hang. */
#define PATIENCE 2

typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage space;
} addr;

/* Two addresses are printed in one line, so there is more than one buffer. */
static char *text_buffer(void) {
    static char buffers[8][160];
    static int next;
    return buffers[next++ % 8];
}

static __attribute__((format(printf, 1, 2))) char *text(const char *form, ...) {
    char *to = text_buffer();
    va_list list;
    va_start(list, form);
    vsnprintf(to, 160, form, list);
    va_end(list);
    return to;
}

static __attribute__((format(printf, 1, 2))) void line(const char *form, ...) {
    va_list list;
    va_start(list, form);
    vprintf(form, list);
    va_end(list);
    putchar('\n');
    fflush(stdout);
}

#define TITLE(name) line("-- %s", name)

/* A result, or the error's name. */
static const char *result(long value) {
    return value < 0 ? strerrorname_np(errno) : text("%ld", value);
}

/* Success, or the error's name: for numbers without meaning. */
static const char *success(long value) { return value < 0 ? strerrorname_np(errno) : "ok"; }

/* A call and its result; its source text is its name. */
#define DO(expr) do { errno = 0; long r_ = (long)(expr); line("%s: %s", #expr, result(r_)); } while (0)
#define OK(expr) do { errno = 0; long r_ = (long)(expr); line("%s: %s", #expr, success(r_)); } while (0)

static const char *port_text(int port) { return port >= 20000 ? "ephemeral" : text("%d", port); }

/* An address with the length that the kernel told. */
static const char *name(const addr *a, socklen_t length) {
    char host[64] = "?";
    if (length == 0) return "nothing (length 0)";
    if (a->any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof host);
        return text("%s:%s (length %u)", host, port_text(ntohs(a->v4.sin_port)), length);
    }
    if (a->any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof host);
        return text("[%s]:%s (length %u)", host, port_text(ntohs(a->v6.sin6_port)), length);
    }
    return text("family %d (length %u)", a->any.sa_family, length);
}

/* Fills in an address; gives its length. A colon means version 6. */
static socklen_t put(addr *to, const char *host, int port) {
    memset(to, 0, sizeof *to);
    if (strchr(host, ':')) {
        to->v6.sin6_family = AF_INET6;
        to->v6.sin6_port = htons(port);
        inet_pton(AF_INET6, host, &to->v6.sin6_addr);
        return sizeof to->v6;
    }
    to->v4.sin_family = AF_INET;
    to->v4.sin_port = htons(port);
    inet_pton(AF_INET, host, &to->v4.sin_addr);
    return sizeof to->v4;
}

static int limited(int fd) {
    struct timeval limit = {PATIENCE, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return fd;
}
static int tcp(void) { return limited(socket(AF_INET, SOCK_STREAM, 0)); }
static int tcp6(void) { return limited(socket(AF_INET6, SOCK_STREAM, 0)); }
static int udp(void) { return limited(socket(AF_INET, SOCK_DGRAM, 0)); }
static int udp6(void) { return limited(socket(AF_INET6, SOCK_DGRAM, 0)); }

static int set(int fd, int level, int option, int value) {
    return setsockopt(fd, level, option, &value, sizeof value);
}
static int get(int fd, int level, int option) {
    int value = 0;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, option, &value, &length) < 0 ? -1 : value;
}
#define REUSE(fd) set(fd, SOL_SOCKET, SO_REUSEADDR, 1)
#define ONLY6(fd) set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1)

static int bind_to(int fd, const char *host, int port) {
    addr a;
    socklen_t length = put(&a, host, port);
    return bind(fd, &a.any, length);
}
static int connect_to(int fd, const char *host, int port) {
    addr a;
    socklen_t length = put(&a, host, port);
    return connect(fd, &a.any, length);
}
static int disconnect(int fd) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    return connect(fd, &none, sizeof none);
}
static int send_to(int fd, const char *what, const char *host, int port) {
    addr a;
    socklen_t length = put(&a, host, port);
    return sendto(fd, what, strlen(what), MSG_NOSIGNAL, &a.any, length);
}

/* The real number of the port that a socket has. */
static int port_of(int fd) {
    addr a;
    socklen_t length = sizeof a;
    if (getsockname(fd, &a.any, &length) < 0) return -1;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

static const char *own_name(int fd) {
    addr a;
    socklen_t length = sizeof a;
    return getsockname(fd, &a.any, &length) < 0 ? strerrorname_np(errno) : name(&a, length);
}
static const char *peer_name(int fd) {
    addr a;
    socklen_t length = sizeof a;
    return getpeername(fd, &a.any, &length) < 0 ? strerrorname_np(errno) : name(&a, length);
}
#define SELF(fd) line("getsockname %s: %s", #fd, own_name(fd))
#define PEER(fd) line("getpeername %s: %s", #fd, peer_name(fd))
/* Both names of one socket. */
#define NAMES(what, fd) line("%s: self %s, peer %s", what, own_name(fd), peer_name(fd))

/* A listening socket; a line if it cannot be had. */
static int listener(const char *host, int port) {
    int fd = strchr(host, ':') ? tcp6() : tcp();
    REUSE(fd);
    if (bind_to(fd, host, port) < 0) line("no listener %s %d: %s", host, port, strerrorname_np(errno));
    else if (listen(fd, 64) < 0) line("not listening %s %d: %s", host, port, strerrorname_np(errno));
    return fd;
}
/* A bound datagram socket. */
static int receiver(const char *host, int port) {
    int fd = strchr(host, ':') ? udp6() : udp();
    if (bind_to(fd, host, port) < 0) line("no receiver %s %d: %s", host, port, strerrorname_np(errno));
    return fd;
}
/* A connected socket, or the error. */
static int caller(const char *host, int port) {
    int fd = strchr(host, ':') ? tcp6() : tcp();
    if (connect_to(fd, host, port) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}
static int taken(int fd) {
    int got = accept(fd, 0, 0);
    return got < 0 ? got : limited(got);
}

/* What arrives, as text, or the error. */
static const char *heard(int fd) {
    char bytes[64];
    ssize_t count = recv(fd, bytes, sizeof bytes - 1, 0);
    if (count < 0) return strerrorname_np(errno);
    if (count == 0) return "end";
    return text("\"%.*s\"", (int)count, bytes);
}
/* The same with the sender. */
static const char *heard_from(int fd) {
    char bytes[64];
    addr a;
    socklen_t length = sizeof a;
    memset(&a, 0, sizeof a);
    ssize_t count = recvfrom(fd, bytes, sizeof bytes - 1, 0, &a.any, &length);
    if (count < 0) return strerrorname_np(errno);
    return text("\"%.*s\" from %s", (int)count, bytes, name(&a, length));
}

/* Connects to a listener and prints every name of both ends. `from` may be null. */
static void meet_at(const char *what, int server, const char *from, int from_port, const char *host, int port) {
    addr a;
    socklen_t length = sizeof a;
    int client = strchr(host, ':') ? tcp6() : tcp();
    if (from && bind_to(client, from, from_port) < 0) {
        line("%s: bind %s", what, strerrorname_np(errno));
        close(client);
        return;
    }
    if (connect_to(client, host, port) < 0) {
        line("%s: connect %s", what, strerrorname_np(errno));
        close(client);
        return;
    }
    line("%s: client self %s", what, own_name(client));
    line("%s: client peer %s", what, peer_name(client));
    int end = accept(server, &a.any, &length);
    if (end < 0) {
        line("%s: accept %s", what, strerrorname_np(errno));
        close(client);
        return;
    }
    limited(end);
    line("%s: accept told %s", what, name(&a, length));
    line("%s: server self %s", what, own_name(end));
    line("%s: server peer %s", what, peer_name(end));
    send(client, "ping", 4, MSG_NOSIGNAL);
    line("%s: server heard %s", what, heard(end));
    send(end, "pong", 4, MSG_NOSIGNAL);
    line("%s: client heard %s", what, heard(client));
    close(client);
    line("%s: server heard %s", what, heard(end));
    close(end);
}

/* Waits until something can be read or an error is there. */
static int ready(int fd, int events) {
    struct pollfd p = {fd, events, 0};
    return poll(&p, 1, PATIENCE * 1000) <= 0 ? 0 : p.revents;
}

static void ended(const char *what, pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (WIFEXITED(status)) line("%s: exit %d", what, WEXITSTATUS(status));
    else line("%s: signal %d", what, WTERMSIG(status));
}

/* A body in a child, which is waited for. */
#define CHILD(what, ...) do { \
    fflush(stdout); \
    pid_t pid_ = fork(); \
    if (pid_ == 0) { __VA_ARGS__; fflush(stdout); _exit(0); } \
    ended(what, pid_); } while (0)

/* Meetings of two programs: each makes a file `NAME.ROLE` in the directory that both have, and
 * waits for the other's. The network is not used for it, since it is what is tested. */
static const char *role = "one";
static void note(const char *what) {
    const char *place = getenv("MEETINGS");
    close(open(text("%s/%s.%s", place ? place : ".", what, role), O_WRONLY | O_CREAT, 0666));
}
static void await(const char *what, const char *whose) {
    const char *place = getenv("MEETINGS");
    char *path = text("%s/%s.%s", place ? place : ".", what, whose);
    for (int tries = 0; access(path, F_OK); tries++) {
        if (tries > 8000) {
            line("%s never came to %s", whose, what);
            exit(4);
        }
        usleep(2000);
    }
}
static void meet(const char *what) {
    note(what);
    await(what, strcmp(role, "one") ? "one" : "two");
}

/* No program outlives its case. */
static void begin(void) {
    alarm(40);
    signal(SIGPIPE, SIG_IGN);
}
