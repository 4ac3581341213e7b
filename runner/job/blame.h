/* Which rank is at fault where no rank reported an error. Compares the board states of all ranks of
 * an attempt, on all hosts. Answers only where a single rank is at fault, since the next attempt
 * may leave the blamed GPU out. */
#ifndef FP8LAB_RUNNER_JOB_BLAME_H
#define FP8LAB_RUNNER_JOB_BLAME_H

#include "runner/job/attempt.h"

struct board;
struct json_t;

/* What is known of one rank. */
struct rank_state {
    bool known;            /* false: all other members are zero */
    int64_t step, count;   /* last queued step; collectives reached (comm.h) */
    int64_t silent_ticks;  /* since the last heartbeat of its process */
    uint64_t waits_for, lost; /* sets of ranks, as in comm.h */
    bool gave_up;
    char at[ATTEMPT_OPERATION_CAP]; /* the operation, as board_words */
};

void rank_state_read(const struct board *board, int64_t silent_ticks, struct rank_state *out);
/* As a message: new reference, NULL without memory. */
struct json_t *rank_state_pack(const struct rank_state *state);
void rank_state_unpack(const struct json_t *message, struct rank_state *out);

/* How many ranks have shown no sign of life for `ticks` ticks. *longest: the one with the longest
 * silence, or -1; it is at fault where it is the only one. */
int64_t blame_frozen(const struct rank_state *state, int64_t ranks, int64_t ticks,
                     int64_t *longest);

/* All ranks run, and none makes progress. Returns the rank that all others wait for. NCCL does not
 * show this: then the rank that has reached fewer collectives than all others (its device hangs
 * before the next one), or as many and fewer steps. -1 where that is not a single rank. Steps count
 * last, since a host queues work ahead of its device. */
int64_t blame_behind(const struct rank_state *state, int64_t ranks);

/* Ranks lost links. Returns the rank with most broken links; -1 where that is not a single rank
 * (one broken link has two ends), or where no link is known to have broken (NCCL does not name the
 * peer).
 *
 * A rank that loses a link closes all its other links, and their other ends see a loss, too. Such a
 * loss does not count: the rank that closed the link had given up, and had not noted that peer as
 * lost. A link that broke by itself is noted at both ends, or at one end while the other noticed
 * nothing; the other is blamed then. */
int64_t blame_links(const struct rank_state *state, int64_t ranks);
/* The two ends of the only link that broke by itself; false where there is not exactly one. */
bool blame_link(const struct rank_state *state, int64_t ranks, int64_t end[2]);

#endif
