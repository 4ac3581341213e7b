#include "runner/job/deploy.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/paths.h"
#include "runner/job/job_members.h"
#include "runner/job/part.h"
#include "runner/job/stop_grace.h"
#include "runner/job/wire.h"

enum { RENDEZVOUS_S = 300 };

/* The parts of a worker's command line that are the same on all hosts. Takes over `path`. A path may
 * be any bytes, so it is not checked for UTF-8. */
static json_t *make_args(const struct deployment *d, json_t *path) {
    const struct run_settings *s = d->settings;
    const char *choices = json_text(json_object_get(d->dir->run, "inputs"), "choices", NULL);
    char config[PATH_CAP], from[24], stop[24];
    bool failed = path_join(config, json_string_value(path), "data/experiment/resolved.json",
                            NULL) != OK;
    snprintf(from, sizeof from, "%" PRId64, d->from_step);
    snprintf(stop, sizeof stop, "%" PRId64, d->stop_after);
    const char *const flags[][2] = {
        { "--config", config },
        { "--run", json_string_value(path) },
        { "--backend", s->backend },
        { "--from", from },
        { "--stop-after", d->stop_after ? stop : NULL },
        { "--caps", s->caps },
        { "--data-root", s->data_root },
        { "--choices", choices },
    };
    json_t *args = json_array();
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!flags[i][1]) continue;
        json_append(args, json_string(flags[i][0]), &failed);
        json_append(args, json_string_nocheck(flags[i][1]), &failed);
    }
    if (s->choose_anew) json_append(args, json_string("--choose-anew"), &failed);
    return json_whole(args, failed);
}

/* What is the same in the parts of all tasks. */
static json_t *make_orders(const struct deployment *d) {
    char *path = realpath(d->dir->path, NULL); /* working directories may differ */
    json_t *run = json_string_nocheck(path ? path : d->dir->path);
    free(path);
    json_t *args = make_args(d, run);
    return json_pack("{s:o,s:o,s:I}", "run", run, "args", args, "threads",
                     (json_int_t)d->settings->threads);
}

/* The part of task `t`, from the orders: new reference, NULL without memory. */
static json_t *make_part(const json_t *orders, const struct rank_layout *layout, int64_t t,
                         const struct rendezvous *rendezvous, const char *nonce) {
    json_t *part = json_copy((json_t *)orders), *slots = json_array();
    bool failed = false;
    for (int64_t i = 0; i < layout->ranks[t]; i++)
        json_append(slots, json_integer(layout->slot[t][i]), &failed);
    json_put(part, "event", json_string("attempt"), &failed);
    json_put(part, "world", json_integer(layout->world), &failed);
    json_put(part, "each", json_integer(layout->each), &failed);
    json_put(part, "slots", json_whole(slots, failed), &failed);
    json_put(part, "first_rank", json_integer(layout->first_rank[t]), &failed);
    json_put(part, "port", json_integer(rendezvous->port), &failed);
    json_put(part, "nonce", json_string(nonce), &failed);
    json_put(part, "timeout_s", json_integer(rendezvous->timeout_s), &failed);
    return json_whole(part, failed);
}

enum status deploy_parts(const struct job_members *members, const json_t *orders,
                         const struct rank_layout *layout, struct rendezvous *rendezvous,
                         struct err *e) {
    char nonce[SHA256_HEX];
    TRY(secret_make(nonce, e));
    TRY(secret_of_rendezvous(members->secret, nonce, rendezvous->secret, e));
    for (int64_t t = 1; t < members->task.count; t++) {
        struct peer_connection *c = &members->peer[t - 1];
        c->first_rank = layout->first_rank[t];
        c->ranks = layout->ranks[t];
        c->silent_ticks = 0;
        c->ended = c->ranks == 0;
        if (c->ended) continue;
        TRY(peer_connection_send(c, make_part(orders, layout, t, rendezvous, nonce), e));
    }
    return OK;
}

/* Opens a port for the ranks: at an address that the other hosts can reach, or at loopback where
 * all ranks are on this host. */
static enum status open_rendezvous(const struct job_members *members, const struct rank_layout *f,
                                   struct rendezvous *m, int *fd, struct err *e) {
    *m = (struct rendezvous){ .timeout_s = RENDEZVOUS_S };
    host_name(m->host);
    if (!members) TRY(secret_make(m->secret, e)); /* otherwise deploy_parts does */
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
        .peers = task->count - 1, .time_limit_s = d->time_limit_s,
        .hang_s = d->settings->hang_s, .stop_grace_s = STOP_GRACE_WORKER_S,
        .signal_grace_s = stop_grace_worker_s(d->settings->stop_grace_s), .on_event = d->on_event,
        .on_tick = d->on_tick, .user = d->user,
    };
    enum status st = OK;
    json_t *orders = make_orders(d), *part = NULL;
    if (!orders) return FAIL(e, ERR_MEMORY, "orders for workers");
    if (d->layout->world > 1)
        st = open_rendezvous(members, d->layout, &rendezvous, &options.rendezvous_fd, e);
    if (st == OK && members)
        st = deploy_parts(members, orders, d->layout, &rendezvous, e);
    if (st == OK) part = make_part(orders, d->layout, 0, &rendezvous, "");
    if (st == OK && !part) st = FAIL(e, ERR_MEMORY, "orders for workers");
    if (st == OK) st = part_supervise(part, task, &options, out, e);
    if (options.rendezvous_fd >= 0) close(options.rendezvous_fd);
    json_decref(part);
    json_decref(orders);
    return st;
}
