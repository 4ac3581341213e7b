#include "runner/run/tuning.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/choices.h"
#include "runner/hardware/telemetry.h"
#include "runner/base/run_files.h"
#include "runner/job/job_members.h"
#include "runner/record/image_record.h"
#include "runner/record/run_log.h"

/* NVML's reasons that are a defect of cooling or supply. The power cap is none: a GPU at work is
 * held by it, and algorithms are timed at the clock that it leaves. */
enum { HARMFUL = 0x8 | 0x20 | 0x40 | 0x80 };

enum status tuning_settings(struct run_settings *s, struct choice_cache *cache, struct err *e) {
    char beside[PATH_CAP];
    const char *folder = s->cache;
    bool anew = s->choices && !strcmp(s->choices, "none");
    if (anew || !strcmp(s->backend, "cpu")) return OK;
    if (!folder && image_inside()) { /* its home folder ends with the container */
        TRY(path_join(beside, s->runs, "cache", e));
        folder = beside;
    }
    TRY(choice_cache_open(cache, folder, folder ? NULL : s->runs,
                          json_text(s->facts, "gpu.driver", ""), e));
    s->choice_cache = cache;
    return OK;
}

/* Shows a problem to the user, and in the log of the run. */
static void say(struct tuning *t, const char *text) {
    snprintf(t->said, sizeof t->said, "%s", text);
}

enum status tuning_begin(struct tuning *t, const struct run_settings *settings,
                         struct run_dir *dir, const struct rank_layout *layout, struct err *e) {
    const struct task alone = { .count = 1, .local_count = 1 };
    const struct task *task = settings->members ? &settings->members->task : &alone;
    char problem[CHOICE_PROBLEM_CAP] = "";
    *t = (struct tuning){ .settings = settings, .dir = dir };
    t->device = task_device(task, getenv("CUDA_VISIBLE_DEVICES"), layout->each,
                            layout->slot[0][0]);
    if (!settings->choice_cache) return choice_cache_withdraw(dir->path, e);
    TRY(choice_cache_offer(settings->choice_cache, dir->path, problem, e));
    say(t, problem);
    return OK;
}

enum status tuning_end(struct tuning *t, struct err *e) {
    return choice_cache_withdraw(t->dir->path, e);
}

static void sample_gpu(struct tuning *t, const struct telemetry *telemetry) {
    struct err ignored; /* without a sample, nothing is known of a disturbance */
    json_t *sample = telemetry ? json_object() : NULL;
    if (!sample) return;
    if (telemetry_add(telemetry, t->device, sample, &ignored) == OK) {
        int64_t others = json_int(sample, "gpu_processes_other");
        t->throttled |= json_int(sample, "gpu_throttle") & HARMFUL;
        if (others > t->others) t->others = others;
    }
    json_decref(sample);
}

void tuning_tick(struct tuning *t, const struct telemetry *telemetry) {
    if (t->steps < 2) sample_gpu(t, telemetry);
}

/* Whether something made the times wrong; `why` then says what. */
static bool disturbed(const struct tuning *t, char *why, size_t size) {
    char reasons[160];
    throttle_text(t->throttled, reasons, sizeof reasons);
    if (t->throttled) snprintf(why, size, "it was slowed down: %s", reasons);
    else if (t->others)
        snprintf(why, size, "%" PRId64 " other process%s used it", t->others,
                 t->others == 1 ? "" : "es");
    return t->throttled || t->others;
}

static int64_t count_choices(const char *table) {
    struct choices_reader r;
    struct choice ignored;
    struct err e;
    bool more = true;
    int64_t count = 0;
    if (choices_open(&r, table, &e) != OK) return 0; /* "": there is no table */
    while (choices_next(&r, &ignored, &more, &e) == OK && more) count++;
    return count;
}

/* The worker has a table, of which it timed a part. */
static enum status take_table(struct tuning *t, const json_t *event, struct err *e) {
    const char *timed = json_text(event, "timed", "");
    int64_t all = count_choices(json_text(event, "text", "")), new = count_choices(timed);
    char why[256] = "", problem[CHOICE_PROBLEM_CAP] = "", text[CHOICE_PROBLEM_CAP];
    run_log(t->dir, "choice table: %" PRId64 " shapes, %" PRId64 " of them timed now", all, new);
    if (!t->settings->choice_cache || !new) return OK;
    bool clean = !disturbed(t, why, sizeof why);
    TRY(choice_cache_add(t->settings->choice_cache, t->architecture, timed, clean, problem, e));
    snprintf(text, sizeof text, "algorithms were timed on GPU %" PRId64 " while %s; later runs "
             "time their own", t->device, why);
    say(t, clean ? problem : text);
    return OK;
}

enum status tuning_event(struct tuning *t, const struct telemetry *telemetry, const json_t *event,
                         struct err *e) {
    const char *kind = json_text(event, "event", "");
    if (!strcmp(kind, "decisions"))
        snprintf(t->architecture, sizeof t->architecture, "%s",
                 json_text(event, "architecture", ""));
    if (!strcmp(kind, "step")) t->steps++;
    if (strcmp(kind, "choices") != 0) return OK;
    sample_gpu(t, telemetry);
    return take_table(t, event, e);
}
