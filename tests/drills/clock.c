/* Moves the wall clock of whoever is started with this in LD_PRELOAD: by the seconds in the file $DRILL_CLOCK, a
 * number that may change at any time (a step). CLOCK_MONOTONIC and CLOCK_BOOTTIME are left alone. In place of libfaketime,
 * whose 0.9.10 (Debian 12) fails Python's time.sleep() when it is told to leave the monotonic clock alone. Waits until
 * a wall time are moved back, since the kernel's own clock is not moved. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    static __thread int within;
    const char *path = within ? NULL : getenv("DRILL_CLOCK");
    char text[32] = "";
    long found = 0;
    if (path == NULL) return 0;
    within = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, text, sizeof text - 1) > 0) found = atol(text);
        close(fd);
    }
    within = 0;
    return found;
}

int clock_gettime(clockid_t id, struct timespec *t) {
    int done = (int)syscall(SYS_clock_gettime, id, t);
    if (done == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += offset();
    return done;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    int done = (int)syscall(SYS_gettimeofday, t, zone);
    if (done == 0) t->tv_sec += offset();
    return done;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t != NULL) *t = now.tv_sec;
    return now.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, const struct timespec *restrict t) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec until = *t;
    if (real == NULL) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (until.tv_sec > 1000000000) until.tv_sec -= offset(); /* a wall time, no monotonic one */
    return real(c, m, &until);
}
