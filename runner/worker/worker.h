/* The worker process: builds a trainer from the resolved configuration, steps it, and says what
 * happens as events. It owns the device; it owns no file but checkpoints. */
#ifndef FP8LAB_RUNNER_WORKER_WORKER_H
#define FP8LAB_RUNNER_WORKER_WORKER_H

#include "kernels/base.h"

struct worker_options {
    const char *config;   /* resolved.json */
    const char *run_path; /* the run directory: checkpoints go to data/checkpoints */
    int64_t events_fd;    /* taken over */
    const char *backend;  /* "auto", "cpu", "cuda" */
    const char *caps;     /* "sm_121": what the backend is to pretend to be; NULL: itself */
    const char *data_root; /* paths of data count from here; NULL: as they stand */
    bool choose_anew;     /* where the run's choice table is not of this device and its libraries */
    int64_t threads;      /* of the cpu backend; 0 = one per processor */
    int64_t rank, world;
    int64_t device;       /* of the cuda backend */
    int64_t board_fd;     /* of memory shared with the runner (board.h), taken over; -1: none */
    int64_t rendezvous_fd;   /* rank 0 of several: listens where the others call; taken over */
    int64_t from;         /* go on from the checkpoint of this step; 0: from the beginning */
    const char *choices;  /* SHA-256 of the run's choice table; NULL: it has none */
    int64_t stop_after;   /* stop in good order after this step, as if asked to; 0: never */
};

/* Trains to the end, or until SIGTERM or SIGINT asks it to stop: then it saves a checkpoint and
 * says done with "stopped":true. Whatever fails is said in an "error" event and returned. ERR_PEER:
 * the runner is gone; nothing was saved, since the run directory is no longer ours. */
NODISCARD enum status worker_run(const struct worker_options *options, struct err *e);

#endif
