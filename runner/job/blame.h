/* Which rank is at fault where none has said so: of all ranks of an attempt, on whatever host, what
 * their boards show is compared. An answer is given only where it is one rank; what is blamed may
 * be left out of the next attempt. */
#ifndef FP8LAB_RUNNER_JOB_BLAME_H
#define FP8LAB_RUNNER_JOB_BLAME_H

#include "runner/job/supervise.h"

struct board;
struct json_t;

/* What is known of one rank. */
struct rank_state {
    bool known;            /* anything; the rest is zero otherwise */
    int64_t step, count;   /* queued last; collectives come to (comm.h) */
    int64_t silent_ticks;  /* since its process last showed a sign of life */
    uint64_t waits_for, lost; /* sets of ranks, as in comm.h */
    bool gave_up;
    char at[ATTEMPT_OPERATION_CAP]; /* in words */
};

void rank_state_read(const struct board *board, int64_t silent_ticks, struct rank_state *out);
/* The same as a message holds it: new reference, NULL without memory. */
struct json_t *rank_state_pack(const struct rank_state *state);
void rank_state_unpack(const struct json_t *message, struct rank_state *out);

/* How many ranks have shown no sign of life for `ticks` ticks; *longest: the one that has not for
 * the longest time, or -1. It is to blame where it is the only one. */
int64_t blame_still(const struct rank_state *state, int64_t ranks, int64_t ticks,
                    int64_t *longest);

/* All live, and nothing goes on: the rank that all others are waiting for, or, where what they wait
 * for is not seen (NCCL), the one that has come to fewer collectives than all others (its device
 * hangs in what comes before the next), or to as many and is steps behind; -1 where it is not one.
 * Steps alone say little: a host queues a device's work ahead. */
int64_t blame_behind(const struct rank_state *state, int64_t ranks);

/* Ranks lost one another: the one that most of the broken links belong to, or -1 where that is not
 * one rank (a single link has two ends, and nobody can tell which of them is at fault) or where no
 * link broke (NCCL does not say whom it lost).
 *
 * A rank that loses a link gives the group up, and closes its other links, which the ranks at their
 * other ends see as a loss as well. That is told apart by what the closing rank had noted before:
 * a link that broke by itself is noted from both ends, or from one end while the other noticed
 * nothing at all, and then it is the other that is blamed. */
int64_t blame_links(const struct rank_state *state, int64_t ranks);
/* The two ends of the one link that broke by itself; false where that is not one. */
bool blame_link(const struct rank_state *state, int64_t ranks, int64_t end[2]);

#endif
