/* The worker process: builds a trainer from the resolved configuration, runs its steps, and reports
 * events. It owns the device. It writes checkpoints, and what audit_report.h says. */
#ifndef FP8LAB_RUNNER_WORKER_WORKER_H
#define FP8LAB_RUNNER_WORKER_WORKER_H

#include "kernels/base.h"

struct worker_options {
    const char *config;   /* resolved.json */
    const char *run_path; /* the run directory: checkpoints go to data/checkpoints */
    int64_t events_fd;    /* the event pipe; taken over */
    const char *backend;  /* "auto", "cpu", "cuda" */
    const char *caps;     /* "sm_121": the architecture to emulate; NULL: the device's own */
    const char *forbid;   /* ways not to use, "gemm e4m3 row x e4m3 row; attention cudnn"; NULL */
    const char *arithmetic; /* of the cpu backend (kernels/arithmetic.h); NULL: the reference's */
    const char *data_root; /* data paths are relative to it; NULL: to the working directory */
    bool choose_anew;     /* if the run's choice table does not fit this device: make a new one */
    bool profile;         /* no graphs; ranges if a profiler asks for them (runner/profile) */
    int64_t threads;      /* of the cpu backend; 0 = one per processor */
    int64_t rank, world;
    int64_t device;       /* of the cuda backend */
    int64_t board_fd;     /* memory shared with the runner (job/board.h); taken over; -1: none */
    int64_t rendezvous_fd;   /* rank 0: listening socket for the other ranks; taken over; -1 */
    int64_t from;         /* resume from the checkpoint of this step; 0: start new */
    const char *choices;  /* SHA-256 of the run's choice table; NULL: it has none */
    int64_t stop_after;   /* stop in good order after this step; 0: never */
};

/* Trains to the end, or until SIGTERM or SIGINT: then it saves a checkpoint and emits "done" with
 * "stopped":true. A failure is emitted as an "error" event and returned. ERR_PEER: the runner is
 * gone; nothing was saved, since another process may own the run directory by now. */
NODISCARD enum status worker_run(const struct worker_options *options, struct err *e);

#endif
