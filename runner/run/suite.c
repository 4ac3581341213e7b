#include "runner/run/suite.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/plain_text.h"
#include "runner/base/signals.h"
#include "runner/bundle/kept.h"
#include "runner/job/job_members.h"
#include "runner/run/close.h"
#include "runner/run/outcome.h"

enum { POLL_MS = 500 };

enum status suite_init(struct suite *s, struct err *e) {
    int64_t n = s->resolution->run_count;
    s->rows = calloc((size_t)n + 1, sizeof *s->rows);
    return s->rows ? OK : FAIL(e, ERR_MEMORY, "%" PRId64 " runs", n);
}

void suite_free(struct suite *s) {
    for (int64_t i = 0; s->rows && i < s->resolution->run_count; i++) {
        json_decref(s->rows[i].mismatch);
        json_decref(s->rows[i].data_files);
        json_decref(s->rows[i].init);
        cache_entry_free(&s->rows[i].tokens);
    }
    known_data_free(&s->known_data);
    free(s->rows);
    s->rows = NULL;
}

/* Whether a configuration with the hash in run.json lies in the run: run.json of a foreign bundle
 * may have the hash of another one. */
static bool inputs_are_right(const struct suite *s, const char *path) {
    struct run_view view;
    struct err why = { 0 };
    if (run_view_load(path, RUN_VIEW_INPUTS, &view, &why) != OK) {
        cli_warn(s->settings->cli, "not taken for an earlier run: %s", why.text);
        return false;
    }
    run_view_free(&view);
    return true;
}

/* The runs that stand for other repeats of the row, as row_state_read() takes them. A row with
 * `path` but ROW_NEW begins anew: its path is no run of it. NULL: no memory. */
static json_t *taken_runs(const struct suite *s, const struct suite_row *row) {
    json_t *taken = json_object();
    bool failed = false;
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        const struct suite_row *other = &s->rows[i];
        char stem[PATH_CAP];
        bool known = other->ended || other->state.kind != ROW_NEW;
        if (other == row || !known || strcmp(other->inputs.all, row->inputs.all) != 0) continue;
        run_stem(stem, other->ended ? other->outcome.bundle : other->state.path);
        json_put(taken, stem, json_true(), &failed);
    }
    return json_whole(taken, failed);
}

static enum status read_state(const struct suite *s, const struct suite_row *row,
                              struct row_state *out, struct err *e) {
    json_t *taken = taken_runs(s, row);
    enum status st = taken ? row_state_read(s->settings->runs, &row->inputs, taken, out, e)
                           : FAIL(e, ERR_MEMORY, "the runs of a row");
    json_decref(taken);
    return st;
}

/* Further earlier runs of a row stand for its repeats. */
static enum status find_repeats(struct suite *s, struct err *e) {
    int64_t n = s->resolution->run_count;
    for (int64_t i = n / s->repeat; i < n; i++)
        TRY(read_state(s, &s->rows[i], &s->rows[i].state, e));
    return OK;
}

enum status suite_find_earlier(struct suite *s, struct err *e) {
    struct tree runs;
    if (s->again) return OK;
    TRY(run_list(s->settings->runs, &runs, e));
    for (int64_t i = 0; i < runs.count; i++) {
        struct run_view view;
        if (run_view_load(runs.file[i].path, RUN_VIEW_BRIEF, &view, NULL) != OK) continue;
        for (int64_t r = 0; r < s->resolution->run_count / s->repeat; r++)
            if (inputs_asked(view.run, &s->rows[r].inputs) &&
                inputs_are_right(s, runs.file[i].path))
                row_state_note(&s->rows[r].state, &view);
        run_view_free(&view);
    }
    tree_free(&runs);
    return find_repeats(s, e);
}

/* ---- messages ---------------------------------------------------------------------------------*/

static enum status refuse_running(const char *name, const struct row_state *state,
                                  struct err *e) {
    char where[HOST_NAME_CAP + 16] = "", dead[PATH_CAP + 48] = "";
    if (state->writer.elsewhere) {
        snprintf(where, sizeof where, " on host %s", state->writer.host);
        snprintf(dead, sizeof dead, " (if it is dead: fp8lab close --force %s)", state->path);
    }
    return FAIL(e, ERR_STATE, "%s: process %" PRId64 "%s is already running it in %.256s; wait for "
                "it or stop it%.300s; --again starts a second run", name, state->writer.pid, where,
                state->path, dead);
}

static void note_new_run(const struct cli *cli, const char *name, const struct row_state *state) {
    char resume[PATH_CAP + 80] = "";
    if (!*state->path) return;
    if (state->checkpoint_step > 0)
        snprintf(resume, sizeof resume, " (it goes on after step %" PRId64 " with: fp8lab run "
                 "--resume %s)", state->checkpoint_step, state->path);
    cli_note(cli, "%s: an earlier run with these inputs ended as %s, so a new run begins at "
             "step 0; the earlier run: %s%s", name, state->status, state->path, resume);
}

static void note_running(const struct cli *cli, const char *name, const struct row_state *state) {
    if (state->seen_locked)
        cli_note(cli, "%s: another process is running it; this command waits for it at the end: "
                 "%s", name, state->path);
    else
        cli_note(cli, "%s: a process on another host seems to be running it; this command waits "
                 "for it at the end (if it is dead: fp8lab close --force %s)", name, state->path);
}

/* ---- for watchers -----------------------------------------------------------------------------*/

/* The rows of a suite are called "<suite>-<what varies>". */
static const char *short_name(const struct suite *s, int64_t i) {
    const char *name = s->resolution->runs[i].name, *suite = s->resolution->name;
    size_t n = strlen(suite);
    bool begins = !strncmp(name, suite, n) && name[n] == '-' && name[n + 1];
    return begins ? name + n + 1 : name;
}

static json_t *loss_json(double loss) { return isfinite(loss) ? json_real(loss) : json_null(); }

/* The name with the number of the repeat, if there are several. Owned by the caller; NULL: no
 * memory. */
static char *title_of(const struct suite *s, int64_t i, const char *name) {
    char *text = NULL;
    int64_t rows = s->resolution->run_count / s->repeat;
    int n = s->repeat < 2 ? asprintf(&text, "%s", name)
                          : asprintf(&text, "%s, repeat %" PRId64 " of %" PRId64, name,
                                     i / rows + 1, s->repeat);
    return n < 0 ? NULL : text;
}

static json_t *title_json(const struct suite *s, int64_t i) {
    char *title = title_of(s, i, short_name(s, i));
    json_t *out = title ? json_from_text(title) : NULL;
    free(title);
    return out;
}

json_t *suite_rows_json(const struct suite *s, int64_t row) {
    json_t *ended = json_array();
    bool failed = false;
    if (s->resolution->run_count < 2) {
        json_decref(ended);
        return NULL;
    }
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        const struct suite_row *r = &s->rows[i];
        if (!r->ended) continue;
        json_append(ended, json_pack("{s:I,s:o,s:s,s:o,s:o}", "row", (json_int_t)(i + 1), "name",
                                     title_json(s, i), "status", r->outcome.status,
                                     "loss", loss_json(r->loss), "eval_loss",
                                     loss_json(r->eval_loss)), &failed);
    }
    ended = json_whole(ended, failed);
    if (!ended) return NULL;
    return json_pack("{s:s,s:o,s:I,s:I,s:o}", "schema", "fp8lab.suite/1", "name",
                     json_from_text(s->resolution->name), "row", (json_int_t)(row + 1), "rows",
                     (json_int_t)s->resolution->run_count, "ended", ended);
}

/* ---- one row ----------------------------------------------------------------------------------*/

void suite_note_end(struct suite *s, int64_t i) {
    struct suite_row *row = &s->rows[i];
    row->ended = true;
    s->ended++;
    if (s->resolution->suite) outcome_losses(&row->outcome, &row->loss, &row->eval_loss);
}

/* A backend is no input of a run. Who asked for one is told if the earlier run had another. */
static void note_backend(const struct suite *s, const struct suite_row *row, const char *name) {
    const char *asked = s->settings->backend;
    struct run_view view;
    if (!strcmp(asked, "auto") ||
        run_view_load(row->state.path, RUN_VIEW_DOCUMENTS, &view, NULL) != OK)
        return;
    const char *had = json_text(view.decisions, "backend", asked);
    if (strcmp(had, asked) != 0)
        cli_warn(s->settings->cli, "%s: that run computed on %s, and --backend says %s; --again "
                 "runs it on %s", name, PLAIN(had), asked, asked);
    run_view_free(&view);
}

static void take_earlier(struct suite *s, int64_t i) {
    const struct cli *cli = s->settings->cli;
    struct suite_row *row = &s->rows[i];
    struct run_outcome *o = &row->outcome;
    snprintf(o->id, sizeof o->id, "%s", row->state.id);
    snprintf(o->status, sizeof o->status, "%s", row->state.status);
    snprintf(o->bundle, sizeof o->bundle, "%s", row->state.path);
    if (kept_folder(o->checkpoints, row->state.path, NULL) != OK ||
        !path_is_directory(o->checkpoints))
        o->checkpoints[0] = '\0';
    row->earlier = true;
    suite_note_end(s, i);
    char *title = title_of(s, i, s->resolution->runs[i].name);
    cli_note(cli, "%s: already run with these inputs, not run again (--again runs it again): %s",
             title ? title : s->resolution->runs[i].name, row->state.path);
    free(title);
    note_backend(s, row, s->resolution->runs[i].name);
    if (!s->resolution->suite) outcome_print(cli, o); /* a suite ends with a comparison instead */
}

/* With --again only a slot of this command (side_by_side.h) has begun the row, and died in it. */
static void go_on_with_own(struct suite_row *row) {
    if (row->state.kind != ROW_RUNNING) return;
    if (path_is_directory(row->state.path)) row->state.kind = ROW_RESUMABLE;
    else row->state = (struct row_state){ .kind = ROW_NEW };
}

/* Reads the row's state once more, and takes the claim. Since the folder was read first, another
 * process may have begun the row or died in it. */
static enum status read_again(struct suite *s, struct suite_row *row, struct err *e) {
    const struct run_settings *settings = s->settings;
    struct row_state now;
    if (s->again) go_on_with_own(row);
    if (s->again || row->state.kind == ROW_ENDED) return OK;
    TRY(claim_take(settings->runs, settings->claim, e));
    TRY(read_state(s, row, &now, e));
    if (now.left_open) { /* packing may take long, so the claim is dropped meanwhile */
        claim_drop(settings->claim);
        TRY(row_state_close_left(settings->cli, settings->runs, &row->inputs, e));
        TRY(claim_take(settings->runs, settings->claim, e));
        TRY(read_state(s, row, &now, e));
    }
    bool was_running = row->state.kind == ROW_RUNNING;
    if (now.kind != ROW_NEW || was_running) row->state = now;
    return OK;
}

static void note_repeat(const struct suite *s, int64_t i) {
    char *title = s->repeat > 1 ? title_of(s, i, s->resolution->runs[i].name) : NULL;
    if (title) cli_note(s->settings->cli, "%s", title);
    free(title);
}

enum status suite_run_here(struct suite *s, int64_t i, const json_t *rows, struct err *e) {
    const struct run_settings *settings = s->settings;
    struct suite_row *row = &s->rows[i];
    struct run_request request = {
        .resolution = s->resolution, .run = &s->resolution->runs[i], .inputs = &row->inputs,
        .data_files = row->data_files, .overrides = s->overrides, .mismatch = row->mismatch,
        .tokens = row->tokens.record ? &row->tokens : NULL,
        .init = row->init, .parent = s->parent, .beginning = s->beginning,
        .rows = rows,
    };
    if (row->state.kind == ROW_RESUMABLE) {
        TRY(run_directory(settings->cli, row->state.path, e));
        TRY(run_resume(settings, row->state.path, rows, &row->outcome, e));
    } else {
        note_repeat(s, i);
        note_new_run(settings->cli, request.run->name, &row->state);
        TRY(run_one(settings, &request, &row->outcome, e));
    }
    suite_note_end(s, i);
    outcome_print(settings->cli, &row->outcome);
    return OK;
}

/* Another process runs the row: it is left for the end. */
static enum status leave(struct suite *s, int64_t i, struct err *e) {
    const char *name = s->resolution->runs[i].name;
    if (!s->resolution->suite) return refuse_running(name, &s->rows[i].state, e);
    char *title = title_of(s, i, name);
    note_running(s->settings->cli, title ? title : name, &s->rows[i].state);
    free(title);
    return OK;
}

enum status suite_open_row(struct suite *s, int64_t i, bool *runs, struct err *e) {
    struct suite_row *row = &s->rows[i];
    enum status st = read_again(s, row, e);
    *runs = st == OK && row->state.kind != ROW_ENDED && row->state.kind != ROW_RUNNING;
    if (st == OK && row->state.kind == ROW_ENDED) take_earlier(s, i);
    if (st == OK && row->state.kind == ROW_RUNNING) st = leave(s, i, e);
    if (!*runs) claim_drop(s->settings->claim);
    return st;
}

static enum status run_row(struct suite *s, int64_t i, struct err *e) {
    bool runs;
    TRY(suite_open_row(s, i, &runs, e));
    if (!runs) return OK;
    json_t *rows = suite_rows_json(s, i);
    enum status st = suite_run_here(s, i, rows, e);
    json_decref(rows);
    claim_drop(s->settings->claim);
    return st;
}

/* ---- all rows ---------------------------------------------------------------------------------*/

static bool is_left_to_others(const struct suite_row *row) {
    return row->state.kind == ROW_RUNNING && !row->ended;
}

/* Waits until another process ends, or dies in, one of the rows left to it. Returns 0, or the
 * signal by which this task or another task of the job was asked to stop. Before this command's
 * own first run, signals still have their default action. */
static int wait_for_others(struct suite *s) {
    struct signals *signals = s->settings->signals;
    for (;;) {
        struct pollfd p = { .fd = signals->fd, .events = POLLIN };
        for (int64_t i = 0; i < s->resolution->run_count; i++)
            if (is_left_to_others(&s->rows[i]) && !row_state_is_running(&s->rows[i].state))
                return 0;
        (void)poll(&p, 1, POLL_MS);
        int asked = s->settings->members ? job_members_stop_signal(s->settings->members) : 0;
        if (asked) return asked;
        asked = signals_take_request(signals, clock_ms());
        if (asked) return asked;
    }
}

/* Closes the runs of rows whose process died. */
static enum status close_dead(struct suite *s, struct err *e) {
    for (int64_t i = 0; i < s->resolution->run_count; i++)
        if (is_left_to_others(&s->rows[i])) TRY(row_state_close_dead(&s->rows[i].state, e));
    close_dead_runs(s->settings->cli, s->settings->runs);
    return OK;
}

int suite_exit_code(const struct suite *s) {
    for (int64_t i = 0; i < s->resolution->run_count; i++)
        if (s->rows[i].ended && s->rows[i].outcome.exit_code != EXIT_OK)
            return s->rows[i].outcome.exit_code;
    return EXIT_OK;
}

/* One pass over the rows without an outcome. *stop: a signal or a system error ended a row. */
static enum status run_pass(struct suite *s, int *code, bool *stop, struct err *e) {
    *stop = false;
    for (int64_t i = 0; i < s->resolution->run_count && !*stop; i++) {
        struct suite_row *row = &s->rows[i];
        bool busy = row->state.kind == ROW_RUNNING && row_state_is_running(&row->state);
        if (row->ended || busy) continue;
        TRY(run_row(s, i, e));
        if (!row->ended || row->earlier) continue;
        int own = row->outcome.exit_code;
        *code = suite_exit_code(s);
        *stop = own > EXIT_SIGNAL || own == EXIT_SYSTEM;
    }
    return OK;
}

enum status suite_run(struct suite *s, int *code, struct err *e) {
    *code = suite_exit_code(s);
    for (;;) {
        bool stop = false;
        TRY(run_pass(s, code, &stop, e));
        if (stop || s->ended == s->resolution->run_count) return OK;
        int signo = wait_for_others(s);
        if (signo) {
            *code = EXIT_SIGNAL + signo;
            return OK;
        }
        TRY(close_dead(s, e));
    }
}
