/* Which interfaces and addresses a program sees: by the library, by netlink in every way to
 * receive, and by ioctl. What an interface other than lo is called is not printed, nor are
 * addresses of version 6 that an interface gives itself. */
#include "net.h"
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static const char *which(const char *interface) {
    return strcmp(interface, "lo") == 0 ? "lo" : "other";
}

static const char *host(const void *sockaddr) {
    char out[64];
    const addr *a = sockaddr;
    if (!a) return "none";
    if (a->any.sa_family == AF_INET) return inet_ntop(AF_INET, &a->v4.sin_addr, out, sizeof out) ? text("%s", out) : "?";
    return inet_ntop(AF_INET6, &a->v6.sin6_addr, out, sizeof out) ? text("%s", out) : "?";
}

static int is_given_by_itself(const struct in6_addr *a) { return a->s6_addr[0] == 0xfe; }

static void library(void) {
    TITLE("getifaddrs");
    struct ifaddrs *all;
    OK(getifaddrs(&all));
    for (struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr) continue;
        int family = one->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        const addr *a = (void *)one->ifa_addr;
        if (family == AF_INET6 && is_given_by_itself(&a->v6.sin6_addr)) continue;
        int casts = one->ifa_flags & IFF_BROADCAST;
        line("%s: %s mask %s broadcast %s, %s", which(one->ifa_name), host(one->ifa_addr),
             host(one->ifa_netmask), casts ? host(one->ifa_broadaddr) : "none",
             one->ifa_flags & IFF_UP ? "up" : "down");
    }
    freeifaddrs(all);
}

/* Messages of one answer; returns 1 at its end. */
static int told(char *bytes, long length) {
    for (struct nlmsghdr *m = (void *)bytes; NLMSG_OK(m, (unsigned)length); m = NLMSG_NEXT(m, length)) {
        if (m->nlmsg_type == NLMSG_DONE) return 1;
        if (m->nlmsg_type == NLMSG_ERROR) {
            line("an error");
            return 1;
        }
        if (m->nlmsg_type == NLMSG_NOOP) continue;
        struct ifaddrmsg *a = NLMSG_DATA(m);
        char shown[2][64] = {"none", "none"}, *label = "none";
        int rest = IFA_PAYLOAD(m), skip = 0;
        for (struct rtattr *part = IFA_RTA(a); RTA_OK(part, rest); part = RTA_NEXT(part, rest)) {
            int at = part->rta_type == IFA_ADDRESS ? 0 : part->rta_type == IFA_LOCAL ? 1 : -1;
            if (at >= 0) inet_ntop(a->ifa_family, RTA_DATA(part), shown[at], 64);
            if (at == 0 && a->ifa_family == AF_INET6) skip = is_given_by_itself(RTA_DATA(part));
            if (part->rta_type == IFA_LABEL) label = RTA_DATA(part);
        }
        if (skip) continue;
        line("%s: address %s local %s prefix %d label %s request %u", a->ifa_index == 1 ? "lo" : "other",
             shown[0], shown[1], a->ifa_prefixlen, label[0] == 'n' ? label : which(label), m->nlmsg_seq);
    }
    return 0;
}

static int ask(int family, int number) {
    struct {
        struct nlmsghdr head;
        struct ifaddrmsg body;
    } request = {{sizeof request, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, number, 0}, {family, 0, 0, 0, 0}};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (send(fd, &request, sizeof request, 0) < 0) line("send: %s", strerrorname_np(errno));
    return fd;
}

static char answer[32768];

/* Not by socketcall, which glibc prefers. */
static long by_musl(int fd) { return syscall(SYS_recvfrom, fd, answer, 8192, MSG_DONTWAIT, NULL, NULL); }

static long by_recvfrom(int fd) {
    struct sockaddr_nl from;
    socklen_t length = sizeof from;
    long got = recvfrom(fd, answer, 4096, 0, (void *)&from, &length);
    if (from.nl_family != AF_NETLINK || from.nl_pid != 0 || length != sizeof from) line("from whom?");
    return got;
}

/* With more room for the name than it needs. */
static long by_wide_recvfrom(int fd) {
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    long got = recvfrom(fd, answer, sizeof answer, 0, (void *)&from, &length);
    if (from.ss_family != AF_NETLINK || length != sizeof(struct sockaddr_nl)) line("from whom?");
    return got;
}

static long by_recvmsg(int fd) {
    struct sockaddr_nl from;
    struct iovec piece = {answer, sizeof answer};
    struct msghdr m = {&from, sizeof from, &piece, 1};
    long got = recvmsg(fd, &m, 0);
    if (from.nl_family != AF_NETLINK || m.msg_namelen != sizeof from) line("from whom?");
    return got;
}

/* As iproute2 does it: the length first. */
static long by_length(int fd) {
    struct sockaddr_nl from;
    struct iovec piece = {NULL, 0};
    struct msghdr m = {&from, sizeof from, &piece, 1};
    long length = recvmsg(fd, &m, MSG_PEEK | MSG_TRUNC);
    piece.iov_base = answer;
    piece.iov_len = length < 32768 ? 32768 : length;
    return recvmsg(fd, &m, 0);
}

static long by_recvmmsg(int fd) {
    struct sockaddr_nl from;
    struct iovec piece = {answer, sizeof answer};
    struct mmsghdr m = {{&from, sizeof from, &piece, 1}};
    int got = recvmmsg(fd, &m, 1, 0, NULL);
    return got < 0 ? got : m.msg_len;
}

static void netlink(const char *title, long (*receive)(int)) {
    int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    for (int at = 0; at < 3; at++) {
        TITLE(text("%s, family %d", title, families[at]));
        int fd = ask(families[at], 4711 + at);
        long got;
        while ((got = receive(fd)) > 0 && !told(answer, got)) {}
        if (got <= 0) line("received: %s", result(got));
        close(fd);
    }
}

static void all(void) {
    TITLE("SIOCGIFCONF");
    int fd = udp();
    struct ifreq found[16];
    struct ifconf all = {.ifc_len = 0, .ifc_req = NULL};
    DO(ioctl(fd, SIOCGIFCONF, &all));
    line("entries: %zu", all.ifc_len / sizeof *found);
    int rooms[] = {0, 1, sizeof *found, sizeof *found + 1, sizeof found};
    for (int at = 0; at < 5; at++) {
        all.ifc_len = rooms[at];
        all.ifc_req = found;
        int done = ioctl(fd, SIOCGIFCONF, &all);
        line("room %d: %s, %d", at, result(done), all.ifc_len % (int)sizeof *found);
        for (int i = 0; i < all.ifc_len / (int)sizeof *found; i++)
            line("%s: %s", which(found[i].ifr_name), host(&found[i].ifr_addr));
    }
    all.ifc_len = sizeof found;
    all.ifc_req = (void *)16;
    DO(ioctl(fd, SIOCGIFCONF, &all));
    DO(ioctl(fd, SIOCGIFCONF, NULL));
    DO(ioctl(-1, SIOCGIFCONF, &all));
    DO(ioctl(0, SIOCGIFCONF, &all));
    close(fd);
}

static void one(const char *interface) {
    static const struct {
        const char *name;
        unsigned long code;
    } asked[] = {{"address", SIOCGIFADDR}, {"mask", SIOCGIFNETMASK}, {"broadcast", SIOCGIFBRDADDR}, {"other end", SIOCGIFDSTADDR}};
    int fd = udp(), stream = tcp();
    for (int at = 0; at < 4; at++) {
        struct ifreq found = {};
        strcpy(found.ifr_name, interface);
        int done = ioctl(at % 2 ? stream : fd, asked[at].code, &found);
        line("%s of %s: %s", asked[at].name, which(interface), done < 0 ? result(done) : host(&found.ifr_addr));
    }
    struct ifreq found = {};
    strcpy(found.ifr_name, interface);
    line("flags: %s", result(ioctl(fd, SIOCGIFFLAGS, &found)));
    close(fd);
    close(stream);
}

/* What Java and Open MPI 5 read. */
static void file(const char *path) {
    TITLE("if_inet6");
    FILE *file = fopen(path, "r");
    char address[33], interface[IFNAMSIZ];
    while (file && fscanf(file, "%32s %*x %*x %*x %*x %15s", address, interface) == 2)
        if (strncmp(address, "fe", 2) != 0) line("%s: %s", which(interface), address);
    if (file) fclose(file);
}

int main(void) {
    library();
    file("/proc/net/if_inet6");
    file("/proc/self/net/if_inet6");
    netlink("as musl", by_musl);
    netlink("recvfrom", by_recvfrom);
    netlink("recvfrom with room", by_wide_recvfrom);
    netlink("recvmsg", by_recvmsg);
    netlink("length first", by_length);
    netlink("recvmmsg", by_recvmmsg);
    all();
    TITLE("one interface");
    struct ifreq found[16];
    struct ifconf all = {.ifc_len = sizeof found, .ifc_req = found};
    int fd = udp();
    ioctl(fd, SIOCGIFCONF, &all);
    for (int i = 0; i < all.ifc_len / (int)sizeof *found; i++) one(found[i].ifr_name);
    one("nobody0");
    /* The call concerns terminals and files too. */
    DO(ioctl(0, SIOCGIFADDR, found));
    struct winsize size;
    DO(ioctl(fd, TIOCGWINSZ, &size));
    return 0;
}
