/* IPv6 sockets: loopback, the wildcard, addresses of version 4 in version 6, and both versions on
 * one port. */
#include "net.h"

#define MAPPED(host) "::ffff:" host

static void one(int type, const char *host, int port, int only) {
    const char *kind = type == SOCK_STREAM ? "tcp" : "udp";
    int fd = limited(socket(AF_INET6, type, 0));
    if (only) ONLY6(fd);
    int r = bind_to(fd, host, port);
    line("%s%s %s %d: %s", kind, only ? " only" : "", host, port, result(r));
    if (r == 0) {
        SELF(fd);
        line("again %s", result(bind_to(fd, host, port)));
        if (type == SOCK_STREAM) {
            line("listen %s", result(listen(fd, 1)));
            SELF(fd);
        }
        DO(get(fd, IPPROTO_IPV6, IPV6_V6ONLY));
        DO(set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1));
    }
    close(fd);
}

static const char *hosts[] = {"::", "::1", MAPPED(ANY), MAPPED(ONE), MAPPED(LO), MAPPED("127.0.0.5"),
                              MAPPED(TWO), MAPPED(ABSENT), "2001:db8::1", "fe80::1", "::2"};

static void each(void) {
    TITLE("each");
    int fd = tcp6(), d = udp6();
    SELF(fd); PEER(fd); SELF(d);
    DO(get(fd, IPPROTO_IPV6, IPV6_V6ONLY));
    close(fd); close(d);
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++)
        for (int h = 0; h < 11; h++)
            for (int only = 0; only < 2; only++) {
                one(type, hosts[h], 5432, only);
                if (h < 5) one(type, hosts[h], 0, only);
                if (h < 3) one(type, hosts[h], 80, only);
            }
}

static void wrong(void) {
    TITLE("wrong");
    addr a;
    int fd = tcp6();
    put(&a, "::1", 5000);
    DO(bind(fd, &a.any, 16));
    DO(bind(fd, &a.any, 20));
    DO(bind(fd, &a.any, 23));
    DO(bind(fd, &a.any, -1));
    DO(bind(fd, (void *)8, 28));
    DO(connect(fd, &a.any, 16));
    DO(connect(fd, &a.any, 23));
    DO(bind(fd, &a.any, 24));
    SELF(fd);
    socklen_t length = 8;
    DO(getsockname(fd, &a.any, &length));
    line("length %u", length);
    close(fd);
    fd = tcp6();
    put(&a, ONE, 5000);
    DO(bind(fd, &a.any, 16));
    DO(bind(fd, &a.any, sizeof a));
    DO(connect(fd, &a.any, 16));
    DO(connect(fd, &a.any, sizeof a));
    int four = tcp();
    put(&a, "::1", 5000);
    DO(bind(four, &a.any, 28));
    DO(connect(four, &a.any, 28));
    close(four); close(fd);
    fd = tcp6();
    put(&a, "::1", 5000);
    a.v6.sin6_scope_id = 1;
    a.v6.sin6_flowinfo = htonl(5);
    DO(bind(fd, &a.any, 28));
    length = sizeof a;
    DO(getsockname(fd, &a.any, &length));
    line("scope %u, flow %u", a.v6.sin6_scope_id, ntohl(a.v6.sin6_flowinfo));
    close(fd);
    DO(caller("::1", 5999));
    DO(caller("::", 5999));
    DO(caller("::1", 0));
    DO(caller(MAPPED(ONE), 5999));
    DO(caller(MAPPED(LO), 5999));
    DO(caller("fe80::1", 5999));
    line("nobody's: %s", result(caller(MAPPED(ABSENT), 5999)));
}

static void ways(void) {
    TITLE("ways to ::");
    int s = listener("::", 5432);
    meet_at("::1", s, 0, 0, "::1", 5432);
    meet_at("::", s, 0, 0, "::", 5432);
    meet_at("own", s, 0, 0, ONE, 5432);
    meet_at("loopback", s, 0, 0, LO, 5432);
    meet_at("127.0.0.5", s, 0, 0, "127.0.0.5", 5432);
    meet_at("own in 6", s, 0, 0, MAPPED(ONE), 5432);
    meet_at("loopback in 6", s, 0, 0, MAPPED(LO), 5432);
    meet_at("wildcard in 6", s, 0, 0, MAPPED(ANY), 5432);
    meet_at("bound ::1", s, "::1", 6001, "::1", 5432);
    meet_at("bound ::", s, "::", 6002, "::1", 5432);
    meet_at("bound ::, own in 6", s, "::", 6003, MAPPED(ONE), 5432);
    meet_at("bound in 6", s, MAPPED(ONE), 6004, MAPPED(ONE), 5432);
    meet_at("bound ::1, own in 6", s, "::1", 0, MAPPED(ONE), 5432);
    meet_at("bound in 6, ::1", s, MAPPED(ONE), 0, "::1", 5432);
    meet_at("bound own", s, ONE, 6005, ONE, 5432);
    close(s);
    TITLE("ways to :: only");
    s = tcp6();
    ONLY6(s);
    DO(bind_to(s, "::", 5432));
    DO(listen(s, 5));
    meet_at("::1", s, 0, 0, "::1", 5432);
    DO(caller(ONE, 5432)); DO(caller(LO, 5432)); DO(caller(MAPPED(ONE), 5432));
    int only = tcp6();
    ONLY6(only);
    DO(connect_to(only, MAPPED(LO), 5432));
    DO(connect_to(only, MAPPED(ONE), 5432));
    DO(connect_to(only, "::1", 5432));
    NAMES("only", only);
    close(only); close(s);
    TITLE("ways to ::1");
    s = listener("::1", 80);
    meet_at("::1", s, 0, 0, "::1", 80);
    meet_at("::", s, 0, 0, "::", 80);
    DO(caller(LO, 80)); DO(caller(ONE, 80)); DO(caller(MAPPED(LO), 80));
    close(s);
    TITLE("ways to 4 in 6");
    s = listener(MAPPED(ONE), 80);
    meet_at("own", s, 0, 0, ONE, 80);
    meet_at("own in 6", s, 0, 0, MAPPED(ONE), 80);
    DO(caller(LO, 80)); DO(caller("::1", 80));
    close(s);
    s = listener(MAPPED(ANY), 80);
    meet_at("own", s, 0, 0, ONE, 80);
    meet_at("loopback", s, 0, 0, LO, 80);
    DO(caller("::1", 80));
    close(s);
    TITLE("ways to 4");
    s = listener(ANY, 443);
    meet_at("own in 6", s, 0, 0, MAPPED(ONE), 443);
    meet_at("loopback in 6", s, 0, 0, MAPPED(LO), 443);
    DO(caller("::1", 443));
    close(s);
}

static void beside(void) {
    static const struct { const char *host; int only; } ways[] = {
        {ANY, 0}, {ONE, 0}, {LO, 0}, {"::", 0}, {"::", 1}, {"::1", 0}, {MAPPED(ONE), 0}, {MAPPED(LO), 0}, {MAPPED(ANY), 0}};
    TITLE("beside");
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++)
        for (int reuse = 0; reuse < 2; reuse++)
            for (int h = 0; h < 9; h++)
                for (int o = 0; o < 9; o++) {
                    const char *host = ways[h].host, *second = ways[o].host;
                    int holder = limited(socket(strchr(host, ':') ? AF_INET6 : AF_INET, type, 0));
                    int other = limited(socket(strchr(second, ':') ? AF_INET6 : AF_INET, type, 0));
                    if (ways[h].only) ONLY6(holder);
                    if (ways[o].only) ONLY6(other);
                    if (reuse) REUSE(holder), REUSE(other);
                    int held = bind_to(holder, host, 5433);
                    if (held == 0 && type == SOCK_STREAM) held = listen(holder, 1);
                    if (held < 0) line("no holder: %s", strerrorname_np(errno));
                    line("%s %d: %s%s, then %s%s: %s", type == SOCK_STREAM ? "listening" : "udp", reuse, host,
                         ways[h].only ? " only" : "", second, ways[o].only ? " only" : "", result(bind_to(other, second, 5433)));
                    close(holder); close(other);
                }
}

static void together(void) {
    TITLE("both versions on one port");
    int six = tcp6(), four = tcp();
    ONLY6(six);
    DO(bind_to(six, "::", 5434)); DO(bind_to(four, ANY, 5434));
    DO(listen(six, 5)); DO(listen(four, 5));
    SELF(six); SELF(four);
    meet_at("::1", six, 0, 0, "::1", 5434);
    meet_at("own", four, 0, 0, ONE, 5434);
    meet_at("loopback", four, 0, 0, LO, 5434);
    meet_at("own in 6", four, 0, 0, MAPPED(ONE), 5434);
    close(four);
    DO(caller(ONE, 5434));
    meet_at("::1 still", six, 0, 0, "::1", 5434);
    close(six);
    int lo6 = listener("::1", 5435), lo = listener(LO, 5435), own = listener(ONE, 5435);
    meet_at("::1", lo6, 0, 0, "::1", 5435);
    meet_at("127.0.0.1", lo, 0, 0, LO, 5435);
    meet_at("own", own, 0, 0, ONE, 5435);
    close(lo6); close(lo); close(own);
    six = listener("::", 0);
    SELF(six);
    int port = port_of(six);
    meet_at("chosen", six, 0, 0, "::1", port);
    meet_at("chosen, own", six, 0, 0, ONE, port);
    close(six);
    six = tcp6();
    DO(listen(six, 2));
    SELF(six);
    meet_at("never bound", six, 0, 0, ONE, port_of(six));
    close(six);
    int fd = tcp6(), s = listener(ANY, 5436);
    DO(connect_to(fd, MAPPED(ONE), 5436));
    NAMES("mapped", fd);
    DO(disconnect(fd));
    SELF(fd); PEER(fd);
    DO(connect_to(fd, MAPPED(LO), 5436));
    NAMES("then loopback", fd);
    close(fd); close(s);
    /* Both have the port before one of them listens, as in asyncio. */
    static const int ports[] = {80, 5439};
    for (int i = 0; i < 2; i++) {
        int first = tcp(), second = tcp6();
        REUSE(first); REUSE(second); ONLY6(second);
        OK(bind_to(first, ANY, ports[i]));
        OK(bind_to(second, "::", ports[i]));
        OK(listen(first, 8));
        OK(listen(second, 8));
        SELF(first); SELF(second);
        meet_at("the first", first, 0, 0, ONE, ports[i]);
        meet_at("the second", second, 0, 0, "::1", ports[i]);
        close(first); close(second);
    }
}

static void shows(const char *what, int to, const char *host, int port, int fd) {
    line("%s: sent %s", what, result(send_to(fd, what, host, port)));
    line("%s: %s", what, heard_from(to));
    line("%s: self %s", what, own_name(fd));
}

static void data(void) {
    TITLE("datagrams");
    int s = receiver("::", 5353), fd = receiver("::1", 6001), four = receiver(ONE, 6002), both = receiver("::", 6003);
    int lo = receiver(LO, 6004), free = udp6();
    shows("::1", s, "::1", 5353, fd);
    shows("own", s, ONE, 5353, four);
    shows("loopback", s, LO, 5353, lo);
    shows("both, ::1", s, "::1", 5353, both);
    shows("both, own in 6", s, MAPPED(ONE), 5353, both);
    shows("both, loopback in 6", s, MAPPED(LO), 5353, both);
    shows("back to 6", both, "::1", 6003, s);
    shows("back to 4", four, MAPPED(ONE), 6002, s);
    shows("back to loopback", lo, MAPPED(LO), 6004, s);
    shows("unbound", s, "::1", 5353, free);
    shows("unbound, own in 6", s, MAPPED(ONE), 5353, free);
    DO(send_to(fd, "x", MAPPED(ONE), 5353));
    DO(connect_to(free, "::1", 5353));
    NAMES("connected", free);
    DO(disconnect(free));
    SELF(free);
    DO(connect_to(free, MAPPED(ONE), 5353));
    NAMES("connected in 6", free);
    DO(disconnect(free));
    SELF(free); PEER(free);
    DO(connect_to(free, "::1", 5999));
    DO(send(free, "x", 1, 0));
    line("ready: %#x", ready(free, 0));
    DO(send(free, "x", 1, 0));
    close(free);
    free = udp6();
    DO(connect_to(free, MAPPED(ONE), 5999));
    DO(send(free, "x", 1, 0));
    line("ready: %#x", ready(free, 0));
    DO(send(free, "x", 1, 0));
    close(free);
    close(s); close(fd); close(four); close(both); close(lo);
}

static void arrivals(void) {
    TITLE("where a datagram arrived");
    static const char *to[] = {"::1", MAPPED(ONE), MAPPED(LO)};
    int s = receiver("::", 5354), fd = receiver("::", 6005);
    DO(set(s, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1));
    for (int i = 0; i < 3; i++) {
        char bytes[16], space[256], host[64];
        addr a;
        struct iovec part = {bytes, sizeof bytes};
        struct msghdr m = {&a, sizeof a, &part, 1, space, sizeof space, 0};
        DO(send_to(fd, "info", to[i], 5354));
        line("%s: %s", to[i], result(recvmsg(s, &m, 0)));
        line("%s: from %s", to[i], name(&a, m.msg_namelen));
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
            if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
                struct in6_pktinfo info;
                memcpy(&info, CMSG_DATA(c), sizeof info);
                inet_ntop(AF_INET6, &info.ipi6_addr, host, sizeof host);
                line("%s: to %s", to[i], host);
            }
    }
    close(s); close(fd);
}

int main(void) {
    begin();
    each();
    wrong();
    ways();
    beside();
    together();
    data();
    arrivals();
    return 0;
}
