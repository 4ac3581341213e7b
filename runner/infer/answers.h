/* What a model answers to multiple choice, by three rules. */
#ifndef FP8LAB_RUNNER_INFER_ANSWERS_H
#define FP8LAB_RUNNER_INFER_ANSWERS_H

#include "runner/infer/questions.h"

/* A completion's loss, and what it is divided by. The lowest quotient is the answer; of equal ones
 * the first counts. */
enum rule {
    RULE_SUM,   /* 1: the most likely completion; lm-evaluation-harness calls its accuracy acc */
    RULE_BYTE,  /* the bytes of its text; acc_bytes, and acc_norm of ASCII (by characters) */
    RULE_TOKEN, /* its tokens, as llm.c */
    RULES
};

/* Of a completion. */
struct answer {
    double nats; /* sum of the losses of its tokens */
    int64_t tokens, bytes; /* bytes 0: not known */
};

/* The completion, of `count`, that the rule chooses. RULE_BYTE needs the bytes of each. */
int64_t rule_choose(enum rule rule, const struct answer *a, int64_t count);
/* "sum", "byte" or "token". */
const char *rule_name(enum rule rule);
/* The rule of the verdict on two models: bytes do not depend on the tokenizer; without them as
 * llm.c. */
enum rule rule_main(const struct questions *c);

/* out [c->rows] of the sums nats [c->rows]. */
void answers_of(const struct questions *c, const double *nats, struct answer *out);

struct answers_result {
    int64_t examples;
    int64_t right[RULES]; /* -1: the rule needs bytes, which are not known */
    int64_t tokens;       /* of all completions */
    double loss;          /* nats per token: mean over questions, of the right completions */
    double chance;        /* share of right answers by guessing */
};
struct answers_result answers_judge(const struct questions *c, const struct answer *a);

/* The standard error of the share `right` of `examples` questions: sqrt(p (1 - p) / (n - 1)). NaN
 * for one question, or if right is -1. */
double answers_error(int64_t right, int64_t examples);

#endif
