#include "runner/job/board.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
        return FAIL(e, ERR_FORMAT, "descriptor %d is no board of a runner", fd);
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
    shared_write(&b->device_turn, b->device_in, device_in, BOARD_DEVICE_CAP);
}

/* ---- for the runner ---------------------------------------------------------------------------*/

bool board_has_met(const struct board *b) { return __atomic_load_n(&b->met, __ATOMIC_RELAXED); }

int64_t board_beats(const struct board *b) { return __atomic_load_n(&b->beats, __ATOMIC_RELAXED); }

struct board_state board_read(const struct board *b) {
    int64_t where = __atomic_load_n(&b->where, __ATOMIC_RELAXED);
    struct board_state s = { .comm = comm_note_read(&b->note), .step = where >> 3,
                             .phase = (enum board_phase)(where & 7) };
    (void)shared_read(&b->device_turn, b->device_in, s.device_in, sizeof s.device_in);
    s.device_in[sizeof s.device_in - 1] = '\0';
    if (s.phase > BOARD_LEAVING) s.phase = BOARD_STARTING;
    return s;
}

void board_words(const struct board_state *b, char *out, size_t size) {
    static const char *const PHASES[] = { "the start", "step", "evaluation after step",
                                          "checkpoint of step", "leaving after step" };
    char collective[128] = "", device[BOARD_DEVICE_CAP + 32] = "";
    if (*b->device_in) snprintf(device, sizeof device, ", the device in %s", b->device_in);
    if (b->comm.at.count)
        snprintf(collective, sizeof collective, ", %s (collective %" PRId64 ")", b->comm.at.what,
                 b->comm.at.count);
    if (b->phase == BOARD_STARTING)
        snprintf(out, size, "%s%s%s", PHASES[b->phase], collective, device);
    else snprintf(out, size, "%s %" PRId64 "%s%s", PHASES[b->phase], b->step, collective, device);
}
