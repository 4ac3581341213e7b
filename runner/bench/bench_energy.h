/* The energy of repeated work, by the driver's counter. The counter moves some ten times a second,
 * so work is repeated for a second or more, between two movements of the counter. */
#ifndef FP8LAB_RUNNER_BENCH_BENCH_ENERGY_H
#define FP8LAB_RUNNER_BENCH_BENCH_ENERGY_H

#include "kernels/backend.h"
#include "runner/base/cli.h"

struct json_t;
struct telemetry;

struct energy_meter {
    struct telemetry *telemetry; /* owned by who opened the meter; NULL: nothing is measured */
    int64_t device;              /* index among the driver's GPUs */
    int64_t window_us;           /* how long work is repeated and measured; 0: no energy is asked
                                    for */
};
/* The meter of this backend's device, by --energy and --device. ERR_ARG for an invalid flag. */
NODISCARD enum status energy_meter_open(const struct cli *cli, const struct backend *b,
                                        struct energy_meter *out, struct err *e);
void energy_meter_close(struct energy_meter *m);
/* Of one call, with the idle power of the device. Both 0: not measured. */
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
/* The device has done `calls` more and works on the next. False: stop. Then *out is the
 * result; it is zero if the counter does not move. */
NODISCARD bool energy_watch_add(struct energy_watch *w, int64_t calls, struct energy *out);

/* Decides how often one call is repeated, in batches. The counter is read after a batch while the
 * device works on the next one: idle time would count as the call's. */
struct energy_loop {
    struct backend *b; /* borrowed */
    struct energy_watch watch;
    int64_t batch, calls;    /* of the batch that is being queued: its size, its calls so far */
    int64_t before, batches; /* calls of the batch before; batches so far */
    struct energy result; /* when energy_loop_more says false */
};
void energy_loop_begin(struct energy_loop *l, struct backend *b, const struct energy_meter *m,
                       double call_us); /* about what a call takes */
/* Call after each call of the work. *more: call it again. */
NODISCARD enum status energy_loop_more(struct energy_loop *l, bool *more, struct err *e);

/* Joules as text, "12.345", or "not measured"; never 0 for what was not measured. */
enum { ENERGY_TEXT_CAP = 24 };
void energy_text(double joules, char out[ENERGY_TEXT_CAP]);
/* Ends a printed row of one operator, under --energy with its mJ. */
void energy_end_row(const struct cli *cli, const struct energy_meter *m, double joules);
/* The same as a number, or null. */
struct json_t *energy_json(double joules);

#endif
