#include "runner/job/blame.h"

#include "runner/job/attempt.h"

_Static_assert((int)SUPERVISE_RANKS_MAX <= (int)COMM_RANKS_MAX, "a set of ranks is one word");

static bool holds(uint64_t set, int64_t rank) { return set >> rank & 1; }

int64_t blame_frozen(const struct rank_state *state, int64_t ranks, int64_t ticks,
                     int64_t *longest) {
    int64_t frozen = 0;
    *longest = -1;
    for (int64_t r = 0; r < ranks; r++) {
        if (state[r].silent_ticks < ticks) continue;
        if (*longest < 0 || state[r].silent_ticks > state[*longest].silent_ticks) *longest = r;
        frozen++;
    }
    return frozen;
}

static bool all_wait_for(const struct rank_state *state, int64_t ranks, int64_t rank) {
    for (int64_t r = 0; r < ranks; r++)
        if (r != rank && !holds(state[r].comm.waits_for, rank)) return false;
    return true;
}

static bool is_behind(const struct rank_state *a, const struct rank_state *b) {
    int64_t ahead = b->comm.at.count - a->comm.at.count;
    return ahead > 0 || (ahead == 0 && a->step < b->step);
}

static bool is_behind_all(const struct rank_state *state, int64_t ranks, int64_t rank) {
    for (int64_t r = 0; r < ranks; r++)
        if (r != rank && !is_behind(&state[rank], &state[r])) return false;
    return true;
}

int64_t blame_behind(const struct rank_state *state, int64_t ranks) {
    int64_t awaited = -1, count = 0, last = -1;
    if (ranks < 2) return -1;
    for (int64_t r = 0; r < ranks; r++) {
        if (!state[r].known) return -1;
        if (is_behind_all(state, ranks, r)) last = r;
        if (!all_wait_for(state, ranks, r)) continue;
        awaited = r;
        count++;
    }
    return count == 1 ? awaited : last;
}

/* Whether a's loss of b counts against b. It does not if b closed the link after losing another
 * rank. */
static bool is_first_hand(const struct rank_state *state, int64_t a, int64_t b) {
    return holds(state[a].comm.lost, b) && (!state[b].comm.aborted || holds(state[b].comm.lost, a));
}

int64_t blame_links(const struct rank_state *state, int64_t ranks) {
    int64_t blamed = -1, most = 0;
    for (int64_t b = 0; b < ranks; b++) {
        int64_t links = 0;
        for (int64_t a = 0; a < ranks; a++) links += a != b && is_first_hand(state, a, b);
        if (links > most) blamed = b;
        else if (links == most) blamed = -1;
        if (links > most) most = links;
    }
    return blamed;
}
