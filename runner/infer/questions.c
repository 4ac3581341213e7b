#include "runner/infer/questions.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---------------------------------------------------------------------------------*/

/* The items with room for `needed` of them, of `size` bytes each; NULL: no memory. */
static void *grown(void *items, int64_t *room, int64_t needed, size_t size) {
    if (needed <= *room) return items;
    int64_t wanted = 2 * *room > needed ? 2 * *room : needed;
    void *fresh = realloc(items, (size_t)wanted * size);
    if (fresh) *room = wanted;
    return fresh;
}

static enum status no_room(int64_t count, const char *what, struct err *e) {
    return FAIL(e, ERR_MEMORY, "%" PRId64 " %s", count + 1, what);
}

/* *first: where in c->token they begin. */
static enum status add_tokens(struct questions *c, const int32_t *token, int64_t count,
                              int64_t *first, struct err *e) {
    int32_t *all = grown(c->token, &c->room.tokens, c->token_count + count, sizeof *all);
    if (!all) return no_room(c->token_count + count, "tokens of questions", e);
    c->token = all;
    memcpy(c->token + c->token_count, token, (size_t)count * sizeof *token);
    *first = c->token_count;
    c->token_count += count;
    return OK;
}

enum status questions_add(struct questions *c, int64_t number, int64_t right,
                          const int32_t *context, int64_t tokens, struct err *e) {
    struct question q = { .number = number, .right = right, .row = c->rows };
    struct question *all = grown(c->question, &c->room.questions, c->count + 1, sizeof *all);
    if (!all) return no_room(c->count, "questions", e);
    c->question = all;
    TRY(add_tokens(c, context, tokens, &q.first, e));
    c->question[c->count++] = q;
    return OK;
}

enum status questions_add_completion(struct questions *c, int64_t keep, const int32_t *token,
                                     int64_t tokens, int64_t bytes, struct err *e) {
    struct completion x = { .keep = keep, .tokens = tokens, .bytes = bytes };
    struct completion *all = grown(c->row, &c->room.rows, c->rows + 1, sizeof *all);
    if (!all) return no_room(c->rows, "completions", e);
    c->row = all;
    TRY(add_tokens(c, token, tokens, &x.first, e));
    c->row[c->rows++] = x;
    c->question[c->count - 1].completions++;
    return OK;
}

void questions_drop(struct questions *c) {
    const struct question *q = &c->question[--c->count];
    c->rows = q->row;
    c->token_count = q->first;
}

void questions_finish(struct questions *c) {
    c->longest = c->tokens = 0;
    c->has_bytes = true;
    for (int64_t i = 0; i < c->rows; i++) {
        const struct completion *x = &c->row[i];
        if (x->keep + x->tokens - 1 > c->longest) c->longest = x->keep + x->tokens - 1;
        c->tokens += x->tokens;
        c->has_bytes = c->has_bytes && x->bytes > 0;
    }
}

void questions_close(struct questions *c) {
    free(c->path);
    free(c->question);
    free(c->row);
    free(c->token);
    *c = (struct questions){ 0 };
}

/* ---- scoring ----------------------------------------------------------------------------------*/

/* Rows of one batch, each a completion after its context. */
struct scorer {
    const struct questions *of;
    struct trainer *trainer;
    int64_t batch, seq_len, rows;
    struct place { int64_t row, question, completion; } *place;
    int32_t *tokens, *targets;
    float *losses;
    double *nats; /* by number of the row */
};

/* Behind its tokens a row repeats its first one, which no token before it sees. */
static void add_row(struct scorer *s, const struct question *q, int64_t question, int64_t k) {
    const struct completion *x = &s->of->row[q->row + k];
    const int32_t *context = s->of->token + q->first, *own = s->of->token + x->first;
    int64_t T = s->seq_len, n = x->keep, m = x->tokens;
    int32_t *tokens = s->tokens + s->rows * T, *targets = s->targets + s->rows * T;
    for (int64_t i = 0; i < T; i++) {
        tokens[i] = i < n ? context[i] : i < n + m - 1 ? own[i - n] : context[0];
        targets[i] = i >= n - 1 && i < n + m - 1 ? own[i - n + 1] : -1;
    }
    s->place[s->rows++] = (struct place){ q->row + k, question, k };
}

static enum status take_row(struct scorer *s, const struct place *p, const float *losses,
                            struct err *e) {
    const struct completion *x = &s->of->row[p->row];
    double sum = 0;
    for (int64_t i = 0; i < x->tokens; i++) sum += (double)losses[x->keep - 1 + i];
    s->nats[p->row] = sum;
    if (isfinite(sum)) return OK;
    return FAIL(e, ERR_NUMERIC, "the loss of completion %" PRId64 " of %s %" PRId64
                " is not finite", p->completion, s->of->unit,
                s->of->question[p->question].number);
}

static enum status run_rows(struct scorer *s, struct err *e) {
    int64_t T = s->seq_len;
    for (int64_t i = s->rows * T; i < s->batch * T; i++) { /* the last batch may be short */
        s->tokens[i] = s->tokens[0];
        s->targets[i] = -1;
    }
    TRY(trainer_losses(s->trainer, s->tokens, s->targets, s->losses, e));
    for (int64_t i = 0; i < s->rows; i++)
        TRY(take_row(s, &s->place[i], s->losses + i * T, e));
    s->rows = 0;
    return OK;
}

static enum status score_part(const struct questions_part *part, struct scorer *s, struct err *e) {
    for (int64_t i = 0; i < s->of->count; i++) {
        const struct question *q = &s->of->question[i];
        for (int64_t k = 0; k < q->completions; k++) {
            if ((q->row + k) / s->batch % part->stride != part->first) continue;
            add_row(s, q, i, k);
            if (s->rows == s->batch) TRY(run_rows(s, e));
        }
    }
    return s->rows ? run_rows(s, e) : OK;
}

enum status questions_losses(const struct questions *c, struct trainer *trainer,
                             const struct questions_part *part, double *nats, struct err *e) {
    size_t all = (size_t)(part->batch * part->seq_len);
    struct scorer s = {
        .of = c, .trainer = trainer, .batch = part->batch, .seq_len = part->seq_len, .nats = nats,
        .place = malloc((size_t)part->batch * sizeof *s.place),
        .tokens = malloc(all * sizeof *s.tokens),
        .targets = malloc(all * sizeof *s.targets), .losses = malloc(all * sizeof *s.losses),
    };
    bool made = s.place && s.tokens && s.targets && s.losses;
    enum status st = made ? score_part(part, &s, e)
                          : FAIL(e, ERR_MEMORY, "%" PRId64 " rows of choices", part->batch);
    free(s.place);
    free(s.tokens);
    free(s.targets);
    free(s.losses);
    return st;
}
