#include "runner/infer/paired.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double LEVEL = 0.05;
static const double NORMAL = 1.959963984540054;      /* its 97.5 % quantile */
static const double NORMAL_ONE_SIDE = 1.644853626951; /* its 95 % quantile */
enum { BISECTIONS = 60, QUESTIONS_MIN = 6 /* that can have p < 0.05 */ };

/* ---- statistics -------------------------------------------------------------------------------*/

/* Twice the probability of at most min(b, c) heads in b + c throws of a coin. The terms of the tail
 * are summed as multiples of the last one, since they underflow for many throws. */
static double mcnemar(int64_t b, int64_t c) {
    int64_t n = b + c, least = b < c ? b : c;
    double term = 1, sum = 1;
    for (int64_t k = least; k > 0; k--) {
        term *= (double)k / (double)(n - k + 1);
        sum += term;
    }
    double last = lgamma((double)n + 1) - lgamma((double)least + 1) -
                  lgamma((double)(n - least) + 1) - (double)n * log(2);
    return fmin(1, 2 * exp(last + log(sum)));
}

/* How far the counts b and c of n pairs are from a difference d, in standard deviations, if d were
 * the true one: with the likeliest share q of c's kind then. */
static double score(double b, double c, double n, double d) {
    double k1 = (2 * n - b + c) * d - b - c, k0 = c * d * (1 - d);
    double q = (sqrt(fmax(0, k1 * k1 + 8 * n * k0)) - k1) / (4 * n);
    double variance = n * (2 * q + d * (1 - d)), away = b - c - n * d;
    if (variance > 0) return away / sqrt(variance);
    return away > 0 ? INFINITY : away < 0 ? -INFINITY : 0;
}

/* The difference between two, of which the score is `wanted`; it falls from one to the other. */
static double solve(const struct paired *p, double n, double from, double to, double wanted) {
    for (int i = 0; i < BISECTIONS; i++) {
        double middle = 0.5 * (from + to);
        bool above = score((double)p->only_this, (double)p->only_that, n, middle) > wanted;
        *(above ? &from : &to) = middle;
    }
    return 0.5 * (from + to);
}

void paired_judge(struct paired *p) {
    double n = (double)(p->both + p->only_this + p->only_that + p->neither);
    p->difference = (double)(p->only_this - p->only_that) / n;
    p->low = solve(p, n, -1, p->difference, NORMAL);
    p->high = solve(p, n, p->difference, 1, -NORMAL);
    p->p = mcnemar(p->only_this, p->only_that);
    int64_t more = p->only_this > p->only_that ? p->only_this : p->only_that;
    double guessed = p->chance + NORMAL_ONE_SIDE * sqrt(p->chance * (1 - p->chance) / n);
    p->guess = p->chance > 0 && (double)(p->both + more) / n <= guessed;
    p->verdict = p->p >= LEVEL ? PAIRED_NOT_SHOWN
                 : p->only_this > p->only_that ? PAIRED_BETTER : PAIRED_WORSE;
}

struct paired paired_of(const struct questions *c, enum rule rule, const struct answer *a,
                        const struct answer *b) {
    struct paired p = { 0 };
    for (int64_t i = 0; i < c->count; i++) {
        const struct question *q = &c->question[i];
        int64_t ours = rule_choose(rule, a + q->row, q->completions);
        int64_t theirs = rule_choose(rule, b + q->row, q->completions);
        bool right = ours == q->right, other = theirs == q->right;
        ++*(right ? other ? &p.both : &p.only_this : other ? &p.only_that : &p.neither);
        p.changed += ours != theirs;
        p.chance += 1 / (double)(q->completions * c->count);
    }
    paired_judge(&p);
    return p;
}

bool paired_is_same(const struct questions *c, const struct answer *a, const struct answer *b) {
    for (int64_t i = 0; i < c->rows; i++)
        if (memcmp(&a[i].nats, &b[i].nats, sizeof a[i].nats) != 0 || a[i].tokens != b[i].tokens)
            return false;
    return true;
}

/* ---- words ------------------------------------------------------------------------------------*/

/* In points, rounded up to a tenth: a bound must not look tighter than it is. */
static double points_up(double share) { return ceil(1000 * share - 1e-9) / 10; }

const char *paired_word(const struct paired *p) {
    static const char *const WORDS[] = { "not shown", "better", "worse" };
    return WORDS[p->verdict];
}

void paired_text(const struct paired *p, char out[PAIRED_TEXT_CAP]) {
    int64_t n = p->both + p->only_this + p->only_that + p->neither;
    double low = 100 * p->low, high = 100 * p->high;
    if (p->verdict == PAIRED_BETTER) {
        snprintf(out, PAIRED_TEXT_CAP, "better: %.1f to %.1f points more right answers (95 %%)",
                 low, high);
        return;
    }
    if (p->verdict == PAIRED_WORSE) {
        snprintf(out, PAIRED_TEXT_CAP, "worse: %.1f to %.1f points fewer right answers (95 %%)",
                 -high, -low);
        return;
    }
    int at = snprintf(out, PAIRED_TEXT_CAP, "no difference shown: fewer than %.1f points either "
                      "way (95 %%). ", points_up(fmax(-p->low, p->high)));
    at += snprintf(out + at, PAIRED_TEXT_CAP - (size_t)at, n < QUESTIONS_MIN
                   ? "Too few questions: with %" PRId64 " no difference can be shown"
                   : "With %" PRId64 " questions a smaller difference cannot be seen", n);
    if (p->only_this == p->only_that && p->changed)
        at += snprintf(out + at, PAIRED_TEXT_CAP - (size_t)at, ". As many are right, but %" PRId64
                       " answers differ", p->changed);
    if (p->guess)
        snprintf(out + at, PAIRED_TEXT_CAP - (size_t)at, ". Neither is above guessing (%.1f %%): "
                 "these questions are too hard to tell them apart", 100 * p->chance);
}
