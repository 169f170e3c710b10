/* Named sockets, and the data sent through them. */
#include "step.h"

static socklen_t name(struct sockaddr_un *u, const char *path) {
    memset(u, 0, sizeof *u);
    u->sun_family = AF_UNIX;
    strncpy(u->sun_path, path, sizeof u->sun_path);
    return offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1;
}

static void show(const char *what, int result, const struct sockaddr_un *u, socklen_t n) {
    if (result < 0) { say(what, result, errno); return; }
    printf("%s: length %u", what, n);
    if (n > 2) printf(" \"%.*s\"", (int)strnlen(u->sun_path, n - 2), u->sun_path);
    puts("");
    fflush(stdout);
}
#define NAME(call, fd) do { struct sockaddr_un u_; socklen_t n_ = sizeof u_; int r_ = call(fd, (void *)&u_, &n_); show(#call " " #fd, r_, &u_, n_); } while (0)

static void credentials(int fd) {
    struct ucred c;
    socklen_t n = sizeof c;
    int r = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n);
    printf("peer: %d %u:%u %s\n", r, c.uid, c.gid, c.pid == getpid() ? "me" : "other");
}

/* An absolute path of 107 bytes, which leaves no space for a prefix; its last component has this
 * many. */
static void absolute(int length) {
    char text[108];
    printf("-- %d\n", length);
    IS(getcwd(text, sizeof text) == text);
    int at = strlen(text);
    memset(text + at, 'a', 107 - at);
    text[107] = text[at] = 0;
    text[at] = '/'; text[106 - length] = 0;
    DO(mkdir(text, 0755));
    text[106 - length] = '/';
    struct sockaddr_un u, back;
    socklen_t n = name(&u, text), got = sizeof back;
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    DO(connect(client, (void *)&u, n));
    DO(bind(server, (void *)&u, n));
    struct stat made;
    facts("stat", stat(text, &made), &made);
    DO(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, n));
    DO(listen(server, 1));
    DO(connect(client, (void *)&u, n));
    DO(getsockname(server, (void *)&back, &got)); IS(got == n && !strcmp(back.sun_path, text));
    got = sizeof back;
    DO(getpeername(client, (void *)&back, &got)); IS(got == n && !strcmp(back.sun_path, text));
    DO(unlink(text));
    DO(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, n));
}

/* A path of 107 bytes, most of them in the last component, of a socket that was bound by its
 * name alone. */
static void reached(void) {
    char text[108];
    puts("-- reached");
    IS(getcwd(text, sizeof text) == text);
    int at = strlen(text);
    memset(text + at, 'r', 107 - at);
    text[at] = '/'; text[107] = 0;
    struct sockaddr_un u, back;
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t n = name(&u, text + at + 1), got = sizeof back;
    DO(bind(server, (void *)&u, n)); DO(listen(server, 1));
    n = name(&u, text);
    DO(connect(client, (void *)&u, n));
    DO(getpeername(client, (void *)&back, &got)); IS(!strcmp(back.sun_path, text + at + 1));
    int here = socket(AF_UNIX, SOCK_DGRAM, 0), away = socket(AF_UNIX, SOCK_DGRAM, 0);
    text[at + 1] = 's';
    n = name(&u, text + at + 1);
    DO(bind(here, (void *)&u, n));
    n = name(&u, text);
    DO(sendto(away, "x", 1, 0, (void *)&u, n));
    struct iovec v = {"yes", 3};
    struct msghdr m = {&u, n, &v, 1, 0, 0, 0};
    DO(sendmsg(away, &m, 0));
    char bytes[4];
    DO(recv(here, bytes, sizeof bytes, MSG_DONTWAIT)); DO(recv(here, bytes, sizeof bytes, MSG_DONTWAIT));
}

int main(void) {
    start("sockets");
    struct sockaddr_un u;
    socklen_t n = name(&u, "sock");
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    NAME(getsockname, server);
    DO(bind(server, (void *)&u, n)); STAT("sock");
    DO(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, n));
    NAME(getsockname, server);
    DO(connect(client, (void *)&u, n));
    DO(listen(server, 5));
    DO(connect(client, (void *)&u, n));
    NAME(getpeername, client); NAME(getsockname, client);
    struct sockaddr_un peer;
    socklen_t pn = sizeof peer;
    int got = accept(server, (void *)&peer, &pn);
    show("accept", got, &peer, pn);
    credentials(client); credentials(got);
    struct sockaddr_un cut;
    memset(&cut, 'z', sizeof cut);
    pn = 4;
    DO(getpeername(client, (void *)&cut, &pn));
    printf("cut: %u \"%.4s\"\n", pn, cut.sun_path);
    pn = sizeof cut;
    DO(getpeername(client, (void *)8, &pn));
    DO(getsockname(client, (void *)&cut, (void *)8));
    DO(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, 1));
    DO(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)8, n));
    DO(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, 200));
    DO(connect(99, (void *)&u, n));
    DO(bind(99, (void *)&u, n));
    n = name(&u, "none/such"); DO(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, n)); DO(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, n));
    n = name(&u, "/etc/passwd"); DO(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, n)); DO(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, n));
    symlink("sock", "link");
    n = name(&u, "link"); DO(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, n)); DO(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, n));
    puts("-- long names");
    char text[200];
    memset(text, 'q', sizeof text); text[100] = 0;
    n = name(&u, text);
    int far = socket(AF_UNIX, SOCK_STREAM, 0);
    DO(bind(far, (void *)&u, n)); listen(far, 1);
    NAME(getsockname, far);
    int near = socket(AF_UNIX, SOCK_STREAM, 0);
    DO(connect(near, (void *)&u, n)); NAME(getpeername, near);
    text[100] = 'q'; text[108] = 0;
    name(&u, text);
    DO(bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, sizeof u));
    text[108] = 0; DO(access(text, F_OK));
    absolute(57); absolute(79); reached();
    puts("-- abstract");
    memset(&u, 0, sizeof u); u.sun_family = AF_UNIX; sprintf(u.sun_path + 1, "coracle-differential-%u", (unsigned)getuid());
    n = 3 + strlen(u.sun_path + 1);
    int abstract = socket(AF_UNIX, SOCK_STREAM, 0);
    DO(bind(abstract, (void *)&u, n)); DO(listen(abstract, 1));
    DO(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&u, n));
    pn = sizeof peer; DO(getsockname(abstract, (void *)&peer, &pn)); printf("%u %d %s\n", pn, peer.sun_path[0], peer.sun_path[1] == 'c' ? "c" : "?");
    int automatic = socket(AF_UNIX, SOCK_DGRAM, 0);
    u.sun_path[0] = 0;
    DO(bind(automatic, (void *)&u, 2));
    pn = sizeof peer; DO(getsockname(automatic, (void *)&peer, &pn)); printf("%u\n", pn);
    puts("-- datagrams");
    int a = socket(AF_UNIX, SOCK_DGRAM, 0), b = socket(AF_UNIX, SOCK_DGRAM, 0);
    n = name(&u, "a"); bind(a, (void *)&u, n);
    struct sockaddr_un ub;
    socklen_t nb = name(&ub, "b");
    bind(b, (void *)&ub, nb);
    DO(sendto(a, "hello", 5, 0, (void *)&ub, nb));
    pn = sizeof peer;
    int r = recvfrom(b, text, sizeof text, 0, (void *)&peer, &pn);
    show("recvfrom", r, &peer, pn); printf("%.5s\n", text);
    struct iovec v = {text, sizeof text};
    struct msghdr m = {&ub, nb, &v, 1, 0, 0, 0};
    v.iov_len = 7;
    DO(sendmsg(a, &m, 0));
    m.msg_name = &peer; m.msg_namelen = sizeof peer; v.iov_len = 3;
    r = recvmsg(b, &m, 0);
    show("recvmsg", r, &peer, m.msg_namelen); printf("%d flags %x\n", r, m.msg_flags);
    struct mmsghdr many[2] = {{{&ub, nb, &v, 1}}, {{&ub, nb, &v, 1}}};
    DO(sendmmsg(a, many, 2, 0));
    struct sockaddr_un from[2];
    for (int i = 0; i < 2; i++) { many[i].msg_hdr.msg_name = &from[i]; many[i].msg_hdr.msg_namelen = sizeof from[i]; }
    DO(recvmmsg(b, many, 2, 0, 0));
    for (int i = 0; i < 2; i++) show("recvmmsg", many[i].msg_len, &from[i], many[i].msg_hdr.msg_namelen);
    DO(sendmsg(a, 0, 0)); DO(recvmsg(a, (void *)8, 0)); DO(sendto(a, "x", 1, 0, (void *)8, nb));
    DO(connect(a, (void *)&ub, nb)); DO(send(a, "x", 1, 0)); DO(recv(b, text, 9, 0));
    puts("-- passing");
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    credentials(pair[0]);
    NAME(getsockname, pair[0]);
    int on = 1, file = open("/etc/passwd", O_RDONLY);
    setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    char control[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    struct msghdr with = {0, 0, &v, 1, control, CMSG_SPACE(sizeof(int)), 0};
    struct cmsghdr *c = CMSG_FIRSTHDR(&with);
    c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &file, sizeof file);
    DO(sendmsg(pair[0], &with, 0));
    with.msg_controllen = sizeof control;
    DO(recvmsg(pair[1], &with, MSG_CMSG_CLOEXEC));
    for (c = CMSG_FIRSTHDR(&with); c; c = CMSG_NXTHDR(&with, c)) {
        if (c->cmsg_type == SCM_RIGHTS) { int f; memcpy(&f, CMSG_DATA(c), sizeof f); printf("descriptor: %ld\n", (long)read(f, text, 4)); }
        if (c->cmsg_type == SCM_CREDENTIALS) { struct ucred k; memcpy(&k, CMSG_DATA(c), sizeof k); printf("credentials: %u:%u %s\n", k.uid, k.gid, k.pid == getpid() ? "me" : "other"); }
    }
    with.msg_controllen = CMSG_SPACE(sizeof(struct ucred));
    c = CMSG_FIRSTHDR(&with);
    c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_CREDENTIALS; c->cmsg_len = CMSG_LEN(sizeof(struct ucred));
    struct ucred mine = {getpid(), getuid(), getgid()};
    memcpy(CMSG_DATA(c), &mine, sizeof mine);
    DO(sendmsg(pair[0], &with, 0));
    mine.uid = 4321; memcpy(CMSG_DATA(c), &mine, sizeof mine);
    if (getuid()) DO(sendmsg(pair[0], &with, 0));
    puts("-- others");
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    struct { sa_family_t f; unsigned short p; unsigned a; char z[8]; } in = {AF_INET, 0, 0x0100007f, ""};
    DO(bind(tcp, (void *)&in, 16)); DO(listen(tcp, 1));
    pn = 16; getsockname(tcp, (void *)&in, &pn);
    int out = socket(AF_INET, SOCK_STREAM, 0);
    DO(connect(out, (void *)&in, 16));
    pn = sizeof peer; r = accept4(tcp, (void *)&peer, &pn, SOCK_CLOEXEC); IS(r >= 0 && pn == 16 && peer.sun_family == AF_INET);
    return 0;
}
