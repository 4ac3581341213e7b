#include "runner/job/deploy.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runner/job/job_members.h"
#include "runner/job/part.h"
#include "runner/job/stop_grace.h"
#include "runner/job/wire.h"

enum { RENDEZVOUS_S = 300 };

/* The orders of part_make. A path may be any bytes, so it is not checked for UTF-8. */
static json_t *make_orders(const struct deployment *d) {
    const struct run_settings *s = d->settings;
    char *path = realpath(d->dir->path, NULL); /* working directories may differ */
    const char *choices = json_text(json_object_get(d->dir->run, "inputs"), "choices", NULL);
    json_t *orders = json_pack(
        "{s:o,s:s,s:I,s:s?,s:o,s:b,s:I,s:s?,s:I,s:I,s:I,s:I}", "run",
        json_string_nocheck(path ? path : d->dir->path), "backend", s->backend, "threads",
        (json_int_t)s->threads, "caps", s->caps, "data_root",
        s->data_root ? json_string_nocheck(s->data_root) : json_null(), "choose_anew",
        s->choose_anew, "from", (json_int_t)d->from_step, "choices", choices, "stop_after",
        (json_int_t)d->stop_after, "hang_s", (json_int_t)s->hang_s, "grace_s",
        (json_int_t)STOP_GRACE_WORKER_S, "signal_grace_s",
        (json_int_t)stop_grace_worker_s(s->stop_grace_s));
    free(path);
    return orders;
}

/* Opens a port for the ranks: at an address that the other hosts can reach, or at loopback where
 * all ranks are on this host. */
static enum status open_rendezvous(const struct job_members *members, const struct rank_layout *f,
                                   struct rendezvous *m, int *fd, struct err *e) {
    *m = (struct rendezvous){ .timeout_s = RENDEZVOUS_S };
    host_name(m->host);
    if (!members) TRY(secret_make(m->secret, e)); /* otherwise job_members_send_orders does */
    for (int64_t t = 0; t < f->tasks; t++)
        for (int64_t i = 0; i < f->ranks[t]; i++)
            snprintf(m->expected[f->first_rank[t] + i], sizeof *m->expected, "%s",
                     t ? members->peer[t - 1].host : m->host);
    for (int64_t t = 1; t < f->tasks && !*m->address; t++)
        if (f->ranks[t]) TRY(wire_self(members->peer[t - 1].fd, m->address, e));
    if (*m->address) return wire_listen(NULL, 0, fd, &m->port, e);
    snprintf(m->address, sizeof m->address, "127.0.0.1");
    if (wire_listen(m->address, 0, fd, &m->port, e) == OK) return OK;
    snprintf(m->address, sizeof m->address, "::1"); /* this host has no IPv4 */
    return wire_listen(m->address, 0, fd, &m->port, e);
}

enum status deploy(const struct deployment *d, struct attempt *out, struct err *e) {
    struct job_members *members = d->settings->members;
    const struct task alone = { .count = 1, .local_count = 1 };
    const struct task *task = members ? &members->task : &alone;
    struct rendezvous rendezvous = { .timeout_s = RENDEZVOUS_S };
    struct supervise_options options = {
        .envp = d->envp, .signals = d->settings->signals, .lock_fd = d->dir->lock_fd,
        .rendezvous = &rendezvous, .rendezvous_fd = -1, .peer = members ? members->peer : NULL,
        .peers = task->count - 1, .time_limit_s = d->time_limit_s, .on_event = d->on_event,
        .on_tick = d->on_tick, .user = d->user,
    };
    enum status st = OK;
    json_t *orders = make_orders(d), *part = NULL;
    if (!orders) return FAIL(e, ERR_MEMORY, "orders for workers");
    if (d->layout->world > 1)
        st = open_rendezvous(members, d->layout, &rendezvous, &options.rendezvous_fd, e);
    if (st == OK && members)
        st = job_members_send_orders(members, orders, d->layout, &rendezvous, e);
    if (st == OK) part = part_make(orders, d->layout, 0, &rendezvous, "");
    if (st == OK && !part) st = FAIL(e, ERR_MEMORY, "orders for workers");
    if (st == OK) st = part_supervise(part, task, &options, out, e);
    if (options.rendezvous_fd >= 0) close(options.rendezvous_fd);
    json_decref(part);
    json_decref(orders);
    return st;
}
