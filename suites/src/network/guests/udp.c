/* Datagrams over IPv4: sendto, recvfrom, connected sockets, refusals, messages in lots. */
#include "net.h"
#include <linux/errqueue.h>

static void shows(const char *what, int to, const char *host, int port, int fd) {
    line("%s: sent %s", what, result(send_to(fd, what, host, port)));
    line("%s: %s", what, heard_from(to));
    line("%s: self %s", what, own_name(fd));
}

static void ways(void) {
    TITLE("ways to the wildcard");
    int s = receiver(ANY, 5353), low = receiver(ONE, 53);
    SELF(s); SELF(low);
    int free = udp();
    shows("unbound to own", s, ONE, 5353, free);
    shows("again to own", s, ONE, 5353, free);
    shows("the same to loopback", s, LO, 5353, free);
    shows("the same to the wildcard", s, ANY, 5353, free);
    shows("the same to 127.0.0.5", s, "127.0.0.5", 5353, free);
    close(free);
    static const char *hosts[] = {ANY, ONE, LO, "127.0.0.5"};
    static const char *to[] = {ONE, LO, "127.0.0.5", ANY};
    for (int h = 0; h < 4; h++) {
        int fd = receiver(hosts[h], 6001);
        for (int t = 0; t < 4; t++) {
            char what[64];
            snprintf(what, sizeof what, "%s to %s", hosts[h], to[t]);
            shows(what, s, to[t], 5353, fd);
        }
        close(fd);
    }
    int fd = receiver(ONE, 600);
    shows("low to low", low, ONE, 53, fd);
    shows("low to itself", fd, ONE, 600, fd);
    close(fd);
    fd = receiver(ANY, 0);
    shows("chosen to itself", fd, ONE, port_of(fd), fd);
    shows("chosen to itself by loopback", fd, LO, port_of(fd), fd);
    close(fd); close(low); close(s);
}

static void apart(void) {
    TITLE("one port on two addresses");
    int own = receiver(ONE, 5353), lo = receiver(LO, 5353), fd = udp();
    DO(send_to(fd, "to own", ONE, 5353));
    DO(send_to(fd, "to lo", LO, 5353));
    line("own: %s", heard_from(own));
    line("lo: %s", heard_from(lo));
    /* Nothing is left over. */
    DO(send_to(fd, "own again", ONE, 5353));
    DO(send_to(fd, "lo again", LO, 5353));
    line("own: %s", heard(own));
    line("lo: %s", heard(lo));
    close(own); close(lo); close(fd);
}

static void answers(void) {
    TITLE("answers");
    int s = receiver(ANY, 5353), fd = udp();
    addr a;
    char bytes[16];
    static const char *to[] = {ONE, LO};
    for (int t = 0; t < 2; t++) {
        socklen_t length = sizeof a;
        DO(send_to(fd, "ask", to[t], 5353));
        DO(recvfrom(s, bytes, sizeof bytes, 0, &a.any, &length));
        DO(sendto(s, "answer", 6, 0, &a.any, length));
        line("%s: %s", to[t], heard_from(fd));
    }
    close(s); close(fd);
}

static void wrong(void) {
    TITLE("wrong");
    int s = receiver(ONE, 5353), fd = udp(), file = open("/", O_RDONLY);
    addr a;
    char bytes[16];
    put(&a, ONE, 5353);
    DO(send(fd, "x", 1, 0));
    DO(sendto(fd, "x", 1, 0, &a.any, 0));
    DO(sendto(fd, "x", 1, 0, &a.any, 8));
    DO(sendto(fd, "x", 1, 0, &a.any, 15));
    DO(sendto(fd, "x", 1, 0, &a.any, -1));
    DO(sendto(fd, "x", 1, 0, &a.any, 129));
    DO(sendto(fd, "x", 1, 0, (void *)8, 16));
    DO(sendto(fd, (void *)8, 1, 0, &a.any, 16));
    DO(sendto(-1, "x", 1, 0, &a.any, 16));
    DO(sendto(file, "x", 1, 0, &a.any, 16));
    DO(sendto(fd, bytes, 1 << 20, 0, &a.any, 16));
    a.any.sa_family = AF_INET6;
    DO(sendto(fd, "x", 1, 0, &a.any, 28));
    a.any.sa_family = AF_UNSPEC;
    DO(sendto(fd, "unspec", 6, 0, &a.any, 16));
    line("%s", heard_from(s));
    DO(send_to(fd, "x", ONE, 0));
    static const int lengths[] = {128, 16, 15, 8, 2, 0};
    for (int i = 0; i < 6; i++) {
        socklen_t length = lengths[i];
        memset(&a, 0x55, sizeof a);
        DO(send_to(fd, "name", ONE, 5353));
        DO(recvfrom(s, bytes, sizeof bytes, 0, &a.any, &length));
        line("%d bytes: length %u, family %#x, host %#x, end %#x", lengths[i], length, a.v4.sin_family,
             ntohl(a.v4.sin_addr.s_addr), ((unsigned char *)&a)[16]);
    }
    DO(send_to(fd, "name", ONE, 5353));
    DO(recvfrom(s, bytes, sizeof bytes, 0, 0, 0));
    socklen_t length = -1;
    DO(send_to(fd, "name", ONE, 5353));
    DO(recvfrom(s, bytes, sizeof bytes, 0, &a.any, &length));
    DO(recvfrom(s, bytes, sizeof bytes, MSG_DONTWAIT, 0, 0));
    DO(recvfrom(-1, bytes, sizeof bytes, 0, 0, 0));
    close(s); close(fd); close(file);
}

static void connected(void) {
    TITLE("connected");
    int s = receiver(ONE, 5353), other = receiver(ONE, 5354), lo = receiver(LO, 5353), fd = udp();
    DO(connect_to(fd, ONE, 5353));
    NAMES("first", fd);
    DO(send(fd, "sent", 4, 0));
    line("%s", heard_from(s));
    DO(send_to(fd, "elsewhere", ONE, 5354));
    line("%s", heard_from(other));
    int port = port_of(fd);
    /* Only the peer's datagrams arrive. */
    DO(send_to(other, "from another", ONE, port));
    DO(send_to(s, "from the peer", ONE, port));
    line("%s", heard_from(fd));
    DO(recv(fd, (char[4]){0}, 4, MSG_DONTWAIT));
    DO(connect_to(fd, ONE, 5354));
    NAMES("again", fd);
    line("the same port: %s", port_of(fd) == port ? "yes" : "no");
    DO(send(fd, "second", 6, 0));
    line("%s", heard_from(other));
    DO(send_to(s, "from the first", ONE, port));
    DO(send_to(other, "from the second", ONE, port));
    line("%s", heard_from(fd));
    DO(connect_to(fd, LO, 5353));
    NAMES("by loopback", fd);
    DO(disconnect(fd));
    NAMES("disconnected", fd);
    DO(send(fd, "x", 1, 0));
    DO(send_to(fd, "free", LO, 5353));
    line("%s", heard_from(lo));
    close(fd);
    fd = receiver(ONE, 6002);
    DO(connect_to(fd, ONE, 5353));
    NAMES("bound", fd);
    DO(disconnect(fd));
    NAMES("bound", fd);
    DO(send_to(other, "any", ONE, 6002));
    line("%s", heard_from(fd));
    close(fd);
    fd = receiver(ANY, 6003);
    DO(connect_to(fd, LO, 5353));
    NAMES("bound to all", fd);
    DO(disconnect(fd));
    NAMES("bound to all", fd);
    close(fd);
    fd = udp();
    DO(connect_to(fd, ANY, 5353));
    NAMES("wildcard", fd);
    DO(connect_to(fd, ONE, 0));
    NAMES("port 0", fd);
    DO(shutdown(fd, SHUT_RDWR));
    close(fd); close(s); close(other); close(lo);
}

static void refused(void) {
    TITLE("refused");
    static const char *hosts[] = {ONE, LO, "127.0.0.9"};
    for (int h = 0; h < 3; h++) {
        int fd = udp();
        line("%s: %s", hosts[h], result(connect_to(fd, hosts[h], 5999)));
        DO(send(fd, "x", 1, 0));
        line("ready: %#x", ready(fd, 0));
        DO(recv(fd, (char[4]){0}, 4, 0));
        DO(send(fd, "x", 1, 0));
        line("ready: %#x", ready(fd, 0));
        DO(send(fd, "x", 1, 0));
        DO(get(fd, SOL_SOCKET, SO_ERROR));
        DO(send(fd, "x", 1, 0));
        ready(fd, 0);
        line("error: %s", strerrorname_np(get(fd, SOL_SOCKET, SO_ERROR)));
        close(fd);
    }
    int fd = udp(), s;
    /* Who is not connected does not hear of it. */
    DO(send_to(fd, "x", ONE, 5999));
    DO(send_to(fd, "x", ONE, 5999));
    s = receiver(ONE, 5353);
    shows("after a refusal", s, ONE, 5353, fd);
    DO(connect_to(fd, ONE, 5353));
    close(s);
    DO(send(fd, "x", 1, 0));
    line("ready: %#x", ready(fd, 0));
    DO(send(fd, "x", 1, 0));
    s = receiver(ONE, 5353);
    DO(send(fd, "back", 4, 0));
    line("%s", heard_from(s));
    close(fd); close(s);
}

/* The refused datagram's own address, from the queue of errors. */
static void queue(void) {
    TITLE("queue of errors");
    int fd = udp();
    DO(set(fd, IPPROTO_IP, IP_RECVERR, 1));
    DO(send_to(fd, "lost", ONE, 5999));
    line("ready: %#x", ready(fd, 0));
    char bytes[16], space[256];
    addr a;
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr m = {&a, sizeof a, &part, 1, space, sizeof space, 0};
    DO(recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT));
    line("sent to: %s", name(&a, m.msg_namelen));
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) {
            struct { struct sock_extended_err error; addr offender; } e;
            memcpy(&e, CMSG_DATA(c), sizeof e.error + sizeof e.offender.v4);
            line("%s by: %s", strerrorname_np(e.error.ee_errno), name(&e.offender, sizeof e.offender.v4));
        }
    close(fd);
}

static void messages(void) {
    TITLE("messages");
    int s = receiver(ANY, 5353), fd = receiver(ONE, 6004);
    addr a;
    char bytes[16];
    struct iovec parts[2] = {{"two ", 4}, {"parts", 5}}, into = {bytes, sizeof bytes};
    struct msghdr m = {&a, put(&a, ONE, 5353), parts, 2, 0, 0, 0};
    DO(sendmsg(fd, &m, 0));
    line("the name is untouched: %s", name(&a, m.msg_namelen));
    line("%s", heard_from(s));
    put(&a, LO, 5353);
    int free = udp();
    DO(sendmsg(free, &m, 0));
    line("%s", heard_from(s));
    m.msg_namelen = 8;
    DO(sendmsg(fd, &m, 0));
    m.msg_name = 0;
    m.msg_namelen = 0;
    DO(sendmsg(fd, &m, 0));
    m.msg_name = (void *)8;
    m.msg_namelen = 16;
    DO(sendmsg(fd, &m, 0));
    static const int lengths[] = {128, 28, 16, 15, 8, 2, 0};
    for (int i = 0; i < 7; i++) {
        memset(&a, 0x55, sizeof a);
        DO(send_to(fd, "named", ONE, 5353));
        struct msghdr r = {&a, lengths[i], &into, 1, 0, 0, 0};
        DO(recvmsg(s, &r, 0));
        line("%d bytes: length %u, family %#x, host %#x, end %#x, flags %#x", lengths[i], r.msg_namelen,
             a.v4.sin_family, ntohl(a.v4.sin_addr.s_addr), ((unsigned char *)&a)[16], r.msg_flags);
    }
    DO(send_to(fd, "named", ONE, 5353));
    struct msghdr r = {0, 16, &into, 1, 0, 0, 0};
    DO(recvmsg(s, &r, 0));
    line("length %u", r.msg_namelen);
    DO(send_to(fd, "named", ONE, 5353));
    r = (struct msghdr){(void *)8, 16, &into, 1, 0, 0, 0};
    DO(recvmsg(s, &r, MSG_DONTWAIT));
    DO(recvmsg(s, (void *)8, MSG_DONTWAIT));
    DO(sendmsg(s, (void *)8, MSG_DONTWAIT));
    close(s); close(fd); close(free);
}

static void lots(void) {
    TITLE("in lots");
    int own = receiver(ONE, 5353), lo = receiver(LO, 5353), fd = udp(), bound = receiver(ONE, 6005);
    addr to[4];
    struct iovec parts[4] = {{"a", 1}, {"bb", 2}, {"ccc", 3}, {"dddd", 4}};
    struct mmsghdr all[4];
    memset(all, 0, sizeof all);
    for (int i = 0; i < 4; i++) {
        all[i].msg_hdr.msg_name = &to[i];
        all[i].msg_hdr.msg_namelen = put(&to[i], i % 2 ? LO : ONE, 5353);
        all[i].msg_hdr.msg_iov = &parts[i];
        all[i].msg_hdr.msg_iovlen = 1;
    }
    DO(sendmmsg(fd, all, 4, 0));
    for (int i = 0; i < 4; i++) line("%d: length %u to %s", i, all[i].msg_len, name(&to[i], all[i].msg_hdr.msg_namelen));
    for (int i = 0; i < 2; i++) line("own: %s", heard_from(own));
    for (int i = 0; i < 2; i++) line("lo: %s", heard_from(lo));
    all[2].msg_hdr.msg_namelen = 3;
    DO(sendmmsg(fd, all, 4, 0));
    DO(sendmmsg(fd, all + 2, 2, 0));
    line("own: %s", heard(own));
    line("lo: %s", heard(lo));
    DO(sendmmsg(fd, all, 0, 0));
    DO(sendmmsg(-1, all, 1, 0));
    char bytes[4][16];
    DO(send_to(bound, "one", ONE, 5353));
    DO(send_to(bound, "two", ONE, 5353));
    DO(send_to(own, "three", ONE, 5353));
    for (int i = 0; i < 4; i++) {
        memset(&to[i], 0x55, sizeof to[i]);
        parts[i] = (struct iovec){bytes[i], 16};
        all[i].msg_hdr.msg_namelen = i == 1 ? 8 : sizeof to[i];
        if (i == 2) all[i].msg_hdr.msg_name = &to[i];
    }
    int count;
    struct timespec limit = {PATIENCE, 0};
    DO(count = recvmmsg(own, all, 3, 0, &limit));
    for (int i = 0; i < count; i++)
        line("%d: %u bytes, host %#x, length %u", i, all[i].msg_len, ntohl(to[i].v4.sin_addr.s_addr), all[i].msg_hdr.msg_namelen);
    DO(recvmmsg(own, all, 4, MSG_DONTWAIT, 0));
    all[0].msg_hdr.msg_name = 0;
    DO(send_to(bound, "nameless", ONE, 5353));
    DO(recvmmsg(own, all, 4, MSG_WAITFORONE, 0));
    line("%.8s, length %u", bytes[0], all[0].msg_hdr.msg_namelen);
    close(own); close(lo); close(fd); close(bound);
}

static void shared(void) {
    TITLE("shared");
    int s[2], fd, count[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        s[i] = udp();
        set(s[i], SOL_SOCKET, SO_REUSEPORT, 1);
        line("%s", success(bind_to(s[i], ONE, 5353)));
    }
    for (int i = 0; i < 64; i++) {
        fd = udp();
        if (send_to(fd, "x", ONE, 5353) != 1) line("not sent");
        close(fd);
    }
    struct pollfd p[2] = {{s[0], POLLIN, 0}, {s[1], POLLIN, 0}};
    while (count[0] + count[1] < 64 && poll(p, 2, PATIENCE * 1000) > 0)
        for (int i = 0; i < 2; i++)
            if (p[i].revents && recv(s[i], (char[4]){0}, 4, MSG_DONTWAIT) == 1) count[i]++;
    line("all %d, both have some: %s", count[0] + count[1], count[0] && count[1] ? "yes" : "no");
    close(s[0]); close(s[1]);
}

static void looks(void) {
    TITLE("looks");
    int s = receiver(ONE, 5353), fd = receiver(ONE, 6006);
    addr a;
    char bytes[4];
    socklen_t length = sizeof a;
    DO(send_to(fd, "a long one", ONE, 5353));
    DO(recvfrom(s, bytes, sizeof bytes, MSG_PEEK | MSG_TRUNC, &a.any, &length));
    line("%s", name(&a, length));
    length = sizeof a;
    DO(recvfrom(s, bytes, sizeof bytes, MSG_PEEK, &a.any, &length));
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr m = {&a, sizeof a, &part, 1, 0, 0, 0};
    DO(recvmsg(s, &m, MSG_PEEK));
    line("flags %#x from %s", m.msg_flags, name(&a, m.msg_namelen));
    length = sizeof a;
    DO(recvfrom(s, bytes, sizeof bytes, MSG_TRUNC, &a.any, &length));
    line("%s", name(&a, length));
    DO(recv(s, bytes, sizeof bytes, MSG_DONTWAIT));
    DO(send_to(fd, "", ONE, 5353));
    line("%s", heard_from(s));
    close(s); close(fd);
}

static void arrivals(void) {
    TITLE("where a datagram arrived");
    static const char *to[] = {ONE, LO, "127.0.0.5", ANY};
    int s = receiver(ANY, 5353), fd = receiver(ANY, 6007);
    DO(set(s, IPPROTO_IP, IP_PKTINFO, 1));
    for (int i = 0; i < 4; i++) {
        char bytes[16], space[256], host[2][32];
        addr a;
        struct iovec part = {bytes, sizeof bytes};
        struct msghdr m = {&a, sizeof a, &part, 1, space, sizeof space, 0};
        DO(send_to(fd, "info", to[i], 5353));
        line("%s: %s", to[i], result(recvmsg(s, &m, 0)));
        line("%s: from %s", to[i], name(&a, m.msg_namelen));
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
            if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
                struct in_pktinfo info;
                memcpy(&info, CMSG_DATA(c), sizeof info);
                inet_ntop(AF_INET, &info.ipi_addr, host[0], 32);
                inet_ntop(AF_INET, &info.ipi_spec_dst, host[1], 32);
                line("%s: to %s, local %s", to[i], host[0], host[1]);
            }
        /* An answer from the address that was asked, as DNS servers send it. */
        part.iov_len = 4;
        m.msg_controllen = CMSG_SPACE(sizeof(struct in_pktinfo));
        if (m.msg_controllen <= sizeof space) {
            struct cmsghdr *c = CMSG_FIRSTHDR(&m);
            struct in_pktinfo *info = (void *)CMSG_DATA(c);
            info->ipi_ifindex = 0;
            DO(sendmsg(s, &m, 0));
            line("%s: answered %s", to[i], heard_from(fd));
        }
    }
    close(s); close(fd);
}

int main(void) {
    begin();
    ways();
    apart();
    answers();
    wrong();
    connected();
    refused();
    queue();
    messages();
    lots();
    shared();
    looks();
    arrivals();
    return 0;
}
