#include "runner/ingest/ring.h"

#include <stdlib.h>

static void *work(void *argument) {
    struct ring_worker *w = argument;
    struct ring *r = w->ring;
    struct bytes line = { 0 };
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (r->taken == r->filled && !r->closed) pthread_cond_wait(&r->filled_more, &r->lock);
        if (r->taken == r->filled) break;
        struct ring_slot *slot = &r->slot[r->taken++ % r->slots];
        pthread_mutex_unlock(&r->lock);
        batch_encode(&slot->batch, &r->o, w->encoder, &line);
        pthread_mutex_lock(&r->lock);
        slot->encoded = true;
        pthread_cond_signal(&r->encoded_more);
    }
    pthread_mutex_unlock(&r->lock);
    free(line.bytes);
    return NULL;
}

void ring_init(struct ring *r) {
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->filled_more, NULL);
    pthread_cond_init(&r->encoded_more, NULL);
}

enum status ring_start(struct ring *r, int threads, struct err *e) {
    r->slots = 2 * (int64_t)threads + 2;
    r->slot = calloc((size_t)r->slots, sizeof *r->slot);
    r->worker = calloc((size_t)threads, sizeof *r->worker);
    if (!r->slot || !r->worker) return FAIL(e, ERR_MEMORY, "memory for %d threads", threads);
    for (int i = 0; i < threads; i++) {
        struct ring_worker *w = &r->worker[i];
        w->ring = r;
        TRY(encoder_create(&w->encoder, r->o.tokenizer, e));
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            encoder_destroy(w->encoder);
            return FAIL(e, ERR_MEMORY, "start thread %d of %d", i + 1, threads);
        }
        r->workers++;
    }
    return OK;
}

void ring_stop(struct ring *r) {
    pthread_mutex_lock(&r->lock);
    r->closed = true;
    r->taken = r->filled; /* after an error, what nobody has begun is left */
    pthread_cond_broadcast(&r->filled_more);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->workers; i++) {
        pthread_join(r->worker[i].thread, NULL);
        encoder_destroy(r->worker[i].encoder);
    }
    for (int64_t i = 0; r->slot && i < r->slots; i++) batch_free(&r->slot[i].batch);
    free(r->slot);
    free(r->worker);
    pthread_cond_destroy(&r->encoded_more);
    pthread_cond_destroy(&r->filled_more);
    pthread_mutex_destroy(&r->lock);
}

struct ring_slot *ring_next(struct ring *r) {
    return &r->slot[r->filled % r->slots]; /* only this thread changes `filled` */
}

void ring_hand_over(struct ring *r) {
    pthread_mutex_lock(&r->lock);
    r->filled++;
    pthread_cond_signal(&r->filled_more);
    pthread_mutex_unlock(&r->lock);
}

struct ring_slot *ring_encoded(struct ring *r, int64_t left) {
    struct ring_slot *slot = &r->slot[r->written % r->slots];
    pthread_mutex_lock(&r->lock);
    while (r->written < r->filled && !slot->encoded && r->filled - r->written > left)
        pthread_cond_wait(&r->encoded_more, &r->lock);
    bool is = r->written < r->filled && slot->encoded;
    pthread_mutex_unlock(&r->lock);
    return is ? slot : NULL;
}

void ring_written(struct ring *r) {
    pthread_mutex_lock(&r->lock);
    r->slot[r->written++ % r->slots].encoded = false;
    pthread_mutex_unlock(&r->lock);
}
