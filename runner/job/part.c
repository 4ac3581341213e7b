#include "runner/job/part.h"

#include <inttypes.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/job/supervise.h"

/* The command line of a worker, without what spawn.c adds for each rank. */
struct command {
    const char *argv[32]; /* NULL-terminated; points into this struct and the part */
    char self[PATH_CAP], config[PATH_CAP], threads[24], from[24], stop[24];
};

json_t *part_make(const json_t *orders, const struct rank_layout *layout, int64_t t,
                  const struct rendezvous *rendezvous, const char *nonce) {
    json_t *part = json_deep_copy(orders), *slots = json_array();
    bool failed = false;
    for (int64_t i = 0; i < layout->ranks[t]; i++)
        json_append(slots, json_integer(layout->slot[t][i]), &failed);
    json_put(part, "event", json_string("attempt"), &failed);
    json_put(part, "slots", json_whole(slots, failed), &failed);
    json_put(part, "each", json_integer(layout->each), &failed);
    json_put(part, "first_rank", json_integer(layout->first_rank[t]), &failed);
    json_put(part, "world", json_integer(layout->world), &failed);
    json_put(part, "port", json_integer(rendezvous->port), &failed);
    json_put(part, "nonce", json_string(nonce), &failed);
    json_put(part, "timeout_s", json_integer(rendezvous->timeout_s), &failed);
    return json_whole(part, failed);
}

static int64_t whole(const json_t *part, const char *key) {
    return json_integer_value(json_object_get(part, key));
}

/* Processors for each worker of the CPU backend, of which `workers` share this host. 0, all of
 * them, for a single worker. */
static int64_t threads_each(int64_t asked, int64_t workers) {
    cpu_set_t set;
    if (asked || workers == 1) return asked;
    int64_t here = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return here > workers ? here / workers : 1;
}

static enum status make_command(const json_t *part, int64_t workers, struct command *out,
                                struct err *e) {
    const char *run = json_text(part, "run", ""), **argv = out->argv;
    int64_t stop = whole(part, "stop_after");
    ssize_t n = readlink("/proc/self/exe", out->self, sizeof out->self - 1);
    if (n <= 0) return FAIL(e, ERR_IO, "/proc is not mounted: cannot find this program");
    out->self[n] = '\0';
    TRY(path_join(out->config, run, "data/experiment/resolved.json", e));
    snprintf(out->threads, sizeof out->threads, "%" PRId64,
             threads_each(whole(part, "threads"), workers));
    snprintf(out->from, sizeof out->from, "%" PRId64, whole(part, "from"));
    snprintf(out->stop, sizeof out->stop, "%" PRId64, stop);
    const char *const options[][2] = {
        { out->self, "worker" },
        { "--config", out->config },
        { "--run", run },
        { "--backend", json_text(part, "backend", "auto") },
        { "--threads", out->threads },
        { "--from", out->from },
        { "--stop-after", stop ? out->stop : NULL },
        { "--caps", json_text(part, "caps", NULL) },
        { "--data-root", json_text(part, "data_root", NULL) },
        { "--choices", json_text(part, "choices", NULL) },
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (!options[i][1]) continue;
        *argv++ = options[i][0];
        *argv++ = options[i][1];
    }
    if (json_is_true(json_object_get(part, "choose_anew"))) *argv++ = "--choose-anew";
    *argv = NULL;
    return OK;
}

enum status part_supervise(const json_t *part, const struct task *task,
                           struct supervise_options *options, struct attempt *out,
                           struct err *e) {
    struct command command;
    const json_t *slots = json_object_get(part, "slots");
    int64_t device[SUPERVISE_RANKS_MAX], ranks = (int64_t)json_array_size(slots);
    if (ranks < 1 || ranks > SUPERVISE_RANKS_MAX)
        return FAIL(e, ERR_FORMAT, "start workers: the leader sent a part with %" PRId64
                    " ranks, from 1 to %d are possible", ranks, SUPERVISE_RANKS_MAX);
    for (int64_t i = 0; i < ranks; i++)
        device[i] = task_device(task, getenv("CUDA_VISIBLE_DEVICES"), whole(part, "each"),
                                json_integer_value(json_array_get(slots, (size_t)i)));
    TRY(make_command(part, ranks * task->local_count, &command, e));
    options->argv = command.argv;
    options->run_path = json_text(part, "run", "");
    options->ranks = ranks;
    options->first_rank = whole(part, "first_rank");
    options->world = whole(part, "world");
    options->device = device;
    options->hang_s = whole(part, "hang_s");
    options->stop_grace_s = whole(part, "grace_s");
    options->signal_grace_s = whole(part, "signal_grace_s");
    if (options->world == 1) options->rendezvous = NULL;
    return supervise(options, out, e);
}
