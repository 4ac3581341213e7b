#include "runner/plan/tiers.h"

/* ---- latest, rolling ------------------------------------------------------------------------ */

static bool latest_due(const struct tier_scene *s, int64_t step) {
    return s->options.every > 0 && step % s->options.every == 0;
}

static bool latest_holds(const struct tier_scene *s, int64_t step, int64_t newer) {
    (void)s, (void)step;
    return newer == 0;
}

static bool latest_kept(const struct tier_scene *s, int64_t step, int64_t newer) {
    return newer == 0 && s->options.keep > 0 && step > s->begin; /* that one is the init tier's */
}

static bool rolling_holds(const struct tier_scene *s, int64_t step, int64_t newer) {
    (void)step;
    return newer < s->options.keep;
}

/* ---- best ----------------------------------------------------------------------------------- */

static bool best_holds(const struct tier_scene *s, int64_t step, int64_t newer) {
    (void)newer;
    return s->options.best && s->best_step > 0 && step == s->best_step;
}

/* ---- epoch ---------------------------------------------------------------------------------- */

/* Whether the step draws the last sequence of an epoch. */
static bool epoch_due(const struct tier_scene *s, int64_t step) {
    if (!s->options.epoch || s->sequences <= 0 || step <= 0) return false;
    return step * s->batch / s->sequences > (step - 1) * s->batch / s->sequences;
}

static bool epoch_holds(const struct tier_scene *s, int64_t step, int64_t newer) {
    (void)newer;
    return epoch_due(s, step);
}

/* ---- milestones, init ----------------------------------------------------------------------- */

static bool milestone_due(const struct tier_scene *s, int64_t step) {
    for (int64_t i = 0; i < s->options.milestone_count; i++)
        if (s->options.milestones[i] == step) return true;
    return false;
}

static bool milestone_holds(const struct tier_scene *s, int64_t step, int64_t newer) {
    (void)newer;
    return milestone_due(s, step);
}

static bool init_holds(const struct tier_scene *s, int64_t step, int64_t newer) {
    (void)newer;
    return s->options.init && step == s->begin;
}

/* ---- the table --------------------------------------------------------------------------------
 * The order is that of the names in run.json. */
const struct tier TIERS[TIER_COUNT] = {
    { "init", "checkpoint.init", "before the first step", "it", "it", NULL, init_holds,
      init_holds },
    { "last", "checkpoint.every, minutes", "every N steps or M minutes, and at the end",
      "the newest", "the newest, unless keep is 0", latest_due, latest_holds, latest_kept },
    { "rolling", "checkpoint.keep", "-", "the newest `keep`", "none", NULL, rolling_holds, NULL },
    { "best", "checkpoint.best", "after the best evaluation so far", "that one", "that one", NULL,
      best_holds, best_holds },
    { "epoch", "checkpoint.epoch", "at the end of each epoch", "all", "all", epoch_due,
      epoch_holds, epoch_holds },
    { "milestone", "checkpoint.milestones", "after these steps", "all", "all", milestone_due,
      milestone_holds, milestone_holds },
};

bool tiers_due(const struct tier_scene *s, int64_t step) {
    for (int i = 0; i < TIER_COUNT; i++)
        if (TIERS[i].due && TIERS[i].due(s, step)) return true;
    return false;
}

bool tiers_hold(const struct tier_scene *s, int64_t step, int64_t newer) {
    for (int i = 0; i < TIER_COUNT; i++)
        if (TIERS[i].holds(s, step, newer)) return true;
    return false;
}

int tiers_kept(const struct tier_scene *s, int64_t step, int64_t newer,
               const char *names[TIER_COUNT]) {
    int count = 0;
    for (int i = 0; i < TIER_COUNT; i++)
        if (TIERS[i].kept && TIERS[i].kept(s, step, newer)) names[count++] = TIERS[i].name;
    return count;
}
