/* fp8lab advise: which recipe suits this model on this machine. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/advise/advice_report.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"
#include "runner/base/shell_word.h"
#include "runner/certify/certify_cache.h"
#include "runner/commands.h"
#include "runner/doctor/probe.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/hardware.h"
#include "runner/run/init_from.h"
#include "runner/script/script_flags.h"

/* The script as typed, and once for each recipe that it does not have. */
struct scripts {
    struct resolution own, other[RECIPE_KIND_COUNT];
    const struct resolved_run *run[RECIPE_KIND_COUNT]; /* of each recipe; NULL: none */
    char refused[RECIPE_KIND_COUNT][256];              /* why there is none */
};

static const json_t *section(const struct resolved_run *run, const char *name) {
    return json_object_get(run->config_json, name);
}

static const char *kind_of(const struct resolved_run *run) {
    return json_text(section(run, "recipe"), "kind", "");
}

/* Whether two runs have the same section, or none of that name. */
static bool has_same(const struct resolved_run *a, const struct resolved_run *b,
                     const char *name) {
    const json_t *x = section(a, name), *y = section(b, name);
    return x && y ? json_equal(x, y) : !x && !y;
}

/* The first run with the sizes, the attention and the training of `like`; NULL: none. */
static const struct resolved_run *alike(const struct resolution *r,
                                        const struct resolved_run *like, const char *kind) {
    for (int64_t i = 0; i < r->run_count; i++) {
        const struct resolved_run *run = &r->runs[i];
        if (!strcmp(kind_of(run), kind) && has_same(run, like, "model") &&
            has_same(run, like, "attention") && has_same(run, like, "train"))
            return run;
    }
    return NULL;
}

/* Whether a flag is about the script's own recipe. --only names rows by their recipes. */
static bool is_of_recipe(const struct cli_flag *flag) {
    return !strcmp(flag->name, "only") ||
           (!strcmp(flag->name, "set") && (!strncmp(flag->value, "recipe=", 7) ||
                                           !strncmp(flag->value, "recipe.", 7)));
}

/* Resolves the script with another recipe, in its default form; `alike` finds the row. Errors of
 * the script are in *out. */
static enum status resolve_with(const struct cli *cli, const char *recipe, struct resolution *out,
                                struct err *e) {
    struct cli with = *cli;
    char word[64];
    struct cli_flag *flags = calloc((size_t)cli->flag_count + 1, sizeof *flags);
    if (!flags) return FAIL(e, ERR_MEMORY, "a command line");
    with.flags = flags;
    with.flag_count = 0;
    for (int64_t i = 0; i < cli->flag_count; i++)
        if (!is_of_recipe(&cli->flags[i])) flags[with.flag_count++] = cli->flags[i];
    snprintf(word, sizeof word, "recipe=%s", recipe);
    flags[with.flag_count++] = (struct cli_flag){ "set", word };
    enum status st = script_read(&with, out, e);
    free(flags);
    return st;
}

/* The name of the row under --set recipe=K, which all recipes share: with that flag no name
 * contains the recipe. NULL: there is one row only. */
static const char *row_name(const struct scripts *s) {
    for (int k = RECIPE_BF16; k < RECIPE_KIND_COUNT; k++)
        if (s->other[k].run_count > 1 && s->run[k]) return s->run[k]->name;
    return NULL;
}

/* `all`, freed, and a flag with its quoted value, or NULL. Owned by the caller. */
static char *add_flag(char *all, const char *name, const char *value) {
    char *word = value ? shell_word(value) : NULL, *longer = NULL;
    bool failed = value && !word;
    if (!failed && asprintf(&longer, "%s --%s%s%s", all, name, word ? " " : "",
                            word ? word : "") < 0)
        longer = NULL;
    free(word);
    free(all);
    return longer;
}

/* The script and its flags for another command, quoted, without those of the recipe; `row`: the
 * name of the row, or NULL. Owned by the caller; NULL: no memory. */
static char *given_words(const struct cli *cli, const char *row) {
    char *all = shell_word(cli->args[0]);
    for (int64_t i = 0; all && i < cli->flag_count; i++) {
        const struct cli_flag *flag = &cli->flags[i];
        bool carried = !strcmp(flag->name, "set") || !strcmp(flag->name, "smoke") ||
                       !strcmp(flag->name, "lib");
        if (carried && !is_of_recipe(flag)) all = add_flag(all, flag->name, flag->value);
    }
    return all && row ? add_flag(all, "only", row) : all;
}

static enum status resolve_all(const struct cli *cli, struct scripts *s, struct err *e) {
    TRY(script_resolve(cli, NULL, &s->own, e));
    if (s->own.run_count == 0) return FAIL(e, ERR_CONFIG, "%s has no runs", cli->args[0]);
    const struct resolved_run *like = &s->own.runs[0];
    for (int k = RECIPE_BF16; k < RECIPE_KIND_COUNT; k++) {
        s->run[k] = alike(&s->own, like, RECIPE_KIND_NAMES[k]);
        if (s->run[k]) continue;
        struct resolution *other = &s->other[k];
        struct err why;
        enum status st = resolve_with(cli, RECIPE_KIND_NAMES[k], other, &why);
        if (st != OK && other->error_count == 0) return FAIL(e, st, "%s", why.text);
        s->run[k] = alike(other, like, RECIPE_KIND_NAMES[k]);
        if (st == OK) continue;
        const struct resolved_error *first = &other->errors[0];
        snprintf(s->refused[k], sizeof s->refused[k], "%s%s%s", first->key,
                 *first->key ? ": " : "", first->text);
    }
    if (s->own.run_count > 1)
        cli_note(cli, "advice for the model of %s; --only NAME takes another row", like->name);
    return OK;
}

static void scripts_free(struct scripts *s) {
    resolution_destroy(&s->own);
    for (int k = 0; k < RECIPE_KIND_COUNT; k++) resolution_destroy(&s->other[k]);
}

/* ---- the machine ------------------------------------------------------------------------------*/

static enum status find_facts(const struct cli *cli, json_t **facts, struct err *e) {
    const char *file = cli_value(cli, "facts");
    char problem[256] = "", note[FACTS_NOTE_CAP];
    if (file) TRY(facts_load(file, facts, e));
    else TRY(facts_gather(facts, NULL, 0, e));
    if (!file) TRY(probe_facts(*facts, false, problem, sizeof problem, e));
    if (*problem) cli_warn(cli, "%s", problem);
    if (facts_strange_capability(*facts, note)) cli_warn(cli, "%s", note);
    if (!facts_have_gpu(*facts) || facts_capability(*facts)) return OK;
    return FAIL(e, ERR_CONFIG, "%s%sgpu.cc is not known, so how the GPU runs each recipe is not "
                "known either; `fp8lab plan` works without it; " FACTS_ADD_CAPABILITY,
                file ? file : "", file ? ": " : "");
}

static const char *machine_of(const json_t *facts) {
    const char *fact = facts_have_gpu(facts) ? "gpu.product_name" : "cpu.model";
    return json_text(facts, fact, "this machine");
}

/* Says what the experiment asks for that the machine lacks; *code is then EXIT_HARDWARE. */
static enum status check_machine(const struct cli *cli, const struct resolved_run *run,
                                 const json_t *facts, int *code, struct err *e) {
    json_t *mismatch = NULL;
    TRY(hardware_match(run->config_json, facts, &mismatch, e));
    char *text = mismatch ? hardware_mismatch_text(run->config_json, mismatch) : NULL;
    if (mismatch) *code = EXIT_HARDWARE;
    if (text)
        cli_warn(cli, "the machine is not the one that the experiment asks for:\n%s", text);
    free(text);
    json_decref(mismatch);
    return OK;
}

/* ---- the verb ---------------------------------------------------------------------------------*/

static enum status print(const struct cli *cli, const struct advice *a,
                         const struct advice_context *x, struct err *e) {
    if (cli->json) {
        json_t *object = advice_json(a, x);
        if (!object) return FAIL(e, ERR_MEMORY, "advice as JSON");
        cli_out_json(cli, object);
        json_decref(object);
        return OK;
    }
    advice_print(cli, a, x);
    if (cli_has(cli, "detail")) advice_print_table(cli, a);
    return OK;
}

/* The certificates of the machine that the facts describe. */
static enum status find_certificates(const struct cli *cli, const json_t *facts, json_t **list,
                                     struct err *e) {
    struct certify_cache cache = { .key = NULL };
    const struct certify_device gpu = { .backend = "cuda" };
    char problem[KEPT_PROBLEM_CAP] = "";
    enum status st = certify_cache_of_run(&cache, NULL, cli_runs(cli), facts, &gpu, e);
    if (st == OK) st = certify_cache_read(&cache, list, problem, e);
    if (*problem) cli_warn(cli, "%s", problem);
    certify_cache_close(&cache);
    return st;
}

/* Hashes the weights of `init` if runs have such a hash to compare with. */
static enum status hash_weights(const struct cli *cli, const struct scripts *s,
                                struct evidence *x, struct err *e) {
    const struct init_request q = { .config = s->own.runs[0].config_json, .runs = cli_runs(cli) };
    json_t *record = NULL;
    struct err why;
    if (!section(&s->own.runs[0], "init") || !evidence_has_weights(x)) return OK;
    enum status st = init_take(&q, &record, &why);
    if (st == ERR_MEMORY) return FAIL(e, st, "%s", why.text);
    if (st == OK) snprintf(x->weights, sizeof x->weights, "%s", json_text(record, "sha256", ""));
    else cli_warn(cli, "%s; so runs count as begun with the same weights if init.from is the same",
                  PLAIN(why.text));
    json_decref(record);
    return OK;
}

static enum status judge(const struct scripts *s, const json_t *facts, const json_t *certificates,
                         const struct measured *m, const struct evidence *evidence,
                         struct advice *a, struct err *e) {
    for (int k = RECIPE_BF16; k < RECIPE_KIND_COUNT; k++) {
        if (*s->refused[k]) advice_add_refused(a, (enum recipe_kind)k, s->refused[k]);
        if (!s->run[k]) continue;
        TRY(advice_add(a, s->run[k]->config_json, s->run[k]->name, facts, certificates, m,
                       e));
        evidence_of(evidence, s->run[k]->config_json, &a->row[a->count - 1].loss);
    }
    advice_rank(a);
    return OK;
}

/* ---- the next command -------------------------------------------------------------------------*/

/* Whether the script as typed has the run, so that its recipe needs no --set. */
static bool is_own(const struct scripts *s, const struct resolved_run *run) {
    for (int64_t i = 0; i < s->own.run_count; i++)
        if (run == &s->own.runs[i]) return true;
    return false;
}

/* The command that trains the one row with the recipe. Owned by the caller; NULL: no memory. */
static char *run_command(const struct cli *cli, const struct scripts *s, enum recipe_kind kind) {
    char set[64], *all = NULL;
    bool own = is_own(s, s->run[kind]), rows = s->own.run_count > 1 || cli_has(cli, "only");
    if (!own) {
        char *given = given_words(cli, row_name(s));
        if (!given || asprintf(&all, "fp8lab run %s", given) < 0) all = NULL;
        free(given);
        snprintf(set, sizeof set, "recipe=%s", RECIPE_KIND_NAMES[kind]);
        if (all) all = add_flag(all, "set", set);
    } else {
        char *script = shell_word(cli->args[0]);
        if (!script || asprintf(&all, "fp8lab run %s", script) < 0) all = NULL;
        free(script);
        for (int64_t i = 0; all && i < cli->flag_count; i++) {
            const struct cli_flag *flag = &cli->flags[i];
            if (!strcmp(flag->name, "set") || !strcmp(flag->name, "smoke") ||
                !strcmp(flag->name, "lib"))
                all = add_flag(all, flag->name, flag->value);
        }
        if (all && rows) all = add_flag(all, "only", s->run[kind]->name);
    }
    return all && cli_has(cli, "runs") ? add_flag(all, "runs", cli_value(cli, "runs")) : all;
}

/* A step that is not measured yet, or else the run that is advised. `plan` shows what is wrong
 * where no recipe can run, and what another machine will hold. */
static void say_next(const struct cli *cli, const struct scripts *s, const struct advice *a,
                     const char *given, bool fits) {
    char measure[ADVICE_TEXT_CAP];
    const struct advice_row *best = advice_best(a);
    if (!best || !fits || cli_has(cli, "facts")) {
        script_next(cli, "plan", false);
        return;
    }
    advice_measure(a, given, measure);
    char *run = *measure ? NULL : run_command(cli, s, best->kind);
    if (*measure || run) cli_next_command(cli, *measure ? measure : run);
    free(run);
}

static enum status advise(const struct cli *cli, const struct scripts *s, const json_t *facts,
                          int *code, struct err *e) {
    struct measured measured = { 0 };
    struct evidence evidence = { 0 };
    json_t *certificates = NULL;
    struct advice *a = calloc(1, sizeof *a);
    char *given = given_words(cli, row_name(s));
    struct advice_context x = { given, machine_of(facts), &measured, &evidence };
    enum status st = a && given ? OK : FAIL(e, ERR_MEMORY, "advice");
    for (int64_t i = 0; st == OK && i < cli_count(cli, "bench"); i++)
        st = measured_add(&measured, cli_nth(cli, "bench", i), facts, e);
    if (st == OK && *measured.busy)
        cli_warn(cli, "the machine was busy while `bench step` measured %s: forecasts are as slow; "
                 "measure again when it is idle", PLAIN(measured.busy));
    if (st == OK)
        st = evidence_gather(cli_runs(cli), s->own.runs[0].config_json, &evidence, e);
    if (st == OK) st = hash_weights(cli, s, &evidence, e);
    if (st == OK && *evidence.problem)
        cli_warn(cli, "the runs in %s say nothing about the loss: %s", cli_runs(cli),
                 evidence.problem);
    if (st == OK) st = find_certificates(cli, facts, &certificates, e);
    if (st == OK) st = judge(s, facts, certificates, &measured, &evidence, a, e);
    if (st == OK) st = check_machine(cli, &s->own.runs[0], facts, code, e);
    if (st == OK) st = print(cli, a, &x, e);
    if (st == OK && !advice_best(a)) *code = EXIT_HARDWARE;
    if (st == OK) say_next(cli, s, a, given, *code == EXIT_OK);
    measured_free(&measured);
    evidence_free(&evidence);
    json_decref(certificates);
    free(given);
    free(a);
    return st;
}

static int cmd_advise(const struct cli *cli) {
    struct err e = { 0 };
    struct scripts scripts = { 0 };
    json_t *facts = NULL;
    int code = EXIT_OK;
    enum status st = resolve_all(cli, &scripts, &e);
    if (st == OK) st = find_facts(cli, &facts, &e);
    if (st == OK) st = advise(cli, &scripts, facts, &code, &e);
    if (st != OK) code = script_fail(cli, &scripts.own, &e);
    scripts_free(&scripts);
    json_decref(facts);
    return code;
}

static const struct flag FLAGS[] = {
    { "bench", "FILE", "steps of this machine (bench step --json), to forecast from", true },
    { "detail", NULL, "also a table: every recipe and why it is not first", false },
    { "facts", "FILE", "advise for the machine that FILE describes (hw --json)", false },
    { "set", "KEY=VALUE", "override a key: --set train.micro_batch=2", true },
    { "only", "NAME", "take the model of this row of a suite (* and ?)", true },
    { "smoke", NULL, "advise for the --smoke run instead", false },
    { "runs", "DIR", "runs whose losses count as evidence (default: runs)", false },
    { "lib", "DIR", "where require finds the shared presets", false },
};

const struct verb VERB_ADVISE = {
    .name = "advise",
    .arguments = "FILE.lua",
    .about = "which recipe suits this model on this machine",
    .more = "Five lines: the recipe to use, what runs here say about its loss, the recipes behind\n"
            "it, those that are excluded and why, and where the times come from. A recipe of the\n"
            "script keeps its options; the others have their defaults.\n"
            "The time of a step is forecast from steps that `bench step --json` measured on this\n"
            "machine, of any model; without them there are no times, and bf16 is advised. FP8 is\n"
            "advised only where it is forecast more than 10 % faster than bf16, fits, and no runs\n"
            "here show that its loss does not hold.\n"
            "Runs nothing. Exits with 3 if no recipe can run here, or if the machine does not\n"
            "match the hardware query.\n"
            SCRIPT_SET_FORMS,
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_advise,
};
