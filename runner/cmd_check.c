/* check: what a script would run, or everything that is wrong with it. Nothing runs. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/commands.h"
#include "runner/script/resolve.h"
#include "runner/script/script_flags.h"

static const struct flag FLAGS[] = {
    { "set", "KEY=VALUE", "override a key: --set train.steps=20", true },
    { "smoke", NULL, "shrink sizes and steps for a rehearsal on a CPU", false },
    { "resolved", NULL, "print the canonical configuration, one line a run", false },
    { "lib", "DIR", "where require finds the shared presets", false },
};

/* What the script printed, and the traceback of its error. */
static void print_log(const struct cli *cli, const char *log) {
    size_t n = log ? strlen(log) : 0;
    while (n && log[n - 1] == '\n') n--; /* cli_note ends the line */
    if (n) cli_note(cli, "%.*s", (int)n, log);
}

static void print_errors(const struct cli *cli, const struct resolution *r) {
    json_t *list = json_array();
    bool failed = false;
    for (int64_t i = 0; i < r->error_count; i++) {
        const struct resolved_error *x = &r->errors[i];
        char *text = resolved_error_text(x);
        if (text && *text) text[strlen(text) - 1] = '\0'; /* cli_warn ends the line */
        cli_warn(cli, "%s", text ? text : x->text);
        free(text);
        /* A script's name, and what is quoted of it, need not be UTF-8. */
        json_append(list, json_pack("{s:o, s:i, s:i, s:o, s:o}", "where", json_from_text(x->where),
                                    "line", x->line, "column", x->column, "key",
                                    json_from_text(x->key), "text", json_from_text(x->text)),
                    &failed);
    }
    if (cli->json) {
        json_t *object = json_pack("{s:s, s:b, s:o}", "schema", "fp8lab.check/1", "ok", 0, "errors",
                                   json_whole(list, failed));
        cli_out_json(cli, object);
        json_decref(object);
    } else {
        json_decref(list);
        cli_warn(cli, "%d error%s", (int)r->error_count, r->error_count == 1 ? "" : "s");
    }
}

static void print_json(const struct cli *cli, const struct resolution *r) {
    json_t *runs = json_array(), *files = json_array();
    bool failed = false;
    for (int64_t i = 0; i < r->run_count; i++)
        json_append(runs, json_pack("{s:s, s:O, s:s, s:O}", "name", r->runs[i].name, "cell",
                                    r->runs[i].cell, "config_sha256", r->runs[i].config_sha256,
                                    "config", r->runs[i].config_json), &failed);
    for (int64_t i = 0; i < r->file_count; i++)
        json_append(files, json_pack("{s:s, s:s}", "name", r->files[i].name, "sha256",
                                     r->files[i].sha256), &failed);
    json_t *object = json_pack("{s:s, s:b, s:b, s:s, s:s, s:b, s:o, s:o}", "schema",
                               "fp8lab.check/1", "ok", 1, "suite", r->suite, "name", r->name,
                               "about", r->about, "smoke", r->smoke, "files",
                               json_whole(files, failed), "runs", runs);
    cli_out_json(cli, object);
    json_decref(object);
}

static const char *text_at(const json_t *object, const char *section, const char *key) {
    return json_text(json_object_get(object, section), key, "");
}

static long long int_at(const json_t *object, const char *section, const char *key) {
    return json_integer_value(json_object_get(json_object_get(object, section), key));
}

static void print_table(const struct cli *cli, const struct resolution *r) {
    cli_out(cli, "%s%s%s%s\n", r->name, *r->about ? ": " : "", r->about,
            r->smoke ? " [smoke]" : "");
    cli_out(cli, "%-48s %-15s %7s %7s %8s %8s %10s\n", "run", "recipe", "layers", "width",
            "seq_len", "steps", "config");
    for (int64_t i = 0; i < r->run_count; i++) {
        const json_t *c = r->runs[i].config_json;
        cli_out(cli, "%-48s %-15s %7lld %7lld %8lld %8lld %10.8s\n", r->runs[i].name,
                text_at(c, "recipe", "kind"), int_at(c, "model", "layers"),
                int_at(c, "model", "width"), int_at(c, "model", "seq_len"),
                int_at(c, "train", "steps"), r->runs[i].config_sha256);
    }
}

/* Then `plan` says next whether this is that machine. */
static bool asks_for_a_machine(const struct resolution *r) {
    bool asks = false;
    for (int64_t i = 0; i < r->run_count; i++) {
        const json_t *hardware = json_object_get(r->runs[i].config_json, "hardware");
        asks = asks || json_text(hardware, "query", NULL);
    }
    return asks;
}

static int check(const struct cli *cli) {
    struct resolution r;
    struct err e = { 0 };
    int64_t count = cli_count(cli, "set");
    const char **overrides = calloc((size_t)count + 1, sizeof *overrides);
    if (!overrides) return EXIT_SYSTEM;
    for (int64_t i = 0; i < count; i++) overrides[i] = cli_nth(cli, "set", i);
    struct resolve_options options = { .path = cli->args[0], .overrides = overrides,
                                       .override_count = count, .smoke = cli_has(cli, "smoke"),
                                       .lib = cli_value(cli, "lib") };
    enum status st = resolve_experiment(&options, &r, &e);
    int code = st == OK ? EXIT_OK : st == ERR_CONFIG ? EXIT_USAGE : EXIT_SYSTEM;
    print_log(cli, r.log);
    if (st == ERR_CONFIG && r.error_count)
        print_errors(cli, &r);
    else if (st != OK)
        code = cli_fail(cli, &e);
    else if (cli_has(cli, "resolved"))
        for (int64_t i = 0; i < r.run_count; i++) cli_out(cli, "%s\n", r.runs[i].config);
    else if (cli->json)
        print_json(cli, &r);
    else
        print_table(cli, &r);
    if (st == OK) script_next(cli, asks_for_a_machine(&r) ? "plan" : "run", false);
    resolution_destroy(&r);
    free(overrides);
    return code;
}

const struct verb VERB_CHECK = {
    .name = "check",
    .arguments = "FILE.lua",
    .about = "what a script would run, or all that is wrong with it",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = check,
};
