/* Spikes of a run's loss and of its gradient norm, found in the records, after the fact or as they
 * come.
 *
 * A step is high if its value is above the median of the steps before it by `scatters` times their
 * scatter (their 90th percentile minus the median, over 1.28: the standard deviation, if they are
 * normal), and by `relative` of the median, and by `absolute`. The steps before it are the last
 * SPIKE_WINDOW that were not high; with fewer than SPIKE_LEAST no step is judged. High steps with
 * fewer than SPIKE_BACK ordinary ones in a row between them are one event. It is
 *   a spike   if SPIKE_BACK ordinary steps follow,
 *   a shift   if they do not come within SPIKE_LASTS steps: the window then begins anew,
 *   open      if the series, or a rise of the learning rate, ends it before.
 * Values that are not finite are left out. A step whose learning rate is above that of the step
 * before is not judged, and the window begins anew: it is in a warm-up. */
#ifndef FP8LAB_RUNNER_HEALTH_SPIKES_H
#define FP8LAB_RUNNER_HEALTH_SPIKES_H

#include <jansson.h>

#include "runner/bundle/columns.h"

enum { SPIKE_WINDOW = 128, SPIKE_LEAST = 32, SPIKE_BACK = 5, SPIKE_LASTS = 128 };

struct spike_rule { double scatters, relative, absolute; };
extern const struct spike_rule SPIKE_OF_LOSS, SPIKE_OF_NORM;

enum spike_kind { SPIKE_RETURNED, SPIKE_SHIFT, SPIKE_OPEN };
extern const char *const SPIKE_KINDS[]; /* "spike", "shift", "open" */

/* One event: its first high step, its last one so far, its largest value, and the median before. */
struct spike {
    int64_t step, last;
    double top, base;
    enum spike_kind kind;
    bool periodic; /* one of a row of spikes at equal distances (spikes_make) */
};

/* ---- step by step ---------------------------------------------------------------------------- */

/* All zeros, with a rule, is a detector before its first step. */
struct spike_detector {
    const struct spike_rule *rule; /* borrowed */
    int64_t judged, first;         /* steps that were judged; the first of them */
    bool begun, within;            /* within: an event goes on */
    int64_t step;                  /* the last one taken */
    double rate;
    int64_t count, next;           /* of the ring; where the next value goes */
    double ring[SPIKE_WINDOW], sorted[SPIKE_WINDOW];
    struct spike event;            /* of `within` */
    double limit;
    int64_t steps, back;           /* of the event; ordinary ones since its last high one */
};

/* Takes the next step. rate: its learning rate; NaN: not known. Returns whether an event ended, and
 * gives it. A step that is not behind the last one begins a new series. */
bool spike_take(struct spike_detector *d, int64_t step, double value, double rate,
                struct spike *ended);
/* After the last step: whether an event was still open, and gives it. */
bool spike_finish(struct spike_detector *d, struct spike *open);

/* ---- a whole series -------------------------------------------------------------------------- */

/* The events of a series, in the order of steps. */
struct spike_list {
    struct spike *spike; /* owned */
    int64_t count;
    int64_t judged;      /* steps; 0: too few to judge any */
    int64_t first;       /* of them, a step */
    int64_t period;      /* steps between the periodic ones; 0: there are none */
};

struct spikes {
    struct spike_list loss, norm;
};

/* Of the records of training; train NULL: none. Four or more spikes at equal distances (to 2 steps
 * or a twentieth), if they are at least half of all, come from the order of the data: they are
 * periodic. ERR_MEMORY. *out is valid for spikes_free after an error too. */
NODISCARD enum status spikes_make(const struct columns *train, struct spikes *out, struct err *e);
void spikes_free(struct spikes *s);

/* Events that count: spikes, shifts and open ones that are not periodic, of steps up to `last`. */
int64_t spike_count(const struct spike_list *l, int64_t last);
/* The same with the periodic ones. */
int64_t spike_count_all(const struct spike_list *l, int64_t last);

/* "3 of the loss (steps 412, 980, 1313), the largest +1.80 nats; ...". *what is "" for a run of
 * which no step was judged. Returns whether there was any event. */
enum { SPIKES_TEXT_CAP = 1024 };
bool spikes_text(const struct spikes *s, char out[SPIKES_TEXT_CAP]);

/* As runner/JSON.md says; new reference, NULL: no memory. */
json_t *spikes_json(const struct spikes *s);

#endif
