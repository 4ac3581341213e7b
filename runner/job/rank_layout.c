#include "runner/job/rank_layout.h"

#include <inttypes.h>
#include <string.h>

enum status rank_layout_init(struct rank_layout *f, int64_t gpus, int64_t tasks, struct err *e) {
    memset(f, 0, sizeof *f);
    if (gpus < 1 || gpus > SUPERVISE_RANKS_MAX)
        return FAIL(e, ERR_CONFIG, "%" PRId64 " ranks; from 1 to %d", gpus, SUPERVISE_RANKS_MAX);
    if (tasks > gpus || gpus % tasks)
        return FAIL(e, ERR_CONFIG, "the launcher started %" PRId64 " tasks, and the experiment has "
                    "hardware.gpus = %" PRId64 ", which is not a multiple of it: start one task a "
                    "host or one per GPU", tasks, gpus);
    f->tasks = tasks;
    f->each = gpus / tasks;
    return OK;
}

static int64_t usable(const struct rank_layout *f) {
    int64_t n = 0;
    for (int64_t t = 0; t < f->tasks; t++)
        for (int64_t s = 0; s < f->each; s++) n += !f->unusable[t][s];
    return n;
}

enum status rank_layout_assign(struct rank_layout *f, int64_t batch, int64_t micro, struct err *e) {
    int64_t world = usable(f), rank = 0;
    if (world < f->tasks * f->each) /* a full layout was checked with the configuration */
        while (world > 1 && batch % (micro * world)) world--;
    for (int64_t t = 0; t < f->tasks; t++) {
        f->first_rank[t] = rank;
        f->ranks[t] = 0;
        for (int64_t s = 0; s < f->each && rank < world; s++) {
            if (f->unusable[t][s]) continue;
            f->slot[t][f->ranks[t]++] = s;
            rank++;
        }
    }
    f->world = world;
    if (f->ranks[0] > 0) return OK;
    return FAIL(e, ERR_UNSUPPORTED, "no GPU is left on the host of task 0, which leads the run");
}

void rank_layout_drop_rank(struct rank_layout *f, int64_t rank) {
    for (int64_t t = 0; t < f->tasks; t++)
        for (int64_t i = 0; i < f->ranks[t]; i++)
            if (f->first_rank[t] + i == rank) f->unusable[t][f->slot[t][i]] = true;
}

bool rank_layout_drop_task(struct rank_layout *f, int64_t task) {
    for (int64_t s = 0; s < f->each; s++) f->unusable[task][s] = true;
    return f->ranks[task] > 0;
}
