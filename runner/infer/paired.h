/* Two models on the same questions: is one right more often? Each question is a pair, so what both
 * find easy or hard does not count as noise. */
#ifndef FP8LAB_RUNNER_INFER_PAIRED_H
#define FP8LAB_RUNNER_INFER_PAIRED_H

#include "runner/infer/answers.h"

enum paired_verdict { PAIRED_NOT_SHOWN, PAIRED_BETTER, PAIRED_WORSE };

struct paired {
    int64_t both, only_this, only_that, neither; /* questions answered rightly by */
    int64_t changed;   /* in which the two choose different completions, right or wrong */
    double chance;     /* share of right answers by guessing; 0: not known */
    bool guess;        /* neither is right more often than by guessing (one-sided 95 %) */
    double difference; /* share of right answers: this less that */
    double low, high;  /* its 95 % interval: Tango's score interval, Statistics in Medicine 17
                        * (1998), p. 891 */
    double p;          /* McNemar's exact test, two-sided */
    enum paired_verdict verdict; /* better or worse: p < 0.05. Then 0 is outside the interval, too:
                                  * p is the stricter of the two */
};

/* Fills the rest of a pair from its counts, of at least one question, and `chance`. */
void paired_judge(struct paired *p);
/* Of one rule; a and b [c->rows]. RULE_BYTE needs the bytes of each. */
struct paired paired_of(const struct questions *c, enum rule rule, const struct answer *a,
                        const struct answer *b);
/* Whether all losses are equal to the bit, of as many tokens. */
bool paired_is_same(const struct questions *c, const struct answer *a, const struct answer *b);

/* The verdict as a sentence for who knows no statistics. */
enum { PAIRED_TEXT_CAP = 400 };
void paired_text(const struct paired *p, char out[PAIRED_TEXT_CAP]);
/* "better", "worse" or "not shown". */
const char *paired_word(const struct paired *p);

#endif
