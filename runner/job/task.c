#include "runner/job/task.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef const char *(*getter)(const char *name);

enum { NAME_PARTS = 3 };

/* The variables of one launcher; NULL where it has none. */
struct launcher {
    const char *name;
    const char *index, *count;
    const char *local_index, *local_count;
    const char *job[NAME_PARTS]; /* make up the job's name */
    const char *master, *nodes;
};

/* The first launcher whose variables are set counts: under mpirun in a Slurm job both sets are.
 * Only a step of srun has SLURM_STEP_NUM_TASKS; a batch script is one process, although it has
 * SLURM_NTASKS. */
static const struct launcher LAUNCHERS[] = {
    { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
      { "TORCHELASTIC_RUN_ID", "MASTER_PORT", "MASTER_ADDR" }, "MASTER_ADDR", NULL },
    { "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE", { "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid" }, NULL, NULL },
    { "PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
      { "PMI_JOBID", "SLURM_JOB_ID" }, NULL, NULL },
    { "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL,
      { "SLURM_JOB_ID", "SLURM_STEP_ID" }, NULL, "SLURM_STEP_NODELIST" },
};
enum { LAUNCHER_KINDS = sizeof LAUNCHERS / sizeof *LAUNCHERS };

static enum status number(getter get, const char *name, int64_t least, int64_t otherwise,
                          int64_t *out, struct err *e) {
    const char *text = name ? get(name) : NULL;
    char *end;
    *out = otherwise;
    if (!text) return OK;
    long long value = strtoll(text, &end, 10);
    *out = value;
    if (*text && !*end && value >= least && value <= 1 << 20) return OK;
    return FAIL(e, ERR_CONFIG, "the launcher's %s is \"%.40s\"; expected a number from %" PRId64,
                name, text, least);
}

/* Tasks on node `node`, from srun's list "8(x2),4": 8 on each of two nodes, then 4. 0: unknown. */
static int64_t slurm_tasks_on(const char *list, int64_t node) {
    while (list && *list) {
        char *at;
        long long tasks = strtoll(list, &at, 10), nodes = 1;
        if (at == list) return 0;
        if (!strncmp(at, "(x", 2)) {
            nodes = strtoll(at + 2, &at, 10);
            if (*at++ != ')') return 0;
        }
        if (node < nodes) return tasks;
        node -= nodes;
        list = *at == ',' ? at + 1 : NULL;
    }
    return 0;
}

/* "launcher-part-part"; characters other than letters, digits and '-' become '_'. */
static void name_job(getter get, const struct launcher *l, char out[TASK_JOB_CAP]) {
    const char *given = get("FP8LAB_JOB");
    size_t used = (size_t)snprintf(out, TASK_JOB_CAP, "%s", given && *given ? given : l->name);
    for (int i = 0; i < NAME_PARTS && !(given && *given) && used < TASK_JOB_CAP; i++) {
        const char *part = l->job[i] ? get(l->job[i]) : NULL;
        if (part) used += (size_t)snprintf(out + used, TASK_JOB_CAP - used, "-%s", part);
    }
    for (char *c = out; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-') *c = '_';
}

static enum status check_local(const struct launcher *l, const struct task *t, struct err *e) {
    if (t->local_index >= t->local_count || t->local_count > t->count)
        return FAIL(e, ERR_CONFIG, "the launcher says %s=%" PRId64 " of this host's %" PRId64
                    " tasks, of %" PRId64 " in all", l->local_index,
                    t->local_index, t->local_count, t->count);
    return OK;
}

static bool equal(getter get, const char *name, const char *other) {
    const char *a = get(name), *b = get(other);
    return a && b && !strcmp(a, b);
}

/* Slurm's pmi2 plugin also sets PMI_RANK for each task of srun, but no local index: then
 * SLURM_LOCALID must choose the GPU. A PMI launcher that srun itself started, once a host, has
 * other numbers than srun. */
static bool is_srun_with_pmi(getter get, const struct launcher *l) {
    return !strcmp(l->name, "PMI") && !get(l->local_index) &&
           equal(get, l->index, "SLURM_PROCID") && equal(get, l->count, "SLURM_STEP_NUM_TASKS");
}

/* Rejects one of torchrun's two numbers without the other: several tasks were meant, and each would
 * train alone. A batch script of Slurm has one of Slurm's numbers, so those are not checked. */
static enum status check_half(getter get, struct err *e) {
    const struct launcher *l = &LAUNCHERS[0];
    bool index = get(l->index) != NULL;
    if (index == (get(l->count) != NULL)) return OK;
    const char *set = index ? l->index : l->count, *unset = index ? l->count : l->index;
    return FAIL(e, ERR_CONFIG, "%s=%.40s is set, as %s does, and %s is not: set both, or, for a "
                "run of one task, neither", set, get(set), l->name, unset);
}

/* The first launcher of the table whose variables are set; NULL: none. */
static const struct launcher *launcher_here(getter get) {
    for (int i = 0; i < LAUNCHER_KINDS; i++) {
        const struct launcher *l = &LAUNCHERS[i];
        if (get(l->index) && get(l->count) && !is_srun_with_pmi(get, l)) return l;
    }
    return NULL;
}

static void copy_variable(getter get, const char *name, char *out, size_t size) {
    const char *text = name ? get(name) : NULL;
    snprintf(out, size, "%s", text ? text : "");
}

enum status task_find(getter get, struct task *out, struct err *e) {
    *out = (struct task){ .count = 1, .local_count = 1 };
    const struct launcher *l = launcher_here(get);
    if (!l) return check_half(get, e);
    TRY(number(get, l->index, 0, 0, &out->index, e));
    TRY(number(get, l->count, 1, 1, &out->count, e));
    if (out->index >= out->count)
        return FAIL(e, ERR_CONFIG, "the launcher says %s=%" PRId64 " and %s=%" PRId64, l->index,
                    out->index, l->count, out->count);
    if (out->count == 1) return OK; /* a single task: as without a launcher */
    TRY(number(get, l->local_index, 0, 0, &out->local_index, e));
    TRY(number(get, l->local_count, 1, 0, &out->local_count, e));
    if (!out->local_count && !strcmp(l->name, "srun")) {
        int64_t node;
        TRY(number(get, "SLURM_NODEID", 0, 0, &node, e));
        out->local_count = slurm_tasks_on(get("SLURM_STEP_TASKS_PER_NODE"), node);
    }
    if (!out->local_count) out->local_count = out->local_index + 1; /* at least this many */
    if (!get(l->local_index)) out->unset_local_index = l->local_index;
    out->launcher = l->name;
    out->index_name = l->index;
    out->count_name = l->count;
    copy_variable(get, l->master, out->master, sizeof out->master);
    copy_variable(get, l->nodes, out->nodes, sizeof out->nodes);
    name_job(get, l, out->job);
    return check_local(l, out, e);
}

void task_explain(const struct task *t, char *out, size_t size) {
    const char *others = t->index ? "task 0" : t->count > 2 ? "the other tasks" : "the other task";
    snprintf(out, size, "%s=%" PRId64 " and %s=%" PRId64 " are set, as by %s: this is task %" PRId64
             " of %" PRId64 "; for a run of one task unset %s and %s, for %" PRId64 " tasks start "
             "%s", t->index_name, t->index, t->count_name, t->count, t->launcher, t->index,
             t->count, t->index_name, t->count_name, t->count, others);
}

bool task_sees_its_own(const char *visible, int64_t ranks) {
    int64_t listed = visible && *visible ? 1 : 0;
    for (const char *c = visible; listed && *c; c++) listed += *c == ',';
    return listed == ranks;
}

int64_t task_device(const struct task *t, const char *visible, int64_t ranks, int64_t i) {
    return task_sees_its_own(visible, ranks) ? i : t->local_index * ranks + i;
}
