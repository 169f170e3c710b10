// A module for Lua, so that musl's loader has a library to load: threads that open files and start
// programs.
#include <errno.h>
#include <fcntl.h>
#include "lauxlib.h"
#include "lua.h"
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static int rounds, right, left_early;

static void leave(void *nothing) { (void)nothing; __atomic_add_fetch(&left_early, 1, __ATOMIC_SEQ_CST); }

static void *work(void *number) {
    char name[64];
    struct stat facts;
    for (int round = 0; round < rounds; round++) {
        snprintf(name, sizeof name, "/tmp/w%ld-%d", (long)number, round);
        int file = open(name, O_CREAT | O_WRONLY | O_EXCL, 0640), fine = file >= 0 && fchown(file, 5, 6) == 0;
        close(file);
        fine = fine && stat(name, &facts) == 0 && facts.st_uid == 5 && (facts.st_mode & 07777) == 0640 && unlink(name) == 0;
        if (round % 25 == 0) {
            pid_t pid;
            int status = 0;
            char *words[] = {"sh", "-c", "exit 7", 0};
            fine = fine && posix_spawnp(&pid, "sh", 0, 0, words, environ) == 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7;
        }
        __atomic_add_fetch(&right, fine, __ATOMIC_SEQ_CST);
    }
    return 0;
}

static void *blocked(void *name) {
    pthread_cleanup_push(leave, 0);
    open(name, O_RDONLY);
    pthread_cleanup_pop(0);
    return 0;
}

static int run(lua_State *state) {
    pthread_t all[16], one;
    int count = (int)luaL_checkinteger(state, 1);
    rounds = (int)luaL_checkinteger(state, 2);
    for (long n = 0; n < count; n++) pthread_create(&all[n], 0, work, (void *)n);
    for (int n = 0; n < count; n++) pthread_join(all[n], 0);
    mkfifo("/tmp/fifo", 0600);
    pthread_create(&one, 0, blocked, "/tmp/fifo");
    usleep(100000);
    pthread_cancel(one);
    pthread_join(one, 0);
    lua_pushinteger(state, right);
    lua_pushinteger(state, left_early);
    return 2;
}

int luaopen_workers(lua_State *state) {
    lua_newtable(state);
    lua_pushcfunction(state, run);
    lua_setfield(state, -2, "run");
    return 1;
}
