/* The work of a training step: equal operators together, with their shape, calls and bytes, and
 * where they were measured their time. `bench step --json` writes it and `advise` reads it. */
#ifndef FP8LAB_RUNNER_BENCH_STEP_WORK_H
#define FP8LAB_RUNNER_BENCH_STEP_WORK_H

#include "runner/bench/timed_backend.h"

struct json_t;

/* A step whose median is over so many times its best was measured on a busy machine. */
#define STEP_BUSY_RATIO 2.0

enum work_kind { WORK_GEMM, WORK_ATTENTION, WORK_OTHER };

struct step_work {
    char op[32]; /* "matmul" */
    enum timed_part part;
    enum work_kind kind;
    struct gemm_shape gemm;           /* of WORK_GEMM, else zero */
    struct attention_shape attention; /* of WORK_ATTENTION, else zero */
    int64_t calls;
    double bytes, time_us; /* of all calls; time 0: not measured */
};

struct step_works {
    struct step_work *work; /* owned */
    int64_t count, cap;
};

/* Adds each call of the record, `weight` times. A weight may be negative. */
NODISCARD enum status step_works_add(struct step_works *list, const struct timed_record *r,
                                     int64_t weight, struct err *e);
void step_works_free(struct step_works *list);

double step_work_flop(const struct step_work *w); /* of one call; 0: neither GEMM nor attention */

/* An array of objects; NULL: no memory. */
struct json_t *step_works_json(const struct step_works *list);
/* Adds what step_works_json wrote. ERR_FORMAT names the entry and the key. */
NODISCARD enum status step_works_read(const struct json_t *array, struct step_works *list,
                                      struct err *e);

#endif
