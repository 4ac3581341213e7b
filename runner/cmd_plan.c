/* fp8lab plan: the memory that each row of a script would allocate, and whether it fits. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/commands.h"
#include "runner/disk_room.h"
#include "runner/doctor/probe.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/hardware.h"
#include "runner/job/rendezvous.h"
#include "runner/plan/asked_kernel.h"
#include "runner/plan/backends.h"
#include "runner/plan/fit.h"
#include "runner/plan/keep.h"
#include "runner/run/init_tokenizer.h"
#include "runner/script/repeat.h"
#include "runner/script/resolve.h"
#include "runner/script/script_flags.h"

struct planned {
    struct fit fit;
    struct keep keep;
    json_t *mismatch; /* of the hardware query, or NULL */
    char *verdict;    /* lines for a terminal: does it fit, and is this the machine? */
};

static double mib(int64_t bytes) { return (double)bytes / 0x1p20; }

/* Small sizes are in KiB, so that none is printed as "0.0 MiB". */
static void print_size(const struct cli *cli, int64_t bytes) {
    bool small = bytes < (1 << 20) / 10;
    cli_out(cli, " %12.1f %s\n", small ? (double)bytes / 0x1p10 : mib(bytes),
            small ? "KiB" : "MiB");
}

static const char *const SHARD[] = { "none", "optimizer", "gradients", "parameters" };

/* ---- one row -------------------------------------------------------------------------------- */

static enum status make_verdict(const struct cli *cli, const struct resolved_run *run,
                                struct planned *p, struct err *e) {
    const struct fit *fit = &p->fit;
    bool another = p->mismatch && !fit->plan.gpu_bytes; /* a GPU is asked for but missing */
    bool less = *fit->less_memory && !another, found = *fit->fits_with && !another;
    char budget[256], shared[48] = "";
    if (fit->shared) snprintf(shared, sizeof shared, ", which its %d ranks share", fit->ranks);
    if (fit->memory == 0)
        snprintf(budget, sizeof budget, "%s is not known, so whether it fits is not known; "
                 "--facts FILE plans for another machine", fit->where);
    else
        snprintf(budget, sizeof budget, "%s%s%s %s of %.1f MiB%s",
                 cli_style(cli, fit->fits ? "green" : "red"), fit->fits ? "fits" : "does not fit",
                 cli_style(cli, NULL), fit->where, mib(fit->memory), shared);
    char *terms = p->mismatch ? hardware_mismatch_text(run->config_json, p->mismatch) : NULL;
    int n = asprintf(
        &p->verdict, "  %s\n%s%s%s%s%s%s%s%s%s%s%s%s", budget, *fit->note ? "  " : "", fit->note,
        *fit->note ? "\n" : "", less ? "  less memory:" : "",
        less ? fit->less_memory : "", less ? "\n" : "",
        found ? "  fits with" : "", found ? fit->fits_with : "", found ? "\n" : "",
        p->mismatch ? "  the machine is not the one that the experiment asks for:\n" : "",
        terms ? terms : "",
        another ? "  the above is for the CPU backend in this host's memory; --facts FILE plans "
                  "for another\n  machine; `fp8lab hw --json > FILE` on that machine writes FILE\n"
                : "");
    free(terms);
    if (n >= 0) return OK;
    p->verdict = NULL;
    return FAIL(e, ERR_MEMORY, "the plan of %s", run->name);
}

static enum status plan_run(const struct cli *cli, const struct resolved_run *run,
                            const json_t *facts, struct planned *out, struct err *e) {
    const char *backend = cli_has(cli, "backend") ? cli_value(cli, "backend") : "auto";
    TRY(fit_plan(run->config_json, facts, backend, 0, &out->fit, e));
    TRY(fit_find(run->config_json, facts, backend, &out->fit, e));
    TRY(keep_plan(run->config_json, cli_has(cli, "smoke"), &out->keep, e));
    TRY(hardware_match(run->config_json, facts, &out->mismatch, e));
    /* A script for another machine is matched against that one's facts. */
    const struct asked_machine machine = { .backend = backend,
                                           .facts = out->mismatch ? NULL : facts };
    TRY(asked_kernel_check(run->config_json, &machine, e));
    return make_verdict(cli, run, out, e);
}

static void planned_free(struct planned *p) {
    fit_free(&p->fit);
    json_decref(p->mismatch);
    free(p->verdict);
}

static int64_t arena_bytes(const struct plan *plan, int64_t first) {
    int64_t bytes = 0;
    for (int64_t i = first; i < plan->row_count; i++) {
        if (strcmp(plan->row[i].arena, plan->row[first].arena) != 0) break;
        bytes += plan->row[i].bytes;
    }
    return bytes;
}

static void print_shards(const struct cli *cli, const struct fit *fit) {
    if (fit->ranks == 1) return;
    cli_out(cli, "  each of %d ranks, with train.shard =\n", fit->ranks);
    for (int k = 0; k < 4; k++)
        cli_out(cli, "    %-38s %12.1f MiB\n", SHARD[k], mib(fit->sharded[k]));
}

static void print_plan(const struct cli *cli, const struct resolved_run *run,
                       const struct planned *p) {
    const struct fit *fit = &p->fit;
    const struct plan *plan = &fit->plan;
    cli_out(cli, "%s%s%s, %" PRId64 " parameters", cli_style(cli, "bold"), run->name,
            cli_style(cli, NULL), fit->parameters);
    if (plan->trained < fit->parameters)
        cli_out(cli, ", %" PRId64 " of them trained", plan->trained);
    cli_out(cli, "\n");
    for (int64_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->row[i];
        if (i == 0 || strcmp(row->arena, plan->row[i - 1].arena) != 0) {
            cli_out(cli, "  %-40s", row->arena);
            print_size(cli, arena_bytes(plan, i));
        }
        cli_out(cli, "    %-30s %6" PRId64 "x", row->item, row->count);
        print_size(cli, row->bytes);
    }
    cli_out(cli, "  %-40s %12.1f MiB per rank\n",
            plan->gpu_bytes ? "all, at the peak, as nvidia-smi sees it" : "all", mib(fit->bytes));
    print_shards(cli, fit);
    cli_out(cli, "%s", p->verdict);
}

static json_t *plan_json(const struct resolved_run *run, const struct planned *p) {
    json_t *rows = json_array();
    bool failed = false;
    for (int64_t i = 0; i < p->fit.plan.row_count; i++) {
        const struct plan_row *row = &p->fit.plan.row[i];
        json_append(rows, json_pack("{s:s,s:s,s:I,s:I}", "arena", row->arena, "item", row->item,
                                    "bytes", (json_int_t)row->bytes, "count",
                                    (json_int_t)row->count), &failed);
    }
    json_t *sharded = json_object();
    for (int k = 0; k < 4 && p->fit.ranks > 1; k++)
        if (json_object_set_new(sharded, SHARD[k], json_integer(p->fit.sharded[k])) != 0)
            failed = true;
    json_t *fits = p->fit.memory ? json_boolean(p->fit.fits) : json_null();
    return json_pack("{s:s,s:I,s:I,s:i,s:I,s:I,s:o,s:o,s:s,s:I,s:o,s:s,s:s,s:O?,s:o}",
                     "name", run->name,
                     "parameters", (json_int_t)p->fit.parameters, "trained",
                     (json_int_t)p->fit.plan.trained, "ranks", p->fit.ranks, "bytes",
                     (json_int_t)p->fit.plan.bytes, "peak_bytes", (json_int_t)p->fit.bytes,
                     "bytes_sharded", json_whole(sharded, failed), "rows",
                     json_whole(rows, failed), "memory_fact", p->fit.where, "memory_bytes",
                     (json_int_t)p->fit.memory, "fits", fits, "fits_with",
                     *p->fit.fits_with ? p->fit.fits_with + 1 : "", "note", p->fit.note, "mismatch",
                     p->mismatch, "keeps", keep_json(&p->keep));
}

/* ---- a table of rows ------------------------------------------------------------------------ */

/* Bytes of the arenas whose names begin with `beginning`, such as "weights" and "weight codes". For
 * a GPU, arenas offloaded to the host do not count. */
static int64_t named_bytes(const struct plan *plan, const char *beginning) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->row[i];
        bool elsewhere = plan->gpu_bytes && strstr(row->arena, ", on the host");
        if (!elsewhere && !strncmp(row->arena, beginning, strlen(beginning))) bytes += row->bytes;
    }
    return bytes;
}

static void print_line(const struct cli *cli, int width, const char *name, const struct fit *fit) {
    const struct plan *plan = &fit->plan;
    bool known = fit->memory > 0;
    cli_out(cli, "%-*s %5d %10.1f %10.1f %10.1f %11.1f %10.1f  %s%s%s\n", width, name, fit->ranks,
            mib(named_bytes(plan, "weight") + named_bytes(plan, "master")),
            mib(named_bytes(plan, "gradients")), mib(named_bytes(plan, "optimizer")),
            mib(named_bytes(plan, "activations")), mib(fit->bytes),
            known ? cli_style(cli, fit->fits ? "green" : "red") : "",
            !known ? "not known" : fit->fits ? "fits" : "does not fit",
            known ? cli_style(cli, NULL) : "");
}

/* The bytes of a rank's copy of a checkpoint; 0: it makes none. */
static int64_t copy_bytes(const struct plan *plan) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < plan->row_count; i++)
        if (!strncmp(plan->row[i].arena, "checkpoint", 10)) bytes += plan->row[i].bytes;
    return bytes;
}

/* The largest copy: the table's columns are without it. A GPU's is in its host's memory. */
static void print_copies(const struct cli *cli, const struct planned *planned, int64_t count) {
    const struct fit *largest = NULL;
    for (int64_t i = 0; i < count; i++)
        if (!largest || copy_bytes(&planned[i].fit.plan) > copy_bytes(&largest->plan))
            largest = &planned[i].fit;
    if (!largest || copy_bytes(&largest->plan) == 0) return;
    cli_out(cli, "a checkpoint's copy while it is written takes %s%.1f MiB, %s "
                 "(checkpoint.background)\n", count > 1 ? "up to " : "",
            mib(copy_bytes(&largest->plan)),
            largest->copy ? "which the peak has" : "on the host, beside the peak");
}

/* How many rows have the verdict of row `first`, itself included; 0 if an earlier row has it. */
static int64_t count_alike(const struct planned *planned, int64_t count, int64_t first) {
    int64_t alike = 0;
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(planned[i].verdict, planned[first].verdict) != 0) continue;
        if (i < first) return 0;
        alike++;
    }
    return alike;
}

/* One line per row, then the verdicts; equal verdicts are printed once. */
static void print_rows(const struct cli *cli, const struct resolution *r,
                       const struct planned *planned) {
    int width = 0;
    for (int64_t i = 0; i < r->run_count; i++) {
        int n = (int)strlen(r->runs[i].name);
        width = n > width ? n : width;
    }
    cli_out(cli, "%s: MiB per rank\n%-*s ranks %10s %10s %10s %11s %10s\n", r->name, width, "row",
            "weights", "gradients", "optimizer", "activations", "peak");
    for (int64_t i = 0; i < r->run_count; i++)
        print_line(cli, width, r->runs[i].name, &planned[i].fit);
    print_copies(cli, planned, r->run_count);
    for (int64_t i = 0; i < r->run_count; i++) {
        int64_t alike = count_alike(planned, r->run_count, i);
        if (alike == 0) continue;
        if (alike == r->run_count) cli_out(cli, "all rows:\n");
        else if (alike == 1) cli_out(cli, "%s:\n", r->runs[i].name);
        else cli_out(cli, "%s and %" PRId64 " more:\n", r->runs[i].name, alike - 1);
        cli_out(cli, "%s", planned[i].verdict);
    }
}

/* ---- the verb ------------------------------------------------------------------------------- */

static void print_json(const struct cli *cli, const struct resolution *r,
                       const struct planned *planned, const struct keep_disk *disk,
                       const struct token_room *tokens) {
    json_t *list = json_array();
    bool failed = false;
    for (int64_t i = 0; i < r->run_count; i++)
        json_append(list, plan_json(&r->runs[i], &planned[i]), &failed);
    json_t *object = json_pack("{s:s,s:o,s:o,s:o}", "schema", "fp8lab.plan/1", "runs",
                               json_whole(list, failed), "disk", keep_disk_json(disk), "tokens",
                               token_room_json(tokens));
    cli_out_json(cli, object);
    json_decref(object);
}

static void print_text(const struct cli *cli, const struct resolution *r,
                       const struct planned *planned) {
    bool rows = r->run_count > 1 && !cli_has(cli, "detail");
    if (rows) print_rows(cli, r, planned);
    for (int64_t i = 0; i < r->run_count && !rows; i++) print_plan(cli, &r->runs[i], &planned[i]);
}

/* Prints the plans, and what checkpoints and tokens need of the disk here; --facts is of another.
 * *code: EXIT_SYSTEM if there is no room, unless a row does not fit the machine. */
static enum status print_all(const struct cli *cli, const struct resolution *r,
                             const struct planned *planned, int *code, struct err *e) {
    struct keep_disk disk = { 0 };
    struct token_room tokens = { 0 };
    bool here = !cli_has(cli, "facts");
    struct keep *keeps = calloc((size_t)r->run_count + 1, sizeof *keeps);
    if (!keeps) return FAIL(e, ERR_MEMORY, "%" PRId64 " plans", r->run_count);
    for (int64_t i = 0; i < r->run_count; i++) keeps[i] = planned[i].keep;
    enum status st = OK;
    if (here) st = disk_room_find(cli_runs(cli), r, keeps, &disk, e);
    if (st == OK && here)
        st = token_room_find(cli_runs(cli), cli_value(cli, "data-root"), r, &tokens, e);
    if (st == OK && cli->json) print_json(cli, r, planned, &disk, &tokens);
    if (st == OK && !cli->json) {
        print_text(cli, r, planned);
        keep_say(cli, keeps, r->run_count, true);
        keep_say_disk(cli, &disk);
        token_room_say(cli, &tokens);
    }
    int room = st == OK ? disk_room_check(cli, r, &disk) : EXIT_OK;
    if (st == OK && room == EXIT_OK) token_room_warn(cli, &tokens, &disk);
    if (st == OK && here) init_tokenizer_warn(cli, r, cli_value(cli, "data-root"));
    if (*code == EXIT_OK) *code = room;
    free(keeps);
    return st;
}

static enum status plan_all(const struct cli *cli, const struct resolution *r, const json_t *facts,
                            int *code, struct err *e) {
    struct planned *planned = calloc((size_t)r->run_count + 1, sizeof *planned);
    enum status st = planned ? OK : FAIL(e, ERR_MEMORY, "%" PRId64 " plans", r->run_count);
    bool known = true;
    for (int64_t i = 0; i < r->run_count && st == OK; i++) {
        st = plan_run(cli, &r->runs[i], facts, &planned[i], e);
        if (st != OK) err_prefix(e, "%s: %s", cli->args[0], r->runs[i].name); /* as `check` */
        if (!planned[i].fit.fits || planned[i].mismatch) *code = EXIT_HARDWARE;
        known = known && planned[i].fit.memory > 0;
    }
    if (st == OK) st = print_all(cli, r, planned, code, e);
    for (int64_t i = 0; i < r->run_count && planned; i++) planned_free(&planned[i]);
    free(planned);
    /* A plan for another machine is followed by a smoke run on this one. */
    if (st == OK && known && *code != EXIT_SYSTEM)
        script_next(cli, "run", *code != EXIT_OK || cli_has(cli, "facts"));
    return st;
}

/* The facts of the fact file, or of this machine. Warns of what is assumed of a GPU. */
static enum status find_facts(const struct cli *cli, json_t **facts, struct err *e) {
    const char *file = cli_value(cli, "facts"), *backend = cli_value(cli, "backend");
    char problem[256] = "";
    if (file) TRY(facts_load(file, facts, e));
    else TRY(facts_gather(facts, NULL, 0, e));
    if (!file) TRY(probe_facts(*facts, false, problem, sizeof problem, e));
    if (*problem) cli_warn(cli, "%s", problem);
    bool cpu = backend && !strcmp(backend, "cpu");
    char note[FACTS_NOTE_CAP];
    if (!cpu && facts_strange_capability(*facts, note)) cli_warn(cli, "%s", note);
    if (!cpu && facts_have_gpu(*facts) && !facts_capability(*facts))
        cli_warn(cli, "gpu.cc is not known: memory is planned as for 9.0, and the recipe is not "
                 "checked; " FACTS_ADD_CAPABILITY);
    return OK;
}

static int cmd_plan(const struct cli *cli) {
    struct err e = { 0 };
    struct resolution resolution = { 0 };
    json_t *facts = NULL;
    int code = EXIT_OK;
    int64_t ranks = 0, repeat = 1;
    enum status st = cli_has(cli, "backend") ? backend_check_name(cli_value(cli, "backend"), &e)
                                             : OK;
    if (st == OK) st = cli_int(cli, "ranks", 1, RENDEZVOUS_RANKS_MAX, &ranks, &e);
    if (st == OK) st = cli_int(cli, "repeat", 1, REPEAT_MAX, &repeat, &e);
    if (st == OK) st = script_resolve(cli, cli_value(cli, "ranks"), &resolution, &e);
    if (st == OK) st = resolution_repeat(&resolution, repeat, &e);
    if (st == OK) st = find_facts(cli, &facts, &e);
    if (st == OK) st = plan_all(cli, &resolution, facts, &code, &e);
    if (st != OK) code = script_fail(cli, &resolution, &e);
    resolution_destroy(&resolution);
    json_decref(facts);
    return code;
}

static const struct flag FLAGS[] = {
    { "set", "KEY=VALUE", "override a key: --set train.micro_batch=2", true },
    { "only", "NAME", "only the rows of a suite with this name (* and ?)", true },
    { "detail", NULL, "list the arenas of each row of a suite", false },
    { "ranks", "N", "plan for N GPUs instead of hardware.gpus", false },
    { "repeat", "N", "plan for run --repeat N: the rows in their order", false },
    { "smoke", NULL, "plan the --smoke run instead", false },
    { "facts", "FILE", "plan for the machine that FILE describes (hw --json)", false },
    { "backend", "NAME", "auto (default), cpu or cuda: whose memory counts", false },
    { "runs", "DIR", "where runs would be written (default: runs)", false },
    { "data-root", "DIR", "data paths are relative to DIR (default: here)", false },
    { "lib", "DIR", "where require finds the shared presets", false },
};

const struct verb VERB_PLAN = {
    .name = "plan",
    .arguments = "FILE.lua",
    .about = "the memory a script needs, and whether it fits",
    .more =
        "A suite has one line per row: weights (with FP8 codes and master weights), gradients,\n"
        "optimizer moments, activations, and the peak of all. A single row, and each row under\n"
        "--detail, is listed by arena.\n"
        "Runs nothing and reads no data. Exits with 3 if the machine does not match the hardware\n"
        "query, lacks the memory, or has a GPU that no run can use, and with 6 if the disk has no\n"
        "room for the checkpoints. Arenas are exact: a run allocates them before its first step,\n"
        "and nothing later. What a GPU needs beside them is estimated from sizes and from\n"
        "measurements on one H200.\n"
        SCRIPT_SET_FORMS,
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_plan,
};
