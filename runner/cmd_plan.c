/* fp8lab plan: what every row of a script would allocate, and whether it fits this machine. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/json_safe.h"
#include "runner/commands.h"
#include "runner/hardware/facts.h"
#include "runner/plan/fit.h"
#include "runner/hardware/hardware.h"
#include "runner/net/rendezvous.h"
#include "runner/doctor/probe.h"
#include "runner/script/resolve.h"
#include "runner/script/script_flags.h"

struct planned {
    struct fit fit;
    json_t *mismatch; /* of the hardware query, or NULL */
};

static double mib(int64_t bytes) { return (double)bytes / 0x1p20; }

/* A row of few bytes is no "0.0 MiB". */
static void print_size(const struct cli *cli, int64_t bytes) {
    bool small = bytes < (1 << 20) / 10;
    cli_out(cli, " %12.1f %s\n", small ? (double)bytes / 0x1p10 : mib(bytes),
            small ? "KiB" : "MiB");
}

static enum status plan_run(const struct cli *cli, const struct resolved_run *run,
                            const json_t *facts, struct planned *out, struct err *e) {
    const char *backend = cli_has(cli, "backend") ? cli_value(cli, "backend") : "auto";
    int64_t ranks = 0;
    *out = (struct planned){ 0 };
    TRY(cli_int(cli, "ranks", 1, RENDEZVOUS_RANKS_MAX, &ranks, e));
    TRY(fit_plan(run->config_json, facts, backend, (int)ranks, &out->fit, e));
    return hardware_match(run->config_json, facts, &out->mismatch, e);
}

static void planned_free(struct planned *p) {
    fit_free(&p->fit);
    json_decref(p->mismatch);
}

/* ---- printing ------------------------------------------------------------------------------- */

static int64_t arena_bytes(const struct plan *plan, int64_t first) {
    int64_t bytes = 0;
    for (int64_t i = first; i < plan->row_count; i++) {
        if (strcmp(plan->row[i].arena, plan->row[first].arena) != 0) break;
        bytes += plan->row[i].bytes;
    }
    return bytes;
}

static const char *const SHARD[] = { "none", "optimizer", "gradients", "parameters" };

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
    cli_out(cli, "%s%s%s, %" PRId64 " parameters\n", cli_style(cli, "bold"), run->name,
            cli_style(cli, NULL), fit->parameters);
    for (int64_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->row[i];
        if (i == 0 || strcmp(row->arena, plan->row[i - 1].arena) != 0) {
            cli_out(cli, "  %-40s", row->arena);
            print_size(cli, arena_bytes(plan, i));
        }
        cli_out(cli, "    %-30s %6" PRId64 "x", row->item, row->count);
        print_size(cli, row->bytes);
    }
    cli_out(cli, "  %-40s %12.1f MiB a rank\n",
            plan->gpu_bytes ? "all, at the peak, as nvidia-smi sees it" : "all", mib(fit->bytes));
    print_shards(cli, fit);
    if (fit->memory == 0)
        cli_out(cli, "  %s is not known here: whether that fits cannot be said\n", fit->where);
    else
        cli_out(cli, "  %s%s%s %s of %.1f MiB\n", cli_style(cli, fit->fits ? "green" : "red"),
                fit->fits ? "fits" : "does not fit", cli_style(cli, NULL), fit->where,
                mib(fit->memory));
    bool another = p->mismatch && !plan->gpu_bytes; /* a GPU is asked for, perhaps, and none here */
    if (*fit->way_out && !another) cli_out(cli, "  less memory:%s\n", fit->way_out);
    if (!p->mismatch) return;
    char *text = hardware_mismatch_text(run->config_json, p->mismatch);
    cli_out(cli, "  the machine is not the one that the experiment asks for:\n%s",
            text ? text : "");
    free(text);
    if (another)
        cli_out(cli, "  the above is of the CPU backend in this host's memory; --facts FILE plans "
                     "for another\n  machine: `fp8lab hw --json > FILE` there writes it\n");
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
    return json_pack("{s:s,s:I,s:i,s:I,s:I,s:o,s:o,s:s,s:I,s:b,s:O?}", "name", run->name,
                     "parameters", (json_int_t)p->fit.parameters, "ranks", p->fit.ranks, "bytes",
                     (json_int_t)p->fit.plan.bytes, "peak_bytes", (json_int_t)p->fit.bytes,
                     "bytes_sharded", json_whole(sharded, failed), "rows",
                     json_whole(rows, failed), "memory_fact", p->fit.where, "memory_bytes",
                     (json_int_t)p->fit.memory, "fits", p->fit.fits, "mismatch", p->mismatch);
}

/* ---- the verb ------------------------------------------------------------------------------- */

static enum status plan_all(const struct cli *cli, const struct resolution *r, const json_t *facts,
                            int *code, struct err *e) {
    json_t *list = json_array();
    bool failed = false;
    for (int64_t i = 0; i < r->run_count; i++) {
        struct planned planned;
        enum status st = plan_run(cli, &r->runs[i], facts, &planned, e);
        if (st == OK && cli->json) json_append(list, plan_json(&r->runs[i], &planned), &failed);
        else if (st == OK) print_plan(cli, &r->runs[i], &planned);
        if (st == OK && (!planned.fit.fits || planned.mismatch)) *code = EXIT_HARDWARE;
        planned_free(&planned);
        if (st != OK) {
            json_decref(list);
            return st;
        }
    }
    json_t *object = json_pack("{s:s,s:o}", "schema", "fp8lab.plan/1", "runs",
                               json_whole(list, failed));
    if (cli->json) cli_out_json(cli, object);
    json_decref(object);
    return OK;
}

static int cmd_plan(const struct cli *cli) {
    struct err e = { 0 };
    struct resolution resolution = { 0 };
    json_t *facts = NULL;
    const char *file = cli_value(cli, "facts");
    char problem[256] = "";
    int code = EXIT_OK;
    enum status st = script_resolve(cli, &resolution, &e);
    if (st == OK) st = file ? facts_load(file, &facts, &e) : facts_gather(&facts, NULL, 0, &e);
    if (st == OK && !file) st = probe_facts(facts, false, problem, sizeof problem, &e);
    if (*problem) cli_warn(cli, "%s", problem);
    if (st == OK) st = plan_all(cli, &resolution, facts, &code, &e);
    resolution_destroy(&resolution);
    json_decref(facts);
    if (st != OK) return cli_fail(cli, &e);
    script_next(cli, "run", code != EXIT_OK);
    return code;
}

static const struct flag FLAGS[] = {
    { "set", "KEY=VALUE", "override a key: --set train.micro_batch=2", true },
    { "only", "NAME", "of a suite only rows of this name (* and ?)", true },
    { "ranks", "N", "plan for so many GPUs instead of hardware.gpus", false },
    { "smoke", NULL, "plan the rehearsal instead", false },
    { "facts", "FILE", "plan for the machine that FILE describes (fp8lab hw)", false },
    { "backend", "NAME", "auto (default), cpu or cuda: whose memory counts", false },
    { "lib", "DIR", "where require finds the shared presets", false },
};

const struct verb VERB_PLAN = {
    .name = "plan",
    .arguments = "FILE.lua",
    .about = "the memory a script needs, by arena, and whether it fits",
    .more =
        "Nothing runs and no data is read. Exit 3 where the machine is not the one asked for, or\n"
        "lacks the memory. The arenas are exact: a run allocates them before its first step, and\n"
        "nothing later. What a GPU takes beside them is reckoned from sizes and from what one\n"
        "H200 was seen to take.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_plan,
};
