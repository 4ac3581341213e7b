/* The speed of collectives, one process a GPU: GB/s of the bytes that cross a rank's links: tensor
 * bytes times (world-1)/world. Of codes, the bytes that they stand for. Prints one line a size. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/comm_cases.h"

enum { SECONDS = 200, WARM = 3, RUNS = 10, GPUS_MAX = 8 };

static int64_t largest(struct rank_test *t) { return *(const int64_t *)t->user; }

/* Seconds for one call: the mean of RUNS consecutive calls. */
static enum status timed(struct rank_test *t, int what, const struct tensor *all,
                         const struct tensor *mine, double *us, struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    for (int i = 0; i < WARM + RUNS; i++) {
        if (i == WARM) TRY(ops->timer_mark(t->backend, LANE_COMM, 0, e));
        if (what == 0) TRY(ops->comm.reduce_scatter(t->backend, LANE_COMM, mine, all, e));
        if (what == 1) TRY(ops->comm.all_gather(t->backend, LANE_COMM, all, mine, e));
        if (what == 2) TRY(ops->comm.all_reduce(t->backend, LANE_COMM, all, REDUCE_SUM, e));
        if (what == 3) TRY(ops->comm.reduce_scatter_codes(t->backend, LANE_COMM, mine, all, e));
    }
    TRY(ops->timer_mark(t->backend, LANE_COMM, 1, e));
    TRY(ops->timer_read(t->backend, 0, 1, us, e));
    *us /= RUNS;
    return OK;
}

static int measure(struct rank_test *t) {
    static const char *const NAME[] = { "reduce_scatter", "all_gather", "all_reduce",
                                        "... of codes" }; /* reduce_scatter_codes */
    int world = t->group.world;
    for (int d = 0; d < 2; d++)
        for (int64_t bytes = 64 << 10; bytes <= largest(t); bytes *= 8)
            for (int what = 0; what < 4; what++) {
                enum dtype dtype = d ? DTYPE_BF16 : DTYPE_F32;
                int64_t n = bytes / dtype_bytes(dtype) / world;
                void *data;
                RANK_MUST(t->backend->ops->memory_create(t->backend, "bench", bytes, &data,
                                                         &must_));
                struct tensor all = tensor_1d(data, dtype, n * world);
                struct tensor mine = tensor_1d((char *)data + t->group.rank * n *
                                                   dtype_bytes(dtype), dtype, n);
                double us = 0;
                RANK_MUST(timed(t, what, &all, &mine, &us, &must_));
                t->backend->ops->memory_destroy(t->backend, data);
                double crossed = (double)bytes * (world - 1) / world * (what == 2 ? 2 : 1);
                if (t->group.rank == 0)
                    printf("%-14s %-4s %10lld bytes  %10.1f us  %7.1f GB/s\n", NAME[what],
                           dtype_name(dtype), (long long)bytes, us, crossed / us / 1e3);
                fflush(stdout);
            }
    return 0;
}

int main(int argc, char **argv) {
    int world = argc > 1 ? atoi(argv[1]) : 2, code[GPUS_MAX], failed = 0;
    int64_t most = argc > 2 ? atoll(argv[2]) : 512ll << 20;
    if (world < 2 || world > GPUS_MAX) return 2;
    ranks_run("cuda", world, measure, &most, SECONDS, code);
    for (int r = 0; r < world; r++) failed |= code[r];
    return failed != 0;
}
