#include "runner/job/deploy.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runner/job/job_members.h"
#include "runner/job/stop_grace.h"
#include "runner/job/wire.h"
#include "runner/job/worker_command.h"

enum { RENDEZVOUS_S = 300 };

/* What all hosts are told alike. A path is bytes, which need not be UTF-8. */
static json_t *make_orders(const struct deployment *d) {
    const struct run_settings *s = d->settings;
    char *path = realpath(d->dir->path, NULL); /* other tasks may have another working directory */
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

/* Where the ranks meet: a port of this host, at an address that the other hosts can reach where
 * there are others, and that nobody else can where there are none. */
static enum status open_rendezvous(const struct job_members *members, const struct rank_layout *f,
                                struct rendezvous *m, int *fd, struct err *e) {
    *m = (struct rendezvous){ .timeout_s = RENDEZVOUS_S };
    host_name(m->host);
    if (!members) TRY(secret_make(m->secret, e)); /* else it is made with the orders */
    for (int64_t t = 0; t < f->tasks; t++)
        for (int64_t i = 0; i < f->ranks[t]; i++)
            snprintf(m->expected[f->first_rank[t] + i], sizeof *m->expected, "%s",
                     t ? members->peer[t - 1].host : m->host);
    for (int64_t t = 1; t < f->tasks && !*m->address; t++)
        if (f->ranks[t]) TRY(wire_self(members->peer[t - 1].fd, m->address, e));
    if (*m->address) return wire_listen(NULL, 0, fd, &m->port, e);
    snprintf(m->address, sizeof m->address, "127.0.0.1");
    if (wire_listen(m->address, 0, fd, &m->port, e) == OK) return OK;
    snprintf(m->address, sizeof m->address, "::1"); /* this host has IPv6 alone */
    return wire_listen(m->address, 0, fd, &m->port, e);
}

static enum status supervise_part(const struct deployment *d, const json_t *orders,
                                  const struct rendezvous *rendezvous, int rendezvous_fd,
                                  struct attempt *out, struct err *e) {
    const struct run_settings *s = d->settings;
    const struct rank_layout *f = d->layout;
    const struct task alone = { .count = 1, .local_count = 1 };
    const struct task *task = s->members ? &s->members->task : &alone;
    struct worker_command command;
    int64_t device[SUPERVISE_RANKS_MAX];
    for (int64_t i = 0; i < f->ranks[0]; i++)
        device[i] = task_device(task, getenv("CUDA_VISIBLE_DEVICES"), f->each, f->slot[0][i]);
    TRY(worker_command_make(orders, f->ranks[0] * task->local_count, &command, e));
    struct supervise_options options = {
        .argv = command.argv, .envp = d->envp, .run_path = d->dir->path, .signals = s->signals,
        .lock_fd = d->dir->lock_fd, .ranks = f->ranks[0], .world = f->world, .device = device,
        .rendezvous = f->world > 1 ? rendezvous : NULL, .rendezvous_fd = rendezvous_fd,
        .peer = s->members ? s->members->peer : NULL, .peers = task->count - 1,
        .time_limit_s = d->time_limit_s, .hang_s = s->hang_s,
        .stop_grace_s = STOP_GRACE_WORKER_S,
        .signal_grace_s = stop_grace_worker_s(s->stop_grace_s),
        .on_event = d->on_event, .on_tick = d->on_tick, .user = d->user,
    };
    return supervise(&options, out, e);
}

enum status deploy(const struct deployment *d, struct attempt *out, struct err *e) {
    struct job_members *members = d->settings->members;
    struct rendezvous rendezvous = { .timeout_s = RENDEZVOUS_S };
    int fd = -1;
    json_t *orders = make_orders(d);
    if (!orders) return FAIL(e, ERR_MEMORY, "orders for workers");
    enum status st = OK;
    if (d->layout->world > 1) st = open_rendezvous(members, d->layout, &rendezvous, &fd, e);
    if (st == OK && members) st = job_members_send_orders(members, orders, d->layout, &rendezvous, e);
    if (st == OK) st = supervise_part(d, orders, &rendezvous, fd, out, e);
    if (fd >= 0) close(fd);
    json_decref(orders);
    return st;
}
