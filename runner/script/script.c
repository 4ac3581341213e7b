#include "runner/script/script.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/script/script_child.h"

/* ---- the child: evaluates and reports -------------------------------------------------------- */
struct child_context {
    const struct script_task *task;
    const struct script_limits *limits;
    struct script_trail *trail;
};

struct evaluation {
    const struct script_task *task;
    struct text result;
};

/* Runs the main chunk, then the task's body. [raises] */
static void evaluate(struct script *s, void *argument) {
    struct evaluation *v = argument;
    script_run(s, v->task->path, v->task->lib);
    v->task->body(s, v->task->argument, &v->result);
}

static int compare_text(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : ""); }

static int compare_diagnostics(const void *left, const void *right) {
    const struct diagnostic *a = left, *b = right;
    int order = compare_text(a->place.file, b->place.file);
    if (!order) order = compare_text(a->place.origin, b->place.origin);
    if (!order) order = (a->place.line > b->place.line) - (a->place.line < b->place.line);
    if (!order) order = (a->place.column > b->place.column) - (a->place.column < b->place.column);
    if (!order) order = compare_text(a->path, b->path);
    return order ? order : compare_text(a->text, b->text);
}

static void add_text_member(struct text *out, const char *key, const char *text) {
    canonical_add_string(out, key, strlen(key));
    text_puts(out, ":");
    if (text)
        canonical_add_string(out, text, strlen(text));
    else
        text_puts(out, "null");
}

static void write_diagnostics(struct text *out, const struct diagnostics *d) {
    if (d->count) qsort(d->list, (size_t)d->count, sizeof *d->list, compare_diagnostics);
    text_puts(out, "\"diagnostics\":[");
    for (int64_t i = 0; i < d->count; i++) {
        const struct diagnostic *x = &d->list[i];
        text_puts(out, i ? ",{\"line\":" : "{\"line\":");
        canonical_add_int(out, x->place.line);
        text_puts(out, ",\"column\":");
        canonical_add_int(out, x->place.column);
        text_puts(out, ",");
        add_text_member(out, "file", x->place.file);
        text_puts(out, ",");
        add_text_member(out, "origin", x->place.origin);
        text_puts(out, ",");
        add_text_member(out, "path", x->path);
        text_puts(out, ",");
        add_text_member(out, "text", x->text);
        text_puts(out, "}");
    }
    text_puts(out, "],");
}

static void write_files(struct text *out, const struct script *s) {
    text_puts(out, "\"files\":[");
    for (int64_t i = 0; i < s->file_count; i++) {
        const struct script_file *f = &s->files[i];
        text_puts(out, i ? ",{" : "{");
        add_text_member(out, "name", f->name);
        text_puts(out, ",");
        add_text_member(out, "path", f->path);
        text_puts(out, ",");
        add_text_member(out, "sha256", f->sha256);
        text_puts(out, ",\"text\":");
        canonical_add_string(out, f->text, f->bytes);
        text_puts(out, "}");
    }
    text_puts(out, "],");
}

static void write_report(struct text *out, struct script *s, const struct evaluation *v,
                         const char *error) {
    text_puts(out, "{");
    add_text_member(out, "error", error);
    text_puts(out, ",");
    write_diagnostics(out, &s->diagnostics);
    write_files(out, s);
    text_puts(out, "\"log\":");
    canonical_add_string(out, s->log.bytes ? s->log.bytes : "", s->log.size);
    text_puts(out, ",\"result\":");
    text_puts(out, v->result.size && !error ? v->result.bytes : "null");
    text_puts(out, "}");
}

/* The child's body. */
static void report_on(void *context, struct text *report) {
    const struct child_context *c = context;
    struct script *s = calloc(1, sizeof *s);
    struct evaluation v = { .task = c->task };
    struct err e = { 0 };
    report->failed = !s;
    if (!s) return;
    s->limits = c->limits;
    s->trail = c->trail;
    enum status st = script_open(s, &e);
    if (st == OK) st = script_protect(s, evaluate, &v, &e);
    write_report(report, s, &v, st == OK ? NULL : e.text);
    report->failed |= v.result.failed || s->log.failed;
}

/* ---- the parent ------------------------------------------------------------------------------ */
static enum status parse_report(const struct text *text, json_t **report, struct err *e) {
    json_error_t why;
    enum status st = json_parse(report, text->bytes, text->size, JSON_ALLOW_NUL, &why);
    if (st != OK) return FAIL(e, st, "the script's report: %s", why.text);
    const char *error = json_string_value(json_object_get(*report, "error"));
    const json_t *diagnostics = json_object_get(*report, "diagnostics");
    const json_t *first = json_array_get(diagnostics, 0);
    if (error) return FAIL(e, ERR_CONFIG, "%s", error);
    if (!first) return OK;
    return FAIL(e, ERR_CONFIG, "%s", json_string_value(json_object_get(first, "text")));
}

enum status script_evaluate(const struct script_task *task, json_t **report, struct err *e) {
    struct child_context context = { .task = task, .limits = task->limits ? task->limits
                                                                          : &SCRIPT_LIMITS,
                                     .trail = child_trail_create() };
    const struct script_child child = { .path = task->path, .what = "the evaluation",
                                        .limits = context.limits, .trail = context.trail,
                                        .body = report_on, .context = &context };
    struct text text = { 0 };
    *report = NULL;
    if (!context.trail) return FAIL(e, ERR_MEMORY, "mmap: %s", strerror(errno));
    enum status st = child_run(&child, &text, e);
    if (st == OK) {
        st = parse_report(&text, report, e);
    } else if (st == ERR_CONFIG) {
        *report = json_pack("{s:o, s:[], s:[], s:s, s:n}", "error", json_from_text(e->text),
                            "diagnostics", "files", "log", "", "result");
        if (!*report) st = FAIL(e, ERR_MEMORY, "no memory for a report");
    }
    text_free(&text);
    child_trail_destroy(context.trail);
    return st;
}
