#include "model/data_ahead.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* A drawn batch, and its error. */
struct batch {
    int32_t *tokens, *targets; /* owned */
    enum status status;
    struct err error;
};

/* A ring: batches first .. first+drawn-1 are ready. While there is a free place, the thread draws
 * the next one. Positions are counted from `origin`, the batch that the thread did not draw. */
struct data_ahead {
    const struct data *data;
    int64_t count, seq_len, stride;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started, stop, wanted; /* wanted: a position was taken, so the next ones are known */
    int64_t origin, first, drawn, generation; /* a new generation discards what is being drawn */
    struct batch ring[BATCHES_AHEAD];
};

static void *draw_ahead(void *context) {
    struct data_ahead *a = context;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        if (!a->wanted || a->drawn == BATCHES_AHEAD) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        int64_t generation = a->generation, next = a->first + a->drawn;
        int64_t position = a->origin + (next + 1) * a->stride;
        struct batch *b = &a->ring[next % BATCHES_AHEAD];
        pthread_mutex_unlock(&a->lock);
        b->status = data_batch(a->data, SPLIT_TRAIN, position, a->count, b->tokens, b->targets,
                               &b->error);
        pthread_mutex_lock(&a->lock);
        if (generation == a->generation) a->drawn++;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static int start_thread(struct data_ahead *a) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&a->thread, NULL, draw_ahead, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    a->started = !failed;
    return failed;
}

enum status data_ahead_create(struct data_ahead **out, const struct data *data, int64_t count,
                              int64_t seq_len, int64_t stride, struct err *e) {
    *out = NULL;
    struct data_ahead *a = calloc(1, sizeof *a);
    if (!a) return FAIL(e, ERR_MEMORY, "no host memory to draw batches ahead");
    size_t bytes = (size_t)(count * seq_len) * sizeof(int32_t);
    bool missing = false;
    a->data = data;
    a->count = count;
    a->seq_len = seq_len;
    a->stride = stride;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    for (int i = 0; i < BATCHES_AHEAD; i++) {
        a->ring[i].tokens = malloc(bytes);
        a->ring[i].targets = malloc(bytes);
        missing = missing || !a->ring[i].tokens || !a->ring[i].targets;
    }
    int failed = missing ? 0 : start_thread(a);
    if (missing || failed) {
        data_ahead_destroy(a);
        return failed ? FAIL(e, ERR_MEMORY, "start a thread that reads data: %s", strerror(failed))
                      : FAIL(e, ERR_MEMORY, "no host memory for %d batches of %lld tokens",
                             (int)BATCHES_AHEAD, (long long)(count * seq_len));
    }
    *out = a;
    return OK;
}

void data_ahead_destroy(struct data_ahead *a) {
    if (!a) return;
    if (a->started) {
        pthread_mutex_lock(&a->lock);
        a->stop = true;
        pthread_cond_broadcast(&a->changed);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
    }
    for (int i = 0; i < BATCHES_AHEAD; i++) {
        free(a->ring[i].tokens);
        free(a->ring[i].targets);
    }
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* Draws here, and lets the thread continue behind this position. If the thread is drawing a batch
 * of an earlier generation, it discards this batch. */
static enum status draw_here(struct data_ahead *a, int64_t position, int32_t *tokens,
                             int32_t *targets, struct err *e) {
    enum status st = data_batch(a->data, SPLIT_TRAIN, position, a->count, tokens, targets, e);
    pthread_mutex_lock(&a->lock);
    a->origin = position;
    a->first = a->drawn = 0;
    a->generation++;
    a->wanted = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return st;
}

enum status data_ahead_take(struct data_ahead *a, int64_t position, int32_t *tokens,
                            int32_t *targets, struct err *e) {
    pthread_mutex_lock(&a->lock);
    bool next = a->wanted && position == a->origin + (a->first + 1) * a->stride;
    while (next && a->drawn == 0) pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
    if (!next) return draw_here(a, position, tokens, targets, e);
    struct batch *b = &a->ring[a->first % BATCHES_AHEAD]; /* ready, so the thread leaves it alone */
    size_t bytes = (size_t)(a->count * a->seq_len) * sizeof(int32_t);
    enum status st = b->status;
    if (st == OK) {
        memcpy(tokens, b->tokens, bytes);
        memcpy(targets, b->targets, bytes);
    } else if (e) {
        *e = b->error;
    }
    pthread_mutex_lock(&a->lock);
    a->first++;
    a->drawn--;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return st;
}
