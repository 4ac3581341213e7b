#include "runner/script/resolve.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/canonical.h"
#include "runner/base/nearest.h"
#include "runner/base/run_files.h"
#include "runner/cache/eval_sets.h"
#include "runner/plan/options.h"
#include "runner/plan/run_length.h"
#include "runner/script/model_files.h"
#include "runner/script/render.h"
#include "runner/script/resolve_script.h"
#include "runner/script/script.h"
#include "runner/script/token_paths.h"

/* ---- where the shared presets are ------------------------------------------------------------ */
static void fold_dots(char path[PATH_CAP]) {
    char *real = realpath(path, NULL);
    if (real && strlen(real) < PATH_CAP) snprintf(path, PATH_CAP, "%s", real);
    free(real);
}

void resolve_find_lib(char out[PATH_CAP]) {
    static const char *const BESIDE[] = { "../../experiments/lib", "../experiments/lib",
                                          "experiments/lib", "../share/fp8lab/experiments/lib" };
    char self[PATH_CAP / 2], folder[PATH_CAP];
    snprintf(out, PATH_CAP, "experiments/lib");
    if (path_is_directory(out)) return;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    path_parent(folder, self);
    for (size_t i = 0; n > 0 && i < sizeof BESIDE / sizeof *BESIDE; i++)
        if (path_join(out, folder, BESIDE[i], NULL) == OK && path_is_directory(out)) {
            fold_dots(out); /* people see it in messages */
            return;
        }
    out[0] = '\0';
}

/* ---- reading the child's report -------------------------------------------------------------- */
static char *copy_text(const json_t *object, const char *key) {
    return strdup(json_text(object, key, ""));
}

static enum status read_files(const json_t *files, struct resolution *out, struct err *e) {
    size_t count = json_array_size(files);
    out->files = calloc(count ? count : 1, sizeof *out->files);
    if (!out->files) return FAIL(e, ERR_MEMORY, "%zu source files", count);
    for (size_t i = 0; i < count; i++) {
        const json_t *f = json_array_get(files, i);
        struct resolved_file *to = &out->files[out->file_count++];
        to->name = copy_text(f, "name");
        to->path = copy_text(f, "path");
        to->text = copy_text(f, "text");
        snprintf(to->sha256, sizeof to->sha256, "%s", json_text(f, "sha256", ""));
        if (!to->name || !to->path || !to->text) return FAIL(e, ERR_MEMORY, "source files");
    }
    return OK;
}

/* Line `line` of a loaded file, without its end; NULL when there is none. */
static char *source_line(const struct resolution *r, const char *path, int line) {
    for (int64_t i = 0; i < r->file_count; i++) {
        if (strcmp(r->files[i].path, path) != 0) continue;
        const char *at = r->files[i].text;
        for (int k = 1; at && k < line; k++) {
            at = strchr(at, '\n');
            if (at) at++;
        }
        return at && *at ? strndup(at, strcspn(at, "\n")) : NULL;
    }
    return NULL;
}

static enum status add_error(struct resolution *out, const char *file, const char *origin,
                             int line, int column, const char *key, const char *text,
                             struct err *e) {
    struct resolved_error *x = &out->errors[out->error_count++];
    char where[PATH_CAP];
    if (origin || line == 0)
        snprintf(where, sizeof where, "%s", origin ? origin : file);
    else
        snprintf(where, sizeof where, "%s:%d", file, line);
    *x = (struct resolved_error){ .where = strdup(where), .key = strdup(key), .text = strdup(text),
                                  .line = line, .column = column };
    if (line && !origin) x->source = source_line(out, file, line);
    if (!x->where || !x->key || !x->text) return FAIL(e, ERR_MEMORY, "the list of errors");
    return OK;
}

/* A Lua error is "file:line: text", or "file: text" for a whole file. Moves its place into the
 * fields that the other errors use. */
static enum status add_lua_error(struct resolution *out, const char *script, const char *text,
                                 struct err *e) {
    char file[PATH_CAP];
    size_t n = strlen(script);
    if (!strncmp(text, script, n) && !strncmp(text + n, ": ", 2))
        return add_error(out, script, NULL, 0, 0, "", text + n + 2, e);
    const char *colon = strchr(text, ':');
    int line = colon ? atoi(colon + 1) : 0;
    const char *rest = line > 0 ? strchr(colon + 1, ':') : NULL;
    if (!rest || rest[1] != ' ' || colon - text >= PATH_CAP)
        return add_error(out, script, NULL, 0, 0, "", text, e);
    snprintf(file, sizeof file, "%.*s", (int)(colon - text), text);
    return add_error(out, file, NULL, line, 0, "", rest + 2, e);
}

static enum status read_errors(const json_t *report, const char *script, struct resolution *out,
                               struct err *e) {
    const json_t *list = json_object_get(report, "diagnostics");
    const char *lua = json_text(report, "error", NULL);
    size_t count = json_array_size(list);
    out->errors = calloc(count + 1, sizeof *out->errors);
    if (!out->errors) return FAIL(e, ERR_MEMORY, "%zu errors", count);
    if (lua) TRY(add_lua_error(out, script, lua, e));
    for (size_t i = 0; i < count; i++) {
        const json_t *x = json_array_get(list, i);
        TRY(add_error(out, json_text(x, "file", script), json_text(x, "origin", NULL),
                      (int)json_int(x, "line"),
                      (int)json_int(x, "column"),
                      json_text(x, "path", ""), json_text(x, "text", ""), e));
    }
    return OK;
}

static enum status write_config(struct resolved_run *run, struct err *e) {
    free(run->config);
    run->config = NULL;
    TRY(json_canonical(run->config_json, &run->config, &run->config_bytes, e));
    return sha256_bytes(run->config, run->config_bytes, run->config_sha256, e);
}

enum status resolved_run_count_steps(struct resolved_run *run, const json_t *tokens,
                                     struct err *e) {
    json_t *trained;
    if (!json_is_null(json_object_get(json_object_get(run->config_json, "train"), "steps")))
        return OK;
    TRY(options_with_shards(run->config_json, tokens, &trained, e));
    enum status st = epochs_resolve(trained, NULL, 0, e); /* both have the same section train */
    json_decref(trained);
    return st == OK ? write_config(run, e) : st;
}

static enum status read_runs(const json_t *result, struct resolution *out, struct err *e) {
    const json_t *runs = json_object_get(result, "runs");
    size_t count = json_array_size(runs);
    out->runs = calloc(count ? count : 1, sizeof *out->runs);
    if (!out->runs) return FAIL(e, ERR_MEMORY, "%zu runs", count);
    out->suite = json_is_true(json_object_get(result, "suite"));
    out->name = copy_text(result, "name");
    out->about = copy_text(result, "about");
    out->replaced = copy_text(result, "replaced");
    out->factor = copy_text(result, "factor");
    if (!out->name || !out->about || !out->replaced || !out->factor)
        return FAIL(e, ERR_MEMORY, "names");
    for (size_t i = 0; i < count; i++) {
        const json_t *run = json_array_get(runs, i);
        struct resolved_run *to = &out->runs[out->run_count++];
        to->name = copy_text(run, "name");
        to->config_json = json_incref(json_object_get(run, "config"));
        to->cell = json_incref(json_object_get(run, "cell"));
        if (!to->name) return FAIL(e, ERR_MEMORY, "run names");
    }
    return OK;
}

/* Adds what the files of the data say: their names and the steps of epochs. */
static enum status complete_runs(const struct pattern_source *data, struct resolution *r,
                                 struct err *e) {
    for (int64_t i = 0; i < r->run_count; i++) {
        struct resolved_run *run = &r->runs[i];
        TRY(data_patterns_expand(run->config_json, data, e));
        json_t *config;
        TRY(token_paths_cut(run->config_json, &config, e));
        json_decref(run->config_json);
        run->config_json = config;
        TRY(eval_sets_check(run->config_json, data->root, !data->known, e));
        enum status st = epochs_resolve(run->config_json, data->root, data->epoch_steps, e);
        if (st != OK) return data_comma_hint(r->data_paths, data->root, e), st;
        TRY(write_config(run, e));
    }
    return OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */
/* Reads the models that the script names, and evaluates it again with their keys. */
static enum status evaluate_again(const struct resolve_options *options,
                                  const struct script_task *task, json_t **report,
                                  struct err *e) {
    const struct script_changes *changes = task->argument;
    const struct model_source source = { options->path, options->data.root,
                                         options->stored_models };
    const json_t *wanted = json_object_get(json_object_get(*report, "result"), "models");
    json_t *files = json_array();
    enum status st = model_files_read(&source, wanted, changes->models, files, e);
    json_decref(*report);
    *report = NULL;
    if (st == OK) st = script_evaluate(task, report, e);
    if (*report && json_array_extend(json_object_get(*report, "files"), files) != 0)
        st = FAIL(e, ERR_MEMORY, "source files");
    json_decref(files);
    return st;
}

/* *report is NULL after an error that has no place in the script. */
static enum status evaluate(const struct resolve_options *options, struct resolution *out,
                            json_t **report, struct err *e) {
    char lib[PATH_CAP];
    if (!options->lib) resolve_find_lib(lib);
    out->lib = strdup(options->lib ? options->lib : lib);
    if (!out->lib) return FAIL(e, ERR_MEMORY, "the folder of the presets");
    struct script_changes changes = { .overrides = options->overrides,
                                      .override_count = options->override_count,
                                      .smoke = options->smoke, .models = json_object() };
    struct script_task task = { .path = options->path,
                                .lib = *out->lib ? out->lib : NULL,
                                .body = resolve_script,
                                .argument = &changes };
    enum status st = script_evaluate(&task, report, e);
    if (st == OK && json_object_get(json_object_get(*report, "result"), "models"))
        st = evaluate_again(options, &task, report, e);
    json_decref(changes.models);
    return st;
}

/* The value of the last override "KEY=VALUE", or NULL. */
static const char *last_set(const struct resolve_options *options, const char *key) {
    const char *value = NULL;
    for (int64_t i = 0; i < options->override_count; i++)
        if (!strncmp(options->overrides[i], key, strlen(key)))
            value = options->overrides[i] + strlen(key);
    return value;
}

enum status resolve_experiment(const struct resolve_options *options, struct resolution *out,
                               struct err *e) {
    json_t *report = NULL;
    *out = (struct resolution){ .smoke = options->smoke };
    const char *paths = last_set(options, "data.paths=");
    if (paths && !(out->data_paths = strdup(paths))) return FAIL(e, ERR_MEMORY, "--set %s", paths);
    enum status st = evaluate(options, out, &report, e);
    if (!report) return st;
    enum status read = read_files(json_object_get(report, "files"), out, e);
    out->log = copy_text(report, "log");
    if (read == OK && !out->log) read = FAIL(e, ERR_MEMORY, "what the script printed");
    if (read == OK && st == ERR_CONFIG) read = read_errors(report, options->path, out, e);
    if (read == OK && st == OK) read = read_runs(json_object_get(report, "result"), out, e);
    if (read == OK && st == OK) read = resolution_keep(out, options->only, options->only_count, e);
    if (read == OK && st == OK) read = complete_runs(&options->data, out, e);
    json_decref(report);
    if (read != OK) return read;
    if (st == ERR_CONFIG && out->error_count) {
        const struct resolved_error *first = &out->errors[0];
        char more[40] = "";
        if (out->error_count > 1)
            snprintf(more, sizeof more, " (and %d more)", (int)out->error_count - 1);
        return FAIL(e, ERR_CONFIG, "%s: %s%s%s%s", first->where, first->key,
                    *first->key ? ": " : "", first->text, more);
    }
    return st;
}

static void free_run(struct resolved_run *run) {
    free(run->name);
    free(run->config);
    json_decref(run->config_json);
    json_decref(run->cell);
}

/* The name that is nearest to a pattern without its stars, or NULL. Borrowed from the runs. */
static const char *nearest_run(const struct resolution *r, const char *pattern) {
    char plain[256];
    size_t n = 0;
    const char **names = calloc((size_t)r->run_count + 1, sizeof *names);
    for (; *pattern && n + 1 < sizeof plain; pattern++)
        if (*pattern != '*') plain[n++] = *pattern;
    plain[n] = '\0';
    for (int64_t i = 0; names && i < r->run_count; i++) names[i] = r->runs[i].name;
    const char *nearest = names ? nearest_name(plain, names, r->run_count) : NULL;
    free(names);
    return nearest;
}

static enum status no_such_run(const struct resolution *r, const char *pattern, struct err *e) {
    enum { NAMED = 8 };
    const char *nearest = nearest_run(r, pattern);
    struct text names = { 0 };
    char more[40] = "";
    for (int64_t i = 0; i < r->run_count && i < NAMED; i++) {
        text_puts(&names, i ? ", " : "");
        text_puts(&names, r->runs[i].name);
    }
    if (r->run_count > NAMED)
        snprintf(more, sizeof more, " and %" PRId64 " more", r->run_count - NAMED);
    (void)FAIL(e, ERR_ARG, "--only %.200s: no run has such a name%s%s%s; the run%s %s%s%s%s%s",
               pattern, nearest ? " (nearest: " : "", nearest ? nearest : "", nearest ? ")" : "",
               r->run_count == 1 ? " is" : "s are",
               names.bytes && !names.failed ? names.bytes : "others", more,
               *r->replaced ? "; --set replaced the axis " : "", r->replaced,
               *r->replaced ? ", so no name contains its value" : "");
    text_free(&names);
    return ERR_ARG;
}

enum status resolution_keep(struct resolution *r, const char *const *patterns, int64_t count,
                            struct err *e) {
    for (int64_t p = 0; p < count; p++) {
        bool fits = false;
        for (int64_t i = 0; i < r->run_count; i++)
            fits = fits || fnmatch(patterns[p], r->runs[i].name, 0) == 0;
        if (!fits) return no_such_run(r, patterns[p], e);
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < r->run_count; i++) {
        bool wanted = count == 0;
        for (int64_t p = 0; p < count; p++)
            wanted = wanted || fnmatch(patterns[p], r->runs[i].name, 0) == 0;
        if (wanted) r->runs[kept++] = r->runs[i];
        else free_run(&r->runs[i]);
    }
    r->run_count = kept;
    return OK;
}

void resolution_destroy(struct resolution *r) {
    for (int64_t i = 0; i < r->run_count; i++) free_run(&r->runs[i]);
    for (int64_t i = 0; i < r->file_count; i++) {
        free(r->files[i].name);
        free(r->files[i].path);
        free(r->files[i].text);
    }
    for (int64_t i = 0; i < r->error_count; i++) {
        free(r->errors[i].where);
        free(r->errors[i].key);
        free(r->errors[i].text);
        free(r->errors[i].source);
    }
    free(r->runs);
    free(r->files);
    free(r->errors);
    free(r->name);
    free(r->about);
    free(r->replaced);
    free(r->factor);
    free(r->data_paths);
    free(r->log);
    free(r->lib);
    *r = (struct resolution){ 0 };
}

enum status resolution_check_files(const struct resolution *r, const json_t *files,
                                   struct err *e) {
    const json_t *file;
    size_t k;
    json_array_foreach(files, k, file) {
        const char *name = json_text(file, "name", ""), *path = name;
        bool same = false;
        for (int64_t i = 0; i < r->file_count && !same; i++) {
            if (strcmp(r->files[i].name, name) != 0) continue;
            path = r->files[i].path;
            same = !strcmp(r->files[i].sha256, json_text(file, "sha256", ""));
        }
        if (!same)
            return FAIL(e, ERR_CONFIG, "%s changed after the script was read; start again", path);
    }
    return OK;
}

struct chat_render_source resolution_render(const struct resolution *r) {
    return script_render(r->files[0].path, *r->lib ? r->lib : NULL);
}

enum { EXCERPT_BYTES = 100 };

static bool is_continuation(char c) { return ((unsigned char)c & 0xc0) == 0x80; } /* of UTF-8 */

/* The part of a source line around the column, with a caret below if the column is known. */
static void add_excerpt(struct text *t, const struct resolved_error *x) {
    const char *source = x->source;
    size_t n = strlen(source), begin = 0, end = n;
    bool known = x->column > 0 && (size_t)x->column <= n;
    size_t at = known ? (size_t)x->column - 1 : 0;
    char line[32];
    if (n > EXCERPT_BYTES) {
        begin = at > EXCERPT_BYTES / 2 ? at - EXCERPT_BYTES / 2 : 0;
        if (begin > n - EXCERPT_BYTES) begin = n - EXCERPT_BYTES;
        end = begin + EXCERPT_BYTES;
        while (is_continuation(source[begin])) begin++;
        while (is_continuation(source[end])) end++;
    }
    snprintf(line, sizeof line, "%5d | ", x->line);
    text_puts(t, line);
    text_puts(t, begin ? "..." : "");
    text_add(t, source + begin, end - begin);
    text_puts(t, end < n ? "...\n" : "\n");
    if (!known) return;
    text_puts(t, begin ? "      |    " : "      | ");
    for (size_t i = begin; i < at; i++)
        if (!is_continuation(source[i])) text_puts(t, source[i] == '\t' ? "\t" : " ");
    text_puts(t, "^\n");
}

char *resolved_error_text(const struct resolved_error *x) {
    struct text t = { 0 };
    text_puts(&t, x->where);
    text_puts(&t, ": ");
    if (*x->key) {
        text_puts(&t, x->key);
        text_puts(&t, ": ");
    }
    text_puts(&t, x->text);
    text_puts(&t, "\n");
    if (x->source) add_excerpt(&t, x);
    if (!t.failed) return t.bytes; /* moved to the caller */
    text_free(&t);
    return NULL;
}
