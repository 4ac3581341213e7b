/* Memory that a worker shares with its runner: how to reach the other ranks, and what the worker is
 * doing. The runner can read it at any time, even after the worker was killed or while it is
 * frozen. */
#ifndef FP8LAB_RUNNER_JOB_BOARD_H
#define FP8LAB_RUNNER_JOB_BOARD_H

#include "kernels/comm.h"
#include "runner/job/rendezvous.h"

struct json_t;

enum board_phase {
    BOARD_STARTING, /* before the first step: libraries, memory, weights */
    BOARD_STEPPING,
    BOARD_EVALUATING,
    BOARD_SAVING,
    BOARD_LEAVING   /* after the last step */
};

enum { HEARTBEAT_MS = 250, BOARD_DEVICE_CAP = 160 };

/* The shared memory. Use the functions below: they read nothing half-written. */
struct board {
    struct rendezvous rendezvous; /* written by the runner, before the worker starts */
    bool met;               /* connected to every other rank */
    struct comm_note note;  /* written by the backend */
    int64_t beats;          /* by the heartbeat thread, every HEARTBEAT_MS while the process runs */
    int64_t where;          /* step and phase in one word: board_word */
    uint64_t device_writes;
    char device_in[2][BOARD_DEVICE_CAP]; /* by the heartbeat thread: see shared_record.h */
};

/* What is known of a rank: its board at one moment, and how long its process has been silent. */
struct rank_state {
    bool known;            /* false: all other members are zero */
    int64_t silent_ticks;  /* since the last heartbeat, in ticks of watch.h; not of the board */
    bool met;
    struct comm_state comm;
    enum board_phase phase;
    int64_t step; /* last queued; 0: none yet */
    char device_in[BOARD_DEVICE_CAP]; /* operators on the device; "": unknown */
};

static inline int64_t board_word(int64_t step, enum board_phase phase) {
    return step << 3 | (int64_t)phase;
}

/* For the worker's first thread. */
void board_enter(struct board *b, int64_t step, enum board_phase phase);
void board_phase(struct board *b, enum board_phase phase); /* of the present step */
void board_met(struct board *b, bool met);
/* For the heartbeat thread. */
void board_beat(struct board *b);
void board_device(struct board *b, const char device_in[BOARD_DEVICE_CAP]);

/* For the runner, at any time. */
int64_t board_beats(const struct board *b);
struct rank_state board_read(const struct board *b);

/* A zeroed board in new memory. *fd is for the worker to inherit. */
NODISCARD enum status board_create(struct board **out, int *fd, struct err *e);
/* Maps the board of an inherited descriptor, and closes the descriptor. ERR_FORMAT: it is not
 * a board. */
NODISCARD enum status board_open(int fd, struct board **out, struct err *e);
void board_close(struct board *b); /* NULL is fine */

/* The operation in words: "step 12, all_reduce sum of 1024 f32 (collective 340), the device in
 * swiglu_bwd or matmul"; "" of a rank that is not known. The device's part is as of the last
 * heartbeat. */
void rank_state_words(const struct rank_state *s, char *out, size_t size);

/* As a message: new reference, NULL without memory. */
struct json_t *rank_state_pack(const struct rank_state *s);
struct rank_state rank_state_unpack(const struct json_t *message);

#endif
