#include "runner/job/listener.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "model/json_safe.h"
#include "runner/base/clock.h"
#include "runner/job/wire.h"

void listener_open(int listening, const char *secret, struct listener *out) {
    *out = (struct listener){ .listening = listening, .secret = secret };
}

/* The last one takes its place. */
static void forget(struct listener *d, int i) {
    free(d->caller[i].line);
    d->caller[i] = d->caller[--d->callers];
}

static void turn_away(struct listener *d, int i) {
    struct err unknown;
    if (wire_peer(d->caller[i].fd, d->last, &unknown) != OK)
        snprintf(d->last, sizeof d->last, "an address that it took along");
    d->rejected++;
    close(d->caller[i].fd);
    forget(d, i);
}

void listener_close(struct listener *d) {
    while (d->callers) {
        close(d->caller[0].fd);
        forget(d, 0);
    }
}

/* ---- one caller -------------------------------------------------------------------------------*/

/* Nothing has been said on its connection: the challenge has room, and waits for nobody. */
static enum status let_in(struct listener *d, struct err *e) {
    struct caller c = { .since_ms = clock_ms(), .line = malloc(WIRE_LINE_MAX) };
    struct err gone;
    if (!c.line) return FAIL(e, ERR_MEMORY, "a caller's line");
    enum status st = wire_accept(d->listening, &c.fd, e);
    if (st != OK || c.fd < 0) {
        free(c.line);
        return st;
    }
    d->caller[d->callers++] = c;
    if (wire_challenge(c.fd, d->caller[d->callers - 1].challenge, c.since_ms, &gone) != OK)
        turn_away(d, d->callers - 1);
    return OK;
}

static enum status answer(const struct listener *d, const struct caller *c, json_t **hello,
                          struct err *e) {
    json_error_t why;
    json_t *line = NULL;
    enum status st = json_parse(&line, c->line, c->n, JSON_REJECT_DUPLICATES, &why);
    if (st != OK) return FAIL(e, st, "a caller's line is no JSON: %s", why.text);
    st = wire_answer(c->fd, d->secret, c->challenge, line, c->since_ms, hello, e);
    json_decref(line);
    return st;
}

/* Takes what caller i has said, which is one line, and then it waits for the answer. True where
 * more of that line is to come. */
static bool hear(struct listener *d, int i, int *fd, json_t **hello) {
    struct caller *c = &d->caller[i];
    struct err stranger;
    ssize_t got = recv(c->fd, c->line + c->n, WIRE_LINE_MAX - c->n, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got > 0) c->n += (size_t)got;
    if (got > 0 && c->line[c->n - 1] != '\n' && c->n < WIRE_LINE_MAX) return true;
    if (got <= 0 || answer(d, c, hello, &stranger) != OK) {
        turn_away(d, i);
    } else {
        *fd = c->fd;
        forget(d, i);
    }
    return false;
}

/* ---- all of them ------------------------------------------------------------------------------*/

static int64_t patience_ms(const struct listener *d) {
    return d->callers < LISTENER_CALLERS_MAX ? LISTENER_AUTH_MS : LISTENER_AUTH_MS / 2;
}

/* Until something is to be done, which wait[] shows: of each caller, then of the socket, then of
 * the alarm. */
static enum status wait_at(const struct listener *d, int64_t deadline_ms, int alarm,
                           struct pollfd *wait, struct err *e) {
    int64_t until = deadline_ms;
    for (int i = 0; i < d->callers; i++) {
        int64_t limit = d->caller[i].since_ms + patience_ms(d);
        wait[i] = (struct pollfd){ .fd = d->caller[i].fd, .events = POLLIN };
        if (limit < until) until = limit;
    }
    bool full = d->callers == LISTENER_CALLERS_MAX;
    wait[d->callers] = (struct pollfd){ .fd = full ? -1 : d->listening, .events = POLLIN };
    wait[d->callers + 1] = (struct pollfd){ .fd = alarm, .events = POLLIN };
    int64_t left = until - clock_ms();
    if (left < 0) left = 0;
    int n = poll(wait, (nfds_t)d->callers + 2, (int)(left < 60000 ? left : 60000));
    if (n < 0 && errno != EINTR) return FAIL(e, ERR_IO, "wait for calls: %s", strerror(errno));
    return OK;
}

enum status listener_next(struct listener *d, int64_t deadline_ms, int alarm, int *fd, json_t **hello,
                      struct err *e) {
    struct pollfd wait[LISTENER_CALLERS_MAX + 2];
    bool alarmed = false;
    *fd = -1;
    *hello = NULL;
    while (*fd < 0 && !alarmed && clock_ms() < deadline_ms) {
        TRY(wait_at(d, deadline_ms, alarm, wait, e));
        int64_t patience = patience_ms(d), now = clock_ms();
        bool called = wait[d->callers].revents;
        alarmed = wait[d->callers + 1].revents;
        /* Backwards: who takes the place of one that leaves has had its turn. */
        for (int i = d->callers - 1; i >= 0 && *fd < 0; i--) {
            if (wait[i].revents && !hear(d, i, fd, hello)) continue;
            if (now >= d->caller[i].since_ms + patience) turn_away(d, i);
        }
        if (called && *fd < 0) TRY(let_in(d, e));
    }
    return OK;
}
