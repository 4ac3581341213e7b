#include "model/data_ahead.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* A drawn batch, and its error. */
struct drawn {
    struct ahead_batch batch; /* buffers owned */
    enum status status;
    struct err error;
};

/* A ring: batches first .. first+drawn-1 are ready. While there is a free place, the thread draws
 * the next one. Batch 0 is at position `origin`, where a step begins. */
struct data_ahead {
    const struct data *data;
    struct ahead_plan plan;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started, stop, wanted; /* wanted: the next positions are known */
    int64_t origin, first, drawn, generation; /* a new generation discards what is being drawn */
    int64_t asked;                            /* the batches before this one were asked for */
    struct drawn ring[BATCHES_AHEAD];
};

/* Draws the batch at `position`; it begins a step if `first`. */
static enum status draw(const struct data_ahead *a, int64_t position, bool first,
                        struct ahead_batch *out, struct err *e) {
    const struct ahead_plan *p = &a->plan;
    out->counted = 0;
    if (first)
        TRY(data_count(a->data, SPLIT_TRAIN, position - p->offset, p->batches * p->stride,
                       &out->counted, e));
    return data_batch(a->data, SPLIT_TRAIN, position, p->count, out->tokens, out->targets,
                      out->starts, e);
}

/* Asks for the batches from `asked` on, as far as the one to draw next allows. Returns the first
 * that was not asked for. */
static int64_t ask(const struct data_ahead *a, int64_t origin, int64_t asked, int64_t next) {
    const struct ahead_plan *p = &a->plan;
    int64_t end = asked + BATCHES_ASKED_AT_ONCE;
    if (end > next + BATCHES_ASKED) end = next + BATCHES_ASKED;
    for (; asked < end; asked++) {
        int64_t position = origin + asked * p->stride;
        if (asked % p->batches == 0)
            data_advise(a->data, position - p->offset, p->batches * p->stride, true);
        data_advise(a->data, position, p->count, false);
    }
    return asked;
}

/* All places are taken: waits, or first makes ready what the next epoch needs. Nothing before the
 * step of the next batch is drawn any more. Called with the lock, which it may give up. */
static void wait_or_prepare(struct data_ahead *a) {
    int64_t batch = a->first + a->drawn, in_step = batch % a->plan.batches;
    int64_t step = a->origin + (batch - in_step) * a->plan.stride - a->plan.offset;
    if (!a->wanted || data_prepared(a->data, step)) {
        pthread_cond_wait(&a->changed, &a->lock);
        return;
    }
    pthread_mutex_unlock(&a->lock);
    data_prepare(a->data, step);
    pthread_mutex_lock(&a->lock);
}

static void *draw_ahead(void *context) {
    struct data_ahead *a = context;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        if (!a->wanted || a->drawn == BATCHES_AHEAD) {
            wait_or_prepare(a);
            continue;
        }
        int64_t generation = a->generation, next = a->first + a->drawn;
        int64_t origin = a->origin, position = origin + next * a->plan.stride, asked = a->asked;
        struct drawn *b = &a->ring[next % BATCHES_AHEAD];
        pthread_mutex_unlock(&a->lock);
        bool first = next % a->plan.batches == 0;
        asked = ask(a, origin, asked, next);
        b->status = draw(a, position, first, &b->batch, &b->error);
        pthread_mutex_lock(&a->lock);
        if (generation == a->generation) {
            a->asked = asked;
            a->drawn++;
        }
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

/* False if there is no memory. */
static bool make_buffers(struct data_ahead *a) {
    size_t bytes = (size_t)(a->plan.count * a->plan.seq_len) * sizeof(int32_t);
    struct document_options documents = data_documents(a->data);
    bool starts = documents.mask || documents.restart, missing = false;
    for (int i = 0; i < BATCHES_AHEAD; i++) {
        struct ahead_batch *b = &a->ring[i].batch;
        b->tokens = malloc(bytes);
        b->targets = malloc(bytes);
        b->starts = starts ? malloc(bytes) : NULL;
        missing = missing || !b->tokens || !b->targets || (starts && !b->starts);
    }
    return !missing;
}

enum status data_ahead_create(struct data_ahead **out, const struct data *data,
                              const struct ahead_plan *plan, struct err *e) {
    *out = NULL;
    struct data_ahead *a = calloc(1, sizeof *a);
    if (!a) return FAIL(e, ERR_MEMORY, "no host memory to draw batches ahead");
    a->data = data;
    a->plan = *plan;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    bool missing = !make_buffers(a);
    int failed = missing ? 0 : start_thread(a);
    if (missing || failed) {
        data_ahead_destroy(a);
        return failed ? FAIL(e, ERR_MEMORY, "start a thread that reads data: %s", strerror(failed))
                      : FAIL(e, ERR_MEMORY, "no host memory for %d batches of %lld tokens",
                             (int)BATCHES_AHEAD, (long long)(plan->count * plan->seq_len));
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
        free(a->ring[i].batch.tokens);
        free(a->ring[i].batch.targets);
        free(a->ring[i].batch.starts);
    }
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* Lets the thread draw from batch `first` on. If it is drawing a batch of an earlier generation, it
 * discards this batch. */
static void draw_from(struct data_ahead *a, int64_t origin, int64_t first) {
    pthread_mutex_lock(&a->lock);
    a->origin = origin;
    a->first = a->asked = first;
    a->drawn = 0;
    a->generation++;
    a->wanted = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

void data_ahead_begin(struct data_ahead *a, int64_t position) {
    if (a) draw_from(a, position, 0);
}

/* Draws here, and lets the thread continue behind this position. */
static enum status draw_here(struct data_ahead *a, int64_t position, struct ahead_batch *out,
                             struct err *e) {
    enum status st = draw(a, position, true, out, e);
    draw_from(a, position, 1);
    return st;
}

static void copy_batch(const struct data_ahead *a, struct ahead_batch *out,
                       const struct ahead_batch *from) {
    size_t bytes = (size_t)(a->plan.count * a->plan.seq_len) * sizeof(int32_t);
    memcpy(out->tokens, from->tokens, bytes);
    memcpy(out->targets, from->targets, bytes);
    if (from->starts && out->starts) memcpy(out->starts, from->starts, bytes);
    out->counted = from->counted;
}

enum status data_ahead_take(struct data_ahead *a, int64_t position, struct ahead_batch *out,
                            struct err *e) {
    pthread_mutex_lock(&a->lock);
    bool next = a->wanted && position == a->origin + a->first * a->plan.stride;
    while (next && a->drawn == 0) pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
    if (!next) return draw_here(a, position, out, e);
    struct drawn *b = &a->ring[a->first % BATCHES_AHEAD]; /* ready, so the thread leaves it alone */
    enum status st = b->status;
    if (st == OK) copy_batch(a, out, &b->batch);
    else if (e) *e = b->error;
    pthread_mutex_lock(&a->lock);
    a->first++;
    a->drawn--;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return st;
}
