/* Two members of a network. The argument is the role: `one` has the first address, `two` the
 * second. Both run this program at once and meet before and after each step. */
#include "net.h"

static int is_one;
static const char *own, *other;

/* One end serves and the other calls, and then the other way round. */
static void serve(const char *what, int s) {
    addr a;
    socklen_t length = sizeof a;
    int end = accept(s, &a.any, &length);
    if (end < 0) {
        line("%s: accept %s", what, strerrorname_np(errno));
        return;
    }
    limited(end);
    line("%s: accept told %s", what, name(&a, length));
    NAMES(what, end);
    line("%s: heard %s", what, heard(end));
    send(end, "pong", 4, MSG_NOSIGNAL);
    line("%s: heard %s", what, heard(end));
    close(end);
}

static void call(const char *what, const char *from, int from_port, const char *host, int port) {
    int fd = strchr(host, ':') ? tcp6() : tcp();
    if (from) line("%s: bind %s", what, success(bind_to(fd, from, from_port)));
    line("%s: connect %s", what, result(connect_to(fd, host, port)));
    NAMES(what, fd);
    send(fd, "ping", 4, MSG_NOSIGNAL);
    line("%s: heard %s", what, heard(fd));
    close(fd);
}

static void streams(int serves) {
    TITLE(serves ? "serving" : "calling");
    const char *host = serves ? own : other;
    if (serves) {
        int all = listener(ANY, 5432), low = listener(own, 80);
        int six = tcp6();
        REUSE(six);
        DO(bind_to(six, "::", 8080));
        DO(listen(six, 5));
        meet(is_one ? "one listens" : "two listens");
        serve("to the wildcard", all);
        serve("from own address", all);
        serve("from port 0", all);
        serve("from a fixed port", all);
        serve("from a low port", all);
        serve("from the wildcard", all);
        serve("to port 80", low);
        serve("to both versions", six);
        serve("in version 6", all);
        serve("both in version 6", six);
        meet(is_one ? "one served" : "two served");
        close(all); close(low); close(six);
    } else {
        char mapped[64];
        snprintf(mapped, sizeof mapped, "::ffff:%s", host);
        meet(is_one ? "two listens" : "one listens");
        call("to the wildcard", 0, 0, host, 5432);
        call("from own address", own, 0, host, 5432);
        call("from port 0", ANY, 0, host, 5432);
        call("from a fixed port", own, 6001, host, 5432);
        call("from a low port", own, 600, host, 5432);
        call("from the wildcard", ANY, 6002, host, 5432);
        call("to port 80", 0, 0, host, 80);
        call("to both versions", 0, 0, host, 8080);
        call("in version 6", 0, 0, mapped, 5432);
        call("both in version 6", "::", 6003, mapped, 8080);
        line("nothing there: %s", result(caller(host, 5999)));
        line("on port 0: %s", result(caller(host, 0)));
        line("not as the other: %s", result(bind_to(tcp(), host, 0)));
        meet(is_one ? "two served" : "one served");
    }
}

/* Both have the same ports at once, on their own address and on loopback. */
static void at_once(void) {
    TITLE("the same ports at once");
    static const int ports[] = {80, 5432};
    int wild[2], lo[2];
    for (int p = 0; p < 2; p++) wild[p] = listener(own, ports[p]), lo[p] = listener(LO, ports[p]);
    meet("both listen");
    for (int p = 0; p < 2; p++) {
        /* A connection is complete before it is accepted, so each calls and then serves. */
        int away = caller(other, ports[p]), here = caller(LO, ports[p]), me = caller(own, ports[p]);
        NAMES("away", away); NAMES("here", here); NAMES("me", me);
        send(away, role, 3, MSG_NOSIGNAL); send(here, role, 3, MSG_NOSIGNAL); send(me, role, 3, MSG_NOSIGNAL);
        meet(text("called %d", p));
        int from_me = 0, from_other = 0;
        const char *whose = "-";
        for (int i = 0; i < 2; i++) {
            int end = taken(wild[p]), mine = strstr(heard(end), role) != 0;
            from_me += mine;
            from_other += !mine;
            if (!mine) whose = peer_name(end);
            close(end);
        }
        line("port %d was called by %s", ports[p], whose);
        line("own %d, other %d", from_me, from_other);
        int end = taken(lo[p]);
        line("loopback: %s", heard(end));
        PEER(end);
        close(end); close(away); close(here); close(me);
        meet(text("served %d", p));
    }
    fcntl(lo[0], F_SETFL, O_NONBLOCK);
    line("no more on loopback: %s", success(accept(lo[0], 0, 0)));
    for (int p = 0; p < 2; p++) close(wild[p]), close(lo[p]);
    meet("both closed");
}

/* What one binds to loopback the other does not reach. */
static void loopback(int serves) {
    TITLE("loopback");
    if (serves) {
        int s = listener(LO, 5433), five = listener("127.0.0.5", 5434), six = listener("::1", 5435);
        int all = listener(ANY, 5436), data = receiver(LO, 5437);
        meet("loopback listens");
        meet("loopback called");
        fcntl(s, F_SETFL, O_NONBLOCK);
        line("nobody came: %s", success(accept(s, 0, 0)));
        fcntl(five, F_SETFL, O_NONBLOCK);
        line("nobody came: %s", success(accept(five, 0, 0)));
        fcntl(six, F_SETFL, O_NONBLOCK);
        line("nobody came: %s", success(accept(six, 0, 0)));
        fcntl(all, F_SETFL, O_NONBLOCK);
        line("nobody came: %s", success(accept(all, 0, 0)));
        line("nothing came: %s", success(recv(data, (char[4]){0}, 4, MSG_DONTWAIT)));
        close(s); close(five); close(six); close(all); close(data);
    } else {
        meet("loopback listens");
        static const char *hosts[] = {LO, "127.0.0.5", ANY, "::1", "::ffff:127.0.0.1"};
        for (int h = 0; h < 5; h++)
            for (int port = 5433; port < 5437; port++) line("%s %d: %s", hosts[h], port, result(caller(hosts[h], port)));
        for (int port = 5433; port < 5436; port++) line("%s %d: %s", other, port, result(caller(other, port)));
        int fd = udp();
        DO(send_to(fd, "x", LO, 5437));
        meet("loopback called");
    }
}

static void data(int serves) {
    TITLE(serves ? "receiving" : "sending");
    if (serves) {
        int s = receiver(ANY, 69), apart = receiver(own, 5353), lo = receiver(LO, 5353);
        meet(is_one ? "one receives" : "two receives");
        for (int i = 0; i < 7; i++) {
            addr a;
            char bytes[32];
            socklen_t length = sizeof a;
            ssize_t count = recvfrom(s, bytes, sizeof bytes, 0, &a.any, &length);
            if (count < 0) {
                line("received: %s", strerrorname_np(errno));
                continue;
            }
            line("\"%.*s\" from %s", (int)count, bytes, name(&a, length));
            line("answered: %s", result(sendto(s, "answer", 6, 0, &a.any, length)));
        }
        line("apart: %s", heard_from(apart));
        line("nothing on loopback: %s", success(recv(lo, (char[4]){0}, 4, MSG_DONTWAIT)));
        meet(is_one ? "one received" : "two received");
        /* The refusal of a closed port reaches a connected socket. */
        close(s); close(apart); close(lo);
        meet(is_one ? "one stopped" : "two stopped");
        meet(is_one ? "one was asked" : "two was asked");
    } else {
        meet(is_one ? "two receives" : "one receives");
        int free = udp(), bound = receiver(own, 6004), wild = receiver(ANY, 6005), low = receiver(own, 601), six = udp6();
        static const char *words[] = {"unbound", "bound", "wildcard", "low", "version 6"};
        int fds[] = {free, bound, wild, low, six};
        for (int i = 0; i < 5; i++) {
            const char *host = i == 4 ? text("::ffff:%s", other) : other;
            line("%s: %s", words[i], result(send_to(fds[i], words[i], host, 69)));
            line("%s: %s", words[i], heard_from(fds[i]));
            line("%s: self %s", words[i], own_name(fds[i]));
        }
        int fd = udp();
        DO(connect_to(fd, other, 69));
        NAMES("connected", fd);
        DO(send(fd, "connected", 9, 0));
        line("%s", heard_from(fd));
        /* The socket that spoke to the other also speaks to itself. */
        int here = receiver(LO, 6006);
        DO(send_to(free, "to loopback", LO, 6006));
        line("%s", heard_from(here));
        DO(send_to(free, "after loopback", other, 69));
        line("%s", heard_from(free));
        DO(send_to(free, "apart", other, 5353));
        meet(is_one ? "two received" : "one received");
        meet(is_one ? "two stopped" : "one stopped");
        DO(send(fd, "x", 1, 0));
        line("ready: %#x", ready(fd, 0));
        DO(send(fd, "x", 1, 0));
        meet(is_one ? "two was asked" : "one was asked");
        close(free); close(bound); close(wild); close(low); close(six); close(fd); close(here);
    }
}

static void killed(void) {
    TITLE("killed");
    for (int turn = 0; turn < 3; turn++) {
        if (is_one) {
            int told[2];
            char byte;
            if (pipe(told)) exit(3);
            fflush(stdout);
            pid_t pid = fork();
            if (pid == 0) {
                alarm(20);
                int s = listener(ANY, 80);
                if (write(told[1], "x", 1) != 1) _exit(1);
                for (;;) {
                    int end = taken(s);
                    if (end >= 0) send(end, "hello", 5, MSG_NOSIGNAL);
                    close(end);
                }
            }
            close(told[1]);
            line("listens: %s", result(read(told[0], &byte, 1)));
            close(told[0]);
            meet(text("turn %d lives", turn));
            meet(text("turn %d called", turn));
            kill(pid, SIGKILL);
            ended("server", pid);
            meet(text("turn %d killed", turn));
            meet(text("turn %d done", turn));
        } else {
            meet(text("turn %d lives", turn));
            int fd = caller(other, 80);
            line("hears %s", heard(fd));
            NAMES("caller", fd);
            meet(text("turn %d called", turn));
            meet(text("turn %d killed", turn));
            line("the connection: %s", heard(fd));
            line("again: %s", result(caller(other, 80)));
            close(fd);
            meet(text("turn %d done", turn));
        }
    }
}

int main(int argc, char **argv) {
    begin();
    if (argc > 1) role = argv[1];
    is_one = !strcmp(role, "one");
    /* On another host it has one of that host's addresses. */
    const char *two = getenv("TWO") ? getenv("TWO") : TWO;
    own = is_one ? ONE : two;
    other = is_one ? two : ONE;
    meet("begin");
    streams(is_one);
    streams(!is_one);
    at_once();
    loopback(is_one);
    data(is_one);
    data(!is_one);
    killed();
    return 0;
}
