/* Starts nginx, asks for a page until it answers, and ends it.
 *
 * Words: none. nginx keeps all its files in the working directory. Of the times of a rank, `start` is
 * until nginx is started, `work` until the page is here, and `end` is nginx' own end. The page has to
 * be the one that was written before.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lab.h"

#define PAGE "the page of coracle-lab\n"
#define LIMIT_NS (60 * 1000000000ll)

static char here[4096];

static int fail(const char *what) {
    fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
    return 1;
}

/* A port of the loopback that nothing listens at. */
static int free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (one < 0 || bind(one, (struct sockaddr *)&at, size) != 0 || getsockname(one, (struct sockaddr *)&at, &size) != 0)
        return 0;
    close(one);
    return ntohs(at.sin_port);
}

static int write_files(int port) {
    FILE *page = fopen("page.txt", "w"), *settings = fopen("nginx.conf", "w");
    if (!page || !settings) return 1;
    fputs(PAGE, page);
    /* Quoted: a path can have spaces. Workers of root would run as another user, who may not be able to
     * enter this directory, and whom a user namespace may not have. */
    fprintf(settings,
            "daemon off;\nmaster_process %s;\nworker_processes 1;\npid \"%s/nginx.pid\";\nerror_log \"%s/error.log\";\n"
            "events { worker_connections 64; }\nhttp {\n  access_log off;\n",
            geteuid() == 0 ? "off" : "on", here, here);
    const char *kinds[] = {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        fprintf(settings, "  %s_temp_path \"%s/%s\";\n", kinds[kind], here, kinds[kind]);
    fprintf(settings, "  server { listen 127.0.0.1:%d; root \"%s\"; }\n}\n", port, here);
    int bad = fclose(page) != 0;
    return fclose(settings) != 0 || bad;
}

/* Asks once: 1 if the page came, 0 if nothing answers yet, -1 if something else came. */
static int ask(int port) {
    static const char question[] = "GET /page.txt HTTP/1.0\r\n\r\n";
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char answer[4096];
    size_t count = 0;
    int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), is_there = 0;
    if (connect(one, (struct sockaddr *)&at, sizeof at) == 0 && write(one, question, sizeof question - 1) == sizeof question - 1) {
        ssize_t more;
        while (count < sizeof answer - 1 && (more = read(one, answer + count, sizeof answer - 1 - count)) > 0) count += (size_t)more;
        answer[count] = 0;
        const char *body = strstr(answer, "\r\n\r\n");
        is_there = strstr(answer, " 200 OK") && body && !strcmp(body + 4, PAGE) ? 1 : -1;
    }
    close(one);
    return is_there;
}

int main(int count, char **words) {
    if (count != 1) lab_usage("it takes no words", "first");
    signal(SIGPIPE, SIG_IGN);
    int port = free_port(), answer = 0, state = 0;
    if (!getcwd(here, sizeof here)) return fail("the working directory");
    if (port == 0) return fail("a port of the loopback");
    if (write_files(port)) return fail("a file of nginx in the working directory");
    pid_t nginx = fork();
    if (nginx < 0) return fail("fork");
    if (nginx == 0) {
        char settings[sizeof here + 16];
        snprintf(settings, sizeof settings, "%s/nginx.conf", here);
        /* It is a daemon, whose directory is in root's PATH alone. */
        const char *path = getenv("PATH");
        char all[4096 + 32];
        snprintf(all, sizeof all, "%.4096s:/usr/sbin:/sbin", path ? path : "/usr/bin:/bin");
        if (setenv("PATH", all, 1) != 0) _exit(fail("PATH"));
        execlp("nginx", "nginx", "-p", here, "-e", "error.log", "-c", settings, (char *)NULL);
        _exit(fail("nginx"));
    }
    lab_begin(&count, &words);
    while (answer == 0 && lab_now() - lab_init < LIMIT_NS && waitpid(nginx, &state, WNOHANG) == 0) {
        answer = ask(port);
        if (answer == 0) usleep(100);
    }
    lab_work = lab_now();
    if (answer == 0 && (WIFEXITED(state) || WIFSIGNALED(state)) && state != 0) {
        fprintf(stderr, "error: nginx ended before it answered\n");
        return 1;
    }
    kill(nginx, SIGTERM);
    if (waitpid(nginx, &state, 0) != nginx || !WIFEXITED(state) || WEXITSTATUS(state) != 0) answer = -2;
    if (answer != 1) fprintf(stderr, "error: %s\n", answer == -2 ? "nginx did not end well" : answer == 0 ? "nginx does not answer" : "the answer is not the page");
    else printf("lab {\"answer_s\": %.9f}\n", (double)(lab_work - lab_first) / 1e9);
    return lab_end(answer != 1);
}
