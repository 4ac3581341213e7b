#include "model/ground/parallel.h"

#include <pthread.h>
#include <sched.h>

struct work {
    int64_t count;
    enum status (*one)(void *user, int64_t i, struct err *e);
    void *user;
    pthread_mutex_t lock; /* of the members below */
    int64_t next;         /* the piece that no thread has begun */
    int64_t failed;       /* the first piece that failed; count: none */
    struct err why;
};

int parallel_processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void *do_pieces(void *context) {
    struct work *w = context;
    for (;;) {
        struct err why = { .code = OK };
        pthread_mutex_lock(&w->lock);
        int64_t i = w->failed < w->count ? w->count : w->next++;
        pthread_mutex_unlock(&w->lock);
        if (i >= w->count) return NULL;
        if (w->one(w->user, i, &why) == OK) continue;
        pthread_mutex_lock(&w->lock);
        if (i < w->failed) w->why = why, w->failed = i;
        pthread_mutex_unlock(&w->lock);
    }
}

enum status parallel_each(int64_t count, int threads,
                          enum status (*one)(void *user, int64_t i, struct err *e), void *user,
                          struct err *e) {
    struct work w = { .count = count, .one = one, .user = user, .failed = count };
    pthread_t thread[PARALLEL_MAX];
    int begun = 0;
    if (pthread_mutex_init(&w.lock, NULL) != 0) return FAIL(e, ERR_MEMORY, "a lock for threads");
    while (begun < threads - 1 && begun < PARALLEL_MAX - 1 &&
           pthread_create(&thread[begun], NULL, do_pieces, &w) == 0)
        begun++;
    (void)do_pieces(&w); /* this thread is one of them, and enough if no other could start */
    for (int i = 0; i < begun; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&w.lock);
    if (w.failed < count) *e = w.why;
    return w.failed < count ? w.why.code : OK;
}
