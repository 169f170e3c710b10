/* What needs a network of one's own: raw and packet sockets, multicast, broadcast, other
 * families. */
#include "net.h"
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/ioctl.h>

static void made(const char *what, int family, int type, int protocol) {
    int fd = socket(family, type, protocol);
    line("%s: %s", what, success(fd));
    if (fd >= 0) close(fd);
}

static void families(void) {
    TITLE("families");
    made("stream", AF_INET, SOCK_STREAM, IPPROTO_TCP);
    made("datagram", AF_INET, SOCK_DGRAM, IPPROTO_UDP);
    made("a stream of UDP", AF_INET, SOCK_STREAM, IPPROTO_UDP);
    made("a type that is unknown", AF_INET, 77, 0);
    made("a family that is too large", 4711, SOCK_STREAM, 0);
    made("a family that is negative", -1, SOCK_STREAM, 0);
    made("unspecified", AF_UNSPEC, SOCK_STREAM, 0);
    made("local", AF_UNIX, SOCK_STREAM, 0);
    made("netlink", AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    made("sequenced", AF_INET, SOCK_SEQPACKET, 0);
    int pair[2];
    DO(socketpair(AF_INET, SOCK_STREAM, 0, pair));
}

static void raw(void) {
    TITLE("raw");
    made("raw ICMP", AF_INET, SOCK_RAW, IPPROTO_ICMP);
    made("raw TCP", AF_INET, SOCK_RAW, IPPROTO_TCP);
    made("raw IP", AF_INET, SOCK_RAW, IPPROTO_RAW);
    made("raw ICMPv6", AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
    made("packets", AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    made("packets without heads", AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));
}

static void many(void) {
    TITLE("broadcast and multicast");
    int fd = udp();
    DO(send_to(fd, "x", "100.80.0.255", 5353));
    DO(send_to(fd, "x", "255.255.255.255", 5353));
    DO(set(fd, SOL_SOCKET, SO_BROADCAST, 1));
    struct ip_mreq group = {{0}, {0}};
    inet_pton(AF_INET, "239.1.2.3", &group.imr_multiaddr);
    DO(set(fd, IPPROTO_IP, IP_MULTICAST_TTL, 1));
    DO(set(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 1));
    inet_pton(AF_INET, ONE, &group.imr_interface);
    DO(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
    DO(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &group.imr_interface, sizeof group.imr_interface));
    close(fd);
    fd = udp();
    DO(bind_to(fd, "239.1.2.3", 5355));
    SELF(fd);
    close(fd);
    fd = tcp();
    DO(connect_to(fd, "239.1.2.3", 80));
    DO(connect_to(fd, "255.255.255.255", 80));
    close(fd);
    fd = tcp();
    DO(listen(fd, 1));
    DO(connect_to(fd, ONE, 80));
    close(fd);
}

/* Options that name a device or claim an address. */
static void claims(void) {
    TITLE("claims");
    int fd = tcp();
    DO(set(fd, IPPROTO_IP, IP_TRANSPARENT, 1));
    DO(set(fd, SOL_SOCKET, SO_MARK, 1));
    DO(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "nothing", 8));
    DO(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
    DO(bind_to(fd, LO, 5432));
    SELF(fd);
    DO(listen(fd, 1));
    meet_at("on the device", fd, 0, 0, LO, 5432);
    close(fd);
    fd = tcp();
    DO(set(fd, IPPROTO_IP, IP_FREEBIND, 1));
    DO(bind_to(fd, "192.0.2.1", 5432));
    close(fd);
}

int main(void) {
    begin();
    families();
    raw();
    many();
    claims();
    return 0;
}
