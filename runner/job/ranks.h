/* The worker processes of an attempt on this host: started with their boards, and described when
 * one of them failed. */
#ifndef FP8LAB_RUNNER_JOB_RANKS_H
#define FP8LAB_RUNNER_JOB_RANKS_H

#include <sys/types.h>

#include "runner/job/blame.h"
#include "runner/job/board.h"

struct event_reader;

struct rank {
    pid_t pid; /* 0: reaped, or never started */
    struct event_reader *events;
    struct board *board;
    bool open, done, failed; /* done, failed: it said so */
    bool unkillable; /* SIGKILL does not end it: nobody waits for it */
    int64_t beats, silent_ticks; /* of the board, when the runner last looked */
};

struct ranks {
    const struct supervise_options *options;
    struct rank rank[SUPERVISE_RANKS_MAX];
    int64_t started;
    char host[HOST_NAME_CAP];
};

/* Starts all of them. Whatever the status, those that were started are in *out, and ranks_close
 * releases it once they are gone. */
NODISCARD enum status ranks_start(const struct supervise_options *options, struct ranks *out,
                                  struct err *e);
void ranks_close(struct ranks *r);

void ranks_signal(const struct ranks *r, int signo); /* to all that are there */
bool ranks_gone(const struct ranks *r); /* none is there that can be waited for */
bool ranks_done(const struct ranks *r); /* every one said so */

/* Looks at the boards, once a tick. Ticks that this process itself slept through do not count. */
void ranks_look(struct ranks *r);
/* What the board of the i-th rank here shows, now or when it ended. */
void ranks_state(const struct ranks *r, int64_t i, struct rank_state *out);

/* "; its last words: ..." from the log of the i-th rank here, or "". */
void ranks_last_words(const struct ranks *r, int64_t i, char *out, size_t size);

#endif
