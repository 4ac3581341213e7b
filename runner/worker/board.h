/* Memory that a worker shares with its runner: how to meet the other ranks, and where the worker
 * is. The runner reads it at any time, also after the worker was killed or stands still, which is
 * what no message could tell. */
#ifndef FP8LAB_RUNNER_WORKER_BOARD_H
#define FP8LAB_RUNNER_WORKER_BOARD_H

#include "kernels/comm.h"
#include "runner/net/rendezvous.h"

enum board_phase {
    BOARD_STARTING, /* before the first step: libraries, memory, weights */
    BOARD_STEPPING,
    BOARD_EVALUATING,
    BOARD_SAVING,
    BOARD_LEAVING   /* the last step is done */
};

enum { PULSE_MS = 250, BOARD_DEVICE_CAP = 160 };

struct board {
    struct meeting meeting; /* by the runner, before the worker starts */
    bool met;               /* it has a connection to every other rank */
    struct comm_note note;  /* by the backend */
    int64_t beats;          /* by the pulse: one every PULSE_MS while the process runs */
    int64_t step;           /* queued last; 0 before the first */
    enum board_phase phase;
    char device_in[BOARD_DEVICE_CAP]; /* operators, by the pulse (under_way); "" if nobody knows */
};

/* A zeroed board in memory of its own; *fd is what a worker inherits. */
NODISCARD enum status board_create(struct board **out, int *fd, struct err *e);
/* The board behind an inherited descriptor, which is closed. ERR_FORMAT: it is something else. */
NODISCARD enum status board_open(int fd, struct board **out, struct err *e);
void board_close(struct board *b); /* NULL is fine */

/* "step 12, all_reduce sum of 1024 f32 (collective 340), the device in swiglu_bwd or matmul": what
 * a worker was at; its device at the last pulse. */
void board_words(const struct board *b, char *out, size_t size);

#endif
