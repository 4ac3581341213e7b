#include "runner/job/board.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/base/canonical.h"
#include "runner/base/run_files.h"

static enum status map(int fd, struct board **out, struct err *e) {
    void *at = mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return FAIL(e, ERR_MEMORY, "memory shared with a worker: %s", strerror(errno));
    *out = at;
    return OK;
}

enum status board_create(struct board **out, int *fd, struct err *e) {
    *out = NULL;
    *fd = memfd_create("fp8lab-board", MFD_CLOEXEC);
    enum status st = OK;
    if (*fd < 0 || ftruncate(*fd, sizeof **out) != 0)
        st = FAIL(e, ERR_MEMORY, "memory shared with a worker: %s", strerror(errno));
    if (st == OK) st = map(*fd, out, e);
    if (st != OK && *fd >= 0) close(*fd);
    if (st != OK) *fd = -1;
    return st;
}

enum status board_open(int fd, struct board **out, struct err *e) {
    struct stat info;
    *out = NULL;
    if (fstat(fd, &info) != 0 || info.st_size != (off_t)sizeof **out)
        return FAIL(e, ERR_FORMAT, "descriptor %d is not a board of a runner", fd);
    enum status st = map(fd, out, e);
    close(fd);
    return st;
}

void board_close(struct board *b) {
    if (b) (void)munmap(b, sizeof *b);
}

/* ---- for the worker ---------------------------------------------------------------------------*/

void board_enter(struct board *b, int64_t step, enum board_phase phase) {
    __atomic_store_n(&b->where, board_word(step, phase), __ATOMIC_RELAXED);
}

void board_phase(struct board *b, enum board_phase phase) {
    board_enter(b, __atomic_load_n(&b->where, __ATOMIC_RELAXED) >> 3, phase);
}

void board_met(struct board *b, bool met) { __atomic_store_n(&b->met, met, __ATOMIC_RELAXED); }

void board_beat(struct board *b) { (void)__atomic_add_fetch(&b->beats, 1, __ATOMIC_RELAXED); }

void board_device(struct board *b, const char device_in[BOARD_DEVICE_CAP]) {
    shared_write(&b->device_writes, b->device_in, device_in, BOARD_DEVICE_CAP);
}

/* ---- for the runner ---------------------------------------------------------------------------*/

int64_t board_beats(const struct board *b) { return __atomic_load_n(&b->beats, __ATOMIC_RELAXED); }

/* The phase of a number that another process wrote. */
static enum board_phase phase_of(int64_t number) {
    return number >= 0 && number <= BOARD_LEAVING ? (enum board_phase)number : BOARD_STARTING;
}

struct rank_state board_read(const struct board *b) {
    int64_t where = __atomic_load_n(&b->where, __ATOMIC_RELAXED);
    struct rank_state s = { .known = true, .met = __atomic_load_n(&b->met, __ATOMIC_RELAXED),
                            .comm = comm_note_read(&b->note), .step = where >> 3,
                            .phase = phase_of(where & 7) };
    (void)shared_read(&b->device_writes, b->device_in, s.device_in, sizeof s.device_in);
    s.device_in[sizeof s.device_in - 1] = '\0';
    return s;
}

/* ---- for both ---------------------------------------------------------------------------------*/

void rank_state_words(const struct rank_state *s, char *out, size_t size) {
    static const char *const PHASES[] = { "the start", "step", "evaluation after step",
                                          "checkpoint of step", "leaving after step" };
    char step[24] = "", collective[128] = "", device[BOARD_DEVICE_CAP + 32] = "";
    if (s->phase != BOARD_STARTING) snprintf(step, sizeof step, " %" PRId64, s->step);
    if (s->comm.at.count)
        snprintf(collective, sizeof collective, ", %s (collective %" PRId64 ")", s->comm.at.what,
                 s->comm.at.count);
    if (*s->device_in) snprintf(device, sizeof device, ", the device in %s", s->device_in);
    snprintf(out, size, "%s%s%s%s", s->known ? PHASES[s->phase] : "", step, collective, device);
}

json_t *rank_state_pack(const struct rank_state *s) {
    return json_pack("{s:I,s:b,s:i,s:I,s:o,s:I,s:o,s:I,s:I,s:b}", "silent",
                     (json_int_t)s->silent_ticks, "met", s->met, "phase", (int)s->phase, "step",
                     (json_int_t)s->step, "device_in", json_from_text(s->device_in), "count",
                     (json_int_t)s->comm.at.count, "what", json_from_text(s->comm.at.what),
                     "waits_for", (json_int_t)s->comm.waits_for, "lost", (json_int_t)s->comm.lost,
                     "aborted", s->comm.aborted);
}

struct rank_state rank_state_unpack(const json_t *message) {
    struct rank_state s = {
        .known = json_is_object(message), .silent_ticks = json_int(message, "silent"),
        .met = json_is_true(json_object_get(message, "met")),
        .phase = phase_of(json_int(message, "phase")), .step = json_int(message, "step"),
        .comm = { .at = { .count = json_int(message, "count") },
                  .waits_for = (uint64_t)json_int(message, "waits_for"),
                  .lost = (uint64_t)json_int(message, "lost"),
                  .aborted = json_is_true(json_object_get(message, "aborted")) },
    };
    snprintf(s.comm.at.what, sizeof s.comm.at.what, "%s", json_text(message, "what", ""));
    snprintf(s.device_in, sizeof s.device_in, "%s", json_text(message, "device_in", ""));
    return s;
}
