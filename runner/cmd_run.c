/* fp8lab run: checks the script, the machine and the data, then runs every row of it. */
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/bundle/kept.h"
#include "runner/bundle/run_view.h"
#include "runner/commands.h"
#include "runner/doctor/probe.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/hardware.h"
#include "runner/job/job_match.h"
#include "runner/job/job_members.h"
#include "runner/job/stop_grace.h"
#include "runner/launch/launch.h"
#include "runner/plan/backends.h"
#include "runner/plan/fit.h"
#include "runner/plan/keep.h"
#include "runner/record/choice_file.h"
#include "runner/record/image_record.h"
#include "runner/repro/extend.h"
#include "runner/run/close.h"
#include "runner/run/run_one.h"
#include "runner/run/sharing.h"
#include "runner/script/script_flags.h"

/* One row: what is to be run and what became of it. */
struct row {
    struct inputs inputs;
    json_t *mismatch; /* owned; NULL: the machine matches, or was not asked for */
    json_t *data_files; /* owned */
    struct run_outcome outcome;
    bool too_big;     /* for the memory of this machine, as far as that was asked */
    bool earlier;     /* not run: outcome is that of an earlier bundle with the same inputs */
    bool ended;       /* outcome is valid */
    struct row_state state; /* of a suite's row, as the folder of runs says */
};

struct command {
    const struct cli *cli;
    struct run_settings settings;
    struct extension extension; /* with --extend */
    struct resolution resolution;
    struct row *rows;
    json_t *overrides; /* owned: the texts of --set */
    int64_t ended; /* rows that have an outcome */
    int claim;     /* on the folder of runs, while a row is begun; -1 */
    json_t *facts;
    struct signals signals;
    struct job_members members; /* where a launcher started several tasks; this is task 0 */
};

/* ---- before anything runs ---------------------------------------------------------------------*/

/* With --extend: the script of the run that is extended, and its algorithms unless the user names
 * others. */
static enum status read_extended(struct command *c, struct err *e) {
    struct extension *x = &c->extension;
    if (cli_has(c->cli, "smoke") || cli_has(c->cli, "only") || cli_has(c->cli, "resume"))
        return FAIL(e, ERR_ARG, "--extend takes the script of the run: no --smoke, --only or "
                    "--resume");
    TRY(extension_open(c->cli, cli_value(c->cli, "extend"), c->settings.runs, x, e));
    c->resolution = x->resolution;
    x->resolution = (struct resolution){ 0 };
    c->overrides = json_incref(x->overrides);
    bool table = *x->source.choices && strcmp(c->settings.backend, "cpu") != 0;
    if (!c->settings.choices && table) c->settings.choices = x->source.choices;
    return OK;
}

static enum status resolve(struct command *c, struct err *e) {
    bool extends = cli_has(c->cli, "extend");
    TRY(extends ? read_extended(c, e) : script_resolve(c->cli, NULL, &c->resolution, e));
    c->rows = calloc((size_t)c->resolution.run_count + 1, sizeof *c->rows);
    bool failed = !c->rows;
    if (!extends) c->overrides = json_array();
    for (int64_t i = 0; i < cli_count(c->cli, "set") && !extends; i++)
        json_append(c->overrides, json_from_text(cli_nth(c->cli, "set", i)), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "%" PRId64 " runs", c->resolution.run_count) : OK;
}

/* Matches every row's hardware query. *matches is false where one does not and --anywhere is not
 * there: the explanation is printed. */
static enum status match_hardware(struct command *c, bool *matches, struct err *e) {
    bool anywhere = cli_has(c->cli, "anywhere");
    *matches = true;
    for (int64_t i = 0; i < c->resolution.run_count; i++) {
        const struct resolved_run *run = &c->resolution.runs[i];
        struct row *row = &c->rows[i];
        TRY(job_match(run->config_json, c->facts, c->settings.members, &row->mismatch, e));
        TRY(hardware_match_backend(run->config_json, c->facts,
                                   backend_without_gpu(c->settings.backend), &row->mismatch, e));
        bool said = i > 0 && json_equal(row->mismatch, c->rows[i - 1].mismatch);
        if (!row->mismatch || said) continue;
        char *text = hardware_mismatch_text(run->config_json, row->mismatch);
        if (anywhere) /* cli_note ends the last line */
            cli_note(c->cli, "%s: not the machine that the experiment asks for; run anyway "
                     "(--anywhere), and recorded\n%.*s", run->name,
                     text && *text ? (int)strlen(text) - 1 : 0, text ? text : "");
        else
            cli_warn(c->cli, "%s: this machine is not the one that the experiment asks for\n%s"
                     "--anywhere runs it regardless and records the mismatch", run->name,
                     text ? text : "");
        free(text);
        *matches = *matches && anywhere;
    }
    return OK;
}

/* Refuses, before anything runs, what this machine has no memory for; --anywhere tries it. */
static enum status check_memory(struct command *c, bool *fits, struct err *e) {
    bool anywhere = cli_has(c->cli, "anywhere");
    json_t *facts = NULL;
    enum status st = job_memory(c->facts, c->settings.members, &facts, e);
    *fits = true;
    for (int64_t i = 0; i < c->resolution.run_count && st == OK; i++) {
        struct fit fit;
        st = fit_plan(c->resolution.runs[i].config_json, facts, c->settings.backend, 0, &fit, e);
        if (st != OK) break;
        if (!fit.fits) {
            char text[FIT_TEXT_CAP];
            fit_refusal(c->resolution.runs[i].name, &fit, text);
            cli_warn(c->cli, "%s", text);
        }
        c->rows[i].too_big = !fit.fits;
        *fits = *fits && (fit.fits || anywhere);
        fit_free(&fit);
    }
    json_decref(facts);
    return st;
}

/* Nothing runs: this is not the machine. Under --json the rows and what each of them misses. */
static int refuse(const struct command *c) {
    json_t *rows = json_array();
    bool failed = false;
    for (int64_t i = 0; i < c->resolution.run_count; i++)
        json_append(rows, json_pack("{s:s,s:b,s:O?}", "name", c->resolution.runs[i].name, "too_big",
                                    c->rows[i].too_big, "mismatch", c->rows[i].mismatch), &failed);
    json_t *object = json_pack("{s:s,s:o}", "schema", "fp8lab.run_refused/1", "runs",
                               json_whole(rows, failed));
    if (c->cli->json) cli_out_json(c->cli, object);
    json_decref(object);
    image_hint(c->cli, c->facts, c->resolution.runs[0].config_json);
    if (c->cli->arg_count) script_next(c->cli, "run", true);
    return EXIT_HARDWARE;
}

static void note_smoke(const struct command *c) {
    if (!cli_has(c->cli, "smoke") || c->resolution.run_count == 0) return;
    const json_t *data = json_object_get(c->resolution.runs[0].config_json, "data");
    cli_note(c->cli, "a rehearsal%s: sizes and steps are shrunk, the numbers mean nothing",
             strcmp(json_text(data, "kind", ""), "synthetic") ? "" : " on synthetic data");
}

static enum status hash_inputs(struct command *c, struct err *e) {
    for (int64_t i = 0; i < c->resolution.run_count; i++) {
        const struct resolved_run *run = &c->resolution.runs[i];
        enum status st = inputs_hash(run->config_json, c->settings.data_root, &c->rows[i].inputs,
                                     &c->rows[i].data_files, e);
        if (st == ERR_IO) image_data_hint(run->config_json, e);
        if (st == OK && c->settings.choices)
            st = choice_file_hash(c->settings.choices, &c->rows[i].inputs, e);
        if (st == OK && cli_has(c->cli, "extend"))
            st = extension_inputs(&c->extension, c->cli, &c->rows[i].inputs, e);
        if (st != OK) {
            err_prefix(e, "%s", run->name);
            return st;
        }
    }
    return OK;
}

/* Runs with the same inputs count as this one: one that came to its end is not run again, one that
 * was stopped, killed, or failed for a lost peer goes on from its checkpoint. A row of a suite that
 * another process is running is waited for, an experiment alone is refused. */
static bool shares(const struct command *c) { return !cli_has(c->cli, "again"); }

static enum status find_earlier(struct command *c, struct err *e) {
    struct tree runs;
    if (!shares(c)) return OK;
    TRY(run_list(c->settings.runs, &runs, e));
    for (int64_t i = 0; i < runs.count; i++) {
        struct run_view view;
        if (run_view_load(runs.file[i].path, RUN_VIEW_BRIEF, &view, NULL) != OK) continue;
        for (int64_t r = 0; r < c->resolution.run_count; r++)
            if (inputs_asked(view.run, &c->rows[r].inputs))
                row_state_note(&c->rows[r].state, &view);
        run_view_free(&view);
    }
    tree_free(&runs);
    return OK;
}

/* Rows that are done already are asked, too: their checkpoints are there, or were taken away. */
static enum status say_kept(const struct command *c, struct err *e) {
    int64_t n = c->resolution.run_count;
    struct keep *keeps = calloc((size_t)n + 1, sizeof *keeps);
    enum status st = keeps ? OK : FAIL(e, ERR_MEMORY, "%" PRId64 " runs", n);
    for (int64_t i = 0; i < n && st == OK; i++)
        st = keep_plan(c->resolution.runs[i].config_json, c->resolution.smoke, &keeps[i], e);
    if (st == OK) keep_say(c->cli, keeps, n, false);
    free(keeps);
    return st;
}

/* ---- running ----------------------------------------------------------------------------------*/

static void print_number(const struct cli *cli, const json_t *summary, const char *key,
                         const char *format) {
    const json_t *value = json_object_get(summary, key);
    if (json_is_number(value)) cli_out(cli, format, json_number_value(value));
}

static void print_outcome(const struct cli *cli, const struct run_outcome *o) {
    struct run_view view;
    if (cli->json || run_view_load(o->bundle, RUN_VIEW_BRIEF, &view, NULL) != OK) return;
    cli_out(cli, "%s%s%s", cli_style(cli, o->exit_code == EXIT_OK ? "green" : "red"), o->status,
            cli_style(cli, NULL));
    print_number(cli, view.summary, "step_last", "  step %.0f");
    print_number(cli, view.summary, "loss_final", "  loss %.4f");
    print_number(cli, view.summary, "eval_loss_final", "  eval %.4f");
    print_number(cli, view.summary, "tokens_per_s_median", "  %.0f tokens/s");
    cli_out(cli, "  %s\n", o->bundle);
    run_view_free(&view);
}

static void take_earlier(struct command *c, int64_t i) {
    struct row *row = &c->rows[i];
    const struct row_state *s = &row->state;
    snprintf(row->outcome.id, sizeof row->outcome.id, "%s", s->id);
    snprintf(row->outcome.status, sizeof row->outcome.status, "%s", s->status);
    snprintf(row->outcome.bundle, sizeof row->outcome.bundle, "%s", s->path);
    if (kept_folder(row->outcome.checkpoints, s->path, NULL) != OK ||
        !path_is_directory(row->outcome.checkpoints))
        row->outcome.checkpoints[0] = '\0';
    row->earlier = row->ended = true;
    c->ended++;
    cli_note(c->cli, "%s: already run with these inputs, not run again (--again does): %s",
             c->resolution.runs[i].name, s->path);
    if (!c->resolution.suite) print_outcome(c->cli, &row->outcome); /* there is no comparison */
}

/* How a row stands now. Since the folder was last looked at, another process may have begun the
 * row, or left it behind. */
static enum status look_again(struct command *c, struct row *row, struct err *e) {
    struct row_state now;
    if (!shares(c) || row->state.kind == ROW_ENDED) return OK;
    TRY(claim_take(c->settings.runs, &c->claim, e));
    TRY(row_state_read(c->settings.runs, &row->inputs, &now, e));
    if (now.left_open) { /* without the claim, since packing may take long; then look once more */
        claim_drop(&c->claim);
        TRY(row_state_close_left(c->cli, c->settings.runs, &row->inputs, e));
        TRY(claim_take(c->settings.runs, &c->claim, e));
        TRY(row_state_read(c->settings.runs, &row->inputs, &now, e));
    }
    bool was_live = row->state.kind == ROW_RUNNING;
    if (now.kind != ROW_NEW || was_live) row->state = now;
    return OK;
}

/* An experiment alone is not run a second time beside itself. */
static enum status refuse_live(const char *name, const struct row_state *s, struct err *e) {
    char where[HOST_NAME_CAP + 16] = "", dead[PATH_CAP + 48] = "";
    if (s->writer.elsewhere) {
        snprintf(where, sizeof where, " on host %s", s->writer.host);
        snprintf(dead, sizeof dead, " (if it is dead: fp8lab close --force %s)", s->path);
    }
    return FAIL(e, ERR_STATE, "%s: process %" PRId64 "%s is already running it in %.256s; wait for "
                "it or stop it%.300s; --again starts a second run", name, s->writer.pid, where,
                s->path, dead);
}

/* What became of an earlier run, where a new one begins all the same. */
static void note_anew(const struct command *c, const char *name, const struct row_state *s) {
    if (!*s->path) return;
    cli_note(c->cli, "%s: an earlier run with these inputs ended as %s, so a new run begins at "
             "step 0; the earlier one: %s", name, s->status, s->path);
}

static void note_others(const struct command *c, const char *name, const struct row_state *s) {
    if (s->seen_locked)
        cli_note(c->cli, "%s: another process is running it, and is waited for at the end: %s",
                 name, s->path);
    else
        cli_note(c->cli, "%s: a process on another host is running it, as far as can be told from "
                 "here, and is waited for at the end (if it is dead: fp8lab close --force %s)",
                 name, s->path);
}

/* Runs a row, unless it has come to its end already, or another process is at it. */
static enum status run_row(struct command *c, int64_t i, struct err *e) {
    struct row *row = &c->rows[i];
    struct run_request request = { .resolution = &c->resolution, .run = &c->resolution.runs[i],
                                   .inputs = &row->inputs, .data_files = row->data_files,
                                   .overrides = c->overrides, .mismatch = row->mismatch };
    if (c->extension.beginning.step) {
        request.parent = c->extension.source.identity;
        request.beginning = &c->extension.beginning;
    }
    enum status st = look_again(c, row, e);
    if (st == OK && row->state.kind == ROW_ENDED) take_earlier(c, i);
    else if (st == OK && row->state.kind == ROW_RUNNING && !c->resolution.suite)
        st = refuse_live(request.run->name, &row->state, e);
    else if (st == OK && row->state.kind == ROW_RUNNING)
        note_others(c, request.run->name, &row->state);
    else if (st == OK) {
        bool resumes = row->state.kind == ROW_RESUMABLE;
        if (resumes) st = run_directory(c->cli, row->state.path, e);
        else note_anew(c, request.run->name, &row->state);
        if (st == OK)
            st = resumes ? run_resume(&c->settings, row->state.path, &row->outcome, e)
                         : run_one(&c->settings, &request, &row->outcome, e);
        row->ended = st == OK;
        c->ended += row->ended;
        if (row->ended) print_outcome(c->cli, &row->outcome);
    }
    claim_drop(&c->claim);
    return st;
}

/* Waits until one of the rows that other processes run is let go of; a signal that comes instead,
 * to whichever task, or 0. Before a run of our own, signals have their usual effect. */
static int await_others(struct command *c) {
    for (;;) {
        struct pollfd p = { .fd = c->signals.fd, .events = POLLIN };
        for (int64_t i = 0; i < c->resolution.run_count; i++)
            if (c->rows[i].state.kind == ROW_RUNNING && !c->rows[i].ended &&
                !row_state_is_running(&c->rows[i].state))
                return 0;
        (void)poll(&p, 1, 500);
        int asked = job_members_stop_signal(&c->members);
        if (asked) return asked;
        for (int signo; c->signals.fd >= 0 && (signo = signals_take(&c->signals)) != 0;)
            if (signo != SIGCHLD) return signo;
    }
}

/* Closes what other processes left. */
static enum status close_left(struct command *c, struct err *e) {
    for (int64_t i = 0; i < c->resolution.run_count; i++)
        if (c->rows[i].state.kind == ROW_RUNNING && !c->rows[i].ended)
            TRY(row_state_close_dead(&c->rows[i].state, e));
    close_dead_runs(c->cli, c->settings.runs);
    return OK;
}

/* Runs the rows in order; those that others are at stand back until they are done or left. A row
 * that fails does not stop the others; a signal or a system error does. Returns the first exit code
 * that is not 0. */
static int run_rows(struct command *c, struct err *e, enum status *st) {
    int code = EXIT_OK;
    for (;;) {
        for (int64_t i = 0; i < c->resolution.run_count; i++) {
            struct row *row = &c->rows[i];
            bool theirs = row->state.kind == ROW_RUNNING;
            if (row->ended || (theirs && row_state_is_running(&row->state))) continue;
            *st = run_row(c, i, e);
            if (*st != OK) return exit_code_of(*st);
            if (!row->ended || row->earlier) continue;
            if (code == EXIT_OK) code = row->outcome.exit_code;
            bool stop = row->outcome.exit_code > EXIT_SIGNAL ||
                        row->outcome.exit_code == EXIT_SYSTEM;
            if (stop) return code;
        }
        if (c->ended == c->resolution.run_count) return code;
        int signo = await_others(c);
        if (signo) return EXIT_SIGNAL + signo;
        *st = close_left(c, e);
        if (*st != OK) return exit_code_of(*st);
    }
}

/* ---- after ------------------------------------------------------------------------------------*/

static json_t *outcome_json(const char *name, const struct run_outcome *o, bool earlier) {
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:i,s:b,s:b}", "name", name, "id", o->id, "status",
                     o->status, "bundle", json_from_text(o->bundle), "checkpoints",
                     *o->checkpoints ? json_from_text(o->checkpoints) : json_null(), "exit_code",
                     o->exit_code, "resumable", o->resumable, "earlier", earlier);
}

/* Moves list. */
static void print_result(const struct cli *cli, json_t *list) {
    json_t *object = json_pack("{s:s,s:o}", "schema", "fp8lab.run_result/1", "runs", list);
    cli_out_json(cli, object);
    json_decref(object);
}

static void print_json(const struct command *c) {
    json_t *list = json_array();
    bool failed = false;
    for (int64_t i = 0; i < c->resolution.run_count; i++)
        if (c->rows[i].ended)
            json_append(list, outcome_json(c->resolution.runs[i].name, &c->rows[i].outcome,
                                           c->rows[i].earlier), &failed);
    print_result(c->cli, json_whole(list, failed));
}

static void suggest(const struct cli *cli, const struct run_outcome *o) {
    if (o->resumable && !o->fails_again)
        cli_next(cli, "run", "--resume", o->bundle, NULL);
    else cli_next(cli, path_is_directory(o->bundle) ? "close" : "show", o->bundle, NULL);
}

static void print_next(const struct command *c, int code) {
    if (c->resolution.suite && code > EXIT_SIGNAL) { /* the same again goes on where it stopped */
        script_next(c->cli, "run", false);
        return;
    }
    const struct run_outcome *last = NULL;
    for (int64_t i = 0; i < c->resolution.run_count; i++)
        if (c->rows[i].ended) last = &c->rows[i].outcome;
    if (last) suggest(c->cli, last);
}

/* A suite ends with the comparison of its rows: the verb itself, on their bundles. */
static void compare_rows(const struct command *c) {
    struct cli compare = *c->cli;
    const char **paths = calloc((size_t)c->ended + 1, sizeof *paths);
    if (!paths) return;
    compare.verb = &VERB_COMPARE;
    compare.args = paths;
    compare.arg_count = 0;
    compare.flag_count = 0;
    for (int64_t i = 0; i < c->resolution.run_count; i++)
        if (c->rows[i].ended) paths[compare.arg_count++] = c->rows[i].outcome.bundle;
    (void)VERB_COMPARE.run(&compare);
    free(paths);
}

static int finish(const struct command *c, int code) {
    if (c->cli->json) {
        print_json(c);
        return code;
    }
    bool stopped = code > EXIT_SIGNAL || code == EXIT_SYSTEM;
    if (c->resolution.suite && c->ended > 1 && !stopped) compare_rows(c);
    else print_next(c, code);
    return code;
}

/* ---- resume -----------------------------------------------------------------------------------*/

/* What only an open device tells, and what it reaches: from a child that is gone before the run. */
static enum status ask_device(struct command *c, struct err *e) {
    char problem[256] = "";
    if (!strcmp(c->settings.backend, "cpu")) return OK;
    TRY(probe_facts(c->facts, true, problem, sizeof problem, e));
    if (*problem) cli_warn(c->cli, "%s", problem);
    return OK;
}

static int resume(struct command *c) {
    struct err e = { 0 };
    char path[PATH_CAP];
    struct run_outcome outcome;
    enum status st = OK;
    if (c->cli->arg_count || cli_has(c->cli, "set") || cli_has(c->cli, "smoke"))
        st = FAIL(&e, ERR_ARG, "--resume goes on with a run as it is: no script, --set or --smoke");
    if (st == OK) st = run_locate(cli_value(c->cli, "resume"), c->settings.runs, path, &e);
    if (st == OK) st = run_directory(c->cli, path, &e);
    if (st == OK) st = ask_device(c, &e);
    if (st == OK) st = run_resume(&c->settings, path, &outcome, &e);
    if (st != OK) return cli_fail(c->cli, &e);
    if (c->cli->json)
        print_result(c->cli, json_pack("[o]", outcome_json(outcome.name, &outcome, false)));
    print_outcome(c->cli, &outcome);
    suggest(c->cli, &outcome);
    return outcome.exit_code;
}

/* ---- the verb ---------------------------------------------------------------------------------*/

static enum status read_settings(struct command *c, struct err *e) {
    const struct cli *cli = c->cli;
    struct run_settings *s = &c->settings;
    *s = (struct run_settings){
        .cli = cli, .signals = &c->signals, .facts = c->facts, .claim = &c->claim,
        .runs = cli_has(cli, "runs") ? cli_value(cli, "runs") : "runs",
        .backend = cli_has(cli, "backend") ? cli_value(cli, "backend") : "auto",
        .keep_directory = cli_has(cli, "keep-dir"),
        .caps = cli_has(cli, "caps") ? cli_value(cli, "caps") : NULL,
        .choices = cli_has(cli, "choices") ? cli_value(cli, "choices") : NULL,
        .data_root = cli_value(cli, "data-root"),
        .fewer_gpus = cli_has(cli, "fewer-gpus"),
        .members = c->members.task.count > 1 ? &c->members : NULL,
    };
    TRY(backend_check(s->backend, e));
    if (s->caps) TRY(backend_check_caps(s->backend, s->caps, e));
    TRY(stop_grace_read(&s->stop_grace_s, e));
    TRY(cli_int(cli, "threads", 1, 4096, &s->threads, e));
    TRY(cli_int(cli, "retries", 0, 1000, &s->retries, e));
    TRY(cli_int(cli, "ranks", 1, SUPERVISE_RANKS_MAX, &s->ranks, e));
    if (s->ranks && !cli_has(cli, "resume"))
        return FAIL(e, ERR_ARG, "--ranks is for --resume; how many ranks an experiment has is part "
                    "of it: --set hardware.gpus=%" PRId64, s->ranks);
    return cli_int(cli, "hang-after", 1, 1000000, &s->hang_s, e);
}

static int run_script(struct command *c) {
    struct err e = { 0 };
    bool matches = true;
    enum status st = OK;
    if (c->cli->arg_count == 0 && !cli_has(c->cli, "extend"))
        st = FAIL(&e, ERR_ARG, "missing argument: fp8lab run FILE.lua (or --resume RUN, or "
                  "--extend RUN)");
    if (c->cli->arg_count && cli_has(c->cli, "extend"))
        st = FAIL(&e, ERR_ARG, "--extend takes the script out of the run's bundle: no script "
                  "beside it");
    if (st == OK) st = resolve(c, &e);
    if (st == OK) st = ask_device(c, &e);
    if (st == OK) st = match_hardware(c, &matches, &e);
    if (st == OK && matches) st = check_memory(c, &matches, &e);
    if (st == OK && !matches) return refuse(c);
    if (st == OK && hash_inputs(c, &e) != OK) {
        (void)cli_fail(c->cli, &e); /* data that is missing or malformed is the user's to mend */
        return EXIT_USAGE;
    }
    if (st == OK) st = find_earlier(c, &e);
    if (st != OK) return cli_fail(c->cli, &e);
    note_smoke(c);
    st = say_kept(c, &e);
    if (st != OK) return cli_fail(c->cli, &e);
    if (c->extension.beginning.step) extension_say(&c->extension, c->cli);
    int code = run_rows(c, &e, &st);
    if (st != OK) return cli_fail(c->cli, &e);
    return finish(c, code);
}

static void tear_down(struct command *c) {
    for (int64_t i = 0; c->rows && i < c->resolution.run_count; i++) {
        json_decref(c->rows[i].mismatch);
        json_decref(c->rows[i].data_files);
    }
    free(c->rows);
    json_decref(c->overrides);
    resolution_destroy(&c->resolution);
    extension_close(&c->extension);
    json_decref(c->facts);
    signals_close(&c->signals);
}

/* What a runner does that leads, be it alone. */
static int lead(struct command *c, const struct task *task, const char *runs, int64_t wait_s) {
    struct err e = { 0 };
    enum status st = job_members_gather(c->cli, task, runs, wait_s, c->facts, &c->members, &e);
    if (st == OK) st = read_settings(c, &e);
    if (st == OK && strcmp(c->settings.backend, "cpu") != 0)
        st = job_places(c->facts, c->settings.members, &e);
    int code = EXIT_OK;
    if (st != OK) {
        code = cli_fail(c->cli, &e);
        if (c->members.stopped_by) code = EXIT_SIGNAL + c->members.stopped_by;
    } else {
        /* A run that is to go on is not closed first: without a checkpoint it would be gone. */
        if (!cli_has(c->cli, "resume")) close_dead_runs(c->cli, c->settings.runs);
        code = cli_has(c->cli, "resume") ? resume(c) : run_script(c);
    }
    job_members_release(&c->members, code);
    return code;
}

static const char *variable(const char *name) { return getenv(name); }

static int cmd_run(const struct cli *cli) {
    struct command c = { .cli = cli, .signals = { .fd = -1 }, .claim = -1 };
    struct task task;
    struct err e = { 0 };
    char problem[256] = "";
    int64_t wait_s = JOB_WAIT_S;
    if (cli_has(cli, "launch")) return launch_run(cli);
    const char *runs = cli_has(cli, "runs") ? cli_value(cli, "runs") : "runs";
    enum status st = launch_check_flags(cli, &e);
    if (st == OK) st = cli_int(cli, "tasks-within", 1, 86400, &wait_s, &e);
    if (st == OK) st = task_find(variable, &task, &e);
    if (st == OK) st = facts_gather(&c.facts, problem, sizeof problem, &e);
    if (st == OK && *problem) cli_warn(cli, "%s", problem);
    int code;
    if (st != OK) code = cli_fail(cli, &e);
    else if (task.index > 0) code = job_follow(cli, &task, runs, wait_s, c.facts);
    else code = lead(&c, &task, runs, wait_s);
    tear_down(&c);
    return code;
}

static const struct flag FLAGS[] = {
    { "set", "KEY=VALUE", "override a key: --set train.steps=20", true },
    { "only", "NAME", "of a suite only rows of this name (* and ?)", true },
    { "smoke", NULL, "shrink sizes and steps for a rehearsal on a CPU", false },
    { "anywhere", NULL, "run even where the hardware does not match; recorded", false },
    { "backend", "NAME", "auto (default), cpu or cuda", false },
    { "caps", "ARCH", "emulate what a GPU of ARCH (sm_121) lacks, for tests", false },
    { "choices", "FILE", "algorithms of a run: its choices.txt or a checkpoint; or none", false },
    { "data-root", "DIR", "where paths of data count from (default: here)", false },
    { "threads", "N", "threads of the cpu backend (default: all processors)", false },
    { "runs", "DIR", "where runs are written (default: runs)", false },
    { "resume", "RUN", "go on with an interrupted run from its checkpoint", false },
    { "extend", "RUN", "more steps of a done run, as a new one: --set train.steps=N", false },
    { "tasks-within", "SECONDS", "wait so long for a launcher's tasks (default: 300)", false },
    { "fewer-gpus", NULL, "a retry may leave out the GPU or host that failed", false },
    { "ranks", "N", "with --resume: go on with so many, not hardware.gpus", false },
    { "retries", "N", "new attempts after a worker died or hung (default: 0)", false },
    { "hang-after", "SECONDS", "silence that counts as a hang (default: see above)", false },
    { "again", NULL, "run it again, though a run with these inputs is there", false },
    { "keep-dir", NULL, "keep the run's directory beside its bundle", false },
    { "lib", "DIR", "where require finds the shared presets", false },
    { "image", "IMAGE", "with --launch: this image, not the experiment's; none: srun", false },
    LAUNCH_FLAGS,
};

const struct verb VERB_RUN = {
    .name = "run",
    .arguments = "FILE.lua | --resume RUN | --extend RUN",
    .about = "run an experiment and bundle what it did",
    .more = "Writes runs/<run-id>/ while it goes on and runs/<run-id>.tar.zst however it ends.\n"
            "The same command again goes on with a run that was stopped, names one that is done.\n"
            "A suite runs row by row, shares its rows with the same command started elsewhere,\n"
            "and ends with their comparison. SIGTERM and Ctrl-C:\n"
            "checkpoint, bundle, exit 128+N; a second one leaves at once. A worker counts as\n"
            "hung after 10 minutes, or 20 times its longest silence, without an event; after an\n"
            "hour before its first step.\n"
            "--extend begins a new run at the last checkpoint that RUN kept, with the schedule of\n"
            "the new train.steps; it says where RUN's learning rates were other ones.\n"
            "--launch starts the same command in the experiment's image, or, where it names none,\n"
            "in that of `make image`; folders have the same path inside (containers/README.md).\n",
    VERB_FLAGS(FLAGS),
    .args_min = 0,
    .args_max = 1,
    .run = cmd_run,
};
