#include "runner/job/blame.h"

#include <jansson.h>
#include <stdio.h>

#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/job/board.h"

_Static_assert((int)SUPERVISE_RANKS_MAX <= (int)COMM_RANKS_MAX, "a set of ranks is one word");

/* ---- the state of a rank ----------------------------------------------------------------------*/

void rank_state_read(const struct board *board, int64_t silent_ticks, struct rank_state *out) {
    struct board_state b = board_read(board);
    *out = (struct rank_state){
        .known = true, .step = b.step, .count = b.comm.at.count, .silent_ticks = silent_ticks,
        .waits_for = b.comm.waits_for, .lost = b.comm.lost, .gave_up = b.comm.gave_up,
    };
    board_words(&b, out->at, sizeof out->at);
}

json_t *rank_state_pack(const struct rank_state *s) {
    return json_pack("{s:o,s:I,s:I,s:I,s:I,s:I,s:b}", "at", json_from_text(s->at), "step",
                     (json_int_t)s->step, "count", (json_int_t)s->count, "silent",
                     (json_int_t)s->silent_ticks, "waits_for", (json_int_t)s->waits_for, "lost",
                     (json_int_t)s->lost, "gave_up", s->gave_up);
}

static int64_t whole(const json_t *message, const char *key) {
    return json_integer_value(json_object_get(message, key));
}

void rank_state_unpack(const json_t *message, struct rank_state *out) {
    *out = (struct rank_state){
        .known = json_is_object(message), .step = whole(message, "step"),
        .count = whole(message, "count"), .silent_ticks = whole(message, "silent"),
        .waits_for = (uint64_t)whole(message, "waits_for"),
        .lost = (uint64_t)whole(message, "lost"),
        .gave_up = json_is_true(json_object_get(message, "gave_up")),
    };
    snprintf(out->at, sizeof out->at, "%s", json_text(message, "at", ""));
}

/* ---- the rank at fault ------------------------------------------------------------------------*/

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
        if (r != rank && !holds(state[r].waits_for, rank)) return false;
    return true;
}

static bool is_behind(const struct rank_state *a, const struct rank_state *b) {
    return a->count < b->count || (a->count == b->count && a->step < b->step);
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

/* Whether a's loss of b counts against b. It does not where b closed the link after losing another
 * rank. */
static bool is_first_hand(const struct rank_state *state, int64_t a, int64_t b) {
    return holds(state[a].lost, b) && (!state[b].gave_up || holds(state[b].lost, a));
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

bool blame_link(const struct rank_state *state, int64_t ranks, int64_t end[2]) {
    int64_t links = 0;
    for (int64_t a = 0; a < ranks; a++)
        for (int64_t b = a + 1; b < ranks; b++) {
            if (!is_first_hand(state, a, b) && !is_first_hand(state, b, a)) continue;
            end[0] = a;
            end[1] = b;
            links++;
        }
    return links == 1;
}
