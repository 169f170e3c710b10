/* bind, listen and getsockname of IPv4 sockets: what may be bound, and beside what. */
#include "net.h"

static void fresh(void) {
    TITLE("fresh");
    int s = tcp(), d = udp();
    SELF(s); PEER(s); SELF(d); PEER(d);
    close(s); close(d);
}

static void one(int type, const char *host, int port) {
    int fd = limited(socket(AF_INET, type, 0));
    const char *kind = type == SOCK_STREAM ? "tcp" : "udp";
    errno = 0;
    int r = bind_to(fd, host, port);
    line("%s %s %d: %s", kind, host, port, result(r));
    if (r == 0) {
        line("%s %s %d: self %s", kind, host, port, own_name(fd));
        line("%s %s %d: peer %s", kind, host, port, peer_name(fd));
        r = bind_to(fd, host, port);
        line("%s %s %d: again %s", kind, host, port, result(r));
        if (type == SOCK_STREAM) {
            line("%s %s %d: listen %s", kind, host, port, result(listen(fd, 1)));
            line("%s %s %d: self %s", kind, host, port, own_name(fd));
        }
    }
    close(fd);
}

static void each(void) {
    static const char *hosts[] = {ANY, ONE, LO, "127.0.0.5", "127.255.255.254"};
    static const int ports[] = {0, 1, 22, 80, 443, 1023, 1024, 5432, 8080};
    TITLE("each");
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++)
        for (int h = 0; h < 5; h++)
            for (int p = 0; p < 9; p++)
                if (h == 0 || p % 3 == 0 || ports[p] == 5432) one(type, hosts[h], ports[p]);
}

static void foreign(void) {
    TITLE("foreign");
    one(SOCK_STREAM, TWO, 80);
    one(SOCK_STREAM, TWO, 0);
    one(SOCK_STREAM, ABSENT, 5432);
    one(SOCK_STREAM, "192.0.2.1", 5432);
    one(SOCK_STREAM, "8.8.8.8", 0);
    one(SOCK_DGRAM, TWO, 53);
    one(SOCK_DGRAM, "192.0.2.1", 0);
    int fd = tcp();
    DO(bind_to(fd, TWO, 5432));
    SELF(fd);
    DO(bind_to(fd, ONE, 5432));
    SELF(fd);
    close(fd);
}

static void wrong(void) {
    TITLE("wrong");
    addr a;
    int fd = tcp(), file = open("/", O_RDONLY), local = socket(AF_UNIX, SOCK_STREAM, 0);
    put(&a, ONE, 5000);
    DO(bind(fd, &a.any, 0));
    DO(bind(fd, &a.any, 1));
    DO(bind(fd, &a.any, 2));
    DO(bind(fd, &a.any, 8));
    DO(bind(fd, &a.any, 15));
    DO(bind(fd, &a.any, -1));
    DO(bind(fd, &a.any, 129));
    DO(bind(fd, (void *)8, sizeof a.v4));
    DO(bind(fd, 0, sizeof a.v4));
    DO(bind(-1, &a.any, sizeof a.v4));
    DO(bind(file, &a.any, sizeof a.v4));
    DO(bind(local, &a.any, sizeof a.v4));
    a.any.sa_family = AF_UNIX;
    DO(bind(fd, &a.any, sizeof a.v4));
    a.any.sa_family = AF_INET6;
    DO(bind(fd, &a.any, sizeof a.v4));
    DO(bind(fd, &a.any, sizeof a.v6));
    a.any.sa_family = AF_UNSPEC;
    DO(bind(fd, &a.any, sizeof a.v4));
    SELF(fd);
    put(&a, ANY, 5000);
    a.any.sa_family = AF_UNSPEC;
    DO(bind(fd, &a.any, sizeof a.v4));
    SELF(fd);
    close(fd);
    fd = tcp();
    put(&a, ONE, 5000);
    DO(bind(fd, &a.any, sizeof a));
    SELF(fd);
    socklen_t length = 4;
    memset(&a, 0x55, sizeof a);
    DO(getsockname(fd, &a.any, &length));
    line("length %u, then untouched: %s", length, a.v4.sin_addr.s_addr == 0x55555555 ? "yes" : "no");
    length = 0;
    DO(getsockname(fd, &a.any, &length));
    line("length %u", length);
    length = -1;
    DO(getsockname(fd, &a.any, &length));
    length = 128;
    DO(getsockname(fd, &a.any, &length));
    line("%s", name(&a, length));
    DO(getsockname(fd, &a.any, 0));
    length = 16;
    DO(getsockname(fd, 0, &length));
    DO(getsockname(fd, (void *)8, &length));
    DO(getsockname(-1, &a.any, &length));
    DO(getsockname(file, &a.any, &length));
    length = 16;
    DO(getpeername(fd, &a.any, &length));
    DO(getpeername(-1, &a.any, &length));
    close(fd); close(file); close(local);
}

/* One socket holds a port; may another one have it, too? */
static void beside(int type, int listening, int option, int first, int second) {
    static const char *hosts[] = {ANY, ONE, LO, "127.0.0.5"};
    const char *kind = type == SOCK_STREAM ? listening ? "listening" : "tcp" : "udp";
    for (int h = 0; h < 4; h++)
        for (int o = 0; o < 4; o++) {
            int holder = limited(socket(AF_INET, type, 0)), other = limited(socket(AF_INET, type, 0));
            set(holder, SOL_SOCKET, option, first);
            set(other, SOL_SOCKET, option, second);
            int held = bind_to(holder, hosts[h], 5432);
            if (held == 0 && listening) held = listen(holder, 1);
            if (held < 0) line("no holder: %s", strerrorname_np(errno));
            int r = bind_to(other, hosts[o], 5432);
            const char *bound = result(r);
            const char *heard = r == 0 && type == SOCK_STREAM ? success(listen(other, 1)) : "-";
            line("%s %s %d, then %s %d: bind %s, listen %s", kind, hosts[h], first, hosts[o], second, bound, heard);
            close(holder);
            close(other);
        }
}

static void matrix(const char *title, int option) {
    TITLE(title);
    for (int both = 0; both < 4; both++) {
        beside(SOCK_STREAM, 0, option, both & 1, both >> 1);
        beside(SOCK_STREAM, 1, option, both & 1, both >> 1);
        beside(SOCK_DGRAM, 0, option, both & 1, both >> 1);
    }
}

static void closing(void) {
    TITLE("closing");
    for (int turn = 0; turn < 3; turn++) {
        int fd = tcp();
        line("turn %d: bind %s", turn, success(bind_to(fd, ONE, 5432)));
        line("turn %d: listen %s", turn, success(listen(fd, 1)));
        close(fd);
    }
    int fd = tcp(), copy = dup(fd), other = tcp();
    DO(bind_to(fd, ONE, 5432));
    close(fd);
    DO(bind_to(other, ONE, 5432));
    close(copy);
    DO(bind_to(other, ONE, 5432));
    close(other);
    /* The two protocols have ports of their own. */
    int stream = tcp(), data = udp();
    DO(bind_to(stream, ONE, 53)); DO(bind_to(data, ONE, 53));
    SELF(stream); SELF(data);
    close(stream); close(data);
}

static void chosen(void) {
    TITLE("chosen");
    static const char *hosts[] = {ANY, ONE, LO};
    for (int h = 0; h < 3; h++) {
        int fd = tcp(), other = tcp(), third = tcp();
        line("%s: %s", hosts[h], result(bind_to(fd, hosts[h], 0)));
        int port = port_of(fd);
        line("it has a port: %s", port > 1023 ? "yes" : "no");
        line("the same again: %s", result(bind_to(other, hosts[h], port)));
        line("another: %s", result(bind_to(third, hosts[h], 0)));
        line("differs: %s", port_of(third) != port ? "yes" : "no");
        close(fd); close(other); close(third);
    }
    int fd = tcp();
    DO(listen(fd, 1));
    SELF(fd);
    int port = port_of(fd);
    DO(bind_to(fd, ANY, 5432));
    meet_at("by own address", fd, 0, 0, ONE, port);
    meet_at("by loopback", fd, 0, 0, LO, port);
    close(fd);
    fd = tcp();
    DO(bind_to(fd, ONE, 5432));
    DO(listen(fd, 1));
    DO(listen(fd, 5));
    DO(bind_to(fd, ONE, 5433));
    SELF(fd);
    close(fd);
    int a = tcp(), b = tcp();
    REUSE(a); REUSE(b);
    DO(bind_to(a, ONE, 5432)); DO(bind_to(b, ONE, 5432));
    DO(listen(a, 1)); DO(listen(b, 1));
    close(a);
    DO(listen(b, 1));
    meet_at("the second", b, 0, 0, ONE, 5432);
    close(b);
    int d = udp();
    DO(listen(d, 1));
    close(d);
}

static void late(void) {
    TITLE("late");
    int server = listener(ANY, 5432), client = caller(ONE, 5432);
    SELF(client);
    DO(bind_to(client, ONE, 6000));
    DO(bind_to(client, ANY, 0));
    SELF(client);
    close(client); close(server);
    int d = udp();
    DO(connect_to(d, ONE, 5432));
    DO(bind_to(d, ONE, 6000));
    close(d);
    d = udp();
    DO(send_to(d, "x", ONE, 5432));
    SELF(d);
    DO(bind_to(d, ANY, 6000));
    close(d);
}

int main(void) {
    begin();
    fresh();
    each();
    foreign();
    wrong();
    matrix("reuse", SO_REUSEADDR);
    matrix("shared", SO_REUSEPORT);
    closing();
    chosen();
    late();
    return 0;
}
