#include "runner/run/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/cli.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/base/signals.h"
#include "runner/job/events.h"

/* ---- messages ---------------------------------------------------------------------------------*/

enum status slot_tell(struct slot *s, json_t *message, struct err *e) {
    enum status st = message ? event_emit(s->out, message, false, e)
                             : FAIL(e, ERR_MEMORY, "a message about a row");
    if (st == OK) st = event_flush(s->out, e);
    json_decref(message);
    return st;
}

enum status slot_receive(struct slot *s, struct signals *signals, json_t **out, int *signo,
                         struct err *e) {
    bool open = true;
    *signo = 0;
    for (;;) {
        TRY(event_next(s->in, out, e));
        if (*out || !open) return OK;
        struct pollfd p[2] = { { .fd = event_reader_fd(s->in), .events = POLLIN },
                               { .fd = signals ? signals->fd : -1, .events = POLLIN } };
        (void)poll(p, 2, -1);
        if (signals) *signo = signals_take_request(signals, clock_ms());
        if (*signo) return OK;
        TRY(event_fill(s->in, &open, e));
    }
}

/* ---- its share --------------------------------------------------------------------------------*/

static bool find_variable(int *fd) {
    const char *text = getenv(SLOT_VARIABLE);
    int parent = 0, used = 0;
    if (!text || sscanf(text, "%d:%d%n", &parent, fd, &used) != 2 || text[used]) return false;
    return parent == (int)getppid() && fcntl(*fd, F_GETFD) >= 0;
}

enum status slot_attach(struct slot *out, struct err *e) {
    int fd, signo;
    json_t *message = NULL;
    *out = (struct slot){ .row = -1 };
    if (!find_variable(&fd)) return OK;
    out->is = true;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (copy < 0) return FAIL(e, ERR_IO, "the parent's messages: %s", strerror(errno));
    TRY(event_writer_create(copy, &out->out, e));
    TRY(event_reader_create(fd, &out->in, e));
    TRY(slot_receive(out, NULL, &message, &signo, e));
    out->index = json_int(message, "slot");
    out->threads = json_int(message, "threads");
    json_t *gpus = json_object_get(message, "gpus");
    if (json_array_size(gpus)) out->gpus = json_incref(gpus);
    json_decref(message);
    return OK;
}

void slot_close(struct slot *s) {
    event_reader_destroy(s->in);
    event_writer_destroy(s->out);
    json_decref(s->gpus);
    *s = (struct slot){ 0 };
}

int64_t slot_rows_at_once(const struct slot *s) { return s ? s->count : 1; }

json_t *slot_json(const struct slot *s) {
    bool failed = false;
    json_t *out = json_pack("{s:I,s:I}", "rows_at_once", (json_int_t)s->count, "slot",
                            (json_int_t)s->index);
    if (s->gpus) json_put(out, "gpus", json_incref(s->gpus), &failed);
    return json_whole(out, failed);
}

/* ---- what it reports --------------------------------------------------------------------------*/

/* The parent reads the row's state again if this message is lost with it. */
void slot_begun(struct slot *s, const char *path) {
    struct err ignored;
    char name[PATH_CAP];
    if (!s) return;
    path_base(name, path);
    (void)!slot_tell(s, json_pack("{s:s,s:I,s:s}", "event", "begun", "row", (json_int_t)s->row,
                                  "run", name), &ignored);
}

int slot_fail(struct slot *s, const struct err *e) {
    struct err ignored;
    (void)!slot_tell(s, json_pack("{s:s,s:I,s:s,s:o}", "event", "error", "row",
                                  (json_int_t)s->row, "code", status_name(e->code), "text",
                                  json_from_text(e->text)), &ignored);
    return exit_code_of(e->code);
}
