#include "runner/job/worker_command.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

/* Processors for each worker of the CPU backend: 0, all, for one that is alone. */
static int64_t threads_each(int64_t asked, int64_t sharing) {
    cpu_set_t set;
    if (asked || sharing == 1) return asked;
    int64_t here = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return here > sharing ? here / sharing : 1;
}

enum status worker_command_make(const json_t *orders, int64_t sharing, struct worker_command *out,
                                struct err *e) {
    const char *run = json_text(orders, "run", ""), **argv = out->argv;
    const char *caps = json_text(orders, "caps", NULL);
    const char *root = json_text(orders, "data_root", NULL);
    const char *choices = json_text(orders, "choices", NULL);
    int64_t stop = json_integer_value(json_object_get(orders, "stop_after"));
    ssize_t n = readlink("/proc/self/exe", out->self, sizeof out->self - 1);
    if (n <= 0) return FAIL(e, ERR_IO, "/proc is not mounted: cannot find this program");
    out->self[n] = '\0';
    TRY(path_join(out->config, run, "data/experiment/resolved.json", e));
    snprintf(out->threads, sizeof out->threads, "%" PRId64,
             threads_each(json_integer_value(json_object_get(orders, "threads")), sharing));
    snprintf(out->from, sizeof out->from, "%" PRId64,
             (int64_t)json_integer_value(json_object_get(orders, "from")));
    snprintf(out->stop, sizeof out->stop, "%" PRId64, stop);
    const char *const first[] = { out->self, "worker", "--config", out->config, "--run", run,
                                  "--backend", json_text(orders, "backend", "auto"), "--threads",
                                  out->threads, "--from", out->from };
    int args = 0;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) argv[args++] = first[i];
    const char *const options[][2] = { { "--stop-after", stop ? out->stop : NULL },
                                       { "--caps", caps }, { "--data-root", root },
                                       { "--choices", choices } };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (!options[i][1]) continue;
        argv[args++] = options[i][0];
        argv[args++] = options[i][1];
    }
    if (json_is_true(json_object_get(orders, "choose_anew"))) argv[args++] = "--choose-anew";
    argv[args] = NULL;
    return OK;
}
