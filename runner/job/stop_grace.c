#include "runner/job/stop_grace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    CLOSE_LEAST_S = 2,  /* to hash, pack and verify metrics and logs */
    CLOSE_MOST_S = 60,
    PACK_BYTES_PER_S = 64 << 20 /* of checkpoints; measured 290 MB/s on one idle core of an EPYC;
                                 * the margin is for slow disks and other processes */
};

enum status stop_grace_read(int64_t *grace_s, struct err *e) {
    const char *text = getenv("FP8LAB_STOP_GRACE");
    *grace_s = 0;
    if (!text || !*text) return OK;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || *end || value < 1 || value > 86400)
        return FAIL(e, ERR_CONFIG, "FP8LAB_STOP_GRACE: expected the whole seconds from SIGTERM to "
                    "SIGKILL, from 1 to 86400, found '%s'", text);
    *grace_s = value;
    return OK;
}

/* The part of a grace time for closing the bundle. */
static int64_t close_s(int64_t grace_s) {
    int64_t quarter = grace_s / 4;
    if (quarter < CLOSE_LEAST_S) return CLOSE_LEAST_S < grace_s ? CLOSE_LEAST_S : grace_s - 1;
    return quarter < CLOSE_MOST_S ? quarter : CLOSE_MOST_S;
}

int64_t stop_grace_worker_s(int64_t grace_s) {
    return grace_s ? grace_s - close_s(grace_s) : STOP_GRACE_WORKER_S;
}

bool stop_grace_packs(int64_t grace_s, int64_t since_ms, int64_t bytes) {
    if (!grace_s) return true;
    int64_t left_s = grace_s - since_ms / 1000 - 1; /* 1 s for the other files */
    return bytes / PACK_BYTES_PER_S < left_s;
}

/* The present step or evaluation must end, and a checkpoint follows. Each takes at most the longest
 * silence so far, since a worker sends no event while it writes a checkpoint. */
static int64_t needed_s(int64_t grace_s, const struct attempt *attempt) {
    int64_t worker_s = stop_grace_worker_s(grace_s), twice_s = attempt->longest_gap_ms / 500;
    int64_t need_s = 2 * worker_s > twice_s ? 2 * worker_s : twice_s;
    int64_t total_s = need_s + CLOSE_LEAST_S;
    while (stop_grace_worker_s(total_s) < need_s) total_s++;
    return ceil_div(total_s, 10) * 10;
}

void stop_grace_explain(int64_t grace_s, const struct attempt *attempt, char *out, size_t size) {
    if (!attempt->last_step) {
        snprintf(out, size, "the worker was killed before its first step; nothing is lost");
        return;
    }
    int n = snprintf(out, size, "the worker was killed before it had stopped at step %" PRId64
                     "; the steps behind its last checkpoint are lost", attempt->last_step);
    if (attempt->end != ATTEMPT_SIGNAL || n < 0 || (size_t)n >= size) return;
    int64_t need_s = needed_s(grace_s, attempt);
    if (grace_s)
        snprintf(out + n, size - (size_t)n, ". A step and its checkpoint do not fit in the %" PRId64
                 " s between SIGTERM and SIGKILL: start the container with --stop-timeout %" PRId64
                 " -e FP8LAB_STOP_GRACE=%" PRId64, grace_s, need_s, need_s);
    else
        snprintf(out + n, size - (size_t)n, ". A step and its checkpoint take longer than %d s: "
                 "FP8LAB_STOP_GRACE=%" PRId64 " gives them the time", STOP_GRACE_WORKER_S, need_s);
}
