/* Memory that a worker shares with its runner: how to meet the other ranks, and where the worker
 * is. The runner reads it at any time, also after the worker was killed or stands still, which is
 * what no message could tell. */
#ifndef FP8LAB_RUNNER_JOB_BOARD_H
#define FP8LAB_RUNNER_JOB_BOARD_H

#include "kernels/comm.h"
#include "runner/job/rendezvous.h"

enum board_phase {
    BOARD_STARTING, /* before the first step: libraries, memory, weights */
    BOARD_STEPPING,
    BOARD_EVALUATING,
    BOARD_SAVING,
    BOARD_LEAVING   /* the last step is done */
};

enum { PULSE_MS = 250, BOARD_DEVICE_CAP = 160 };

/* What is shared. Both processes use the functions below, so that nothing is read half-written. */
struct board {
    struct rendezvous rendezvous; /* by the runner, before the worker starts */
    bool met;               /* it has a connection to every other rank */
    struct comm_note note;  /* by the backend */
    int64_t beats;          /* by the pulse: one every PULSE_MS while the process runs */
    int64_t where;          /* step and phase in one word: board_word */
    uint64_t device_turn;
    char device_in[2][BOARD_DEVICE_CAP]; /* by the pulse: see shared_record.h */
};

/* One moment of a board. */
struct board_state {
    struct comm_state comm;
    enum board_phase phase;
    int64_t step; /* queued last; 0 before the first */
    char device_in[BOARD_DEVICE_CAP]; /* operators (under_way); "" if nobody knows */
};

static inline int64_t board_word(int64_t step, enum board_phase phase) {
    return step << 3 | (int64_t)phase;
}

/* By the worker's first thread. */
void board_enter(struct board *b, int64_t step, enum board_phase phase);
void board_phase(struct board *b, enum board_phase phase); /* of the step that it is in */
void board_met(struct board *b, bool met);
/* By its pulse. */
void board_beat(struct board *b);
void board_device(struct board *b, const char device_in[BOARD_DEVICE_CAP]);

/* By the runner, at any time. */
bool board_has_met(const struct board *b);
int64_t board_beats(const struct board *b);
struct board_state board_read(const struct board *b);

/* A zeroed board in memory of its own; *fd is what a worker inherits. */
NODISCARD enum status board_create(struct board **out, int *fd, struct err *e);
/* The board behind an inherited descriptor, which is closed. ERR_FORMAT: it is something else. */
NODISCARD enum status board_open(int fd, struct board **out, struct err *e);
void board_close(struct board *b); /* NULL is fine */

/* "step 12, all_reduce sum of 1024 f32 (collective 340), the device in swiglu_bwd or matmul": what
 * a worker was at; its device at the last pulse. */
void board_words(const struct board_state *b, char *out, size_t size);

#endif
