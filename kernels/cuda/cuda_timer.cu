/* Timing marks: events with a time stamp, created when they are first set. */
#include "kernels/cuda/cuda_backend.cuh"

static enum status mark_check(const char *what, int mark, struct err *e) {
    if (mark >= 0 && mark < TIMER_MARKS) return OK;
    return FAIL(e, ERR_ARG, "%s: mark %d is not in 0..%d", what, mark, TIMER_MARKS - 1);
}

enum status cuda_timer_mark(struct backend *b, int lane, int mark, struct err *e) {
    TRY(mark_check("timer_mark", mark, e));
    if (cuda_of(b)->capture) return FAIL(e, ERR_STATE, "timer_mark: a capture is under way");
    cudaEvent_t *event = &cuda_of(b)->timer[mark];
    if (!*event) CUDA_TRY(e, cudaEventCreate(event));
    CUDA_TRY(e, cudaEventRecord(*event, cuda_lane(b, lane)));
    return OK;
}

enum status cuda_timer_read(struct backend *b, int from, int to, double *us, struct err *e) {
    TRY(mark_check("timer_read", from, e));
    TRY(mark_check("timer_read", to, e));
    const cudaEvent_t *event = cuda_of(b)->timer;
    if (!event[from] || !event[to])
        return FAIL(e, ERR_STATE, "timer_read: mark %d was never set", !event[from] ? from : to);
    float ms = 0;
    CUDA_TRY(e, cudaEventSynchronize(event[from]));
    CUDA_TRY(e, cudaEventSynchronize(event[to]));
    CUDA_TRY(e, cudaEventElapsedTime(&ms, event[from], event[to]));
    *us = (double)ms * 1e3;
    return OK;
}

void cuda_timer_close(struct cuda_backend *b) {
    for (int i = 0; i < TIMER_MARKS; i++)
        if (b->timer[i]) cudaEventDestroy(b->timer[i]);
}
