#include "runner/worker/board.h"

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
        return FAIL(e, ERR_FORMAT, "descriptor %d is no memory that a runner shares", fd);
    enum status st = map(fd, out, e);
    close(fd);
    return st;
}

void board_close(struct board *b) {
    if (b) (void)munmap(b, sizeof *b);
}

void board_words(const struct board *b, char *out, size_t size) {
    static const char *const PHASES[] = { "the start", "step", "evaluation after step",
                                          "checkpoint of step", "leaving after step" };
    char collective[128] = "", device[BOARD_DEVICE_CAP + 32] = "";
    char what[sizeof b->note.what], device_in[sizeof b->device_in];
    memcpy(what, b->note.what, sizeof what);
    what[sizeof what - 1] = '\0';
    memcpy(device_in, b->device_in, sizeof device_in);
    device_in[sizeof device_in - 1] = '\0';
    if (*device_in) snprintf(device, sizeof device, ", the device in %s", device_in);
    if (b->note.count)
        snprintf(collective, sizeof collective, ", %s (collective %" PRId64 ")", what,
                 b->note.count);
    if (b->phase == BOARD_STARTING)
        snprintf(out, size, "%s%s%s", PHASES[b->phase], collective, device);
    else snprintf(out, size, "%s %" PRId64 "%s%s", PHASES[b->phase], b->step, collective, device);
}
