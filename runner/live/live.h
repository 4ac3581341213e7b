/* The state of a run as its records tell it: what the live view, `watch` and the lines without a
 * terminal show. It is filled from the files of a run's directory (live_reader.h) or from a bundle
 * (live_bundle.h), so all of them show the same. */
#ifndef FP8LAB_RUNNER_LIVE_LIVE_H
#define FP8LAB_RUNNER_LIVE_LIVE_H

#include <jansson.h>

#include "runner/cache/eval_sets.h"
#include "runner/health/spikes.h"
#include "runner/live/trend.h"
#include "runner/record/run_lock.h"
#include "runner/record/streams.h"

enum { LIVE_RANKS_MAX = 64, LIVE_LABEL_CAP = 96, LIVE_ROWS_MAX = 32 };

/* The driver's and the process's figures of one rank: its last record of telemetry. NaN: absent. */
struct live_rank {
    double step, time; /* time: s since 1970 */
    double rss_bytes, device_bytes, gpu_used_bytes;
    double clock_mhz, power_w, temperature_c;
};

/* The tensor with the largest share of its elements, at the last step with FP8 records. */
struct live_worst {
    double share; /* NaN: no record */
    char label[LIVE_LABEL_CAP]; /* "": no element of any tensor */
};

/* The last loss on a set of eval.also. NaN: not finite. */
struct live_set { char name[EVAL_SET_NAME_CAP]; double loss; };

/* A row of the suite that ended before this one began. NaN: no such loss. */
struct live_row { int64_t row; char name[96], status[16]; double loss, eval_loss; };

struct live {
    /* run.json */
    char name[96], id[160], status[16], error[512];
    int64_t started, ended; /* s since 1970; 0: not yet */
    int64_t attempts;       /* with the current one */
    int64_t attempt_started, from_step; /* of the last attempt */
    char attempt[48];       /* names the last attempt: another text is another attempt */
    bool smoke;
    /* suite.json */
    int64_t row, rows;   /* this one, from 1, and how many; 0: the run is of no suite */
    int64_t row_count;   /* of the array below: the last rows that ended */
    struct live_row ended_row[LIVE_ROWS_MAX];
    /* its lock */
    enum run_life life;
    struct run_writer writer;
    /* resolved.json, decisions.json */
    int64_t steps; /* of the whole run; 0: not known yet */
    char recipe[64], backend[32], device[96];
    bool no_fp8, no_saturation; /* the recipe has no FP8; or none that can saturate */
    /* the records; NaN: none yet */
    int64_t step, first_step; /* of the last and the first record of train; -1: none */
    double loss, grad_norm, lr, step_ms, tokens_per_s, mfu, tflops;
    bool lacks_loss; /* no token of the last step has loss */
    struct trend losses;
    struct spike_detector spike_of_loss;
    int64_t spikes, spike_step; /* of the loss, that have ended; the last one's step */
    double eval_step, eval_loss, eval_best, eval_accuracy;
    int64_t set_step, set_count; /* set_step -1: no record of a set */
    struct live_set set[EVAL_SETS_MAX];
    int64_t ranks;
    struct live_rank rank[LIVE_RANKS_MAX];
    double pace_time, pace_step; /* of rank 0's first telemetry of this attempt */
    int64_t fp8_step;            /* -1: no record */
    struct live_worst saturated, underflow;
    char event[160]; /* the last line of the run's log, with the time of day; "": none */
};

void live_begin(struct live *l);

/* The streams of lines that the state is made of. */
enum { LIVE_STREAM_COUNT = 3 };
extern const enum stream_id LIVE_STREAMS[LIVE_STREAM_COUNT];

/* A record of any source: the number of a metric, NaN if the record lacks it. */
struct live_record {
    double (*number)(const void *source, const char *metric);
    const void *source;
};
/* Takes the next record of one of LIVE_STREAMS; ignores other streams. */
void live_take(struct live *l, enum stream_id stream, const struct live_record *r);
/* A record that is a JSON object. */
void live_take_json(struct live *l, enum stream_id stream, const json_t *record);

/* Take whole documents. Missing and wrong members count as absent: a directory may be untrusted. */
void live_take_run(struct live *l, const json_t *run);
void live_take_resolved(struct live *l, const json_t *resolved);
void live_take_decisions(struct live *l, const json_t *decisions);
void live_take_suite(struct live *l, const json_t *suite);

/* A record of a wide stream: `share` gives the value of a label, 0 <= label < width. */
struct live_shares {
    double (*share)(const void *source, const char *metric, int64_t label);
    const char *(*label)(const void *source, int64_t label); /* NULL: no name */
    const void *source;
    int64_t width;
};
/* Takes the FP8 shares of one step. */
void live_take_fp8(struct live *l, int64_t step, const struct live_shares *s);
/* Takes the losses on sets; names that no run has are left out. */
void live_take_sets(struct live *l, int64_t step, const struct live_shares *s);

/* Takes a line of the log, "2026-11-21T02:48:23Z text". */
void live_take_event(struct live *l, const char *line);

bool live_is_running(const struct live *l);  /* run.json says so */
bool live_is_dead(const struct live *l);     /* it says so, but no process holds the lock */
/* Whether nothing more will come: the run is dead, or it ended and is packed. */
bool live_is_over(const struct live *l);

/* Seconds to the end by the pace of this attempt; -1: not known, or nothing more comes. `now` is s
 * since 1970, and only bridges the time since the last record. */
double live_eta_s(const struct live *l, int64_t now);

/* The run as JSON, for --json: fp8lab.watch/1. New reference; NULL: no memory. */
json_t *live_json(const struct live *l, const char *path, int64_t now);

#endif
