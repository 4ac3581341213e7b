#include "runner/job/deploy.h"

#include <inttypes.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/certify/forbidden.h"
#include "runner/job/job_members.h"
#include "runner/job/stop_grace.h"
#include "runner/job/supervise.h"
#include "runner/job/wire.h"
#include "runner/record/documents.h"

enum { RENDEZVOUS_S = 300, ARGS_MAX = 32 };

/* ---- making parts -----------------------------------------------------------------------------*/

/* The words of a worker's command line that are the same on all hosts. A path may be any bytes, so
 * it is not checked for UTF-8. */
static json_t *make_args(const struct deployment *d, const char *run) {
    const struct run_settings *s = d->settings;
    const json_t *inputs = json_object_get(d->dir->run, "inputs");
    char config[PATH_CAP], from[24], stop[24];
    bool failed = path_join(config, run, DOCUMENT_resolved, NULL) != OK;
    char *forbidden = forbidden_text(json_object_get(d->dir->run, "forbidden"));
    failed |= !forbidden;
    snprintf(from, sizeof from, "%" PRId64, d->from_step);
    snprintf(stop, sizeof stop, "%" PRId64, d->stop_after);
    const char *const flags[][2] = {
        { "--config", config },
        { "--run", run },
        { "--backend", s->backend },
        { "--from", from },
        { "--stop-after", d->stop_after ? stop : NULL },
        { "--caps", s->caps },
        { "--forbid", forbidden && *forbidden ? forbidden : NULL },
        { "--data-root", s->data_root },
        { "--choices", json_text(inputs, "choices", NULL) },
        { "--arithmetic", json_text(inputs, "arithmetic", NULL) },
    };
    json_t *args = json_array();
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!flags[i][1]) continue;
        json_append(args, json_string(flags[i][0]), &failed);
        json_append(args, json_string_nocheck(flags[i][1]), &failed);
    }
    free(forbidden);
    if (s->choose_anew) json_append(args, json_string("--choose-anew"), &failed);
    if (s->profile) json_append(args, json_string("--profile"), &failed);
    return json_whole(args, failed);
}

/* What is the same in the parts of all tasks. */
static json_t *make_orders(const struct deployment *d) {
    char *whole = realpath(d->dir->path, NULL); /* working directories may differ */
    const char *run = whole ? whole : d->dir->path;
    json_t *orders = json_pack("{s:o,s:o,s:I,s:b}", "run", json_string_nocheck(run), "args",
                               make_args(d, run), "threads", (json_int_t)d->settings->threads,
                               "profile", d->settings->profile);
    free(whole);
    return orders;
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

/* ---- one part ---------------------------------------------------------------------------------*/

int64_t deploy_threads(int64_t asked, int64_t workers) {
    cpu_set_t set;
    if (asked || workers == 1) return asked;
    int64_t here = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return here > workers ? here / workers : 1;
}

/* The command line of a worker, without what ranks.c adds for each rank. */
struct command {
    const char *argv[ARGS_MAX + 5]; /* NULL-terminated; points into this struct and the part */
    char self[PATH_CAP], threads[24];
};

static enum status make_command(const json_t *part, int64_t workers, struct command *out,
                                struct err *e) {
    const json_t *arg, *args = json_object_get(part, "args");
    const char **argv = out->argv;
    size_t i;
    ssize_t n = readlink("/proc/self/exe", out->self, sizeof out->self - 1);
    if (n <= 0) return FAIL(e, ERR_IO, "/proc is not mounted: cannot find this program");
    out->self[n] = '\0';
    snprintf(out->threads, sizeof out->threads, "%" PRId64,
             deploy_threads(json_int(part, "threads"), workers));
    *argv++ = out->self;
    *argv++ = "worker";
    json_array_foreach(args, i, arg)
        if (i < ARGS_MAX) *argv++ = json_string_value(arg);
    *argv++ = "--threads";
    *argv++ = out->threads;
    *argv = NULL;
    return OK;
}

enum status deploy_part(const json_t *part, const struct task *task,
                        struct supervise_options *options, struct attempt *out, struct err *e) {
    struct command command;
    const json_t *slots = json_object_get(part, "slots");
    int64_t device[SUPERVISE_RANKS_MAX], ranks = (int64_t)json_array_size(slots);
    if (ranks < 1 || ranks > SUPERVISE_RANKS_MAX)
        return FAIL(e, ERR_FORMAT, "start workers: the leader sent a part with %" PRId64
                    " ranks, from 1 to %d are possible", ranks, SUPERVISE_RANKS_MAX);
    for (int64_t i = 0; i < ranks; i++)
        device[i] = task_device(task, getenv("CUDA_VISIBLE_DEVICES"), json_int(part, "each"),
                                json_integer_value(json_array_get(slots, (size_t)i)));
    TRY(make_command(part, ranks * task->local_count, &command, e));
    options->argv = command.argv;
    options->run_path = json_text(part, "run", "");
    options->ranks = ranks;
    options->first_rank = json_int(part, "first_rank");
    options->world = json_int(part, "world");
    options->device = device;
    if (options->world == 1) options->rendezvous = NULL;
    return supervise(options, out, e);
}

/* ---- the leader -------------------------------------------------------------------------------*/

/* Opens a port for the ranks: at an address that the other hosts can reach, or at loopback if
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
    if (st == OK) st = deploy_part(part, task, &options, out, e);
    if (options.rendezvous_fd >= 0) close(options.rendezvous_fd);
    json_decref(part);
    json_decref(orders);
    return st;
}
