/* fp8lab check: lists what a script would run, or all its errors. Runs nothing. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "model/ground/json_safe.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache_key.h"
#include "runner/commands.h"
#include "runner/compare/compare.h"
#include "runner/compare/recipe_name.h"
#include "runner/disk_room.h"
#include "runner/hardware/facts.h"
#include "runner/plan/asked_kernel.h"
#include "runner/plan/backends.h"
#include "runner/plan/fit.h"
#include "runner/plan/keep.h"
#include "runner/plan/options.h"
#include "runner/plan/trained.h"
#include "runner/record/image_record.h"
#include "runner/record/inputs.h"
#include "runner/record/text_look.h"
#include "runner/run/init_from.h"
#include "runner/run/init_tokenizer.h"
#include "runner/script/data_patterns.h"
#include "runner/script/script_flags.h"

static const struct flag FLAGS[] = {
    { "set", "KEY=VALUE", "override a key: --set train.steps=20", true },
    { "only", "NAME", "only the rows of a suite with this name (* and ?)", true },
    { "smoke", NULL, "shrink sizes and steps, for a test on a CPU", false },
    { "resolved", NULL, "print the canonical configuration, one line per run", false },
    { "backend", "NAME", "also check that this backend serves it: cpu or cuda", false },
    { "caps", "ARCH", "the same for a GPU of ARCH (sm_121)", false },
    { "facts", "FILE", "the same for the machine that FILE describes (hw --json)", false },
    { "runs", "DIR", "where runs would be written (default: runs)", false },
    { "data-root", "DIR", "data paths are relative to DIR (default: here)", false },
    { "lib", "DIR", "where require finds the shared presets", false },
};

/* The script's output and the traceback of its error: untrusted text, so indented. */
static void print_log(const struct cli *cli, const char *log) {
    size_t n = log ? strlen(log) : 0;
    while (n && log[n - 1] == '\n') n--; /* cli_note ends the line */
    if (n) cli_note(cli, "output of the script:\n%.*s", (int)n, log);
}

static void print_json(const struct cli *cli, const struct resolution *r, const struct keep *keeps,
                       const struct keep_disk *disk, const struct token_room *tokens) {
    json_t *runs = json_array(), *files = json_array();
    bool failed = false;
    for (int64_t i = 0; i < r->run_count; i++)
        json_append(runs, json_pack("{s:s, s:O, s:s, s:O, s:o}", "name", r->runs[i].name, "cell",
                                    r->runs[i].cell, "config_sha256", r->runs[i].config_sha256,
                                    "config", r->runs[i].config_json, "keeps",
                                    keep_json(&keeps[i])), &failed);
    for (int64_t i = 0; i < r->file_count; i++)
        json_append(files, json_pack("{s:s, s:s}", "name", r->files[i].name, "sha256",
                                     r->files[i].sha256), &failed);
    json_t *object = json_pack("{s:s, s:b, s:b, s:s, s:s, s:b, s:o, s:o, s:o, s:o}", "schema",
                               "fp8lab.check/1", "ok", 1, "suite", r->suite, "name", r->name,
                               "about", r->about, "smoke", r->smoke, "files",
                               json_whole(files, failed), "runs", runs, "disk",
                               keep_disk_json(disk), "tokens", token_room_json(tokens));
    cli_out_json(cli, object);
    json_decref(object);
}

static const char *text_at(const json_t *object, const char *section, const char *key) {
    return json_text(json_object_get(object, section), key, "");
}

static long long int_at(const json_t *object, const char *section, const char *key) {
    return json_int(json_object_get(object, section), key);
}

enum { RECIPE_WIDTH_MIN = 15 };

/* The columns of the longest recipe; its options tell rows of one kind apart. */
static int recipe_width(const struct resolution *r) {
    int width = RECIPE_WIDTH_MIN;
    for (int64_t i = 0; i < r->run_count; i++) {
        char *text = recipe_text_of_run(r->runs[i].config_json);
        int columns = text ? compare_columns(text) : 0;
        if (columns > width) width = columns;
        free(text);
    }
    return width;
}

static void print_table(const struct cli *cli, const struct resolution *r) {
    int width = recipe_width(r);
    cli_out(cli, "%s%s%s%s\n", PLAIN(r->name), *r->about ? ": " : "", PLAIN(r->about),
            r->smoke ? " [smoke]" : "");
    cli_out(cli, "%-48s %-*s %7s %7s %8s %8s %10s\n", "run", width, "recipe", "layers", "width",
            "seq_len", "steps", "config");
    for (int64_t i = 0; i < r->run_count; i++) {
        const json_t *c = r->runs[i].config_json;
        char *text = recipe_text_of_run(c);
        const char *recipe = text ? text : text_at(c, "recipe", "kind");
        char steps[24] = "-"; /* epochs of text that is not tokenised yet */
        if (int_at(c, "train", "steps"))
            snprintf(steps, sizeof steps, "%lld", int_at(c, "train", "steps"));
        cli_out(cli, "%-48s %s%*s %7lld %7lld %8lld %8s %10.8s\n", r->runs[i].name, recipe,
                width - compare_columns(recipe), "", int_at(c, "model", "layers"),
                int_at(c, "model", "width"), int_at(c, "model", "seq_len"), steps,
                r->runs[i].config_sha256);
        free(text);
    }
}

/* What rows do not train, or train at another rate; neighbours that are alike are said once. */
static void print_trained(const struct cli *cli, const struct resolution *r) {
    struct text text, before = { 0 };
    for (int64_t i = 0; i < r->run_count; i++) {
        struct err ignored; /* the trainer has accepted the row */
        if (trained_text(r->runs[i].config_json, &text, &ignored) != OK) continue;
        if (text.bytes && (!before.bytes || strcmp(text.bytes, before.bytes) != 0))
            cli_out(cli, "%s trains %s\n", r->runs[i].name, plain_text(text.bytes));
        text_free(&before);
        before = text;
    }
    text_free(&before);
}

/* If so, the next command is `plan`, which matches the machine. */
static bool asks_for_a_machine(const struct resolution *r) {
    bool asks = false;
    for (int64_t i = 0; i < r->run_count; i++) {
        const json_t *hardware = json_object_get(r->runs[i].config_json, "hardware");
        asks = asks || json_text(hardware, "query", NULL);
    }
    return asks;
}

/* ---- checks beyond the script ------------------------------------------------------------- */

/* Whether the row has the data of the row before. */
static bool same_data(const struct resolution *r, int64_t row) {
    return row > 0 && json_equal(json_object_get(r->runs[row].config_json, "data"),
                                 json_object_get(r->runs[row - 1].config_json, "data"));
}

/* Adds what the trainer would reject of a row to the script's errors, and text that is of another
 * format; an error that several rows share is listed once. */
static enum status ask_trainer(const char *path, const char *data_root,
                               const struct asked_machine *machine, struct resolution *r,
                               struct keep *keeps, struct err *e) {
    char warning[TEXT_HEAD_CAP]; /* given once the table is printed */
    json_t *nowhere = json_object(); /* no facts: any machine */
    r->errors = calloc((size_t)r->run_count + 1, sizeof *r->errors);
    enum status st = nowhere && r->errors ? OK : FAIL(e, ERR_MEMORY, "the list of errors");
    for (int64_t i = 0; i < r->run_count && st == OK; i++) {
        struct fit fit;
        struct err bad = { 0 };
        struct resolved_error *x = &r->errors[r->error_count];
        enum status refused = fit_plan(r->runs[i].config_json, nowhere, "cpu", 0, &fit, &bad);
        fit_free(&fit);
        if (refused == OK) refused = asked_kernel_check(r->runs[i].config_json, machine, &bad);
        if (refused == OK) refused = keep_plan(r->runs[i].config_json, r->smoke, &keeps[i], &bad);
        if (refused == OK && !same_data(r, i))
            refused = text_look(r->runs[i].config_json, data_root, warning, &bad);
        bool known = refused == OK;
        for (int64_t k = 0; k < r->error_count; k++)
            known = known || !strcmp(r->errors[k].text, bad.text);
        if (refused == ERR_MEMORY) st = FAIL(e, refused, "%s", bad.text);
        if (known || st != OK) continue;
        char where[PATH_CAP];
        snprintf(where, sizeof where, "%s: %s", path, r->runs[i].name);
        *x = (struct resolved_error){ .where = strdup(where), .key = strdup(""),
                                      .text = strdup(bad.text) };
        r->error_count++;
        if (!x->where || !x->key || !x->text) st = FAIL(e, ERR_MEMORY, "the list of errors");
    }
    json_decref(nowhere);
    if (st == OK && r->error_count) return FAIL(e, ERR_CONFIG, "%s", r->errors[0].text);
    return st;
}

static enum status open_data(const json_t *config, const char *root, struct err *e) {
    struct run_options run;
    struct data *data = NULL;
    TRY(options_read(config, &run, e));
    run.data.root = root;
    enum status st = data_open(&data, &run.data, run.model.vocab, run.model.seq_len,
                               run.train.seed, e);
    if (st == OK) st = inputs_check_held_out(&run, data, e);
    data_close(data);
    options_free(&run);
    return st;
}

/* Tells the user what only tokens show. */
static void note_text(const struct cli *cli, const struct resolution *r) {
    bool any = false, open = false;
    for (int64_t i = 0; i < r->run_count; i++) {
        const json_t *c = r->runs[i].config_json;
        any = any || cache_is_needed(c);
        open = open || json_is_null(json_object_get(json_object_get(c, "train"), "steps"));
    }
    if (any)
        cli_note(cli, "the text is tokenised by `run`, not here: how many tokens it has%s, and "
                 "whether all of it can be read, is known then", open ? ", how many steps its "
                 "epochs are" : "");
}

/* Which token ends the documents of each row's text; other checks say what is wrong with it. */
static void note_ends(const struct cli *cli, const struct resolution *r) {
    char text[TOKENIZER_END_CAP];
    for (int64_t i = 0; i < r->run_count; i++) {
        const json_t *data = json_object_get(r->runs[i].config_json, "data");
        struct tokenizer_choice choice;
        struct err ignored;
        if (same_data(r, i) || !cache_is_needed(r->runs[i].config_json) ||
            strcmp(json_text(data, "kind", ""), "text") ||
            cache_tokenizer(data, cli_value(cli, "data-root"), NULL, &choice, &ignored) != OK)
            continue;
        tokenizer_end_text(&choice, text);
        cli_note(cli, "%s: %s", r->runs[i].name, text);
        tokenizer_choice_free(&choice);
    }
}

/* Warns of text that may be none. */
static void look_at_text(const struct cli *cli, const struct resolution *r) {
    const char *root = cli_value(cli, "data-root");
    char warning[TEXT_HEAD_CAP];
    for (int64_t i = 0; i < r->run_count; i++) {
        struct err ignored; /* ask_trainer() has refused other formats */
        if (same_data(r, i) || text_look(r->runs[i].config_json, root, warning, &ignored) != OK)
            continue;
        if (*warning) cli_warn(cli, "%s: %s", r->runs[i].name, warning);
    }
}

/* What a row's inputs from files are. Those that are absent are a warning only, since another
 * machine may have them. */
enum presence { PRESENT, ABSENT, REJECTED };

static enum presence presence_of(enum status st) {
    return st == OK ? PRESENT : st == ERR_IO ? ABSENT : REJECTED;
}

static enum presence worse(enum presence a, enum presence b) { return a > b ? a : b; }

/* Of all rows; rows in a row that have the same fault give one line. */
static enum presence look_for_data(const struct cli *cli, const struct resolution *r) {
    const char *root = cli_value(cli, "data-root");
    enum presence all = PRESENT;
    char said[sizeof((struct err *)0)->text] = "";
    for (int64_t i = 0; i < r->run_count; i++) {
        struct err e = { 0 };
        bool text = cache_is_needed(r->runs[i].config_json);
        enum status st = text ? cache_text_check(r->runs[i].config_json, root, &e)
                              : open_data(r->runs[i].config_json, root, &e);
        all = worse(all, presence_of(st));
        if (st == OK || !strcmp(said, e.text)) continue;
        snprintf(said, sizeof said, "%s", e.text);
        if (st == ERR_IO) image_data_hint(r->runs[i].config_json, &e);
        data_comma_hint(r->data_paths, root, &e);
        cli_warn(cli, "%s: its data %s: %s", r->runs[i].name,
                 st == ERR_IO ? "cannot be read here" : "would be rejected", e.text);
    }
    return all;
}

/* The same for the weights of `init`, of which only a run reads the values. */
static enum presence look_for_weights(const struct cli *cli, const struct resolution *r) {
    enum presence all = PRESENT;
    char said[sizeof((struct err *)0)->text] = "";
    for (int64_t i = 0; i < r->run_count; i++) {
        struct err e = { 0 };
        enum status st = init_look(r->runs[i].config_json, cli_value(cli, "data-root"),
                                   cli_runs(cli), &e);
        all = worse(all, presence_of(st));
        if (st == OK || !strcmp(said, e.text)) continue;
        snprintf(said, sizeof said, "%s", e.text);
        cli_warn(cli, "%s: its weights %s: %s", r->runs[i].name,
                 st == ERR_IO ? "cannot be read here" : "would be rejected", e.text);
    }
    return all;
}

/* What only the disk and the files show; returns the exit code. After a fault there is no next
 * command. */
static int look_at_files(const struct cli *cli, const struct resolution *r,
                         const struct keep_disk *disk, const struct token_room *tokens) {
    script_note_idle_keys(cli, r);
    int room = disk_room_check(cli, r, disk);
    if (room == EXIT_OK) token_room_warn(cli, tokens, disk);
    note_text(cli, r);
    note_ends(cli, r);
    look_at_text(cli, r);
    init_tokenizer_warn(cli, r, cli_value(cli, "data-root"));
    enum presence weights = look_for_weights(cli, r), all = worse(look_for_data(cli, r), weights);
    if (all == REJECTED) return EXIT_USAGE;
    if (room != EXIT_OK) return room;
    script_next(cli, all == PRESENT && !asks_for_a_machine(r) ? "run" : "plan", false);
    return EXIT_OK;
}

/* ---- the verb -------------------------------------------------------------------------------- */

/* Without one of the flags nothing is known of the machine: the script may be for another one. */
static enum status read_machine(const struct cli *cli, struct asked_machine *out, json_t **facts,
                                struct err *e) {
    int cc;
    char note[FACTS_NOTE_CAP];
    out->backend = cli_value(cli, "backend");
    out->caps = cli_value(cli, "caps");
    if (out->backend) TRY(backend_check_name(out->backend, e));
    if (out->caps) TRY(device_capability(out->caps, &cc, e));
    if (cli_value(cli, "facts")) TRY(facts_load(cli_value(cli, "facts"), facts, e));
    out->facts = *facts;
    bool gpu = !out->caps && (!out->backend || strcmp(out->backend, "cpu") != 0);
    if (gpu && facts_strange_capability(*facts, note)) cli_warn(cli, "%s", note);
    const char *missing = backend_without_gpu("auto");
    if (out->backend && !strcmp(out->backend, "cuda") && !out->caps && !*facts && missing)
        cli_warn(cli, "the run is checked for some NVIDIA GPU. It may not run here: %s. "
                 "--caps sm_90 or --facts FILE checks it for the GPU that it needs", missing);
    return OK;
}

static int check(const struct cli *cli) {
    struct resolution r = { 0 };
    struct asked_machine machine = { 0 };
    const char *root = cli_value(cli, "data-root");
    json_t *facts = NULL;
    struct err e = { 0 };
    int code = EXIT_OK;
    enum status st = read_machine(cli, &machine, &facts, &e);
    if (st == OK) st = script_read(cli, &r, &e);
    struct keep_disk disk = { 0 };
    struct token_room tokens = { 0 };
    struct keep *keeps = calloc((size_t)r.run_count + 1, sizeof *keeps);
    print_log(cli, r.log);
    if (st == OK && !keeps) st = FAIL(&e, ERR_MEMORY, "%" PRId64 " runs", r.run_count);
    if (st == OK) st = ask_trainer(cli->args[0], root, &machine, &r, keeps, &e);
    bool here = !cli_has(cli, "facts"); /* else runs are written to another machine's disk */
    if (st == OK && here) st = disk_room_find(cli_runs(cli), &r, keeps, &disk, &e);
    if (st == OK && here) st = token_room_find(cli_runs(cli), root, &r, &tokens, &e);
    if (st == ERR_CONFIG && r.error_count) {
        script_say_errors(cli, &r);
        st = FAIL(&e, ERR_CONFIG, "%" PRId64 " error%s", r.error_count,
                  r.error_count == 1 ? "" : "s");
        code = script_fail(cli, &r, &e);
    } else if (st != OK) {
        code = cli_fail(cli, &e);
    } else if (cli_has(cli, "resolved")) {
        for (int64_t i = 0; i < r.run_count; i++) cli_out_json(cli, r.runs[i].config_json);
    } else if (cli->json) {
        print_json(cli, &r, keeps, &disk, &tokens);
    } else {
        print_table(cli, &r);
        print_trained(cli, &r);
        keep_say(cli, keeps, r.run_count, true);
        keep_say_disk(cli, &disk);
        token_room_say(cli, &tokens);
    }
    if (st == OK) code = look_at_files(cli, &r, &disk, &tokens); /* `plan` reads no data */
    free(keeps);
    json_decref(facts);
    resolution_destroy(&r);
    return code;
}

const struct verb VERB_CHECK = {
    .name = "check",
    .arguments = "FILE.lua",
    .about = "list what a script would run, or all its errors",
    .more = "Runs nothing. Exits with 2 after listing the errors of all rows. Missing data or\n"
            "weights are a warning. Those that `run` would reject are an error. Exits with 6 if\n"
            "the disk has no room for the checkpoints.\n"
            SCRIPT_SET_FORMS,
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = check,
};
