#include "runner/infer/answers.h"

#include <math.h>

static double score(enum rule rule, const struct answer *a) {
    if (rule == RULE_SUM) return a->nats;
    return a->nats / (double)(rule == RULE_BYTE ? a->bytes : a->tokens);
}

int64_t rule_choose(enum rule rule, const struct answer *a, int64_t count) {
    int64_t best = 0;
    for (int64_t k = 1; k < count; k++)
        if (score(rule, &a[k]) < score(rule, &a[best])) best = k;
    return best;
}

const char *rule_name(enum rule rule) {
    static const char *const NAME[RULES] = { "sum", "byte", "token" };
    return NAME[rule];
}

enum rule rule_main(const struct questions *c) { return c->has_bytes ? RULE_BYTE : RULE_TOKEN; }

void answers_of(const struct questions *c, const double *nats, struct answer *out) {
    for (int64_t i = 0; i < c->rows; i++)
        out[i] = (struct answer){ nats[i], c->row[i].tokens, c->row[i].bytes };
}

struct answers_result answers_judge(const struct questions *c, const struct answer *a) {
    struct answers_result r = { .examples = c->count, .tokens = c->tokens };
    for (int64_t i = 0; i < c->count; i++) {
        const struct question *q = &c->question[i];
        for (enum rule rule = 0; rule < RULES; rule++)
            if (rule != RULE_BYTE || c->has_bytes)
                r.right[rule] += rule_choose(rule, a + q->row, q->completions) == q->right;
        r.loss += score(RULE_TOKEN, &a[q->row + q->right]);
        r.chance += 1 / (double)q->completions;
    }
    if (!c->has_bytes) r.right[RULE_BYTE] = -1;
    r.loss /= (double)c->count;
    r.chance /= (double)c->count;
    return r;
}

double answers_error(int64_t right, int64_t examples) {
    double p = (double)right / (double)examples;
    return right < 0 || examples < 2 ? (double)NAN : sqrt(p * (1 - p) / (double)(examples - 1));
}
