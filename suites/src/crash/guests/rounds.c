/* A program that executes itself again and again, from its second thread, and modes that stay.
 *
 *   rounds end CODE TIMES   executes itself TIMES times, then ends with CODE
 *   rounds look CODE TIMES  the same, and ends with 97 if /mem/mark is missing, as in another
 *                           container
 *   rounds stay             makes the mark, starts a child that executes itself until /stop exists,
 *                           and ends
 *   rounds halt             makes /stop
 *   rounds headless         makes the mark, ends its first thread, and lives on in the second until
 *                           /stop exists
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MARK "/mem/mark"
#define STOP "/stop"
/* Seconds after which a process that stays ends in any case; an execve keeps the alarm. */
#define LIFE 300

static char *next[5];

static void *execute(void *unused)
{
	execve("/bin/rounds", next, environ);
	_exit(99);
}

static void from_second_thread(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, execute, NULL)) _exit(98);
	for (;;) pause();
}

static void make_mark(void)
{
	if (close(open(MARK, O_CREAT | O_WRONLY, 0600))) _exit(96);
}

static void *live_on(void *unused)
{
	/* Not before the first thread is a zombie. */
	usleep(50000);
	make_mark();
	while (access(STOP, F_OK)) usleep(2000);
	_exit(0);
}

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";
	if (!strcmp(word, "headless")) {
		alarm(LIFE);
		pthread_t thread;
		if (pthread_create(&thread, NULL, live_on, NULL)) return 98;
		syscall(SYS_exit, 0);
	}
	if (!strcmp(word, "stay")) {
		make_mark();
		if (fork()) return 0;
		alarm(LIFE);
		int null = open("/dev/null", O_RDWR);
		for (int i = 0; i < 3; i++) dup2(null, i);
		word = "left";
	}
	if (!strcmp(word, "left")) {
		if (!access(STOP, F_OK)) return 0;
		next[0] = "rounds";
		next[1] = "left";
		/* Alone, so that others see nothing of it but the execve itself. */
		execute(NULL);
	}
	if (!strcmp(word, "halt")) return close(open(STOP, O_CREAT | O_WRONLY, 0600));
	if (argc < 4) return 95;
	int times = atoi(argv[3]);
	if (times == 0) {
		if (!strcmp(word, "look") && access(MARK, F_OK)) return 97;
		return atoi(argv[2]);
	}
	char number[16];
	snprintf(number, sizeof number, "%d", times - 1);
	char *words[] = {"rounds", argv[1], argv[2], number};
	memcpy(next, words, sizeof words);
	from_second_thread();
}
