/* `get NAME PORT` looks a name up, prints the address that answers, and the page there. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char text[4096], host[64];
    if (argc != 3) return 9;
    int error = getaddrinfo(argv[1], argv[2], &hints, &found);
    if (error) return puts(error == EAI_NONAME ? "no such name" : gai_strerror(error)), 2;
    for (; found; found = found->ai_next) {
        int s = socket(found->ai_family, found->ai_socktype, 0);
        if (connect(s, found->ai_addr, found->ai_addrlen)) {
            close(s);
            continue;
        }
        getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, 0, 0, NI_NUMERICHOST);
        puts(host);
        dprintf(s, "GET / HTTP/1.0\r\n\r\n");
        size_t length = 0;
        ssize_t count;
        while ((count = read(s, text + length, sizeof text - 1 - length)) > 0) length += count;
        text[length] = 0;
        char *body = strstr(text, "\r\n\r\n");
        fputs(body ? body + 4 : text, stdout);
        return 0;
    }
    return perror("connect"), 1;
}
