/* fp8lab repro: repeats the run of a bundle. repro/repro_verdict.h judges it, repro_report.h prints
 * the verdict. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/build_info.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/cache/cache_key.h"
#include "runner/bundle/run_pick.h"
#include "runner/commands.h"
#include "runner/doctor/probe.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/hardware.h"
#include "runner/job/stop_grace.h"
#include "runner/job/task.h"
#include "runner/launch/launch.h"
#include "runner/named_run.h"
#include "runner/plan/backends.h"
#include "runner/plan/fit.h"
#include "runner/record/choice_file.h"
#include "runner/record/ingest_record.h"
#include "runner/repro/repro_config.h"
#include "runner/repro/repro_data.h"
#include "runner/repro/repro_launch.h"
#include "runner/repro/repro_patch.h"
#include "runner/repro/repro_source.h"
#include "runner/repro/repro_speed.h"
#include "runner/repro/repro_tokens.h"
#include "runner/repro/repro_verdict.h"
#include "runner/repro_report.h"
#include "runner/run/init_from.h"
#include "runner/run/run_one.h"
#include "runner/run/starting.h"
#include "runner/run/tuning.h"

struct command {
    const struct cli *cli;
    struct repro_source source;
    struct run_settings settings;
    struct choice_cache cache;
    struct start_clock start;
    struct inputs inputs;
    json_t *data_files, *init, *facts, *mismatch, *forbidden; /* owned */
    struct cache_entry tokens;                   /* of text with a tokenizer */
    char data_root[PATH_CAP];
    struct seed_band band;
    double speed; /* how much slower it may be, as a share; NaN: not asked */
    struct signals signals;
    struct run_outcome outcome;
};

/* ---- before it runs -------------------------------------------------------------------------- */

/* Each check returns OK; it fills `why` if this machine cannot repeat the run. */
enum { WHY_CAP = 8192 };

/* A run that failed before its first step has nothing to compare with, one of fewer steps than are
 * asked for too little. */
static enum status check_steps(struct command *c, char why[WHY_CAP], struct err *e) {
    const struct run_view *view = &c->source.view;
    const char *error = json_text(json_object_get(view->run, "error"), "text", "");
    const struct columns *train = view->columns.of[STREAM_TRAIN];
    int64_t rows = train ? train->rows : 0;
    if (rows && c->settings.only_steps > rows)
        snprintf(why, WHY_CAP, "the bundle holds %" PRId64 " steps, and --steps asks for %" PRId64
                 ": ask for fewer, or leave it out", rows, c->settings.only_steps);
    if (!rows)
        snprintf(why, WHY_CAP, "the bundle holds no step to compare with: its run ended as "
                 "%.40s%s%.400s", json_text(view->run, "status", "?"), *error ? ": " : "", error);
    return OK;
}

/* A run that extends another begins with its checkpoint, which a script cannot make. */
static enum status check_beginning(struct command *c, char why[WHY_CAP], struct err *e) {
    const json_t *extends = json_object_get(c->source.view.run, "extends");
    if (!json_is_object(extends)) return OK;
    const char *id = json_text(extends, "run", "its parent");
    int64_t steps = json_int(json_object_get(c->source.view.resolved, "train"), "steps");
    snprintf(why, WHY_CAP, "the bundle's run extends %.160s from step %" PRId64 ": its script "
             "alone cannot repeat it. Three commands can: fp8lab repro %.160s; fp8lab run --extend "
             "%.160s --set train.steps=%" PRId64 "; fp8lab compare --assert-equal of both runs", id,
             json_int(extends, "step"), id, id, steps);
    return OK;
}

/* Adds facts that need a CUDA context, such as library versions; the new bundle records them. */
static enum status ask_device(struct command *c, char why[WHY_CAP], struct err *e) {
    const char *then = json_text(c->source.view.decisions, "backend", "auto");
    const char *asked = cli_value(c->cli, "backend");
    char problem[256] = "";
    if (!strcmp(asked ? asked : then, "cpu")) return OK;
    TRY(probe_facts(c->facts, true, problem, sizeof problem, e));
    if (*problem) cli_warn(c->cli, "%s", problem);
    return OK;
}

static enum status check_hardware(struct command *c, char why[WHY_CAP], struct err *e) {
    const json_t *config = c->source.run->config_json;
    TRY(hardware_match(config, c->facts, &c->mismatch, e));
    if (!c->mismatch) return OK;
    char *text = hardware_mismatch_text(config, c->mismatch);
    bool likewise = json_array_size(json_object_get(c->source.view.run, "mismatch")) > 0;
    if (cli_has(c->cli, "anywhere")) /* cli_note adds the last newline */
        cli_note(c->cli, "not the machine that the experiment asks for; run anyway (--anywhere), "
                 "and recorded\n%.*s", text && *text ? (int)strlen(text) - 1 : 0,
                 text ? text : "");
    else
        snprintf(why, WHY_CAP, "this machine is not the one that the experiment asks for\n%s%s",
                 text ? text : "",
                 likewise ? "the bundle's run did not match either, and was made with "
                            "--anywhere: give it here, too"
                          : "--anywhere runs it regardless and records the mismatch");
    free(text);
    return OK;
}

/* Chooses the backend of the bundle's run, unless the user names another. */
static enum status choose_backend(struct command *c, char why[WHY_CAP], struct err *e) {
    const char *then = json_text(c->source.view.decisions, "backend", "auto");
    const char *asked = cli_value(c->cli, "backend");
    c->settings.backend = asked ? asked : then;
    if (asked) return backend_check(asked, e);
    bool cuda = !strcmp(then, "cuda");
    if (backend_check(then, e) == OK && (!cuda || access("/dev/nvidiactl", F_OK) == 0)) return OK;
    const json_t *train = json_object_get(c->source.view.resolved, "train");
    bool exact = json_is_true(json_object_get(train, "exact"));
    snprintf(why, WHY_CAP, "the bundle's run used the backend %.40s (%.80s), which this machine "
             "does not have; --backend cpu compares %s", then,
             json_text(c->source.view.decisions, "device", "?"),
             exact ? "every bit, since the run is exact" : "the losses only");
    return OK;
}

/* Finds the data, or the tokens of a text, by content. */
static enum status stage_data(struct command *c, char **missing, struct err *e) {
    const struct repro_source *s = &c->source;
    const char *folder = cli_value(c->cli, "data");
    char cache[PATH_CAP];
    if (cache_is_needed(s->run->config_json)) {
        TRY(cache_folder(cache, c->settings.cache, c->settings.runs, e));
        return repro_find_tokens(c->cli, s, folder, cache, &c->tokens, missing, e);
    }
    TRY(repro_stage_data(s, s->data_files, "data", folder, c->data_root, missing, e));
    c->settings.data_root = c->data_root;
    return OK;
}

/* Finds the data by content and hashes the inputs. Files that the bundle does not list with size
 * and hash are not read: a foreign script may name any file of this machine. */
static enum status find_data(struct command *c, char why[WHY_CAP], struct err *e) {
    const struct repro_source *s = &c->source;
    char *missing = NULL;
    const char *kind = json_text(json_object_get(s->run->config_json, "data"), "kind", "");
    if (json_array_size(s->data_files) == 0 && strcmp(kind, "synthetic") != 0) {
        snprintf(why, WHY_CAP, "the bundle lists no file of its data (data/experiment/data.json), "
                 "so its data cannot be found");
        return OK;
    }
    TRY(stage_data(c, &missing, e));
    if (missing) {
        snprintf(why, WHY_CAP, "the bundle's data are not here; --data DIR finds them by content "
                 "in a folder:\n%.7000s", missing);
        why[strlen(why) - 1] = '\0'; /* the last line's end */
        free(missing);
        return OK;
    }
    struct err bad = { 0 };
    if (inputs_hash(s->run->config_json, c->settings.data_root,
                    c->tokens.record, &c->inputs, &c->data_files, &bad) != OK) {
        snprintf(why, WHY_CAP, "the bundle's data: %s", bad.text);
        return OK;
    }
    const json_t *inputs = json_object_get(s->view.run, "inputs");
    const char *then = json_text(inputs, "data", "?");
    if (strcmp(then, c->inputs.data) != 0)
        snprintf(why, WHY_CAP, "the data are not the bundle's: their hash is %.12s, its %.12s",
                 c->inputs.data, then);
    else if (!inputs_same_sets(&c->inputs, inputs))
        snprintf(why, WHY_CAP, "the sets of eval.also are not the bundle's: their hashes differ");
    return OK;
}

static enum status check_init(struct command *c, char why[WHY_CAP], struct err *e) {
    const char *init = cli_value(c->cli, "init");
    if (!init || json_object_get(c->source.run->config_json, "init")) return OK;
    return FAIL(e, ERR_ARG, "--init %.200s: the run of %s begins with random weights and reads "
                "none: leave out --init", init, c->source.bundle);
}

/* Takes the weights at `path`, or fills `why`. */
static void take_weights(struct command *c, const char *path, const char *cache,
                         char why[WHY_CAP]) {
    const char *sha256 = json_text(c->source.view.init, "sha256", "?");
    const struct init_request q = { .config = c->source.run->config_json, .instead = path,
                                    .runs = c->settings.runs, .cache = cache };
    json_t *record = NULL;
    struct err bad = { 0 };
    *why = '\0';
    if (init_take(&q, &record, &bad) != OK)
        snprintf(why, WHY_CAP, "the initial weights: %s", bad.text);
    else if (strcmp(json_text(record, "sha256", ""), sha256) != 0)
        snprintf(why, WHY_CAP, "%.200s has other weights than those that the bundle's run began "
                 "with: their hash is %.12s, its %.12s", path, json_text(record, "sha256", ""),
                 sha256);
    if (*why) json_decref(record);
    else c->init = record;
}

/* Finds the initial weights and compares them: in --init; else where the bundle's run read them,
 * then at the script's own path or run id from here, since a project may have been moved. */
static enum status find_weights(struct command *c, char why[WHY_CAP], struct err *e) {
    const json_t *then = c->source.view.init;
    const json_t *asked = json_object_get(c->source.run->config_json, "init");
    const char *only = cli_value(c->cli, "init"), *sha256 = json_text(then, "sha256", "?");
    const char *own = json_text(asked, "from", ""), *place = json_text(then, "path", "");
    char cache[PATH_CAP], elsewhere[WHY_CAP];
    if (!asked) return OK;
    if (only) place = only;
    TRY(cache_folder(cache, c->settings.cache, c->settings.runs, e));
    if (path_exists(place)) take_weights(c, place, cache, why);
    if (!c->init && !only) {
        take_weights(c, own, cache, elsewhere);
        if (c->init || (!*why && path_exists(own))) memcpy(why, elsewhere, WHY_CAP);
    }
    if (!c->init && !*why)
        snprintf(why, WHY_CAP, "the run begins with weights that are not here (%.200s%s%.200s, "
                 "hash %.12s); --init DIR names a folder that has them", place,
                 only ? "" : ", in the script ", only ? "" : own, sha256);
    return *why ? OK : inputs_begin_with(&c->inputs, sha256, e);
}

static enum status check_memory(struct command *c, char why[WHY_CAP], struct err *e) {
    struct fit fit;
    TRY(fit_plan(c->source.run->config_json, c->facts, c->settings.backend, 0, &fit, e));
    char text[FIT_TEXT_CAP];
    *fit.less_memory = '\0'; /* no way out: another configuration is another run */
    fit_refusal("the run", &fit, text);
    if (!fit.fits && !cli_has(c->cli, "anywhere"))
        snprintf(why, WHY_CAP, "%s; --anywhere tries it", text);
    fit_free(&fit);
    return OK;
}

/* Whether the bundle's run took a GPU's exact operators: only a Hopper has them. */
static bool is_exact(const struct repro_source *s) {
    const json_t *train = json_object_get(s->run->config_json, "train");
    return json_is_true(json_object_get(train, "exact")) &&
           !strcmp(json_text(s->view.decisions, "backend", ""), "cuda");
}

/* The cpu backend calculates as the bundle's run did, unless the user names another arithmetic. */
static enum status take_arithmetic(struct command *c, struct err *e) {
    const char **out = &c->settings.arithmetic, *asked = cli_value(c->cli, "arithmetic");
    const json_t *inputs = json_object_get(c->source.view.run, "inputs");
    if (!asked && !strcmp(c->settings.backend, "cpu"))
        asked = json_text(inputs, "arithmetic", is_exact(&c->source) ? "hopper" : NULL);
    TRY(backend_arithmetic(c->settings.backend, asked, out, e));
    return *out ? inputs_calculate(&c->inputs, *out, e) : OK;
}

/* The ways that the bundle's run did not use: none, if its program made no certificates. */
static enum status take_forbidden(struct command *c, struct err *e) {
    const json_t *then = json_object_get(c->source.view.run, "forbidden");
    if (!strcmp(json_text(c->source.view.decisions, "backend", "cpu"), "cpu")) return OK;
    c->forbidden = json_is_array(then) ? json_incref((json_t *)then) : json_array();
    c->settings.forbidden = c->forbidden;
    return c->forbidden ? OK : FAIL(e, ERR_MEMORY, "the ways that the bundle's run did not use");
}

/* A backend on a device uses the bundle's choice table as an input, if it fits. */
static enum status take_choices(struct command *c, struct err *e) {
    const struct repro_source *s = &c->source;
    const char *caps = json_text(s->view.decisions, "caps", NULL);
    c->settings.caps = caps && !strcmp(c->settings.backend, "cuda") ? caps : NULL;
    TRY(take_arithmetic(c, e));
    TRY(take_forbidden(c, e));
    if (!*s->choices || !strcmp(c->settings.backend, "cpu")) return OK;
    c->settings.choices = s->choices;
    c->settings.choose_anew = true;
    return choice_file_hash(s->choices, &c->inputs, e);
}

/* A band that only lies beside the bundle came with it, perhaps from a stranger. */
static enum status read_band(struct command *c, struct err *e) {
    const char *named = cli_value(c->cli, "band");
    char path[PATH_CAP];
    TRY(seed_band_path(c->source.bundle, path, e));
    if (!named && !path_exists(path)) return OK;
    TRY(seed_band_read(named ? named : path, c->source.identity,
                       c->source.view.columns.of[STREAM_TRAIN], &c->band, e));
    c->band.found = !named;
    return OK;
}

/* Prints the first keys of a list. */
static void say_keys(const struct cli *cli, const json_t *keys, const char *about) {
    enum { SHOWN = 6 };
    struct text list = { 0 };
    const json_t *key;
    size_t i;
    json_array_foreach(keys, i, key) {
        if (i == SHOWN) text_puts(&list, ", ...");
        if (i >= SHOWN) break;
        text_puts(&list, i ? ", " : "");
        text_puts(&list, json_string_value(key));
    }
    if (i && !list.failed) cli_note(cli, "%s: %s", about, plain_text(list.bytes));
    text_free(&list);
}

/* Prints the differences that are known before the run. */
static enum status say_plan(const struct command *c, struct err *e) {
    const struct repro_source *s = &c->source;
    const char *code = json_text(json_object_get(s->view.run, "inputs"), "code", "?");
    cli_note(c->cli, "repeating %s of bundle %.12s", s->run->name, s->identity);
    if (strcmp(code, build_info().code_sha256) != 0)
        cli_note(c->cli, "this program's sources are %.12s, those of the bundle's run %.12s",
                 build_info().code_sha256, code);
    struct config_change change;
    enum status st = config_change_find(s->view.resolved, s->run->config_json, &change, e);
    if (st == OK) {
        say_keys(c->cli, change.newer, "keys newer than the bundle, at their defaults");
        say_keys(c->cli, change.changed, "the script resolves to another configuration here than "
                 "in the bundle");
    }
    config_change_free(&change);
    return st;
}

/* ---- the run --------------------------------------------------------------------------------- */

static enum status judge(struct command *c, int *code, struct err *e) {
    const char *paths[2] = { c->source.bundle, c->outcome.bundle };
    struct comparison comparison = { 0 };
    struct repro_verdict verdict = { 0 };
    struct repro_speed speed = { 0 };
    enum status st = compare_runs(paths, 2, NULL, &comparison, e);
    if (st == OK) st = repro_judge(&comparison, &c->band, c->settings.only_steps,
                                  &verdict, e);
    if (st == OK)
        st = repro_speed_judge(&comparison.run[0], &comparison.run[1],
                               verdict.kind != REPRO_INCOMPARABLE, c->speed, &speed, e);
    if (st == OK) {
        *code = repro_exit_code(verdict.kind, cli_has(c->cli, "exact"));
        *code = repro_speed_exit_code(&speed, *code);
        repro_report(c->cli, &c->source, &c->outcome, &verdict, &speed, *code);
        cli_next(c->cli, "compare", paths[0], paths[1], NULL);
    }
    repro_speed_free(&speed);
    repro_verdict_free(&verdict);
    compare_free(&comparison);
    return st;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static enum status read_settings(struct command *c, struct err *e) {
    const struct cli *cli = c->cli;
    c->settings = (struct run_settings){
        .cli = cli, .signals = &c->signals, .facts = c->facts, .start = &c->start,
        .runs = cli_runs(cli), .cache = cli_value(cli, "cache"),
        .keep_directory = cli_has(cli, "keep-dir"),
    };
    TRY(repro_speed_band(cli_value(cli, "speed"), &c->speed, e));
    TRY(stop_grace_read(&c->settings.stop_grace_s, e));
    TRY(cli_int(cli, "steps", 1, INT64_MAX, &c->settings.only_steps, e));
    return cli_int(cli, "threads", 1, 4096, &c->settings.threads, e);
}

static enum status prepare(struct command *c, char why[WHY_CAP], struct err *e) {
    start_clock_lap(&c->start, START_REST);
    char path[PATH_CAP];
    TRY(named_run(c->cli, c->cli->args[0], RUNS_ORIGINAL, path, e));
    TRY(repro_open(path, c->settings.runs, &c->source, e));
    start_clock_lap(&c->start, START_SCRIPT);
    TRY(read_band(c, e));
    enum status (*const checks[])(struct command *, char *, struct err *) = {
        check_steps,    check_beginning, check_init, ask_device,   check_hardware,
        choose_backend, check_memory,    find_data,  find_weights,
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !*why; i++) {
        TRY(checks[i](c, why, e));
        start_clock_lap(&c->start, checks[i] == ask_device ? START_PROBE
                                   : checks[i] == find_data || checks[i] == find_weights
                                         ? START_DATA : START_REST);
    }
    TRY(*why ? OK : take_choices(c, e));
    return *why ? OK : tuning_settings(&c->settings, &c->cache, e);
}

/* Runs. After a signal or a failure there is no verdict, unless the bundle's run failed too. */
static enum status run_again(struct command *c, int *code, struct err *e) {
    const struct repro_source *s = &c->source;
    char kept[PATH_CAP];
    TRY(path_join(kept, s->work, "bundle/" INGEST_FOLDER, e));
    struct run_request request = {
        .kept = kept, .resolution = &s->resolution, .run = s->run, .inputs = &c->inputs,
        .data_files = c->data_files, .init = c->init, .overrides = s->overrides,
        .mismatch = c->mismatch,
        .tokens = c->tokens.record ? &c->tokens : NULL,
        .parent = s->identity,
    };
    TRY(run_one(&c->settings, &request, &c->outcome, e));
    bool failed_then = !strcmp(json_text(s->view.run, "status", ""), "failed");
    bool judged = c->outcome.exit_code == EXIT_OK ||
                  (failed_then && !strcmp(c->outcome.status, "failed"));
    if (judged) return judge(c, code, e);
    *code = c->outcome.exit_code;
    cli_warn(c->cli, "the run ended as %s: there is no verdict (%s)", c->outcome.status,
             c->outcome.bundle);
    return OK;
}

/* Verifies the bundle and resolves its script here. The rest runs elsewhere: this program in a
 * container (--launch), or the program that made the bundle (--patch). */
static int delegate(const struct cli *cli) {
    struct repro_source source = { 0 };
    struct err e = { 0 };
    const char *runs = cli_runs(cli), *tree = cli_value(cli, "patch");
    char path[PATH_CAP];
    int code = EXIT_OK;
    enum status st = named_run(cli, cli->args[0], RUNS_ORIGINAL, path, &e);
    if (st == OK) st = repro_open(path, runs, &source, &e);
    if (st == OK && tree) st = repro_patched(cli, &source, tree, &code, &e);
    else if (st == OK) code = repro_launch(cli, &source, runs);
    if (st != OK) code = cli_fail(cli, &e);
    repro_close(&source);
    return code;
}

static enum status check_flags(const struct cli *cli, struct err *e) {
    if (cli_has(cli, "launch") && cli_has(cli, "patch"))
        return FAIL(e, ERR_ARG, "--patch builds a program here, --launch starts one elsewhere: "
                    "give one of them");
    if (cli_has(cli, "mount") && !cli_has(cli, "launch"))
        return FAIL(e, ERR_ARG, "--mount needs --launch docker, podman, apptainer or srun");
    return launch_check_flags(cli, e);
}

static const char *variable(const char *name) { return getenv(name); }

/* Refuses to run as one of several tasks: each would repeat the whole run on the same GPUs. */
static enum status check_alone(struct err *e) {
    struct task task;
    TRY(task_find(variable, &task, e));
    if (task.count == 1) return OK;
    return FAIL(e, ERR_CONFIG, "%s started %" PRId64 " tasks, but repro is one process that "
                "starts all ranks on its host: start it once. Without a launcher, unset %s and %s",
                task.launcher, task.count, task.index_name, task.count_name);
}

static int cmd_repro(const struct cli *cli) {
    struct command c = { .cli = cli, .signals = { .fd = -1 } };
    struct err e = { 0 };
    char problem[256] = "", why[WHY_CAP] = "";
    int code = EXIT_OK;
    if (check_flags(cli, &e) != OK || check_alone(&e) != OK) return cli_fail(cli, &e);
    if (cli_has(cli, "launch") || cli_has(cli, "patch")) return delegate(cli);
    start_clock_begin(&c.start, "the command");
    enum status st = facts_gather(&c.facts, problem, sizeof problem, &e);
    start_clock_lap(&c.start, START_PROBE);
    if (st == OK && *problem) cli_warn(cli, "%s", problem);
    if (st == OK) st = read_settings(&c, &e);
    if (st == OK) st = prepare(&c, why, &e);
    if (st == OK && *why) code = repro_report_refusal(cli, &c.source, why);
    if (st == OK && !*why) {
        st = say_plan(&c, &e);
        if (st == OK) st = run_again(&c, &code, &e);
    }
    if (st != OK) code = cli_fail(cli, &e);
    if (c.signals.stopped_by) code = EXIT_SIGNAL + c.signals.stopped_by;
    repro_close(&c.source);
    seed_band_free(&c.band);
    choice_cache_close(&c.cache);
    cache_entry_free(&c.tokens);
    json_decref(c.data_files);
    json_decref(c.init);
    json_decref(c.mismatch);
    json_decref(c.forbidden);
    json_decref(c.facts);
    signals_close(&c.signals);
    return code;
}

static const struct flag FLAGS[] = {
    { "exact", NULL, "exit 5 unless the bits are equal", false },
    { "speed", "P%", "exit 5 if it is more than P % slower than the bundle's run", false },
    { "steps", "N", "repeat and compare only the first N steps", false },
    { "backend", "NAME", "cpu or cuda (default: what the bundle's run used)", false },
    { "arithmetic", "NAME", "of the cpu backend (default: what the bundle's run used)", false },
    { "data", "DIR", "also look for the data files here, by content", false },
    { "init", "DIR", "the initial weights, if they have moved", false },
    { "cache", "DIR", "keeps tokens of text (default: RUNS/cache) and GPU choices", false },
    { "band", "FILE", "seed band of the bundle (default: X.band.json beside it,\n"
      "unless equal bits were promised)", false },
    { "anywhere", NULL, "run even if the hardware does not match; the run records this", false },
    { "runs", "DIR", "where runs are found, and the new one is written (default: runs)", false },
    { "threads", "N", "threads of the cpu backend (default: all processors)", false },
    { "keep-dir", NULL, "keep the run's directory beside its bundle", false },
    { "patch", "TREE", "build the bundle's program: its commit of TREE and patch", false },
    { "image", NULL, "with --launch: use the image that the bundle names", false },
    { "mount", NULL, "with --launch: mount the data folders that it names", false },
    LAUNCH_FLAGS,
};

const struct verb VERB_REPRO = {
    .name = "repro",
    .arguments = "RUN",
    .about = "repeat the run of a bundle and compare the bits",
    .more = RUN_FORMS
            "Here last and the like ignore runs that repro made, so repro last repeats the same\n"
            "run again. Name a run that repro made by its id.\n"
            "Script, overrides and choice table come from the bundle; data are found by content.\n"
            "No image of the bundle is started, no folder mounted and no patch applied unless\n"
            "--image, --mount or --patch says so. The verdict:\n"
            "  bitwise equal     every loss, norm, scale, fingerprint and weight (exit 0)\n"
            "  within tolerance  each step's loss within the larger of 0.1 % and three seed\n"
            "                    bands of the reference (exit 0; with --exact 5)\n"
            "  different         exit 5; the first step and tensor that differ are named\n"
            "  not comparable    exit 3: other hardware, data or configuration, fewer steps\n"
            "speed: of the same steady steps, if GPU, number of GPUs, backend and configuration\n"
            "are the bundle's. With --speed also exit 3 if it cannot be compared.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_repro,
};
