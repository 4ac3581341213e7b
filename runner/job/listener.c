#include "runner/job/listener.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/clock.h"
#include "runner/job/wire.h"

void listener_open(int listening, const char *secret, struct listener *out) {
    *out = (struct listener){ .listening = listening, .secret = secret };
}

/* The last caller takes its place in the table. */
static void forget(struct listener *l, int i) {
    free(l->caller[i].line);
    l->caller[i] = l->caller[--l->callers];
}

static void reject(struct listener *l, int i) {
    struct err unknown;
    if (wire_peer(l->caller[i].fd, l->last, &unknown) != OK)
        snprintf(l->last, sizeof l->last, "an unknown address");
    l->rejected++;
    close(l->caller[i].fd);
    forget(l, i);
}

void listener_close(struct listener *l) {
    while (l->callers) {
        close(l->caller[0].fd);
        forget(l, 0);
    }
}

/* ---- one caller -------------------------------------------------------------------------------*/

/* Accepts a connection and sends the challenge, which fits in the empty buffer of the socket. */
static enum status accept_caller(struct listener *l, struct err *e) {
    struct caller c = { .since_ms = clock_ms(), .line = malloc(WIRE_LINE_MAX) };
    struct err gone;
    if (!c.line) return FAIL(e, ERR_MEMORY, "a line of a connecting process");
    enum status st = wire_accept(l->listening, &c.fd, e);
    if (st != OK || c.fd < 0) {
        free(c.line);
        return st;
    }
    l->caller[l->callers++] = c;
    if (wire_challenge(c.fd, l->caller[l->callers - 1].challenge, c.since_ms, &gone) != OK)
        reject(l, l->callers - 1);
    return OK;
}

static enum status answer(const struct listener *l, const struct caller *c, json_t **hello,
                          struct err *e) {
    json_error_t why;
    json_t *line = NULL;
    enum status st = json_parse(&line, c->line, c->n, JSON_REJECT_DUPLICATES, &why);
    if (st != OK) return FAIL(e, st, "a connecting process sent no JSON: %s", why.text);
    st = wire_answer(c->fd, l->secret, c->challenge, line, c->since_ms, hello, e);
    json_decref(line);
    return st;
}

/* Reads from caller i, which sends one line and then waits for the answer. True if the line is not
 * complete yet. Otherwise the caller was rejected, or is in *fd and *hello. */
static bool read_caller(struct listener *l, int i, int *fd, json_t **hello) {
    struct caller *c = &l->caller[i];
    struct err ignored;
    ssize_t got = recv(c->fd, c->line + c->n, WIRE_LINE_MAX - c->n, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got > 0) c->n += (size_t)got;
    if (got > 0 && c->line[c->n - 1] != '\n' && c->n < WIRE_LINE_MAX) return true;
    if (got <= 0 || answer(l, c, hello, &ignored) != OK) {
        reject(l, i);
    } else {
        *fd = c->fd;
        forget(l, i);
    }
    return false;
}

/* ---- all callers ------------------------------------------------------------------------------*/

static int64_t auth_ms(const struct listener *l) {
    return l->callers < LISTENER_CALLERS_MAX ? LISTENER_AUTH_MS : LISTENER_AUTH_MS / 2;
}

/* Waits until the deadline, a caller's time limit or an event. wait[]: the callers, then the
 * listening socket, then the alarm. */
static enum status wait_at(const struct listener *l, int64_t deadline_ms, int alarm,
                           struct pollfd *wait, struct err *e) {
    int64_t until = deadline_ms;
    for (int i = 0; i < l->callers; i++) {
        int64_t limit = l->caller[i].since_ms + auth_ms(l);
        wait[i] = (struct pollfd){ .fd = l->caller[i].fd, .events = POLLIN };
        if (limit < until) until = limit;
    }
    bool full = l->callers == LISTENER_CALLERS_MAX;
    wait[l->callers] = (struct pollfd){ .fd = full ? -1 : l->listening, .events = POLLIN };
    wait[l->callers + 1] = (struct pollfd){ .fd = alarm, .events = POLLIN };
    int64_t left = until - clock_ms();
    if (left < 0) left = 0;
    int n = poll(wait, (nfds_t)l->callers + 2, (int)(left < 60000 ? left : 60000));
    if (n < 0 && errno != EINTR)
        return FAIL(e, ERR_IO, "wait for connections: %s", strerror(errno));
    return OK;
}

enum status listener_next(struct listener *l, int64_t deadline_ms, int alarm, int *fd,
                          json_t **hello, struct err *e) {
    struct pollfd wait[LISTENER_CALLERS_MAX + 2];
    bool alarmed = false;
    *fd = -1;
    *hello = NULL;
    while (*fd < 0 && !alarmed && clock_ms() < deadline_ms) {
        TRY(wait_at(l, deadline_ms, alarm, wait, e));
        int64_t limit = auth_ms(l), now = clock_ms();
        bool called = wait[l->callers].revents;
        alarmed = wait[l->callers + 1].revents;
        /* Backwards: a caller that moves into a free place has already been served. */
        for (int i = l->callers - 1; i >= 0 && *fd < 0; i--) {
            if (wait[i].revents && !read_caller(l, i, fd, hello)) continue;
            if (now >= l->caller[i].since_ms + limit) reject(l, i);
        }
        if (called && *fd < 0) TRY(accept_caller(l, e));
    }
    return OK;
}
