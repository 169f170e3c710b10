/* Single steps for cases that arrange the rest from outside.
 *
 * `tool serve HOST PORT` listens, prints `ready` and tells every caller its name; `tool receive`
 * is the same for datagrams. `tool call HOST,HOST... PORT` prints what it hears or the error,
 * `tool ask HOST PORT` asks by a connected datagram socket. `tool names NAME,NAME... 0` looks names
 * up, `tool again HOST PORT` calls until it hears something, `tool stay HOST PORT` stays connected
 * and says a word for each line that it reads, `tool variables`
 * prints what it was given. `tool closes HOST PORT` serves without SO_REUSEADDR and ends each
 * connection itself, `tool peer HOST PORT` prints whom it has connected to, and `tool resend HOST
 * PORT` asks by a datagram socket that it connects and disconnects, and by one that it never
 * connects. */
#include "net.h"
#include <netdb.h>
#include <time.h>

/* What a name means, or an address. */
static void look_up(const char *what) {
    struct addrinfo want = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    char host[NI_MAXHOST];
    addr a;
    int error;
    memset(&a, 0, sizeof a);
    if (inet_pton(AF_INET, what, &a.v4.sin_addr) == 1) {
        a.v4.sin_family = AF_INET;
        error = getnameinfo(&a.any, sizeof a.v4, host, sizeof host, 0, 0, NI_NAMEREQD);
        line("%s is %s", what, error ? gai_strerror(error) : host);
        return;
    }
    error = getaddrinfo(what, 0, &want, &found);
    if (error) {
        line("%s is %s", what, gai_strerror(error));
        return;
    }
    getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, 0, 0, NI_NUMERICHOST);
    line("%s is %s", what, host);
    freeaddrinfo(found);
}

/* One connection for as long as the input lasts. */
static int stay(const char *host, int port) {
    int fd = tcp();
    char word[64];
    if (connect_to(fd, host, port) < 0) {
        line("%s", strerrorname_np(errno));
        return 1;
    }
    line("%s", heard(fd));
    line("ready");
    while (fgets(word, sizeof word, stdin)) {
        send(fd, word, strlen(word), MSG_NOSIGNAL);
        line("%s", heard(fd));
    }
    return 0;
}

/* Serves by a process for each connection, which sends back what it gets. */
static void echo(const char *host, int port) {
    int s = listener(host, port);
    signal(SIGCHLD, SIG_IGN);
    alarm(100);
    line("ready");
    for (;;) {
        int end = accept(s, 0, 0);
        if (end < 0) continue;
        if (!fork()) {
            char bytes[4096];
            ssize_t count;
            const char *who = peer_name(end);
            alarm(100);
            send(end, who, strlen(who), MSG_NOSIGNAL);
            while ((count = recv(end, bytes, sizeof bytes, 0)) > 0) send(end, bytes, count, MSG_NOSIGNAL);
            line("ended");
            _exit(0);
        }
        close(end);
    }
}

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

static void closes(const char *host, int port) {
    int s = tcp();
    alarm(100);
    if (bind_to(s, host, port) < 0) line("bind %s", strerrorname_np(errno));
    else if (listen(s, 5) < 0) line("listen %s", strerrorname_np(errno));
    else line("ready");
    for (;;) {
        int end = taken(s);
        if (end < 0) continue;
        send(end, "closed", 6, MSG_NOSIGNAL);
        close(end);
    }
}

static void resend(const char *host, int port) {
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    addr to, from;
    socklen_t length = put(&to, host, port);
    for (int connects = 1; connects >= 0; connects--) {
        char bytes[64];
        socklen_t size = sizeof from;
        int fd = udp();
        if (connects) {
            connect_to(fd, host, port);
            line("send %s", success(send(fd, "ask", 3, 0)));
            line("%s", heard(fd));
            line("disconnect %s", success(connect(fd, &nobody, sizeof nobody)));
        }
        sendto(fd, "ask", 3, 0, &to.any, length);
        ssize_t count = recvfrom(fd, bytes, sizeof bytes, 0, &from.any, &size);
        if (count < 0) line("%s", strerrorname_np(errno));
        else line("%.*s from %s", (int)count, bytes, name(&from, size));
        close(fd);
    }
}

/* An abstract name of a Unix socket; `0` for PORT, and NAME@ for one that fills the structure. */
static void abstract(const char *what) {
    struct sockaddr_un a = {.sun_family = AF_UNIX}, seen;
    socklen_t length = 3 + strlen(what), told = sizeof seen;
    int s = limited(socket(AF_UNIX, SOCK_STREAM, 0)), other = limited(socket(AF_UNIX, SOCK_STREAM, 0));
    int whole = what[strlen(what) - 1] == '@';
    memcpy(a.sun_path + 1, what, strlen(what) - whole);
    if (whole) length = sizeof a;
    struct sockaddr *name = (struct sockaddr *)&a;
    line("bind %s", success(bind(s, name, length)));
    line("bind again %s", success(bind(other, name, length)));
    listen(s, 5);
    line("connect %s", success(connect(other, name, length)));
    getpeername(other, (struct sockaddr *)&seen, &told);
    line("peer %d %.*s", told == length, (int)strlen(what), seen.sun_path + 1);
    line("ready");
    alarm(100);
    pause();
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
    if (!strcmp(argv[1], "abstract")) abstract(argv[2]);
    if (!strcmp(argv[1], "closes")) closes(argv[2], port);
    if (!strcmp(argv[1], "resend")) {
        resend(argv[2], port);
        return 0;
    }
    if (!strcmp(argv[1], "peer")) {
        fd = caller(argv[2], port);
        line("%s", fd < 0 ? strerrorname_np(errno) : peer_name(fd));
        return 0;
    }
    if (!strcmp(argv[1], "echo")) echo(argv[2], port);
    if (!strcmp(argv[1], "stay")) return stay(argv[2], port);
    if (!strcmp(argv[1], "self")) {
        char self[NI_MAXHOST];
        gethostname(self, sizeof self);
        look_up(self);
        return 0;
    }
    if (!strcmp(argv[1], "names")) {
        for (char *host = strtok(argv[2], ","); host; host = strtok(0, ",")) look_up(host);
        return 0;
    }
    if (!strcmp(argv[1], "again")) {
        for (time_t end = time(0) + 20; time(0) < end;) {
            fd = caller(argv[2], port);
            if (fd >= 0) {
                line("%s", heard(fd));
                return 0;
            }
            usleep(100000);
        }
        line("%s", strerrorname_np(errno));
        return 1;
    }
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
