#include "runner/job/peer_connection.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/job/events.h"
#include "runner/job/wire.h"

enum status peer_connection_open(int fd, int64_t task, const char *host,
                                 struct peer_connection *out, struct err *e) {
    *out = (struct peer_connection){ .task = task, .fd = fd };
    snprintf(out->host, sizeof out->host, "%s", host);
    enum status st = task ? OK : wire_set_lost_ms(fd, SUPERVISE_LEADER_S * 1000, e);
    if (st == OK) st = event_reader_create(fd, &out->in, e);
    if (!out->in) close(fd);
    if (st != OK) return st;
    int twin = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (twin < 0) return FAIL(e, ERR_IO, "copy the connection to %s: %s", host, strerror(errno));
    st = event_writer_create(twin, &out->out, e);
    if (st != OK) close(twin);
    return st;
}

void peer_connection_close(struct peer_connection *c) {
    event_reader_destroy(c->in);
    event_writer_destroy(c->out);
    json_decref(c->facts);
    json_decref(c->environment);
    *c = (struct peer_connection){ .lost = true };
}

static void mark_lost(struct peer_connection *c, const char *why) {
    if (c->lost) return;
    c->lost = true;
    snprintf(c->why_lost, sizeof c->why_lost, "%.255s", why);
}

enum status peer_connection_send(struct peer_connection *c, json_t *message, struct err *e) {
    struct err why = { 0 };
    if (!message) return FAIL(e, ERR_MEMORY, "a message to %s", c->host);
    enum status st = c->lost ? OK : event_emit(c->out, message, false, &why);
    json_decref(message);
    if (st == ERR_MEMORY) {
        if (e) *e = why;
        return st;
    }
    if (st != OK) mark_lost(c, st == ERR_PEER ? "it closed the connection" : why.text);
    return OK;
}

void peer_connection_fill(struct peer_connection *c) {
    struct err why = { 0 };
    bool open = true;
    if (c->lost) return;
    if (event_fill(c->in, &open, &why) != OK) mark_lost(c, why.text);
    else if (!open) mark_lost(c, "it closed the connection");
    else if (wire_unanswered(c->fd)) mark_lost(c, "its host does not answer");
}

json_t *peer_connection_next(struct peer_connection *c) {
    struct err why = { 0 };
    json_t *message = NULL;
    if (event_next(c->in, &message, &why) != OK) mark_lost(c, why.text);
    if (message) c->silent_ticks = 0;
    return message;
}

bool peer_connection_has(const struct peer_connection *c, int64_t rank) {
    return rank >= c->first_rank && rank < c->first_rank + c->ranks;
}

enum status peer_connection_send_stop(struct peer_connection *leader, int signo, struct err *e) {
    json_t *message = json_pack("{s:s,s:i}", "event", "stop_request", "signal", signo);
    return peer_connection_send(leader, message, e);
}

int stop_request_signal(const json_t *message) {
    int64_t signo = json_int(message, "signal");
    bool valid = signo > 0 && signo < NSIG;
    return valid && !strcmp(json_text(message, "event", ""), "stop_request") ? (int)signo : 0;
}
