/* Which rank is at fault, from the states of all ranks: broken links, and hangs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>

#include "runner/job/blame.h"

#define ONE(a) ((uint64_t)1 << (a))
#define TWO(a, b) (ONE(a) | ONE(b))
#define THREE(a, b, c) (TWO(a, b) | ONE(c))

enum { RANKS = 4 };

/* The peers that each rank had lost when it gave up; NOTHING: it did not give up. */
static const uint64_t NOTHING = UINT64_MAX;
struct links_case { const char *what; uint64_t lost[RANKS]; int64_t blamed; };

static const struct links_case LINKS[] = {
    { "all links of rank 2 break, and all ranks detect it at once",
      { ONE(2), ONE(2), THREE(0, 1, 3), ONE(2) }, 2 },
    { "rank 0 detects it first, and has closed its links to 1 and 3",
      { ONE(2), TWO(0, 2), THREE(0, 1, 3), TWO(0, 2) }, 2 },
    { "rank 3 loses all other ranks",
      { ONE(2), TWO(0, 2), THREE(0, 1, 3), THREE(0, 1, 2) }, 2 },
    { "rank 2 detects nothing: no packet reaches it",
      { ONE(2), ONE(0), NOTHING, ONE(0) }, 2 },
    { "two links of rank 2", { ONE(2), ONE(2), TWO(0, 1), TWO(0, 1) }, 2 },
    { "one link, between 2 and 3", { TWO(2, 3), ONE(3), ONE(3), ONE(2) }, -1 },
    { "two ranks with equally many broken links", { ONE(1), ONE(0), ONE(3), ONE(2) }, -1 },
    { "rank 1 gave up because of NCCL, and all others lose it",
      { ONE(1), 0, ONE(1), TWO(0, 1) }, -1 },
    { "no link is lost", { 0, NOTHING, NOTHING, 0 }, -1 },
};

static void broken_links(void **state) {
    for (size_t i = 0; i < sizeof LINKS / sizeof *LINKS; i++) {
        struct rank_state rank[RANKS] = { { .known = true } };
        for (int r = 0; r < RANKS; r++) {
            rank[r].comm.aborted = LINKS[i].lost[r] != NOTHING;
            rank[r].comm.lost = rank[r].comm.aborted ? LINKS[i].lost[r] : 0;
        }
        int64_t found = blame_links(rank, RANKS);
        if (found != LINKS[i].blamed) fail_msg("%s: %d is blamed", LINKS[i].what, (int)found);
    }
}

struct behind_case {
    const char *what;
    int64_t step[RANKS], count[RANKS];
    uint64_t waits_for[RANKS];
    int64_t blamed;
};

static const struct behind_case BEHIND[] = {
    { "rank 2 has not reached the collective of the others",
      { 7, 7, 7, 7 }, { 41, 41, 40, 41 }, { ONE(2), ONE(2), 0, ONE(2) }, 2 },
    { "rank 2 hangs in a collective that all have reached",
      { 7, 7, 7, 7 }, { 41, 41, 41, 41 }, { ONE(2), ONE(2), TWO(0, 3), ONE(2) }, 2 },
    { "rank 0 is in the next collective",
      { 7, 7, 7, 7 }, { 42, 41, 41, 41 }, { THREE(1, 2, 3), ONE(2), 0, ONE(2) }, 2 },
    { "NCCL: only the counts show that rank 3's device is behind",
      { 8, 8, 8, 8 }, { 41, 41, 41, 40 }, { 0 }, 3 },
    { "the same, and its host is ahead", { 7, 7, 7, 8 }, { 41, 42, 41, 40 }, { 0 }, 3 },
    { "rank 3's host is a step behind", { 8, 8, 8, 7 }, { 41, 41, 41, 41 }, { 0 }, 3 },
    { "two are behind", { 8, 8, 7, 7 }, { 41, 41, 40, 40 }, { 0 }, -1 },
    { "all at the same", { 7, 7, 7, 7 }, { 41, 41, 41, 41 }, { 0 }, -1 },
    { "all wait for all", { 7, 7, 7, 7 }, { 41, 41, 41, 41 },
      { THREE(1, 2, 3), THREE(0, 2, 3), THREE(0, 1, 3), THREE(0, 1, 2) }, -1 },
};

static void ranks_behind(void **state) {
    for (size_t i = 0; i < sizeof BEHIND / sizeof *BEHIND; i++) {
        const struct behind_case *c = &BEHIND[i];
        struct rank_state rank[RANKS];
        for (int r = 0; r < RANKS; r++)
            rank[r] = (struct rank_state){ .known = true, .step = c->step[r],
                                           .comm = { .at = { .count = c->count[r] },
                                                     .waits_for = c->waits_for[r] } };
        int64_t found = blame_behind(rank, RANKS);
        if (found != c->blamed) fail_msg("%s: %d is blamed", c->what, (int)found);
        rank[1].known = false;
        assert_int_equal(blame_behind(rank, RANKS), -1); /* any rank may be at fault */
    }
    const struct rank_state alone = { .known = true };
    assert_int_equal(blame_behind(&alone, 1), -1);
}

static void hung_ranks(void **state) {
    struct rank_state rank[RANKS] = { { .silent_ticks = 3 }, { .silent_ticks = 4 } };
    int64_t longest;
    assert_int_equal(blame_frozen(rank, RANKS, 5, &longest), 0);
    assert_int_equal(longest, -1);
    assert_int_equal(blame_frozen(rank, RANKS, 4, &longest), 1);
    assert_int_equal(longest, 1);
    rank[3].silent_ticks = 9;
    assert_int_equal(blame_frozen(rank, RANKS, 3, &longest), 3);
    assert_int_equal(longest, 3);
}

/* A state survives a message, with the highest rank of a set, too. */
static void a_state_as_a_message(void **state) {
    const struct rank_state all = { .known = true, .met = true, .phase = BOARD_SAVING, .step = 7,
                                    .silent_ticks = 3, .device_in = "matmul",
                                    .comm = { .at = { .count = 41, .what = "all_gather" },
                                              .waits_for = TWO(0, 63), .lost = ONE(63),
                                              .aborted = true } };
    char words[2][200];
    struct json_t *message = rank_state_pack(&all);
    assert_non_null(message);
    const struct rank_state again = rank_state_unpack(message);
    json_decref(message);
    assert_true(again.known && again.met && again.step == 7 && again.silent_ticks == 3);
    assert_true(again.comm.waits_for == TWO(0, 63) && again.comm.lost == ONE(63));
    assert_true(again.comm.aborted && again.comm.at.count == 41);
    rank_state_words(&all, words[0], sizeof words[0]);
    rank_state_words(&again, words[1], sizeof words[1]);
    assert_string_equal(words[0], words[1]);
    assert_string_equal(words[1], "checkpoint of step 7, all_gather (collective 41), the device in "
                                  "matmul");
    json_t *wrong = json_pack("{s:i}", "phase", 99);
    assert_int_equal(rank_state_unpack(wrong).phase, BOARD_STARTING);
    json_decref(wrong);
    assert_false(rank_state_unpack(NULL).known);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_links), cmocka_unit_test(ranks_behind),
        cmocka_unit_test(hung_ranks), cmocka_unit_test(a_state_as_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
