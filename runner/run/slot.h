/* The process of one slot of `run --side-by-side`: the same command as its parent, with a share of
 * the machine. The parent gives it rows one after another, and decides everything else.
 *
 * They talk in lines of JSON. The parent sends "slot" (its share), "row" (run this row: its number,
 * the hashes of its configuration and inputs, its state, how many run at once, the rows for
 * watchers) and "end". The process sends "ready" (it has read script and data), "begun" (the row's
 * run has its directory), "ended" (its outcome) and "error". A run is named by its file's name in
 * the folder of runs. */
#ifndef FP8LAB_RUNNER_RUN_SLOT_H
#define FP8LAB_RUNNER_RUN_SLOT_H

#include <jansson.h>

#include "kernels/base.h"

struct event_reader;
struct event_writer;
struct signals;

/* "PID:FD": the parent's process, and the descriptor of its messages. */
#define SLOT_VARIABLE "FP8LAB_SLOT"

struct slot {
    bool is;         /* this process is one */
    int64_t index;   /* of the slot */
    int64_t count;   /* how many rows run at once; known with the first one */
    int64_t threads; /* of the cpu backend; 0: --threads, or all */
    json_t *gpus;    /* owned: the driver's indices of its GPUs; NULL: no GPU is used */
    int64_t row;     /* that runs; -1: none */
    struct event_reader *in;
    struct event_writer *out;
};

/* Whether this process was started by slot_process_start(): then waits for its share. *out is
 * zeroed if not. */
NODISCARD enum status slot_attach(struct slot *out, struct err *e);
void slot_close(struct slot *s); /* safe on a zeroed struct */

/* Sends and releases a message to the parent; NULL: there is no memory for it. */
NODISCARD enum status slot_tell(struct slot *s, json_t *message, struct err *e);

/* Waits for the parent's next message, the caller's. NULL: *signo is the signal that came meanwhile
 * (signals.h), or 0: the parent is gone. signals: NULL, or closed: a signal has its default
 * action. */
NODISCARD enum status slot_receive(struct slot *s, struct signals *signals, json_t **out,
                                   int *signo, struct err *e);

/* Tells the parent that the row's run has its directory. NULL: nothing. */
void slot_begun(struct slot *s, const char *path);

/* Tells the parent why this process ends; returns its exit code. */
int slot_fail(struct slot *s, const struct err *e);

/* How many rows run at once; 1 without a slot. */
int64_t slot_rows_at_once(const struct slot *s);

/* What the record of an attempt says: {"rows_at_once", "slot", "gpus": if they are known}. New
 * reference; NULL: no memory. */
json_t *slot_json(const struct slot *s);

#endif
