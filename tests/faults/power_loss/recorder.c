/* Writes down, in order, everything a process does to the files below one directory, so that a power cut can be played afterwards.
 *
 * HOMING_RECORD_ROOT: that directory, without a slash at its end. HOMING_RECORD_LOG: where the log is appended to, outside of it.
 * A record: kind (1 byte), the mark (3 bytes), thread (u32), inode (u64), offset (i64), length (u32), then `length` bytes
 * and the mark again; little-endian.
 *   w write: offset, the data       t truncate: offset is the new length       s sync begins       e sync ended well
 *   c file created: inode, offset is the directory's inode, the data its name      d the same for a directory
 *   u name removed: offset is the directory's inode, the data the name              x a call that this recorder cannot follow
 * Writes and truncations are written down before they are made: of a process that is killed meanwhile the last record may be cut off,
 * and that call was never made. A sync is written down before and after: what is between the two was not part of it. Names: after.
 * Shared memory (-shm) is left out: SQLite makes it anew at the first open after a crash. To be loaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct __attribute__((packed)) header {
    char kind, mark[3];
    uint32_t thread;
    uint64_t inode;
    int64_t offset;
    uint32_t length;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_descriptor = -1;
static const char *root;
static size_t root_length;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("HOMING_RECORD_LOG"), *named = getenv("HOMING_RECORD_ROOT");
    if (!path || !named) return;
    int opened = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (opened < 0) abort();
    log_descriptor = fcntl(opened, F_DUPFD_CLOEXEC, 200);
    syscall(SYS_close, opened);
    if (log_descriptor < 0) abort();
    root = strdup(named);
    root_length = strlen(root);
}

static void record(char kind, uint64_t inode, int64_t offset, const void *data, size_t length) {
    struct header header = {kind, {'\xa7', '\x01', '\xf3'}, (uint32_t)syscall(SYS_gettid), inode, offset, (uint32_t)length};
    struct iovec parts[3] = {{&header, sizeof header}, {(void *)data, length}, {header.mark, sizeof header.mark}};
    int before = errno;
    /* One call for all parts: the log is appended to by other processes as well. */
    if (syscall(SYS_writev, log_descriptor, parts, 3) != (ssize_t)(sizeof header + length + sizeof header.mark)) abort();
    errno = before;
}

static int below_root(const char *path) {
    size_t length = strlen(path);
    if (strncmp(path, root, root_length) || (path[root_length] && path[root_length] != '/')) return 0;
    return length < 4 || strcmp(path + length - 4, "-shm");
}

/* The inode of a watched file or directory, else 0. */
static uint64_t watched(int descriptor) {
    char link[64], path[PATH_MAX + 16];
    struct stat found;
    if (log_descriptor < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (!below_root(path) || fstat(descriptor, &found) || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return 0;
    return found.st_ino;
}

/* The inode of the watched directory that holds the path, else 0; its last part goes to `name`. */
static uint64_t holder(const char *path, char *name) {
    char copy[PATH_MAX], whole[PATH_MAX], full[2 * PATH_MAX];
    struct stat found;
    if (log_descriptor < 0 || strlen(path) >= sizeof copy) return 0;
    strcpy(copy, path);
    if (!realpath(dirname(copy), whole)) return 0;
    strcpy(copy, path);
    strcpy(name, basename(copy));
    snprintf(full, sizeof full, "%s/%s", whole, name);
    if (!below_root(full) || !below_root(whole) || stat(whole, &found)) return 0;
    return found.st_ino;
}

/* What no run that is recorded does; if that changes, the log says so and the reader stops. */
static void cannot_follow(int descriptor, const char *call) {
    uint64_t inode = watched(descriptor);
    if (inode) record('x', inode, 0, call, strlen(call));
}

#define NEXT(type, name) \
    static type (*next)(); \
    if (!next) next = (type(*)())dlsym(RTLD_NEXT, name)

static int synced(int descriptor, int (*next)()) {
    uint64_t inode = watched(descriptor);
    if (inode) record('s', inode, 0, NULL, 0);
    int result = next(descriptor);
    if (inode && !result) record('e', inode, 0, NULL, 0);
    return result;
}

int fsync(int descriptor) { NEXT(int, "fsync"); return synced(descriptor, next); }
int fdatasync(int descriptor) { NEXT(int, "fdatasync"); return synced(descriptor, next); }

static int truncated(int descriptor, off64_t length) {
    uint64_t inode = watched(descriptor);
    pthread_mutex_lock(&lock);
    if (inode) record('t', inode, length, NULL, 0);
    int result = (int)syscall(SYS_ftruncate, descriptor, length);
    pthread_mutex_unlock(&lock);
    if (inode && result) cannot_follow(descriptor, "ftruncate that failed");
    return result;
}

int ftruncate(int descriptor, off_t length) { return truncated(descriptor, length); }
int ftruncate64(int descriptor, off64_t length) { return truncated(descriptor, length); }

static ssize_t written(int descriptor, const void *data, size_t count, off64_t offset) {
    uint64_t inode = watched(descriptor);
    pthread_mutex_lock(&lock);
    if (inode) record('w', inode, offset, data, count);
    ssize_t result = syscall(SYS_pwrite64, descriptor, data, count, offset);
    pthread_mutex_unlock(&lock);
    if (inode && result != (ssize_t)count) cannot_follow(descriptor, "pwrite of a part");
    return result;
}

ssize_t pwrite(int descriptor, const void *data, size_t count, off_t offset) { return written(descriptor, data, count, offset); }
ssize_t pwrite64(int descriptor, const void *data, size_t count, off64_t offset) { return written(descriptor, data, count, offset); }

ssize_t write(int descriptor, const void *data, size_t count) {
    uint64_t inode = watched(descriptor);
    if (!inode) return syscall(SYS_write, descriptor, data, count);
    pthread_mutex_lock(&lock);
    int appends = fcntl(descriptor, F_GETFL) & O_APPEND;
    record('w', inode, lseek64(descriptor, 0, appends ? SEEK_END : SEEK_CUR), data, count);
    ssize_t result = syscall(SYS_write, descriptor, data, count);
    pthread_mutex_unlock(&lock);
    if (result != (ssize_t)count) cannot_follow(descriptor, "write of a part");
    return result;
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    cannot_follow(descriptor, "writev");
    return syscall(SYS_writev, descriptor, parts, count);
}

int rename(const char *from, const char *to) {
    NEXT(int, "rename");
    char name[PATH_MAX];
    uint64_t directory = holder(to, name);
    if (directory) record('x', directory, 0, "rename", 6);
    return next(from, to);
}

static int opened(int directory, const char *path, int flags, mode_t mode) {
    char name[PATH_MAX];
    struct stat found;
    int creates = (flags & O_CREAT) && directory == AT_FDCWD && log_descriptor >= 0, existed = 1;
    uint64_t parent = creates ? holder(path, name) : 0;
    if (parent) existed = !lstat(path, &found);
    int result = (int)syscall(SYS_openat, directory, path, flags, mode);
    if (result < 0 || !parent) return result;
    if (flags & O_TRUNC) cannot_follow(result, "open with O_TRUNC");
    if (!existed && !fstat(result, &found)) record('c', found.st_ino, (int64_t)parent, name, strlen(name));
    return result;
}

#define MODE(last) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, last); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int directory, const char *path, int flags, ...) { MODE(flags) return opened(directory, path, flags, mode); }
int openat64(int directory, const char *path, int flags, ...) { MODE(flags) return opened(directory, path, flags | O_LARGEFILE, mode); }

static int removed(const char *path) {
    char name[PATH_MAX];
    uint64_t parent = holder(path, name);
    int result = (int)syscall(SYS_unlink, path);
    if (!result && parent) record('u', 0, (int64_t)parent, name, strlen(name));
    return result;
}

int unlink(const char *path) { return removed(path); }
int remove(const char *path) { return removed(path); }

int mkdir(const char *path, mode_t mode) {
    NEXT(int, "mkdir");
    char name[PATH_MAX];
    struct stat found;
    uint64_t parent = holder(path, name);
    int result = next(path, mode);
    if (!result && parent && !stat(path, &found)) record('d', found.st_ino, (int64_t)parent, name, strlen(name));
    return result;
}
