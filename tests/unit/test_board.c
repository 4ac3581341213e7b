/* A reader never gets a mix of two states of a board. It reads while a worker writes as fast as it
 * can, and after the worker was killed. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runner/job/board.h"

enum { WRITERS = 30, WRITES = 2000, LETTERS = 26 };

static char letter_of(int64_t n) { return (char)('a' + n % LETTERS); }

/* The n-th state: every text is of one letter, every number is n, the phase follows from it. */
static void write_state(struct board *b, int64_t n) {
    struct comm_at at = { .count = n };
    char device_in[BOARD_DEVICE_CAP] = "";
    memset(at.what, letter_of(n), sizeof at.what - 1);
    memset(device_in, letter_of(n), sizeof device_in - 1);
    comm_note_move(&b->note, &at);
    board_device(b, device_in);
    board_enter(b, n, (enum board_phase)(n % (BOARD_LEAVING + 1)));
    board_beat(b);
}

static void assert_of_one_letter(const char *text, size_t cap) {
    assert_int_equal(strlen(text), cap - 1);
    for (size_t i = 1; i < cap - 1; i++)
        if (text[i] != text[0]) fail_msg("half of one text, half of another: %s", text);
}

/* Whether a state was read: a reader gives up if the writer is always faster. */
static bool is_whole(const struct board *b) {
    struct rank_state s = board_read(b);
    assert_int_equal(s.phase, s.step % (BOARD_LEAVING + 1));
    if (!s.comm.at.count || !*s.device_in) return false;
    assert_of_one_letter(s.comm.at.what, sizeof s.comm.at.what);
    assert_int_equal(s.comm.at.what[0], letter_of(s.comm.at.count));
    assert_of_one_letter(s.device_in, sizeof s.device_in);
    return true;
}

/* Reads while a child writes, and once more after the child was killed at an arbitrary point. */
static void read_beside_a_writer(struct board *b, int64_t *reads, int64_t *seen) {
    int64_t end = board_beats(b) + WRITES;
    pid_t writer = fork();
    assert_true(writer >= 0);
    if (writer == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int64_t n = end;; n++) write_state(b, n);
    }
    for (; board_beats(b) < end; ++*reads) *seen += is_whole(b);
    assert_int_equal(kill(writer, SIGKILL), 0);
    assert_int_equal(waitpid(writer, NULL, 0), writer);
    assert_true(is_whole(b));
}

static void a_board_is_read_whole(void **state) {
    struct board *b;
    struct err e;
    int fd;
    int64_t reads = 0, seen = 0;
    assert_int_equal(board_create(&b, &fd, &e), OK);
    close(fd);
    write_state(b, 1);
    for (int i = 0; i < WRITERS; i++) read_beside_a_writer(b, &reads, &seen);
    assert_true(seen > reads / 2);
    board_close(b);
}

static void text_of_a_board(void **state) {
    struct board b = { .where = board_word(12, BOARD_SAVING) };
    struct comm_at at = { 340, "all_reduce sum of 1024 f32" };
    char words[256];
    comm_note_move(&b.note, &at);
    board_device(&b, (const char[BOARD_DEVICE_CAP]){ "swiglu_bwd or matmul" });
    struct rank_state s = board_read(&b);
    rank_state_words(&s, words, sizeof words);
    assert_string_equal(words, "checkpoint of step 12, all_reduce sum of 1024 f32 (collective "
                               "340), the device in swiglu_bwd or matmul");
    board_phase(&b, BOARD_STEPPING);
    s = board_read(&b);
    assert_true(s.step == 12 && s.phase == BOARD_STEPPING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_board_is_read_whole),
        cmocka_unit_test(text_of_a_board),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
