/* Where the time from a command to its first step went: a line of runner.log, and `start` of the
 * attempt in run.json. */
#ifndef FP8LAB_RUNNER_RUN_STARTING_H
#define FP8LAB_RUNNER_RUN_STARTING_H

#include <jansson.h>

#include "kernels/base.h"

struct run_dir;

/* What the runner does before its workers start; the rest is not named. The record is the run's
 * directory, with the state of the sources. */
enum start_part {
    START_SCRIPT, START_PROBE, START_DATA, START_RECORD, START_CERTIFICATES, START_REST
};

struct start_clock {
    int64_t begin_us, lap_us;        /* (clock.h) */
    int64_t part_us[START_REST + 1];
    const char *from;                /* what began then: "the command" */
    bool used;                       /* by an attempt */
};

/* Begins with the command, as its first statement. */
void start_clock_begin(struct start_clock *c, const char *from);
/* The time since the last lap goes to `part`. c may be NULL: then nothing is measured. */
void start_clock_lap(struct start_clock *c, enum start_part part);
/* Before each run: a later row of a suite begins anew. c may be NULL. */
void start_clock_row(struct start_clock *c);

/* Of one attempt. */
struct starting {
    const struct run_dir *dir; /* borrowed */
    struct start_clock clock;
    int64_t ready_us;          /* when the last rank was ready */
    int64_t ranks;             /* that are */
    int64_t slowest;           /* that took longest to be */
    int64_t slowest_us;
    json_t *spent;             /* its event; owned. NULL: no rank is ready, or it is said */
    bool said;                 /* a rank of another host that reports later is left out */
};

/* c: NULL, or used: the attempt is one of a later begin. */
void starting_begin(struct starting *s, const struct run_dir *dir, struct start_clock *c);
/* Takes "ready" of each rank. At the first step of rank 0 it writes the line and the record. */
NODISCARD enum status starting_event(struct starting *s, int64_t rank, const json_t *event,
                                     struct err *e);
void starting_end(struct starting *s);

#endif
