/* Which rank is at fault if no rank reported an error. Compares the board states of all ranks of an
 * attempt, on all hosts. Answers only if a single rank is at fault, since the next attempt may
 * leave the blamed GPU out. */
#ifndef FP8LAB_RUNNER_JOB_BLAME_H
#define FP8LAB_RUNNER_JOB_BLAME_H

#include "runner/job/board.h"

/* How many ranks have shown no sign of life for `ticks` ticks. *longest: the one with the longest
 * silence, or -1; it is at fault if it is the only one. */
int64_t blame_frozen(const struct rank_state *state, int64_t ranks, int64_t ticks,
                     int64_t *longest);

/* All ranks run, and none makes progress. Returns the rank that all others wait for. NCCL does not
 * show this. Then it is the rank that has reached fewer collectives than all others: its device
 * hangs before the next one. If all have reached as many, it is the rank with fewer steps. Steps
 * count last, since a host queues work ahead of its device. -1 if this is not a single rank. */
int64_t blame_behind(const struct rank_state *state, int64_t ranks);

/* Ranks lost links. Returns the rank with most broken links. Returns -1 if several ranks have most:
 * one broken link has two ends. Also -1 if no broken link is known: NCCL does not name the peer.
 *
 * A rank that loses a link closes all its other links, and their other ends see a loss, too. Such a
 * loss does not count: the rank that closed the link had given up, and had not noted that peer as
 * lost. A link that really broke is noted at both ends, or at one end only. If one end noticed
 * nothing, that end is blamed. */
int64_t blame_links(const struct rank_state *state, int64_t ranks);

#endif
