// What a member of a network of packets does and sees. Each word is an action; it says one line.
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what) {
    printf("%s: %s\n", what, strerrorname_np(errno) ? strerrorname_np(errno) : "?");
    exit(1);
}

static struct sockaddr_in place(const char *host, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &at.sin_addr);
    return at;
}

static struct sockaddr_in6 place6(const char *host, int port) {
    struct addrinfo want = {.ai_family = AF_INET6}, *found;
    if (getaddrinfo(host, 0, &want, &found)) {
        printf("%s has no IPv6 address\n", host);
        exit(1);
    }
    struct sockaddr_in6 at = *(struct sockaddr_in6 *)found->ai_addr;
    at.sin6_port = htons(port);
    return at;
}

static int opened(int family, int kind) {
    int fd = socket(family, kind, 0);
    struct timeval limit = {.tv_sec = 15};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return fd;
}

static int connected(int kind, const char *host, int port) {
    struct sockaddr_in at = place(host, port);
    struct sockaddr_in6 at6;
    int six = !!strchr(host, ':'), fd = opened(six ? AF_INET6 : AF_INET, kind);
    if (six) at6 = place6(host, port);
    if (connect(fd, six ? (void *)&at6 : (void *)&at, six ? sizeof at6 : sizeof at)) fail("connect");
    return fd;
}

static void whole(int fd, void *bytes, size_t length, int out) {
    for (size_t done = 0; done < length;) {
        ssize_t now = out ? write(fd, (char *)bytes + done, length - done)
                          : read(fd, (char *)bytes + done, length - done);
        if (now <= 0) fail(out ? "write" : "read");
        done += now;
    }
}

// The same bytes on both sides, of which no part is like another.
static void fill(uint64_t *words, size_t count, uint64_t *state) {
    for (size_t at = 0; at < count; at++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        words[at] = *state;
    }
}

enum { PIECE = 1 << 16 };

static void stream(int fd, uint64_t length, int out) {
    static uint64_t right[PIECE / 8], here[PIECE / 8];
    uint64_t state = length;
    for (uint64_t done = 0; done < length; done += PIECE) {
        fill(right, PIECE / 8, &state);
        if (out) {
            whole(fd, right, PIECE, 1);
        } else {
            whole(fd, here, PIECE, 0);
            if (memcmp(here, right, PIECE)) {
                printf("other bytes at %lu\n", (unsigned long)done);
                exit(1);
            }
        }
    }
}

// Serves streams, one byte at a time, and datagrams.
static void serve(int family) {
    struct sockaddr_in four = place("0.0.0.0", 7000);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(7000)};
    void *at = family == AF_INET ? (void *)&four : (void *)&six;
    socklen_t size = family == AF_INET ? sizeof four : sizeof six;
    int tcp = socket(family, SOCK_STREAM, 0), udp = socket(family, SOCK_DGRAM, 0), one = 1;
    setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(tcp, at, size) || listen(tcp, 16)) fail("bind");
    if (bind(udp, at, size)) fail("bind");
    printf("ready\n");
    fflush(stdout);
    if (!fork()) {
        static char bytes[1 << 16];
        struct sockaddr_in6 from;
        ssize_t length;
        while (size = sizeof from, (length = recvfrom(udp, bytes, sizeof bytes, 0, (void *)&from, &size)) >= 0)
            sendto(udp, bytes, length, 0, (void *)&from, size);
        exit(1);
    }
    for (int fd; (fd = accept(tcp, 0, 0)) >= 0; close(fd)) {
        if (fork()) continue;
        uint64_t length;
        whole(fd, &length, sizeof length, 0);
        if (length) {
            stream(fd, length, 0);
            stream(fd, length, 1);
        }
        for (char byte; !length && read(fd, &byte, 1) == 1;) whole(fd, &byte, 1, 1);
        exit(0);
    }
}

static void streams(const char *host, uint64_t length) {
    int fd = connected(SOCK_STREAM, host, 7000);
    whole(fd, &length, sizeof length, 1);
    stream(fd, length, 1);
    stream(fd, length, 0);
    printf("unchanged\n");
}

// One connection with a byte to and fro every 50 ms.
static void talk(const char *host, int rounds) {
    int fd = connected(SOCK_STREAM, host, 7000);
    uint64_t none = 0;
    whole(fd, &none, sizeof none, 1);
    for (int at = 0; at < rounds; at++) {
        char byte = at, back = 0;
        whole(fd, &byte, 1, 1);
        whole(fd, &back, 1, 0);
        if (back != byte) fail("another byte");
        if (!at) {
            printf("ready\n");
            fflush(stdout);
        }
        usleep(50000);
    }
    printf("talked\n");
}

static void datagrams(const char *host) {
    static uint64_t bytes[(1 << 16) / 8], back[(1 << 16) / 8];
    int sizes[] = {1, 1400, 9000, 32000, 65507};
    int fd = connected(SOCK_DGRAM, host, 7000);
    for (int at = 0; at < 5; at++) {
        uint64_t state = at;
        fill(bytes, 1 << 13, &state);
        if (send(fd, bytes, sizes[at], 0) != sizes[at]) fail("send");
        ssize_t got = recv(fd, back, sizeof back, 0);
        if (got != sizes[at] || memcmp(bytes, back, got)) fail("another datagram");
        printf("%d ", sizes[at]);
    }
    printf("unchanged\n");
}

static void ping(const char *host) {
    struct icmphdr ask = {.type = ICMP_ECHO, .un.echo.id = htons(getpid())};
    struct sockaddr_in at = place(host, 0);
    struct timeval limit = {.tv_sec = 15};
    char answer[128];
    int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    if (fd < 0) fail("raw socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ask.checksum = ~(ICMP_ECHO + ask.un.echo.id);
    if (sendto(fd, &ask, sizeof ask, 0, (void *)&at, sizeof at) < 0) fail("send");
    for (;;) {
        ssize_t length = recv(fd, answer, sizeof answer, 0);
        if (length < 0) fail("no answer");
        struct icmphdr *got = (void *)(answer + 20);
        if (length >= 28 && got->type == ICMP_ECHOREPLY && got->un.echo.id == ask.un.echo.id) break;
    }
    printf("alive\n");
}

// The kernel computes the checksum.
static void ping6(const char *host) {
    struct icmp6_hdr ask = {.icmp6_type = ICMP6_ECHO_REQUEST}, got;
    struct sockaddr_in6 at = place6(host, 0);
    struct timeval limit = {.tv_sec = 15};
    int fd = socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
    if (fd < 0) fail("raw socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ask.icmp6_id = htons(getpid());
    if (sendto(fd, &ask, sizeof ask, 0, (void *)&at, sizeof at) < 0) fail("send");
    do {
        if (recv(fd, &got, sizeof got, 0) < 0) fail("no answer");
    } while (got.icmp6_type != ICMP6_ECHO_REPLY || got.icmp6_id != ask.icmp6_id);
    printf("alive\n");
}

// All addresses of a name, each once.
static void ahosts(const char *name) {
    struct addrinfo want = {.ai_socktype = SOCK_STREAM}, *found;
    char host[NI_MAXHOST];
    if (getaddrinfo(name, 0, &want, &found)) fail("getaddrinfo");
    for (; found; found = found->ai_next) {
        getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, 0, 0, NI_NUMERICHOST);
        printf("%s%c", host, found->ai_next ? ' ' : '\n');
    }
}

// One connection, or why there is none.
static void call(const char *host, int port) {
    int fd = connected(SOCK_STREAM, host, port);
    printf("connected\n");
    close(fd);
}

// Asks the name server for an address (1), a name (12) or an address of IPv6 (28).
static void names(const char *name, int kind, int type) {
    unsigned char ask[300] = {0, 0, 1, 2, 1, 0, 0, 1}, answer[600];
    size_t at = 14;
    for (const char *rest = name; *rest;) {
        size_t length = strcspn(rest, ".");
        ask[at++] = length;
        memcpy(ask + at, rest, length);
        at += length;
        rest += length + (rest[length] == '.');
    }
    memcpy(ask + at, "\0\0\1\0\1", 5);
    ask[at + 2] = type;
    at += 5;
    ask[1] = at - 2;
    int fd = connected(kind, "127.0.0.11", 53);
    int skip = kind == SOCK_DGRAM ? 2 : 0;
    whole(fd, ask + skip, at - skip, 1);
    ssize_t length = recv(fd, answer + skip, sizeof answer - skip, 0);
    if (kind == SOCK_STREAM && length == 2) length += recv(fd, answer + 2, sizeof answer - 2, 0);
    if (length <= 0) fail("no answer");
    if (answer[5] & 15) {
        printf("error %d\n", answer[5] & 15);
        return;
    }
    unsigned char *last = answer + skip + length - 4;
    if (!answer[9]) {
        printf("no data\n");
        return;
    }
    if (type == 28) {
        char text[INET6_ADDRSTRLEN];
        printf("%s\n", inet_ntop(AF_INET6, last - 12, text, sizeof text));
        return;
    }
    if (type == 12) {
        // Behind question, name, type, class, time and size.
        for (unsigned char *label = answer + at + 12; *label && *label < 64; label += 1 + *label)
            printf("%.*s.", *label, label + 1);
        printf("\n");
        return;
    }
    printf("%d.%d.%d.%d\n", last[0], last[1], last[2], last[3]);
}

static void device(const char *name) {
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    strncpy(request.ifr_name, name, sizeof request.ifr_name - 1);
    if (ioctl(fd, SIOCGIFADDR, &request)) fail(name);
    printf("%s", inet_ntoa(((struct sockaddr_in *)&request.ifr_addr)->sin_addr));
    ioctl(fd, SIOCGIFMTU, &request);
    printf(" mtu %d", request.ifr_mtu);
    ioctl(fd, SIOCGIFHWADDR, &request);
    for (int at = 0; at < 6; at++)
        printf("%c%02x", at ? ':' : ' ', (unsigned char)request.ifr_hwaddr.sa_data[at]);
    printf("\n");
}

static void shown(const char *path, const char *word) {
    char line[512];
    FILE *file = fopen(path, "r");
    if (!file) fail(path);
    while (fgets(line, sizeof line, file))
        if (strstr(line, word)) fputs(line, stdout);
}

static void bound(const char *host, int port) {
    struct sockaddr_in at = place(host, port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(fd, (void *)&at, sizeof at)) fail(host);
    printf("bound\n");
}

// Frames of random bytes, and damaged ones of ARP and IPv4.
static void noise(int count) {
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex("eth0")};
    int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    uint64_t words[32], state = 7;
    if (fd < 0) fail("packet socket");
    for (int turn = 0; turn < count; turn++) {
        unsigned char *bytes = (void *)words;
        fill(words, 32, &state);
        size_t length = 14 + bytes[200] % 60;
        if (turn % 4 == 3) {
            memcpy(bytes + 12, "\x86\xdd\x60", 3);
            if (turn % 8 == 3) bytes[20] = 58, bytes[21] = 255, bytes[54] = 135;
            memcpy(bytes + 22, "\xfd\0\0\x80\0\0\0\0\0\0\0\0\x64\x50\0\3", 16);
            if (turn % 5) memcpy(bytes + 38, "\xfd\0\0\x80\0\0\0\0\0\0\0\0\x64\x50\0", 15);
        } else if (turn % 3) memcpy(bytes + 12, turn % 3 == 1 ? "\x08\0\x45" : "\x08\x06\0\1\x08\0\6\4", turn % 3 == 1 ? 3 : 8);
        if (turn % 2) memcpy(bytes + 26, "\x64\x50\0\3", 4);
        sendto(fd, bytes, length, 0, (void *)&at, sizeof at);
    }
    printf("made noise\n");
}

static void descriptors(void) {
    DIR *all = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(all)) count++;
    printf("%d descriptors\n", count - 3);
}

int main(int count, char **words) {
    for (int at = 1; at < count;) {
        const char *word = words[at++];
        const char *one = at < count ? words[at] : "";
        if (!strcmp(word, "serve")) serve(AF_INET);
        else if (!strcmp(word, "serve6")) serve(AF_INET6);
        else if (!strcmp(word, "descriptors")) descriptors();
        else if (!strcmp(word, "noise")) noise(atoi(one)), at++;
        else if (!strcmp(word, "streams")) streams(one, strtoull(words[at + 1], 0, 10)), at += 2;
        else if (!strcmp(word, "talk")) talk(one, atoi(words[at + 1])), at += 2;
        else if (!strcmp(word, "datagrams")) datagrams(one), at++;
        else if (!strcmp(word, "ping")) ping(one), at++;
        else if (!strcmp(word, "ping6")) ping6(one), at++;
        else if (!strcmp(word, "ahosts")) ahosts(one), at++;
        else if (!strcmp(word, "call")) call(one, atoi(words[at + 1])), at += 2;
        else if (!strcmp(word, "udp")) names(one, SOCK_DGRAM, 1), at++;
        else if (!strcmp(word, "tcp")) names(one, SOCK_STREAM, 1), at++;
        else if (!strcmp(word, "aaaa")) names(one, SOCK_DGRAM, 28), at++;
        else if (!strcmp(word, "ptr")) names(one, SOCK_DGRAM, 12), at++;
        else if (!strcmp(word, "device")) device(one), at++;
        else if (!strcmp(word, "shown")) shown(one, words[at + 1]), at += 2;
        else if (!strcmp(word, "bound")) bound(one, atoi(words[at + 1])), at += 2;
        else fail(word);
        fflush(stdout);
    }
    return 0;
}
