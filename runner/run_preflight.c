#include "runner/run_preflight.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/cache/cache_key.h"
#include "runner/cache/eval_sets.h"
#include "runner/disk_room.h"
#include "runner/doctor/probe.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/hardware.h"
#include "runner/job/job_match.h"
#include "runner/plan/asked_kernel.h"
#include "runner/plan/backends.h"
#include "runner/plan/fit.h"
#include "runner/plan/keep.h"
#include "runner/record/choice_file.h"
#include "runner/record/image_record.h"
#include "runner/record/ingest_record.h"
#include "runner/record/data_other.h"
#include "runner/record/text_look.h"
#include "runner/run/init_from.h"
#include "runner/run/init_tokenizer.h"
#include "runner/run/run_tokens.h"
#include "runner/script/data_patterns.h"
#include "runner/script/script_flags.h"

enum status preflight_probe(const struct run_settings *s, json_t *facts, struct err *e) {
    char problem[256] = "";
    if (!strcmp(s->backend, "cpu")) return OK;
    /* A GPU that was asked for and is not here: before a run is made that can only fail. */
    if (strcmp(s->backend, "auto") != 0 && !s->members && !facts_have_gpu(facts))
        TRY(probe_opens(s->backend, e));
    TRY(probe_facts(facts, true, problem, sizeof problem, e));
    if (*problem) cli_warn(s->cli, "%s", problem);
    return OK;
}

/* ---- machine ----------------------------------------------------------------------------------*/

static void say_mismatch(const struct cli *cli, const struct resolved_run *run,
                         const json_t *mismatch) {
    char *text = hardware_mismatch_text(run->config_json, mismatch);
    if (cli_has(cli, "anywhere")) /* cli_note ends the last line */
        cli_note(cli, "%s: not the machine that the experiment asks for; run anyway "
                 "(--anywhere), and recorded\n%.*s", run->name,
                 text && *text ? (int)strlen(text) - 1 : 0, text ? text : "");
    else
        cli_warn(cli, "%s: this machine is not the one that the experiment asks for\n%s"
                 "--anywhere runs it regardless and records the mismatch", run->name,
                 text ? text : "");
    free(text);
}

static enum status match_hardware(struct suite *s, bool *matches, struct err *e) {
    const struct run_settings *settings = s->settings;
    *matches = true;
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        const struct resolved_run *run = &s->resolution->runs[i];
        struct suite_row *row = &s->rows[i];
        TRY(job_match(run->config_json, settings->facts, settings->members, &row->mismatch, e));
        TRY(hardware_match_backend(run->config_json, settings->facts,
                                   backend_without_gpu(settings->backend), &row->mismatch, e));
        bool said = i > 0 && json_equal(row->mismatch, s->rows[i - 1].mismatch);
        if (!row->mismatch || said) continue;
        say_mismatch(settings->cli, run, row->mismatch);
        *matches = *matches && cli_has(settings->cli, "anywhere");
    }
    return OK;
}

static enum status check_memory(struct suite *s, bool *fits, struct err *e) {
    const struct run_settings *settings = s->settings;
    bool anywhere = cli_has(settings->cli, "anywhere");
    json_t *facts = NULL;
    enum status st = job_memory(settings->facts, settings->members, &facts, e);
    *fits = true;
    for (int64_t i = 0; i < s->resolution->run_count && st == OK; i++) {
        const struct resolved_run *run = &s->resolution->runs[i];
        struct fit fit;
        st = fit_plan(run->config_json, facts, settings->backend, 0, &fit, e);
        if (st != OK) break;
        if (!fit.fits) {
            char text[FIT_TEXT_CAP];
            fit_refusal(run->name, &fit, text);
            cli_warn(settings->cli, "%s", text);
        }
        s->rows[i].too_big = !fit.fits;
        *fits = *fits && (fit.fits || anywhere);
        fit_free(&fit);
    }
    json_decref(facts);
    return st;
}

/* Before the first row starts: its worker would say the same after its text is tokenised. */
static enum status check_kernels(const struct suite *s, struct err *e) {
    const struct run_settings *settings = s->settings;
    const struct asked_machine machine = {
        .backend = backend_without_gpu(settings->backend) ? "cpu" : settings->backend,
        .caps = settings->caps, .facts = settings->facts,
    };
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        const struct resolved_run *run = &s->resolution->runs[i];
        enum status st = asked_kernel_check(run->config_json, &machine, e);
        if (st != OK) err_prefix(e, "%s", run->name);
        TRY(st);
    }
    return OK;
}

enum status preflight_machine(struct suite *s, bool *fits, struct err *e) {
    TRY(check_kernels(s, e));
    TRY(match_hardware(s, fits, e));
    return *fits ? check_memory(s, fits, e) : OK;
}

int preflight_refuse(const struct suite *s) {
    const struct cli *cli = s->settings->cli;
    json_t *rows = json_array();
    bool failed = false;
    for (int64_t i = 0; i < s->resolution->run_count; i++)
        json_append(rows, json_pack("{s:s,s:b,s:O?}", "name", s->resolution->runs[i].name,
                                    "too_big", s->rows[i].too_big, "mismatch",
                                    s->rows[i].mismatch), &failed);
    json_t *object = json_pack("{s:s,s:o}", "schema", "fp8lab.run_refused/1", "runs",
                               json_whole(rows, failed));
    if (cli->json) cli_out_json(cli, object);
    json_decref(object);
    image_hint(cli, s->settings->facts, s->resolution->runs[0].config_json);
    if (cli->arg_count) script_next(cli, "run", true);
    return EXIT_HARDWARE;
}

/* ---- text, tokens and inputs ------------------------------------------------------------------*/

/* Whether two configurations read the same files of data. */
static bool same_files(const json_t *a, const json_t *b) {
    const json_t *sets = eval_sets_of(a), *others = eval_sets_of(b);
    return json_equal(json_object_get(a, "data"), json_object_get(b, "data")) &&
           (sets == others || (sets && others && json_equal(sets, others)));
}

enum status preflight_text(const struct suite *s, const struct extension *extension,
                           struct err *e) {
    const struct run_settings *settings = s->settings;
    const json_t *before = NULL;
    /* An extended run has its parent's weights and text. */
    if (!extension) init_tokenizer_warn(settings->cli, s->resolution, settings->data_root);
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        const struct resolved_run *run = &s->resolution->runs[i];
        char warning[TEXT_HEAD_CAP];
        if (before && same_files(before, run->config_json)) continue;
        before = run->config_json;
        enum status st = text_look(run->config_json, settings->data_root, warning, e);
        if (st != OK) return err_prefix(e, "%s", run->name), st;
        if (*warning) cli_warn(settings->cli, "%s: %s", run->name, warning);
    }
    return OK;
}

enum status preflight_weights(const struct suite *s, struct err *e) {
    const struct run_settings *settings = s->settings;
    const struct resolved_run *runs = s->resolution->runs;
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        const json_t *now = runs[i].config_json, *before = i ? runs[i - 1].config_json : NULL;
        if (json_equal(json_object_get(now, "init"), json_object_get(before, "init")) &&
            json_equal(json_object_get(now, "model"), json_object_get(before, "model")))
            continue;
        enum status st = init_look(now, settings->data_root, settings->runs, e);
        if (st != OK) return err_prefix(e, "%s", runs[i].name), st;
    }
    return OK;
}

static int64_t vocab_of(const struct resolved_run *run) {
    return json_int(json_object_get(run->config_json, "model"), "vocab");
}

/* The earlier row whose text becomes the same tokens, or NULL. */
static const struct suite_row *row_alike(const struct suite *s, int64_t row) {
    const struct resolved_run *runs = s->resolution->runs;
    for (int64_t i = 0; i < row; i++)
        if (s->rows[i].tokens.record &&
            same_files(runs[i].config_json, runs[row].config_json) &&
            vocab_of(&runs[i]) == vocab_of(&runs[row]))
            return &s->rows[i];
    return NULL;
}

/* The tokens of an extended run need not be made again, and its text may be gone. */
static enum status take_extended(const struct suite *s, const struct extension *x,
                                 const json_t *config, const char *folder,
                                 struct cache_entry *out, struct err *e) {
    char own[PATH_CAP];
    if (!x || !x->source.view.ingest || !same_files(x->source.view.resolved, config)) return OK;
    TRY(path_join(own, x->source.work, "bundle/" INGEST_FOLDER, e));
    return cache_find_recorded(s->settings->cli, x->source.view.ingest, folder, own, out, e);
}

static enum status take_tokens(struct suite *s, int64_t row, const struct extension *extension,
                               struct err *e) {
    const struct run_settings *settings = s->settings;
    struct cache_entry *tokens = &s->rows[row].tokens;
    const struct suite_row *alike = row_alike(s, row);
    char folder[PATH_CAP];
    if (alike) {
        *tokens = alike->tokens;
        json_incref(tokens->record);
        json_incref(tokens->kept);
        return OK;
    }
    TRY(cache_folder(folder, settings->cache, settings->runs, e));
    TRY(take_extended(s, extension, s->resolution->runs[row].config_json, folder, tokens, e));
    if (tokens->record) return OK;
    const struct chat_render_source render = resolution_render(s->resolution);
    const struct cache_request q = {
        .cli = settings->cli, .config = s->resolution->runs[row].config_json,
        .data_root = settings->data_root, .folder = folder, .render = &render,
    };
    TRY(cache_take(&q, tokens, e));
    const json_t *chat = json_object_get(tokens->record, "chat");
    return resolution_check_files(s->resolution, json_object_get(chat, "render_files"), e);
}

enum status preflight_tokens(struct suite *s, struct resolution *resolution,
                             const struct extension *extension, struct err *e) {
    for (int64_t i = 0; i < resolution->run_count; i++) {
        struct resolved_run *run = &resolution->runs[i];
        if (!cache_is_needed(run->config_json)) continue;
        enum status st = take_tokens(s, i, extension, e);
        if (st == OK) st = resolved_run_count_steps(run, s->rows[i].tokens.record, e);
        if (st == OK) continue;
        run_tokens_hint(run->config_json, s->settings->data_root, e);
        data_comma_hint(resolution->data_paths, s->settings->data_root, e);
        err_prefix(e, "%s", run->name);
        return st;
    }
    return OK;
}

/* Hashes the row's data. Damaged tokens are made again. */
static enum status hash_inputs(struct suite *s, int64_t i, struct err *e) {
    const struct resolved_run *run = &s->resolution->runs[i];
    const struct run_settings *settings = s->settings;
    struct suite_row *row = &s->rows[i];
    bool intact = true, tokens = row->tokens.record != NULL;
    enum status st = inputs_hash(run->config_json, settings->data_root, row->tokens.record,
                                 &row->inputs, &row->data_files, e);
    struct err why;
    if (tokens && cache_check(settings->cli, &row->tokens, row->data_files, &intact, &why) != OK)
        return FAIL(e, why.code, "%s", why.text);
    if (intact) return st;
    json_decref(row->data_files);
    row->data_files = NULL;
    cache_entry_free(&row->tokens);
    TRY(take_tokens(s, i, NULL, e));
    return inputs_hash(run->config_json, settings->data_root, row->tokens.record, &row->inputs,
                       &row->data_files, e);
}

/* Finds and hashes the initial weights; rows of the same model and weights share one reading. */
static enum status take_init(struct suite *s, int64_t i, struct err *e) {
    const struct run_settings *settings = s->settings;
    const struct resolved_run *runs = s->resolution->runs;
    struct suite_row *row = &s->rows[i];
    char cache[PATH_CAP];
    const json_t *init = json_object_get(runs[i].config_json, "init");
    if (!init) return OK;
    json_t *known = NULL;
    for (int64_t k = 0; k < i && !known; k++)
        if (json_equal(json_object_get(runs[k].config_json, "init"), init) &&
            json_equal(json_object_get(runs[k].config_json, "model"),
                       json_object_get(runs[i].config_json, "model")))
            known = s->rows[k].init;
    TRY(cache_folder(cache, settings->cache, settings->runs, e));
    const struct init_request q = { .config = runs[i].config_json, .runs = settings->runs,
                                    .data_root = settings->data_root, .cache = cache,
                                    .known = known };
    TRY(init_take(&q, &row->init, e));
    return inputs_begin_with(&row->inputs, json_text(row->init, "sha256", ""), e);
}

/* Names the file of the extended run's data, or of the text that gave its tokens, that has other
 * content now. */
static enum status check_extended(const struct extension *x, const struct suite_row *row,
                                  struct err *e) {
    const json_t *then = json_object_get(x->source.view.run, "inputs");
    if (!strcmp(json_text(then, "data", ""), row->inputs.data) &&
        inputs_same_sets(&row->inputs, then))
        return OK;
    TRY(ingest_sources_check(x->source.view.ingest, row->tokens.record, e));
    return data_lists_check(x->source.data_files, row->data_files, e);
}

enum status preflight_inputs(struct suite *s, const struct extension *extension, struct err *e) {
    const struct run_settings *settings = s->settings;
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        const struct resolved_run *run = &s->resolution->runs[i];
        struct suite_row *row = &s->rows[i];
        row->inputs.known = &s->known_data;
        row->inputs.wants_guess = true;
        enum status st = hash_inputs(s, i, e);
        if (st == ERR_IO) image_data_hint(run->config_json, e);
        if (st != OK) data_comma_hint(s->resolution->data_paths, settings->data_root, e);
        if (st == OK && !extension) st = take_init(s, i, e);
        if (st == OK && settings->choices)
            st = choice_file_hash(settings->choices, &row->inputs, e);
        if (st == OK && settings->arithmetic)
            st = inputs_calculate(&row->inputs, settings->arithmetic, e);
        if (st == OK && extension) st = check_extended(extension, row, e);
        if (st == OK && extension) st = extension_inputs(extension, settings->cli, &row->inputs, e);
        if (st != OK) {
            err_prefix(e, "%s", run->name);
            return st;
        }
    }
    return OK;
}

/* ---- messages ---------------------------------------------------------------------------------*/

static void note_smoke(const struct suite *s) {
    const struct cli *cli = s->settings->cli;
    if (!cli_has(cli, "smoke") || s->resolution->run_count == 0) return;
    const json_t *data = json_object_get(s->resolution->runs[0].config_json, "data");
    cli_note(cli, "a smoke run%s: sizes and steps are shrunk, the numbers mean nothing",
             strcmp(json_text(data, "kind", ""), "synthetic") ? "" : " on synthetic data");
}

/* Rows that are done already are listed too: their checkpoints may have been deleted since. They
 * need no room. */
static enum status say_kept(const struct suite *s, struct err *e) {
    int64_t n = s->resolution->run_count;
    struct keep_disk disk;
    struct keep *keeps = calloc((size_t)n + 1, sizeof *keeps);
    enum status st = keeps ? OK : FAIL(e, ERR_MEMORY, "%" PRId64 " runs", n);
    for (int64_t i = 0; i < n && st == OK; i++)
        st = keep_plan(s->resolution->runs[i].config_json, s->resolution->smoke, &keeps[i], e);
    if (st == OK) keep_say(s->settings->cli, keeps, n, false);
    for (int64_t i = 0; i < n && st == OK; i++)
        if (!s->again) st = disk_room_row(&s->rows[i].state, &keeps[i], e);
    if (st == OK) st = keep_disk(s->settings->runs, keeps, n, &disk, e);
    if (st == OK) st = keep_check_disk(&disk, e);
    free(keeps);
    return st;
}

/* Rows that read the same data as often follow each other, and share a line. */
static void note_repeats(const struct suite *s) {
    const char *said = "";
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        const char *line = s->rows[i].inputs.repeats;
        if (*line && strcmp(line, said) != 0)
            cli_note(s->settings->cli, "%s: %s", s->resolution->runs[i].name, line);
        said = line;
    }
}

/* Held-out text that is trained on makes a loss look better than it is. Rows with the same copies
 * share a warning. */
static void warn_of_copies(const struct suite *s) {
    json_t *said = NULL;
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        const struct resolved_run *run = &s->resolution->runs[i];
        const struct suite_row *row = &s->rows[i];
        json_t *sources = row->tokens.record ? cache_record_sources(row->tokens.record) : NULL;
        const json_t *first, *copy = NULL;
        bool unique = json_is_true(json_object_get(json_object_get(run->config_json, "data"),
                                                   "unique"));
        if (!unique)
            copy = eval_sets_find_copy(sources ? sources : row->data_files, false, &first);
        if (copy && !(said && json_equal(copy, said))) {
            json_decref(said);
            said = json_incref((json_t *)copy);
            const char *and = json_object_get(copy, "set")
                                  ? "" : ", and may evaluate on text that it trains on";
            cli_warn(s->settings->cli, "%s: %s has the same bytes as %s: the run reads them "
                     "twice%s", run->name, PLAIN(json_text(copy, "path", "")),
                     PLAIN(json_text(first, "path", "")), and);
        }
        json_decref(sources);
    }
    json_decref(said);
}

enum status preflight_say(const struct suite *s, const struct extension *extension,
                          struct err *e) {
    note_smoke(s);
    script_note_idle_keys(s->settings->cli, s->resolution);
    note_repeats(s);
    warn_of_copies(s);
    TRY(say_kept(s, e));
    if (extension && extension->beginning.step) extension_say(extension, s->settings->cli);
    return OK;
}
