/* connect, accept and the names of connected IPv4 sockets. */
#include "net.h"

static void ways(void) {
    TITLE("ways to a wildcard listener");
    int s = listener(ANY, 5432);
    SELF(s);
    meet_at("own address", s, 0, 0, ONE, 5432);
    meet_at("loopback", s, 0, 0, LO, 5432);
    meet_at("wildcard", s, 0, 0, ANY, 5432);
    meet_at("127.0.0.5", s, 0, 0, "127.0.0.5", 5432);
    meet_at("127.255.255.254", s, 0, 0, "127.255.255.254", 5432);
    meet_at("own from own", s, ONE, 0, ONE, 5432);
    meet_at("own from fixed", s, ONE, 6001, ONE, 5432);
    meet_at("own from low", s, ONE, 600, ONE, 5432);
    meet_at("own from wildcard", s, ANY, 6002, ONE, 5432);
    meet_at("own from loopback", s, LO, 0, ONE, 5432);
    meet_at("own from fixed loopback", s, LO, 6003, ONE, 5432);
    meet_at("own from 127.0.0.5", s, "127.0.0.5", 6004, ONE, 5432);
    meet_at("loopback from own", s, ONE, 6005, LO, 5432);
    meet_at("loopback from 127.0.0.5", s, "127.0.0.5", 0, LO, 5432);
    meet_at("loopback from wildcard", s, ANY, 6006, LO, 5432);
    close(s);
    TITLE("ways to a listener on port 80");
    s = listener(ONE, 80);
    SELF(s);
    meet_at("own", s, 0, 0, ONE, 80);
    meet_at("own from loopback", s, LO, 6007, ONE, 80);
    DO(caller(LO, 80));
    DO(caller(ANY, 80));
    DO(caller("127.0.0.5", 80));
    close(s);
    TITLE("ways to a listener on loopback");
    s = listener(LO, 443);
    meet_at("loopback", s, 0, 0, LO, 443);
    meet_at("loopback from own", s, ONE, 0, LO, 443);
    meet_at("wildcard", s, 0, 0, ANY, 443);
    DO(caller(ONE, 443));
    DO(caller("127.0.0.5", 443));
    close(s);
    s = listener("127.0.0.5", 443);
    meet_at("127.0.0.5", s, 0, 0, "127.0.0.5", 443);
    DO(caller(LO, 443));
    DO(caller(ONE, 443));
    close(s);
}

static void at_once(void) {
    TITLE("one port on two addresses");
    int lo = listener(LO, 5432), own = listener(ONE, 5432), five = listener("127.0.0.5", 5432);
    SELF(lo); SELF(own); SELF(five);
    meet_at("loopback", lo, 0, 0, LO, 5432);
    meet_at("own", own, 0, 0, ONE, 5432);
    meet_at("five", five, 0, 0, "127.0.0.5", 5432);
    meet_at("wildcard", lo, 0, 0, ANY, 5432);
    close(lo);
    DO(caller(LO, 5432));
    meet_at("own still", own, 0, 0, ONE, 5432);
    close(own);
    DO(caller(ONE, 5432));
    lo = listener(LO, 5432);
    meet_at("loopback again", lo, 0, 0, LO, 5432);
    DO(caller(ONE, 5432));
    close(lo); close(five);
}

static void one_accept(const char *what, int server, struct sockaddr *a, socklen_t *length) {
    int client = caller(ONE, 5432);
    int fd = accept(server, a, length);
    line("%s: %s%s", what, fd < 0 ? strerrorname_np(errno) : "accepted", length && fd >= 0 ? text(", length %u", *length) : "");
    if (fd >= 0) close(fd);
    close(client);
}

static void buffers(void) {
    TITLE("buffers of accept");
    int s = listener(ONE, 5432), d = udp(), file = open("/", O_RDONLY);
    addr a;
    socklen_t length = sizeof a;
    one_accept("all", s, &a.any, &length);
    line("%s", name(&a, length));
    length = sizeof a.v4;
    one_accept("enough", s, &a.any, &length);
    line("%s", name(&a, length));
    static const int shorter[] = {15, 8, 4, 2, 1, 0};
    for (int i = 0; i < 6; i++) {
        memset(&a, 0x55, sizeof a);
        length = shorter[i];
        one_accept(text("%d bytes", shorter[i]), s, &a.any, &length);
        line("family %#x, port %s, host %#x, the rest is untouched: %s", a.v4.sin_family, shorter[i] < 4 ? "-" : "some",
             ntohl(a.v4.sin_addr.s_addr), ((char *)&a)[15] == 0x55 || shorter[i] == 15 ? "yes" : "no");
    }
    one_accept("none", s, 0, 0);
    length = 16;
    one_accept("no address, but a length", s, 0, &length);
    length = sizeof a;
    one_accept("bad address", s, (void *)8, &length);
    one_accept("no length", s, &a.any, 0);
    length = -1;
    one_accept("negative length", s, &a.any, &length);
    int client = caller(ONE, 5432);
    length = sizeof a;
    int end = accept4(s, &a.any, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    line("accept4: %s, flags %s %s", name(&a, length), fcntl(end, F_GETFD) & FD_CLOEXEC ? "cloexec" : "-",
         fcntl(end, F_GETFL) & O_NONBLOCK ? "nonblock" : "-");
    close(end); close(client);
    client = caller(ONE, 5432);
    DO(accept4(s, &a.any, &length, 0x40000));
    close(client);
    DO(accept(-1, 0, 0));
    DO(accept(file, 0, 0));
    DO(accept(d, 0, 0));
    int unready = tcp();
    DO(accept(unready, 0, 0));
    close(unready); close(d); close(file); close(s);
}

static void errors(void) {
    TITLE("errors of connect");
    addr a;
    int fd = tcp(), file = open("/", O_RDONLY);
    static const char *hosts[] = {ONE, LO, "127.0.0.9", ANY};
    for (int h = 0; h < 4; h++) {
        line("%s: %s", hosts[h], result(caller(hosts[h], 5999)));
        line("%s port 0: %s", hosts[h], result(caller(hosts[h], 0)));
    }
    line("nobody's address: %s", result(caller(ABSENT, 80)));
    DO(connect_to(fd, ONE, 5999));
    SELF(fd); PEER(fd);
    put(&a, ONE, 5999);
    DO(connect(fd, &a.any, 0));
    DO(connect(fd, &a.any, 1));
    DO(connect(fd, &a.any, 8));
    DO(connect(fd, &a.any, 15));
    DO(connect(fd, &a.any, -1));
    DO(connect(fd, &a.any, 129));
    DO(connect(fd, (void *)8, 16));
    DO(connect(-1, &a.any, 16));
    DO(connect(file, &a.any, 16));
    a.any.sa_family = AF_UNIX;
    DO(connect(fd, &a.any, 16));
    a.any.sa_family = AF_INET6;
    DO(connect(fd, &a.any, 28));
    DO(disconnect(fd));
    int s = listener(ONE, 5432);
    DO(connect_to(fd, ONE, 5432));
    DO(connect_to(fd, ONE, 5432));
    DO(connect_to(fd, ONE, 5999));
    DO(connect_to(fd, LO, 5432));
    PEER(fd);
    DO(connect_to(s, ONE, 5432));
    DO(disconnect(fd));
    SELF(fd); PEER(fd);
    DO(connect_to(fd, ONE, 5432));
    PEER(fd);
    close(fd); close(file); close(s);
}

static void leaving(void) {
    TITLE("leaving a connection");
    int s = listener(ANY, 5432), fd = tcp();
    DO(bind_to(fd, ONE, 6100));
    DO(connect_to(fd, ONE, 5432));
    SELF(fd);
    int end = taken(s);
    DO(disconnect(fd));
    SELF(fd); PEER(fd);
    line("the server hears: %s", heard(end));
    PEER(end);
    close(end); close(fd);
    fd = tcp();
    DO(bind_to(fd, ANY, 6101));
    DO(connect_to(fd, LO, 5432));
    SELF(fd);
    DO(disconnect(fd));
    SELF(fd);
    DO(connect_to(fd, ONE, 5432));
    SELF(fd);
    close(fd); close(s);
}

static void waiting(void) {
    TITLE("without waiting");
    int s = listener(ONE, 5432), fd = tcp();
    fcntl(fd, F_SETFL, O_NONBLOCK);
    DO(connect_to(fd, ONE, 5432));
    line("ready: %#x", ready(fd, POLLOUT));
    DO(get(fd, SOL_SOCKET, SO_ERROR));
    SELF(fd); PEER(fd);
    DO(connect_to(fd, ONE, 5432));
    DO(connect_to(fd, ONE, 5432));
    int end = taken(s);
    PEER(end);
    close(end); close(fd);
    static const char *hosts[] = {ONE, LO};
    for (int h = 0; h < 2; h++) {
        fd = tcp();
        fcntl(fd, F_SETFL, O_NONBLOCK);
        errno = 0;
        int r = connect_to(fd, hosts[h], 5999);
        /* A kernel may know the answer at once. */
        line("%s: %s", hosts[h], r < 0 && (errno == EINPROGRESS || errno == ECONNREFUSED) ? "tried" : result(r));
        if (errno == EINPROGRESS) {
            ready(fd, POLLOUT);
            line("%s: %s", hosts[h], strerrorname_np(get(fd, SOL_SOCKET, SO_ERROR)));
        } else {
            line("%s: ECONNREFUSED", hosts[h]);
        }
        PEER(fd);
        close(fd);
    }
    fcntl(s, F_SETFL, O_NONBLOCK);
    DO(accept(s, 0, 0));
    close(s);
}

static void halves(void) {
    TITLE("shutdown");
    int s = listener(ONE, 5432), fd = caller(ONE, 5432), end = taken(s);
    DO(shutdown(fd, SHUT_WR));
    line("%s", heard(end));
    DO(send(end, "still", 5, MSG_NOSIGNAL));
    line("%s", heard(fd));
    DO(send(fd, "x", 1, MSG_NOSIGNAL));
    NAMES("client", fd);
    NAMES("server", end);
    DO(shutdown(end, SHUT_RDWR));
    line("%s", heard(fd));
    PEER(end); PEER(fd);
    SELF(end); SELF(fd);
    close(end); close(fd);
    DO(shutdown(s, SHUT_RDWR));
    DO(accept(s, 0, 0));
    DO(caller(ONE, 5432));
    SELF(s);
    DO(listen(s, 1));
    meet_at("listening again", s, 0, 0, ONE, 5432);
    close(s);
    fd = tcp();
    DO(shutdown(fd, SHUT_RDWR));
    close(fd);
}

static void rare(void) {
    TITLE("rare");
    int s = listener(ONE, 5432), fd = tcp();
    /* To itself: both ends are one socket. */
    DO(bind_to(fd, LO, 6102));
    DO(connect_to(fd, LO, 6102));
    NAMES("to itself", fd);
    DO(send(fd, "me", 2, MSG_NOSIGNAL));
    line("%s", heard(fd));
    close(fd);
    fd = tcp();
    DO(set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1));
    DO(bind_to(fd, ONE, 0));
    SELF(fd);
    DO(connect_to(fd, ONE, 5432));
    NAMES("late port", fd);
    close(fd);
    /* The four numbers of a connection are unique. */
    int first = tcp(), second = tcp();
    REUSE(first); REUSE(second);
    DO(bind_to(first, ONE, 6103)); DO(bind_to(second, ONE, 6103));
    DO(connect_to(first, ONE, 5432)); DO(connect_to(second, ONE, 5432));
    PEER(second);
    close(first); close(second);
    fd = tcp();
    DO(send_to(fd, "x", ONE, 5432));
    DO(send(fd, "x", 1, MSG_NOSIGNAL));
    DO(connect_to(fd, ONE, 5432));
    DO(send_to(fd, "x", LO, 1));
    DO(send(fd, "y", 1, MSG_NOSIGNAL));
    close(s);
    s = listener(ONE, 5433);
    close(fd);
    fd = caller(ONE, 5433);
    int end = taken(s);
    DO(send_to(fd, "name", LO, 1));
    line("%s", heard_from(end));
    addr a;
    socklen_t length = sizeof a.v4;
    DO(getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &a, &length));
    line("by option: %s", name(&a, length));
    struct iovec part = {"named", 5};
    struct msghdr m = {&a, put(&a, LO, 9), &part, 1, 0, 0, 0};
    DO(sendmsg(fd, &m, MSG_NOSIGNAL));
    char bytes[16];
    part.iov_base = bytes;
    part.iov_len = sizeof bytes;
    m.msg_namelen = sizeof a;
    DO(recvmsg(end, &m, 0));
    line("length of the name %u", m.msg_namelen);
    DO(get(fd, SOL_SOCKET, SO_DOMAIN)); DO(get(fd, SOL_SOCKET, SO_TYPE));
    DO(get(fd, SOL_SOCKET, SO_PROTOCOL)); DO(get(fd, SOL_SOCKET, SO_ACCEPTCONN));
    DO(get(s, SOL_SOCKET, SO_ACCEPTCONN));
    DO(get(fd, SOL_SOCKET, SO_REUSEADDR)); DO(get(end, SOL_SOCKET, SO_REUSEADDR));
    close(fd); close(end); close(s);
}

int main(void) {
    begin();
    ways();
    at_once();
    buffers();
    errors();
    leaving();
    waiting();
    halves();
    rare();
    return 0;
}
