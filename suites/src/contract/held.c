/* Runs a program and holds each of its processes at certain calls until it may go on.
 *
 *   held CALL[,CALL]... PROGRAM [ARGUMENT]...
 *
 * A process that has entered one of these calls, of which the kernel has done nothing yet, is told
 * by a line with its number. It goes on when a byte is read. Ends with 77 where the kernel does not
 * tell which call a process has entered (before Linux 5.3).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_watched(const char *list, unsigned long call)
{
	for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
		if (strtoul(list, NULL, 10) == call) return 1;
	return 0;
}

static void at_call(pid_t pid, const char *list)
{
	struct __ptrace_syscall_info info;
	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0) exit(77);
	if (info.op != PTRACE_SYSCALL_INFO_ENTRY || !is_watched(list, info.entry.nr)) return;
	printf("%d\n", pid);
	fflush(stdout);
	if (getchar() == EOF) exit(1);
}

static pid_t begin(char **words)
{
	int gate[2];
	if (pipe2(gate, O_CLOEXEC)) exit(1);
	pid_t first = fork();
	if (first == 0) {
		char byte;
		int null = open("/dev/null", O_RDWR);
		for (int i = 0; i < 3; i++) dup2(null, i);
		if (null > 2) close(null);
		close(gate[1]);
		if (read(gate[0], &byte, 1) == 1) execvp(words[0], words);
		_exit(127);
	}
	long options = PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC |
		PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
	if (first < 0 || ptrace(PTRACE_SEIZE, first, 0, options)) exit(1);
	/* At its first stop it is asked to stop at calls. */
	if (ptrace(PTRACE_INTERRUPT, first, 0, 0) || write(gate[1], "g", 1) != 1) exit(1);
	close(gate[0]);
	close(gate[1]);
	return first;
}

int main(int count, char **words)
{
	if (count < 3) return 1;
	pid_t first = begin(words + 2), pid;
	int status, code = 1;
	while ((pid = waitpid(-1, &status, __WALL)) > 0) {
		if (!WIFSTOPPED(status)) {
			if (pid == first) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			continue;
		}
		int signal = WSTOPSIG(status), event = status >> 16;
		if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
			/* Stopped as a group, until it is continued. */
			ptrace(PTRACE_LISTEN, pid, 0, 0);
			continue;
		}
		if (signal == (SIGTRAP | 0x80)) at_call(pid, words[1]);
		if (event || signal == (SIGTRAP | 0x80)) signal = 0;
		ptrace(PTRACE_SYSCALL, pid, 0, signal);
	}
	return code;
}
