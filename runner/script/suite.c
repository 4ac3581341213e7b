#include "runner/script/suite.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runner/script/schema_apply.h"
#include "runner/script/schema_tables.h"
#include "runner/script/schema_types.h"

enum { AXES_MAX = 8 };

/* ---- overrides ------------------------------------------------------------------------------- */
struct override {
    const char *path; /* in full */
    struct value *text;
};

static bool parse_override(struct diagnostics *d, const char *argument, struct override *out) {
    struct place place = { .origin = pool_format(d->pool, "--set %s", argument) };
    const char *equals = strchr(argument, '=');
    bool plain = equals && equals > argument && argument[0] != '.' && equals[-1] != '.';
    for (const char *at = argument; plain && at < equals; at++)
        plain = isalnum((unsigned char)*at) || *at == '_' || *at == '-' || /* layers.0-3 */
                (*at == '.' && at[1] != '.');
    if (!plain) {
        diagnostics_add(d, place, "", "expected KEY=VALUE, as in train.steps=20");
        return false;
    }
    const char *key = pool_copy_n(d->pool, argument, (size_t)(equals - argument));
    out->path = schema_expand_path(d->pool, key);
    out->text = value_new(d->pool, VALUE_TEXT, place);
    out->text->string = pool_copy(d->pool, equals + 1);
    out->text->string_bytes = strlen(equals + 1);
    return true;
}

/* Whether setting `path` replaces the value at `below`. */
static bool covers(const char *path, const char *below) {
    size_t n = strlen(path);
    return strncmp(path, below, n) == 0 && (below[n] == '\0' || below[n] == '.');
}

/* ---- --set of an axis ------------------------------------------------------------------------ */
/* True for "matrix.seed", and for "matrix" alone, which is rejected later. */
static bool sets_axis(const struct override *o) {
    return covers("matrix", o->path);
}

/* A JSON list of values. A word becomes text, as without JSON, unless a comma would cut it. NULL
 * after a diagnostic. */
static struct value *json_values(struct diagnostics *d, const struct override *o) {
    const char *why;
    struct value *list = schema_json_list(d->pool, o->text, &why);
    if (!list)
        diagnostics_add(d, o->text->place, o->path, "values that begin with [ are a JSON list, "
                        "such as [1,2] or [[\"a,b.txt\"],[\"c.txt\"]]; this is not valid "
                        "JSON: %s", why);
    for (int64_t i = 0; list && i < list->item_count; i++) {
        struct value *item = list->items[i];
        if (item->type == VALUE_STRING && *item->string != '[' && !strchr(item->string, ','))
            item->type = VALUE_TEXT;
    }
    return list;
}

/* "1,2" as a list of values: numbers, true, false, and words that the schema reads later. NULL
 * after a diagnostic. */
static struct value *axis_values(struct diagnostics *d, const struct override *o) {
    const struct value *text = o->text;
    if (*text->string == '[') return json_values(d, o);
    struct value *list = value_new(d->pool, VALUE_TABLE, text->place);
    for (const char *at = text->string;; at++) {
        size_t n = strcspn(at, ",");
        struct value *item = value_new(d->pool, VALUE_TEXT, text->place);
        item->string = pool_copy_n(d->pool, at, n);
        item->string_bytes = n;
        value_append(d->pool, list, schema_text_scalar(d->pool, item));
        if (n == 0)
            diagnostics_add(d, text->place, "", "an axis takes values separated by commas, as in "
                            "--set matrix.seed=1,2");
        at += n;
        if (!*at) return list;
    }
}

/* Whether `path` begins with a key of an experiment, or has a hint as another program's key. False
 * after an error that names the suite's axes. */
static bool can_be_axis(struct diagnostics *d, struct value *matrix, const struct override *o,
                        const char *path) {
    enum { NAMES_MAX = 64 };
    const char *head = pool_copy_n(d->pool, path, strcspn(path, ".")), *names[NAMES_MAX];
    if (schema_field(&SCHEMA_EXPERIMENT, head) || other_name_find(SCHEMA_OTHERS, head)) return true;
    int64_t count = 0;
    struct text axes = { 0 };
    value_sort_members(matrix);
    for (int64_t i = 0; i < matrix->member_count; i++) {
        text_puts(&axes, i ? ", " : "the suite's axes are ");
        text_puts(&axes, matrix->members[i].key);
        /* An axis of the script that no experiment has: the script's error says so. */
        if (strcmp(matrix->members[i].key, head) == 0) {
            text_free(&axes);
            return true;
        }
        if (count < NAMES_MAX) names[count++] = matrix->members[i].key;
    }
    for (const struct field *f = SCHEMA_EXPERIMENT.fields; f->key && count < NAMES_MAX; f++)
        names[count++] = f->key;
    const char *near = nearest_name(head, names, count);
    if (!near) near = schema_near_path(d->pool, head);
    diagnostics_add(d, o->text->place, o->path, "unknown key '%s'; %s%s%s%s", head,
                    axes.bytes ? axes.bytes : "the suite has no axes",
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    text_free(&axes);
    return false;
}

/* Replaces the values of the axis, or adds a new axis. */
static void set_axis(struct diagnostics *d, struct value *matrix, const struct override *o) {
    if (strcmp(o->path, "matrix") == 0) {
        diagnostics_add(d, o->text->place, o->path, "an axis is set by its name, as in --set "
                        "matrix.seed=1,2");
        return;
    }
    const char *path = schema_expand_path(d->pool, o->path + strlen("matrix."));
    if (!can_be_axis(d, matrix, o, path)) return;
    struct value *list = axis_values(d, o);
    if (!list) return;
    for (int64_t i = 0; i < matrix->member_count; i++) {
        struct value_member *m = &matrix->members[i];
        if (strcmp(schema_expand_path(d->pool, m->key), path) != 0) continue;
        m->value = list;
        m->place = o->text->place;
        return;
    }
    value_set(d->pool, matrix, path, list, o->text->place);
}

/* ---- axes ------------------------------------------------------------------------------------ */
struct axis {
    const char *path; /* in full */
    struct place place;
    struct value **values;
    const char **labels;
    int64_t count;
};

/* A label becomes part of a run's name: other characters turn into '_'. */
static const char *clean_label(struct pool *p, const char *text) {
    char *label = pool_copy(p, text);
    for (char *at = label; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("._-", *at)) *at = '_';
    return label;
}

static const char *scalar_text(struct pool *p, const struct value *v) {
    if (v->type == VALUE_STRING) return v->string;
    if (v->type == VALUE_FLOAT) return value_describe(p, v); /* not yet checked: it may be NaN */
    struct text t = { 0 };
    value_write(&t, p, v);
    const char *text = pool_copy(p, t.bytes ? t.bytes : "");
    text_free(&t);
    return text;
}

static bool is_scalar(const struct value *v) {
    return v->type == VALUE_BOOL || v->type == VALUE_INT || v->type == VALUE_FLOAT ||
           v->type == VALUE_STRING;
}

/* "fp8.delayed"; or "fp8.delayed-margin-1" if the axis has several of that kind. */
static const char *table_label(struct pool *p, const struct value *v, bool several) {
    const char *label = v->kind;
    struct value *sorted = value_copy(p, v);
    value_sort_members(sorted);
    for (int64_t i = 0; several && i < sorted->member_count; i++)
        if (is_scalar(sorted->members[i].value))
            label = pool_format(p, "%s-%s-%s", label, sorted->members[i].key,
                                scalar_text(p, sorted->members[i].value));
    return clean_label(p, label);
}

static const char *item_label(struct pool *p, const struct value *axis, int64_t index,
                              const char *path) {
    const struct value *v = axis->items[index];
    const char *leaf = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
    if (v->type == VALUE_STRING || v->type == VALUE_TEXT) return clean_label(p, v->string);
    if (is_scalar(v)) return clean_label(p, pool_format(p, "%s-%s", leaf, scalar_text(p, v)));
    if (v->type != VALUE_TABLE || !v->kind)
        return pool_format(p, "%s%d", leaf, (int)index + 1);
    int same = 0;
    for (int64_t i = 0; i < axis->item_count; i++)
        same += axis->items[i]->kind && strcmp(axis->items[i]->kind, v->kind) == 0;
    return table_label(p, v, same > 1);
}

static bool read_axis(struct diagnostics *d, struct value_member *m, struct axis *out) {
    const struct value *v = m->value;
    out->path = schema_expand_path(d->pool, m->key);
    out->place = m->place;
    out->place.in_matrix = true;
    if (v->type != VALUE_TABLE || v->kind || v->item_count + v->member_count == 0) {
        diagnostics_add(d, m->place, schema_path(d->pool, "matrix", m->key),
                        "expected a list of values, found %s",
                        v->type == VALUE_TABLE && !v->kind ? "an empty one"
                                                           : value_describe(d->pool, v));
        return false;
    }
    out->count = v->item_count + v->member_count;
    out->values = pool_alloc(d->pool, (size_t)out->count * sizeof *out->values);
    out->labels = pool_alloc(d->pool, (size_t)out->count * sizeof *out->labels);
    for (int64_t i = 0; i < v->item_count; i++) {
        out->values[i] = v->items[i];
        out->labels[i] = item_label(d->pool, v, i, out->path);
    }
    value_sort_members(m->value);
    for (int64_t i = 0; i < v->member_count; i++) {
        out->values[v->item_count + i] = v->members[i].value;
        out->labels[v->item_count + i] = clean_label(d->pool, v->members[i].key);
    }
    return true;
}

static int compare_axes(const void *a, const void *b) {
    return strcmp(((const struct axis *)a)->path, ((const struct axis *)b)->path);
}

/* Whether an override replaces the whole axis. An error if the axis is from --set, too: one of the
 * two would have no effect. */
static bool is_replaced(struct diagnostics *d, const struct axis *axis,
                        const struct override *overrides, int64_t count) {
    bool replaced = false;
    for (int64_t i = 0; i < count; i++) {
        if (!covers(overrides[i].path, axis->path)) continue;
        replaced = true;
        if (axis->place.origin)
            diagnostics_add(d, overrides[i].text->place, overrides[i].path, "'%s' makes an axis of "
                            "the same key; leave out one of the two", axis->place.origin);
    }
    return replaced;
}

static int64_t read_axes(struct diagnostics *d, struct value *matrix,
                         const struct override *overrides, int64_t override_count,
                         struct axis axes[AXES_MAX], struct suite *out) {
    int64_t count = 0;
    if (!matrix) return 0;
    if (matrix->type != VALUE_TABLE || matrix->kind || matrix->item_count) {
        diagnostics_add(d, matrix->place, "matrix", "expected a table of lists, such as { recipe = "
                        "{ ... }, seed = { 1, 2 } }, found %s", value_describe(d->pool, matrix));
        return 0;
    }
    for (int64_t i = 0; i < matrix->member_count; i++) {
        if (count == AXES_MAX) {
            diagnostics_add(d, matrix->place, "matrix", "more than %d axes", AXES_MAX);
            break;
        }
        struct axis axis = { 0 };
        if (!read_axis(d, &matrix->members[i], &axis)) continue;
        if (!is_replaced(d, &axis, overrides, override_count)) axes[count++] = axis;
        else out->replaced = pool_format(d->pool, "%s%s%s", out->replaced,
                                         *out->replaced ? ", " : "", axis.path);
    }
    qsort(axes, (size_t)count, sizeof *axes, compare_axes);
    return count;
}

/* ---- expansion ------------------------------------------------------------------------------- */
static void add_run(struct diagnostics *d, struct suite *out, struct suite_run run) {
    if (out->count == out->capacity) {
        out->capacity = out->capacity ? out->capacity * 2 : 16;
        struct suite_run *grown = pool_alloc(d->pool, (size_t)out->capacity * sizeof *grown);
        if (out->count) memcpy(grown, out->runs, (size_t)out->count * sizeof *grown);
        out->runs = grown;
    }
    out->runs[out->count++] = run;
}

/* The cell `number` of the matrix over one base. */
static void add_cell(struct diagnostics *d, struct suite *out, const struct value *base,
                     const struct axis *axes, int64_t axis_count, int64_t number) {
    struct suite_run run = { .tree = value_copy(d->pool, base),
                             .cell = value_new(d->pool, VALUE_TABLE, base->place) };
    int64_t stride = 1, chosen[AXES_MAX];
    for (int64_t i = axis_count - 1; i >= 0; i--) {
        chosen[i] = number / stride % axes[i].count;
        stride *= axes[i].count;
    }
    const struct value *named = value_get(base, "name");
    bool plain = named && named->type == VALUE_STRING && /* else it is rejected later */
                 strlen(named->string) == named->string_bytes;
    const char *name = plain ? named->string : NULL;
    for (int64_t i = 0; i < axis_count; i++) {
        struct value *v = axes[i].values[chosen[i]];
        const char *label = axes[i].labels[chosen[i]];
        schema_set_path(d->pool, run.tree, axes[i].path, value_copy(d->pool, v), axes[i].place);
        value_set(d->pool, run.cell, axes[i].path,
                  is_scalar(v) ? v : value_string(d->pool, label, v->place), v->place);
        if (name) name = pool_format(d->pool, "%s-%s", name, label);
    }
    if (name)
        value_set(d->pool, run.tree, "name", value_string(d->pool, name, named->place),
                  value_member(base, "name")->place);
    add_run(d, out, run);
}

static void add_cells(struct diagnostics *d, struct suite *out, const struct value *base,
                      const struct axis *axes, int64_t axis_count) {
    int64_t cells = 1;
    for (int64_t i = 0; i < axis_count && cells <= RUNS_MAX; i++) cells *= axes[i].count;
    if (cells + out->count > RUNS_MAX) {
        diagnostics_add(d, axis_count ? axes[0].place : base->place, "matrix",
                        "more than %d runs", RUNS_MAX);
        return;
    }
    for (int64_t number = 0; number < cells; number++)
        add_cell(d, out, base, axes, axis_count, number);
}

/* The experiments that are items of a suite. Other keys of the suite are errors: they would
 * conflict with those of the experiments. */
static void expand_items(struct diagnostics *d, const struct value *suite, struct suite *out,
                         const struct axis *axes, int64_t axis_count) {
    for (int64_t i = 0; i < suite->member_count; i++) {
        const struct value_member *m = &suite->members[i];
        bool own = strcmp(m->key, "name") == 0 || strcmp(m->key, "about") == 0;
        if (own) (void)schema_typed(d, schema_field(&SCHEMA_EXPERIMENT, m->key), m->value, m->key);
        else
            diagnostics_add(d, m->place, m->key, "a suite of experiments takes name, about, factor "
                            "and matrix; write other keys in the experiments");
    }
    for (int64_t i = 0; i < suite->item_count; i++) {
        const struct value *item = suite->items[i];
        if (item->type == VALUE_TABLE && item->kind && strcmp(item->kind, "experiment") == 0)
            add_cells(d, out, item, axes, axis_count);
        else
            diagnostics_add(d, item->place, "",
                            "item %d of the suite: expected an experiment {...}, found %s",
                            (int)i + 1, value_describe(d->pool, item));
    }
}

static struct value *take(struct value *table, const char *key) {
    struct value_member *m = value_member(table, key);
    if (!m) return NULL;
    struct value *v = m->value;
    *m = table->members[--table->member_count];
    return v;
}

/* What the comparison at the end asks: "KEY=VALUE", where VALUE is that of the baseline's rows. */
static const char *take_factor(struct diagnostics *d, struct value *suite, struct place *place) {
    const struct value *v = take(suite, "factor");
    if (!v) return "";
    *place = v->place;
    bool text = v->type == VALUE_STRING && strlen(v->string) == v->string_bytes;
    const char *equals = text ? strchr(v->string, '=') : NULL;
    size_t head = text ? strcspn(v->string, ".=") : 0;
    const char *key = text ? pool_copy_n(d->pool, v->string, head) : "";
    if (equals && equals[1] && schema_field(&SCHEMA_EXPERIMENT, key)) return v->string;
    diagnostics_add(d, v->place, "factor", "expected \"KEY=VALUE\", a key of an experiment and its "
                    "value in the rows that others are compared with, such as "
                    "\"train.grad_dtype=f32\", found %s", value_describe(d->pool, v));
    return "";
}

/* Whether an override sets the factor's key, in all rows or as an axis. */
static bool sets_factor(struct diagnostics *d, const char *factor, const struct override *overrides,
                        int64_t count) {
    const char *key = pool_copy_n(d->pool, factor, strcspn(factor, "="));
    for (int64_t i = 0; i < count; i++) {
        const char *path = overrides[i].path;
        if (sets_axis(&overrides[i]) && path[strlen("matrix")])
            path = schema_expand_path(d->pool, path + strlen("matrix."));
        if (covers(path, key)) return true;
    }
    return false;
}

/* The script's matrix with the axes from --set applied; NULL if there is none. */
static struct value *take_matrix(struct diagnostics *d, struct value *suite,
                                 const struct override *overrides, int64_t count) {
    struct value *matrix = take(suite, "matrix");
    for (int64_t i = 0; i < count; i++) {
        const struct override *o = &overrides[i];
        if (!sets_axis(o)) continue;
        if (!matrix) matrix = value_new(d->pool, VALUE_TABLE, o->text->place);
        set_axis(d, matrix, o);
    }
    return matrix;
}

static void check_names(struct diagnostics *d, const struct suite *suite) {
    for (int64_t i = 0; i < suite->count; i++) {
        const struct value *name = value_get(suite->runs[i].tree, "name");
        for (int64_t k = 0; name && name->type == VALUE_STRING && k < i; k++)
            if (value_is(value_get(suite->runs[k].tree, "name"), name->string))
                diagnostics_add(d, name->place, "name", "two runs would be called \"%s\"; %s",
                                name->string,
                                suite->runs[i].cell->member_count
                                    ? "label the values of the axis: { a = ..., b = ... }"
                                    : "give each experiment a name of its own");
    }
}

void suite_expand(struct diagnostics *d, struct value *returned, const char *const *arguments,
                  int64_t argument_count, struct suite *out) {
    struct override *overrides = pool_alloc(d->pool, (size_t)argument_count * sizeof *overrides);
    struct axis *axes = pool_alloc(d->pool, AXES_MAX * sizeof *axes);
    int64_t count = 0;
    *out = (struct suite){ .is_suite = strcmp(returned->kind, "suite") == 0, .replaced = "",
                           .factor = "" };
    for (int64_t i = 0; i < argument_count; i++)
        count += parse_override(d, arguments[i], &overrides[count]);
    for (int64_t i = 0; i < count; i++) /* a suite's runs are named after it */
        if (strcmp(overrides[i].path, "name") == 0)
            value_set(d->pool, returned, "name", overrides[i].text, overrides[i].text->place);
    struct value *name = value_get(returned, "name"), *about = value_get(returned, "about");
    if (name && name->type == VALUE_TEXT) name->type = VALUE_STRING;
    out->name = name && name->type == VALUE_STRING ? name->string : NULL;
    out->about = about && about->type == VALUE_STRING ? about->string : "";
    if (out->is_suite) out->factor = take_factor(d, returned, &out->factor_place);
    out->factor_set = sets_factor(d, out->factor, overrides, count);
    struct value *matrix = out->is_suite ? take_matrix(d, returned, overrides, count) : NULL;
    int64_t axis_count = read_axes(d, matrix, overrides, count, axes, out);
    if (out->is_suite && !out->name)
        diagnostics_add(d, returned->place, "name", "a suite needs a name");
    if (out->is_suite && returned->item_count)
        expand_items(d, returned, out, axes, axis_count);
    else
        add_cells(d, out, returned, axes, axis_count);
    for (int64_t r = 0; r < out->count; r++)
        for (int64_t i = 0; i < count; i++)
            if (strcmp(overrides[i].path, "name") != 0 &&
                !(out->is_suite && sets_axis(&overrides[i])))
                schema_set_path(d->pool, out->runs[r].tree, overrides[i].path,
                                value_copy(d->pool, overrides[i].text), overrides[i].text->place);
    check_names(d, out);
}
