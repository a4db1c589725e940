/* Fails the k-th call of one kind on files whose path holds HOMING_SHIM_PATH, then (HOMING_SHIM_FOREVER=1) every later one.
 *
 * HOMING_SHIM_CALL: sync (fsync, fdatasync) | write (pwrite, pwrite64, write) | truncate (ftruncate, ftruncate64)
 * HOMING_SHIM_AT: k, from 1; 0 only counts. HOMING_SHIM_ERRNO: the number to fail with.
 * HOMING_SHIM_HANG: while this file is there, syncs do not return.
 * HOMING_SHIM_COUNT: a file that receives the number of calls seen, as decimal text, after each.
 *
 * To be loaded with LD_PRELOAD. SQLite reaches these calls through libc's symbols, so standing before them is enough. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int calls;

static int on_watched_file(int descriptor) {
    const char *wanted = getenv("HOMING_SHIM_PATH");
    char link[64], path[4096];
    if (!wanted) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, wanted) != NULL;
}

static int fails(const char *kind, int descriptor) {
    const char *wanted = getenv("HOMING_SHIM_CALL"), *at = getenv("HOMING_SHIM_AT");
    const char *number = getenv("HOMING_SHIM_ERRNO"), *forever = getenv("HOMING_SHIM_FOREVER"), *count = getenv("HOMING_SHIM_COUNT");
    if (!wanted || strcmp(wanted, kind) || !on_watched_file(descriptor)) return 0;
    int call = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST), k = at ? atoi(at) : 0;
    if (count) {
        FILE *out = fopen(count, "w");
        if (out) {
            fprintf(out, "%d", call);
            fclose(out);
        }
    }
    if (k == 0 || call < k || (call > k && !(forever && *forever == '1'))) return 0;
    errno = number ? atoi(number) : EIO;
    return 1;
}

#define NEXT(type, name) static type (*next)(); if (!next) next = (type (*)())dlsym(RTLD_NEXT, name)

static void hang(int descriptor) {
    const char *file = getenv("HOMING_SHIM_HANG");
    while (file && on_watched_file(descriptor) && access(file, F_OK) == 0) usleep(10000);
}

int fsync(int fd) { NEXT(int, "fsync"); hang(fd); return fails("sync", fd) ? -1 : next(fd); }
int fdatasync(int fd) { NEXT(int, "fdatasync"); hang(fd); return fails("sync", fd) ? -1 : next(fd); }
int ftruncate(int fd, off_t length) { NEXT(int, "ftruncate"); return fails("truncate", fd) ? -1 : next(fd, length); }
int ftruncate64(int fd, off64_t length) { NEXT(int, "ftruncate64"); return fails("truncate", fd) ? -1 : next(fd, length); }
ssize_t pwrite(int fd, const void *buffer, size_t count, off_t offset) {
    NEXT(ssize_t, "pwrite");
    return fails("write", fd) ? -1 : next(fd, buffer, count, offset);
}
ssize_t pwrite64(int fd, const void *buffer, size_t count, off64_t offset) {
    NEXT(ssize_t, "pwrite64");
    return fails("write", fd) ? -1 : next(fd, buffer, count, offset);
}
