/* The energy of repeated work, by the driver's counter. The counter moves some ten times a second,
 * so work is repeated for a second or more, between two movements of the counter. */
#ifndef FP8LAB_RUNNER_BENCH_BENCH_ENERGY_H
#define FP8LAB_RUNNER_BENCH_BENCH_ENERGY_H

#include "kernels/backend.h"

struct telemetry;

struct energy_meter {
    const struct telemetry *telemetry; /* borrowed; NULL: nothing is measured */
    int64_t device;                    /* index among the driver's GPUs */
    int64_t window_us;                 /* how long work is repeated and measured */
};
/* Of one call, device and host idle time between calls included. Both 0: not measured. */
struct energy { double joules, time_us; };

bool energy_is_measurable(const struct energy_meter *m);

/* Follows the counter while the caller repeats its work. The first third of a window only settles
 * clock and power. */
struct energy_watch {
    const struct energy_meter *meter;
    int64_t began_us, moved_us, from_us, from_mj, last_mj, calls; /* moved: the counter, last */
    bool open; /* the measured window has begun */
};
void energy_watch_begin(struct energy_watch *w, const struct energy_meter *m);
/* The device has done `calls` more and is idle, or works on the next. False: stop. Then *out is the
 * result; it is zero if the counter does not move. */
NODISCARD bool energy_watch_add(struct energy_watch *w, int64_t calls, struct energy *out);

/* Decides how often one call is repeated, in batches of some milliseconds: after each batch it
 * waits for the device. */
struct energy_loop {
    struct backend *b; /* borrowed */
    struct energy_watch watch;
    int64_t batch, calls, since_us;
    struct energy result; /* when energy_loop_more says false */
};
void energy_loop_begin(struct energy_loop *l, struct backend *b, const struct energy_meter *m);
/* Call after each call of the work. *more: call it again. */
NODISCARD enum status energy_loop_more(struct energy_loop *l, bool *more, struct err *e);

/* Joules as text, "12.345", or "not measured"; never 0 for what was not measured. */
enum { ENERGY_TEXT_CAP = 24 };
void energy_text(double joules, char out[ENERGY_TEXT_CAP]);

#endif
