#include "runner/generate/generator.h"

#include <stdlib.h>
#include <string.h>

#include "model/logits.h"

const char *const GENERATION_END_NAMES[] = { "", "tokens", "stop", "length" };

struct generator {
    struct trainer *trainer; /* borrowed */
    struct generator_sizes sizes;
    int32_t *tokens;        /* [batch, length]; owned, as all below */
    int64_t *row;           /* [batch] */
    float *logits;          /* [batch, vocab] */
    int32_t *chosen;        /* [batch + 1]; the last: to stop */
    struct generation **at; /* [batch]: whose row it is */
    struct candidate *room; /* [vocab] */
};

enum status generator_create(struct generator **out, struct trainer *t,
                             const struct generator_sizes *sizes, struct err *e) {
    struct generator *g = calloc(1, sizeof *g);
    size_t batch = (size_t)sizes->batch, vocab = (size_t)sizes->vocab;
    *out = g;
    if (!g) return FAIL(e, ERR_MEMORY, "no host memory to generate");
    g->trainer = t;
    g->sizes = *sizes;
    if (g->sizes.ids > sizes->vocab) g->sizes.ids = sizes->vocab;
    g->tokens = calloc(batch * (size_t)sizes->length, sizeof *g->tokens);
    g->row = calloc(batch, sizeof *g->row);
    g->logits = calloc(batch * vocab, sizeof *g->logits);
    g->chosen = calloc(batch + 1, sizeof *g->chosen);
    g->at = calloc(batch, sizeof *g->at);
    g->room = calloc(vocab, sizeof *g->room);
    if (g->tokens && g->row && g->logits && g->chosen && g->at && g->room) return OK;
    generator_destroy(g);
    *out = NULL;
    return FAIL(e, ERR_MEMORY, "no host memory for the logits of %zu texts", batch);
}

void generator_destroy(struct generator *g) {
    if (!g) return;
    free(g->tokens);
    free(g->row);
    free(g->logits);
    free(g->chosen);
    free(g->at);
    free(g->room);
    free(g);
}

/* The sequences that go on, and the rows behind their last tokens. The other rows of the batch keep
 * what they had. */
static int64_t gather(struct generator *g, struct generation *x, int64_t count) {
    int64_t n = 0, length = g->sizes.length;
    for (int64_t i = 0; i < count; i++) {
        memcpy(g->tokens + i * length, x[i].ids, (size_t)x[i].count * sizeof *x[i].ids);
        if (x[i].end) continue;
        g->row[n] = i * length + x[i].count - 1;
        g->at[n++] = &x[i];
    }
    return n;
}

/* The next tokens of n sequences. g->chosen[n]: whether all ranks stop instead. */
static enum status choose(struct generator *g, const struct generation_rules *rules, int64_t n,
                          struct err *e) {
    const struct generator_sizes *s = &g->sizes;
    g->chosen[n] = rules->stopped && rules->stopped(rules->user);
    TRY(trainer_logits(g->trainer, g->tokens, g->row, n, g->logits, e));
    for (int64_t i = 0; i < n; i++) {
        const struct generation *x = g->at[i];
        TRY(sampling_next(&rules->sampling, g->logits + i * s->vocab, s->ids, x->number, x->count,
                          g->room, &g->chosen[i], e));
    }
    return trainer_broadcast(g->trainer, g->chosen, (n + 1) * (int64_t)sizeof *g->chosen, e);
}

static enum status append(const struct generator *g, const struct generation_rules *rules,
                          struct generation *x, int32_t id, struct err *e) {
    x->ids[x->count++] = id;
    if (x->count == g->sizes.length) x->end = GENERATION_LENGTH;
    if (x->count - x->prompt == rules->tokens) x->end = GENERATION_TOKENS;
    for (int64_t i = 0; i < rules->stop_count; i++)
        if (rules->stop[i] == id) x->end = GENERATION_STOP;
    return rules->added ? rules->added(rules->user, x, e) : OK;
}

static enum status run_batch(struct generator *g, const struct generation_rules *rules,
                             struct generation *x, int64_t count, bool *stopped, struct err *e) {
    memset(g->tokens, 0, (size_t)(g->sizes.batch * g->sizes.length) * sizeof *g->tokens);
    for (int64_t n; (n = gather(g, x, count)) > 0;) {
        TRY(choose(g, rules, n, e));
        *stopped = g->chosen[n];
        if (*stopped) return OK;
        for (int64_t i = 0; i < n; i++) TRY(append(g, rules, g->at[i], g->chosen[i], e));
    }
    return OK;
}

enum status generator_run(struct generator *g, const struct generation_rules *rules,
                          struct generation *x, int64_t count, struct err *e) {
    for (int64_t i = 0; i < count; i++) {
        int64_t most = g->sizes.length - (rules->tokens > 0);
        if (x[i].prompt < 1 || x[i].prompt > most)
            return FAIL(e, ERR_ARG, "a prompt of %lld tokens; the model needs 1 to %lld",
                        (long long)x[i].prompt, (long long)most);
        x[i].count = x[i].prompt;
        x[i].end = rules->tokens > 0 ? GENERATION_GOES_ON : GENERATION_TOKENS;
    }
    bool stopped = false;
    for (int64_t i = 0; i < count && !stopped; i += g->sizes.batch) {
        int64_t left = count - i, n = left < g->sizes.batch ? left : g->sizes.batch;
        TRY(run_batch(g, rules, x + i, n, &stopped, e));
    }
    return OK;
}
