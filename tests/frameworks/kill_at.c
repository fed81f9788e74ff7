/* Preloaded into ranks: kills one of them at an exact operation on a file, so that torn checkpoints are real ones.
 *
 * KILL_AT holds up to four orders, divided by newlines, each "MARK|RANK|OPERATION|NTH|PART":
 *   MARK       a file that is made right before the kill; while it is there the order is idle
 *   RANK       only the process whose RANK this is
 *   OPERATION  open (for writing), write, half (half of that write is done first), or rename (onto the path)
 *   NTH        which such operation of a process, from 1
 *   PART       what the path holds
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST 4
#define REAL(result, name, ...) ((result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

static struct order {
    char *mark, *operation, *part;
    int nth, seen;
} orders[MOST];
static int given;

__attribute__((constructor)) static void read_orders(void) {
    const char *text = getenv("KILL_AT"), *me = getenv("RANK");
    if (!text || !me) return;
    char *rest = strdup(text), *line;
    while (given < MOST && (line = strsep(&rest, "\n"))) {
        struct order order = {.mark = strsep(&line, "|")};
        char *rank = strsep(&line, "|"), *nth;
        order.operation = strsep(&line, "|");
        nth = strsep(&line, "|");
        order.part = line;
        if (order.part && !strcmp(rank, me)) {
            order.nth = atoi(nth);
            orders[given++] = order;
        }
    }
}

static struct order *due(const char *operation, const char *path) {
    for (int i = 0; path && i < given; i++) {
        struct order *order = &orders[i];
        if (strcmp(order->operation, operation) || !strstr(path, order->part) || !access(order->mark, F_OK)) continue;
        if (__sync_add_and_fetch(&order->seen, 1) == order->nth) return order;
    }
    return NULL;
}

static void die(struct order *order) {
    REAL(int, "open", const char *, int, ...)(order->mark, O_WRONLY | O_CREAT, 0600);
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static const char *path_of(int fd, char *room, size_t bytes) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = given ? readlink(link, room, bytes - 1) : -1;
    if (got < 0) return NULL;
    room[got] = 0;
    return room;
}

static void before_open(const char *path, int flags) {
    struct order *order = flags & (O_WRONLY | O_RDWR) ? due("open", path) : NULL;
    if (order) die(order);
}

/* Returns the order whose half is to be written first. */
static struct order *before_write(int fd) {
    char room[4096];
    const char *path = path_of(fd, room, sizeof room);
    struct order *order = due("write", path);
    if (order) die(order);
    return due("half", path);
}

#define OPEN(name)                                                       \
    int name(const char *path, int flags, ...) {                         \
        va_list more;                                                    \
        va_start(more, flags);                                           \
        int mode = va_arg(more, int);                                    \
        va_end(more);                                                    \
        before_open(path, flags);                                        \
        return REAL(int, #name, const char *, int, ...)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                     \
    int name(int at, const char *path, int flags, ...) {                 \
        va_list more;                                                    \
        va_start(more, flags);                                           \
        int mode = va_arg(more, int);                                    \
        va_end(more);                                                    \
        before_open(path, flags);                                        \
        return REAL(int, #name, int, const char *, int, ...)(at, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                      \
    FILE *name(const char *path, const char *how) {                      \
        before_open(path, how[0] == 'r' ? O_RDONLY : O_WRONLY);          \
        return REAL(FILE *, #name, const char *, const char *)(path, how); \
    }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int fd, const void *data, size_t bytes) {
    ssize_t (*real)(int, const void *, size_t) = REAL(ssize_t, "write", int, const void *, size_t);
    struct order *order = before_write(fd);
    if (order) {
        real(fd, data, bytes / 2);
        die(order);
    }
    return real(fd, data, bytes);
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    ssize_t (*real)(int, const struct iovec *, int) = REAL(ssize_t, "writev", int, const struct iovec *, int);
    struct order *order = before_write(fd);
    if (order) {
        real(fd, pieces, count / 2);
        die(order);
    }
    return real(fd, pieces, count);
}

static ssize_t copy(const char *name, int to, int from, off_t *at, size_t bytes) {
    ssize_t (*real)(int, int, off_t *, size_t) = REAL(ssize_t, name, int, int, off_t *, size_t);
    struct order *order = before_write(to);
    struct stat known;
    if (order) {
        if (!fstat(from, &known)) real(to, from, at, known.st_size / 2);
        die(order);
    }
    return real(to, from, at, bytes);
}
ssize_t sendfile(int to, int from, off_t *at, size_t bytes) { return copy("sendfile", to, from, at, bytes); }
ssize_t sendfile64(int to, int from, off_t *at, size_t bytes) { return copy("sendfile64", to, from, at, bytes); }

int rename(const char *from, const char *to) {
    struct order *order = due("rename", to);
    if (order) die(order);
    return REAL(int, "rename", const char *, const char *)(from, to);
}

int renameat(int from_at, const char *from, int to_at, const char *to) {
    struct order *order = due("rename", to);
    if (order) die(order);
    return REAL(int, "renameat", int, const char *, int, const char *)(from_at, from, to_at, to);
}

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    struct order *order = due("rename", to);
    if (order) die(order);
    return REAL(int, "renameat2", int, const char *, int, const char *, unsigned)(from_at, from, to_at, to, flags);
}
