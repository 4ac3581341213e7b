/* Timing marks. Every operator has finished when it returns, so a mark is the clock at the call. */
#include <time.h>

#include "kernels/cpu/cpu.h"

static enum status mark_check(const char *what, int mark, struct err *e) {
    if (mark >= 0 && mark < TIMER_MARKS) return OK;
    return FAIL(e, ERR_ARG, "%s: mark %d is not in 0..%d", what, mark, TIMER_MARKS - 1);
}

enum status cpu_timer_mark(struct backend *b, int lane, int mark, struct err *e) {
    TRY(mark_check("timer_mark", mark, e));
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    cpu_of(b)->timer_us[mark] = (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
    return OK;
}

enum status cpu_timer_read(struct backend *b, int from, int to, double *us, struct err *e) {
    TRY(mark_check("timer_read", from, e));
    TRY(mark_check("timer_read", to, e));
    const double *marked = cpu_of(b)->timer_us;
    if (marked[from] == 0 || marked[to] == 0)
        return FAIL(e, ERR_STATE, "timer_read: mark %d was never set",
                    marked[from] == 0 ? from : to);
    *us = marked[to] - marked[from];
    return OK;
}
