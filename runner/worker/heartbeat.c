#include "runner/worker/heartbeat.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct heartbeat {
    pthread_t thread;
    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t stopping, free;
    bool stop;
    bool aborting; /* an abort runs, without the lock: it may need the first thread */
    struct board *board;
    struct backend *watched;
    struct err error; /* code OK: the group works */
};

static struct timespec after_ms(int64_t ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static void note_device(struct heartbeat *p) {
    struct backend *b = p->watched;
    char in[BOARD_DEVICE_CAP] = "";
    if (b && !b->ops->in_progress(b, in, sizeof in)) *in = '\0';
    board_device(p->board, in);
}

/* The caller holds the lock. It is released during an abort, which may have to wait until the first
 * thread has seen the error and released what refers to the group. */
static void poll_group(struct heartbeat *p) {
    struct backend *b = p->watched;
    if (!b || p->error.code != OK || b->ops->comm.poll(b, &p->error) == OK) return;
    p->aborting = true;
    pthread_mutex_unlock(&p->lock);
    b->ops->comm.abort(b);
    pthread_mutex_lock(&p->lock);
    p->aborting = false;
    pthread_cond_broadcast(&p->free);
}

static void *beat(void *user) {
    struct heartbeat *p = user;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        board_beat(p->board);
        note_device(p);
        poll_group(p);
        struct timespec until = after_ms(HEARTBEAT_MS);
        (void)pthread_cond_timedwait(&p->stopping, &p->lock, &until);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum status heartbeat_start(struct heartbeat **out, struct board *board, struct err *e) {
    pthread_condattr_t monotonic;
    *out = NULL;
    struct heartbeat *p = calloc(1, sizeof *p);
    if (!p) return FAIL(e, ERR_MEMORY, "start the heartbeat thread");
    p->board = board;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&p->stopping, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    (void)pthread_cond_init(&p->free, NULL);
    (void)pthread_mutex_init(&p->lock, NULL);
    int why = pthread_create(&p->thread, NULL, beat, p);
    if (why == 0) {
        *out = p;
        return OK;
    }
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->stopping);
    pthread_cond_destroy(&p->free);
    free(p);
    return FAIL(e, ERR_MEMORY, "start the heartbeat thread: %s", strerror(why));
}

void heartbeat_stop(struct heartbeat *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->stopping);
    pthread_mutex_unlock(&p->lock);
    (void)pthread_join(p->thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->stopping);
    pthread_cond_destroy(&p->free);
    free(p);
}

void heartbeat_watch(struct heartbeat *p, struct backend *b) {
    pthread_mutex_lock(&p->lock);
    while (p->aborting) (void)pthread_cond_wait(&p->free, &p->lock);
    p->watched = b;
    pthread_mutex_unlock(&p->lock);
}

bool heartbeat_error(struct heartbeat *p, struct err *e) {
    pthread_mutex_lock(&p->lock);
    bool broken = p->error.code != OK;
    if (broken) *e = p->error;
    pthread_mutex_unlock(&p->lock);
    return broken;
}
