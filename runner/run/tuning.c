#include "runner/run/tuning.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/choices.h"
#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/job/job_members.h"
#include "runner/record/image_record.h"
#include "runner/record/run_log.h"

enum status tuning_settings(struct run_settings *s, struct choice_cache *cache, struct err *e) {
    char beside[PATH_CAP];
    const char *folder = s->cache;
    bool anew = s->choices && !strcmp(s->choices, "none");
    const char *driver = json_text(s->facts, "gpu.driver", "");
    if (!strcmp(s->backend, "cpu")) return OK;
    s->choice_cache = cache;
    if (anew) return choice_cache_open_anew(cache, driver, e);
    if (!folder && image_inside()) { /* its home folder ends with the container */
        TRY(path_join(beside, s->runs, "cache", e));
        folder = beside;
    }
    return choice_cache_open(cache, folder, folder ? NULL : s->runs, driver, e);
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
    t->watch.device = task_device(task, getenv("CUDA_VISIBLE_DEVICES"), layout->each,
                                  layout->slot[0][0]);
    if (!settings->choice_cache) return choice_cache_withdraw(dir->path, e);
    TRY(choice_cache_offer(settings->choice_cache, dir->path, problem, e));
    say(t, problem);
    return OK;
}

enum status tuning_end(struct tuning *t, struct err *e) {
    return choice_cache_withdraw(t->dir->path, e);
}

void tuning_tick(struct tuning *t, const struct telemetry *telemetry) {
    if (t->steps < 2) gpu_watch_sample(&t->watch, telemetry);
}

/* The worker has a table, of which it timed a part. */
static enum status take_table(struct tuning *t, const json_t *event, struct err *e) {
    const char *timed = json_text(event, "timed", "");
    int64_t all = choices_count(json_text(event, "text", "")), new = choices_count(timed);
    char why[256] = "", problem[CHOICE_PROBLEM_CAP] = "", text[CHOICE_PROBLEM_CAP];
    run_log(t->dir, "choice table: %" PRId64 " shapes, %" PRId64 " of them timed now", all, new);
    if (!t->settings->choice_cache || t->settings->choice_cache->anew || !new) return OK;
    bool clean = !gpu_watch_disturbed(&t->watch, why, sizeof why);
    TRY(choice_cache_add(t->settings->choice_cache, t->architecture, timed,
                         clean ? CHOICES_USED : CHOICES_DISTURBED, problem, e));
    snprintf(text, sizeof text, "algorithms were timed on GPU %" PRId64 " while %s; later runs "
             "time their own", t->watch.device, why);
    say(t, clean ? problem : text);
    return OK;
}

enum status tuning_table(struct tuning *t, int64_t rank, const json_t *event, struct err *e) {
    const char *sha256 = json_text(event, "sha256", "");
    bool failed = false;
    if (!t->tables) {
        snprintf(t->table, sizeof t->table, "%s", sha256);
        t->table_rank = rank;
    }
    if (strcmp(t->table, sha256) != 0)
        return FAIL(e, ERR_STATE, "ranks %" PRId64 " and %" PRId64 " chose different algorithms "
                    "(choices %.12s and %.12s), so they compute different bits; --choices none "
                    "chooses again, and one --choices FILE serves all ranks", t->table_rank, rank,
                    t->table, sha256);
    json_put(json_object_get(t->dir->run, "attempt"), "choices_ranks", json_integer(++t->tables),
             &failed);
    return failed ? FAIL(e, ERR_MEMORY, "the ranks' choice tables") : OK;
}

enum status tuning_event(struct tuning *t, const struct telemetry *telemetry, const json_t *event,
                         struct err *e) {
    const char *kind = json_text(event, "event", "");
    if (!strcmp(kind, "decisions"))
        snprintf(t->architecture, sizeof t->architecture, "%s",
                 json_text(event, "architecture", ""));
    if (!strcmp(kind, "step")) t->steps++;
    if (strcmp(kind, "choices") != 0) return OK;
    gpu_watch_sample(&t->watch, telemetry);
    return take_table(t, event, e);
}
