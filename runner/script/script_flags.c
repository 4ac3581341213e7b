#include "runner/script/script_flags.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/plan/idle_key.h"

/* The value of a flag that not every verb has; NULL if absent. */
static const char *value_of_any(const struct cli *cli, const char *flag) {
    const char *value = NULL;
    for (int64_t i = 0; i < cli->flag_count; i++)
        if (!strcmp(cli->flags[i].name, flag)) value = cli->flags[i].value;
    return value;
}

void script_say_errors(const struct cli *cli, const struct resolution *r) {
    bool set = false;
    for (int64_t i = 0; i < r->error_count; i++) {
        set |= !strncmp(r->errors[i].where, "--set", 5);
        char *text = resolved_error_text(&r->errors[i]);
        if (text && *text) text[strlen(text) - 1] = '\0'; /* cli_warn ends the line */
        cli_warn(cli, "%s", text ? text : r->errors[i].text);
        free(text);
    }
    if (set && value_of_any(cli, "only"))
        cli_warn(cli, "--set changes every row, also those that --only leaves out; a key that some "
                 "rows lack belongs in the script");
}

/* A script's name and quoted text need not be UTF-8. */
static json_t *errors_json(const struct resolution *r) {
    json_t *list = json_array();
    bool failed = false;
    for (int64_t i = 0; i < r->error_count; i++) {
        const struct resolved_error *x = &r->errors[i];
        json_append(list, json_pack("{s:o, s:i, s:i, s:o, s:o}", "where", json_from_text(x->where),
                                    "line", x->line, "column", x->column, "key",
                                    json_from_text(x->key), "text", json_from_text(x->text)),
                    &failed);
    }
    return json_pack("{s:s, s:b, s:o}", "schema", "fp8lab.check/1", "ok", 0, "errors",
                     json_whole(list, failed));
}

int script_fail(const struct cli *cli, const struct resolution *r, const struct err *e) {
    if (!cli->json || r->error_count == 0) return cli_fail(cli, e);
    cli_warn(cli, "%s", e->text);
    json_t *object = errors_json(r);
    if (object) cli_out_json(cli, object);
    json_decref(object);
    return exit_code_of(e->code);
}

/* Every value of a repeated flag. The array is owned by the caller, its texts are borrowed. */
static const char **values_of(const struct cli *cli, const char *flag) {
    int64_t n = cli_count(cli, flag);
    const char **values = calloc((size_t)n + 1, sizeof *values);
    for (int64_t i = 0; values && i < n; i++) values[i] = cli_nth(cli, flag, i);
    return values;
}

/* Only `run` reads the data. A launched run reads them elsewhere, where other files may exist. */
static struct pattern_source data_of(const struct cli *cli) {
    bool reads = !strcmp(cli->verb->name, "run") && !value_of_any(cli, "launch");
    return (struct pattern_source){ .root = value_of_any(cli, "data-root"), .must_match = reads };
}

/* gpus: replaces hardware.gpus; NULL: does not. */
static enum status read_script(const struct cli *cli, const char *gpus, struct resolution *out,
                               struct err *e) {
    int64_t n = cli_count(cli, "set");
    const char **overrides = values_of(cli, "set"), **only = values_of(cli, "only");
    enum status st = overrides && only ? OK : FAIL(e, ERR_MEMORY, "--set and --only");
    char asked[32];
    snprintf(asked, sizeof asked, "hardware.gpus=%s", gpus ? gpus : "");
    if (gpus && st == OK) overrides[n++] = asked;
    struct resolve_options options = {
        .path = cli->args[0], .overrides = overrides, .override_count = n,
        .smoke = cli_has(cli, "smoke"), .lib = cli_value(cli, "lib"), .data = data_of(cli),
        .only = only, .only_count = cli_count(cli, "only"),
    };
    if (st == OK) st = resolve_experiment(&options, out, e);
    free(only);
    free(overrides);
    return st;
}

enum status script_read(const struct cli *cli, struct resolution *out, struct err *e) {
    return read_script(cli, NULL, out, e);
}

/* What the verb did not do, since the script has errors; "": the errors say enough. */
static const char *undone(const struct cli *cli) {
    static const struct { const char *verb, *text; } VERBS[] = {
        { "run", "; nothing was run" },
        { "plan", "; nothing was planned" },
        { "advise", "; there is no advice" },
        { "bench", "; nothing was measured" },
    };
    for (size_t i = 0; i < sizeof VERBS / sizeof *VERBS; i++)
        if (!strcmp(cli->verb->name, VERBS[i].verb)) return VERBS[i].text;
    return "";
}

enum status script_resolve(const struct cli *cli, const char *gpus, struct resolution *out,
                           struct err *e) {
    enum status st = read_script(cli, gpus, out, e);
    if (out->error_count == 0) return st;
    script_say_errors(cli, out);
    return FAIL(e, st, "%" PRId64 " error%s in %s%s", out->error_count,
                out->error_count == 1 ? "" : "s", cli->args[0], undone(cli));
}

/* Flags with the same meaning for the next command. A run is on this machine. */
static bool is_carried(const char *flag, const char *verb) {
    static const char *const CARRIED[] = { "set", "only", "lib", "smoke", "anywhere", "backend",
                                           "threads", "runs", "retries", "hang-after", "keep-dir",
                                           "data-root", "arithmetic", "repeat", "side-by-side" };
    for (size_t i = 0; i < sizeof CARRIED / sizeof *CARRIED; i++)
        if (!strcmp(flag, CARRIED[i])) return true;
    return !strcmp(flag, "facts") && strcmp(verb, "run") != 0;
}

void script_next(const struct cli *cli, const char *verb, bool smoke_here) {
    size_t flags = (size_t)cli->flag_count;
    const char **words = calloc(2 * flags + 6, sizeof *words);
    char(*dashed)[32] = calloc(flags + 1, sizeof *dashed);
    int64_t n = 0;
    if (!words || !dashed) goto done;
    words[n++] = verb;
    if (smoke_here) words[n++] = "--smoke";
    if (smoke_here) words[n++] = "--anywhere";
    for (size_t i = 0; i < flags; i++) {
        const struct cli_flag *flag = &cli->flags[i];
        bool there = smoke_here &&
                     (!strcmp(flag->name, "smoke") || !strcmp(flag->name, "anywhere"));
        if (!smoke_here && !strcmp(flag->name, "ranks")) { /* run has --set for it */
            snprintf(dashed[i], sizeof dashed[i], "hardware.gpus=%s", flag->value);
            words[n++] = "--set";
            words[n++] = dashed[i];
        }
        if (there || !is_carried(flag->name, verb)) continue;
        snprintf(dashed[i], sizeof dashed[i], "--%s", flag->name);
        words[n++] = dashed[i];
        if (flag->value) words[n++] = flag->value;
    }
    if (cli->args[0][0] == '-') words[n++] = "--";
    words[n++] = cli->args[0];
    cli_next_words(cli, words);
done:
    free(dashed);
    free(words);
}

void script_note_idle_keys(const struct cli *cli, const struct resolution *r) {
    const struct resolved_run *first = NULL;
    int64_t count = 0;
    char more[40] = "";
    for (int64_t i = 0; i < r->run_count; i++) {
        if (!idle_key_text(r->runs[i].config_json, r->smoke)) continue;
        if (!first) first = &r->runs[i];
        count++;
    }
    if (!first) return;
    if (count > 1) snprintf(more, sizeof more, " and %" PRId64 " more", count - 1);
    cli_note(cli, "%s%s: %s", first->name, more, idle_key_text(first->config_json, r->smoke));
}
