#include "runner/job/part.h"

#include <inttypes.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/job/supervise.h"

enum { ARGS_MAX = 32 };

/* The command line of a worker, without what ranks.c adds for each rank. */
struct command {
    const char *argv[ARGS_MAX + 5]; /* NULL-terminated; points into this struct and the part */
    char self[PATH_CAP], threads[24];
};

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
    const json_t *arg, *args = json_object_get(part, "args");
    const char **argv = out->argv;
    size_t i;
    ssize_t n = readlink("/proc/self/exe", out->self, sizeof out->self - 1);
    if (n <= 0) return FAIL(e, ERR_IO, "/proc is not mounted: cannot find this program");
    out->self[n] = '\0';
    snprintf(out->threads, sizeof out->threads, "%" PRId64,
             threads_each(whole(part, "threads"), workers));
    *argv++ = out->self;
    *argv++ = "worker";
    json_array_foreach(args, i, arg)
        if (i < ARGS_MAX) *argv++ = json_string_value(arg);
    *argv++ = "--threads";
    *argv++ = out->threads;
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
    if (options->world == 1) options->rendezvous = NULL;
    return supervise(options, out, e);
}
