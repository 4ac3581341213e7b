#include "runner/script/schema_types.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "model/ground/json_safe.h"
#include "runner/base/nearest.h"
#include "runner/base/shell_word.h"
#include "runner/cache/eval_sets.h"
#include "runner/script/schema_env.h"

/* ---- what was expected ----------------------------------------------------------------------- */
static const char *number_text(struct pool *p, double d, bool integer) {
    return integer ? pool_format(p, "%" PRId64, (int64_t)d) : pool_format(p, "%g", d);
}

static const char *range_text(struct pool *p, const struct field *f) {
    bool integer = f->type == FIELD_INT || f->type == FIELD_INTS;
    const char *low = number_text(p, f->min, integer);
    if (isinf(f->max))
        return pool_format(p, "%s %s", f->flags & FIELD_ABOVE_MIN ? "above" : "of at least", low);
    const char *high = number_text(p, f->max, integer);
    if (f->flags & FIELD_ABOVE_MIN) return pool_format(p, "above %s, at most %s", low, high);
    if (f->flags & FIELD_BELOW_MAX) return pool_format(p, "from %s to below %s", low, high);
    return pool_format(p, "from %s to %s", low, high);
}

static const char *words_text(struct pool *p, const struct field *f) {
    struct text t = { 0 };
    for (int i = 0; f->words[i]; i++) {
        text_puts(&t, i == 0 ? "\"" : f->words[i + 1] ? "\", \"" : "\" or \"");
        text_puts(&t, f->words[i]);
    }
    text_puts(&t, "\"");
    const char *out = pool_copy(p, t.bytes ? t.bytes : "");
    text_free(&t);
    return out;
}

const char *schema_expected(struct pool *p, const struct field *f) {
    switch (f->type) {
    case FIELD_INT: return pool_format(p, "an integer %s", range_text(p, f));
    case FIELD_FLOAT: return pool_format(p, "a number %s", range_text(p, f));
    case FIELD_BOOL: return "true or false";
    case FIELD_STRING:
        return f->min > 0 ? pool_format(p, "a string of %d to %d bytes", (int)f->min, (int)f->max)
                          : pool_format(p, "a string of at most %d bytes", (int)f->max);
    case FIELD_NAME:
        return pool_format(p, "a name of 1 to %d letters, digits, '.', '_' and '-'",
                           (int)f->max);
    case FIELD_WORD: return words_text(p, f);
    case FIELD_DURATION:
        return "whole seconds, or a duration such as \"1h56m\", \"1.5h\" or \"01:56:00\"";
    case FIELD_TABLE: return "a table { ... }";
    case FIELD_TABLES: return "a list of tables { { ... }, { ... } }";
    case FIELD_VARIANT: {
        struct text t = { 0 };
        for (int i = 0; f->variants[i]; i++) {
            text_puts(&t, i == 0 ? "" : f->variants[i + 1] ? ", " : " or ");
            text_puts(&t, f->variants[i]->name);
            text_puts(&t, " {...}");
        }
        const char *out = pool_copy(p, t.bytes ? t.bytes : "");
        text_free(&t);
        return out;
    }
    case FIELD_FLOATS:
        return pool_format(p, "a list of %d numbers %s", (int)f->length, range_text(p, f));
    case FIELD_INTS: return pool_format(p, "a list of integers %s", range_text(p, f));
    case FIELD_STRINGS: return strcmp(f->key, "paths") ? "a list of texts" : "a list of file names";
    case FIELD_PROMPTS: return "a list of texts, or of lists of token ids";
    case FIELD_NAMES: return "a list of parameters such as { \"embed\", \"layers.0-3\" }";
    case FIELD_FACTORS:
        return pool_format(p, "parameters with a number %s each, such as { embed = 0.1, "
                           "[\"layers.0-3\"] = 0.5 }", range_text(p, f));
    case FIELD_SETS:
        return "names with files, such as { code = \"code/*.txt\", law = { \"a.txt\", "
               "\"b.txt\" } }";
    case FIELD_ENV: return "a table of environment variables";
    case FIELD_FUNCTION: return "a function";
    }
    return "";
}

/* "; write fp8_error = 2" for { every = 2 } in place of a number; "" for anything else. */
static const char *number_within(struct pool *p, const struct field *f, const struct value *v) {
    bool one = v->type == VALUE_TABLE && v->member_count == 1 && !v->item_count;
    const struct value *inner = one ? v->members[0].value : NULL;
    if (f->type != FIELD_INT || !inner) return "";
    if (inner->type == VALUE_INT)
        return pool_format(p, "; write %s = %" PRId64, f->key, inner->i);
    return inner->type == VALUE_TEXT ? pool_format(p, "; write %s=%s", f->key, inner->string) : "";
}

const char *schema_several(struct pool *p, const struct value *v, const char *path) {
    if (v->type != VALUE_TEXT || !strpbrk(v->string, ",{[")) return "";
    if (*v->string == '{') return "; --set takes one value, a suite's matrix takes several";
    return pool_format(p, "; --set takes one value. In a suite --set 'matrix.%s=%s' makes rows of "
                       "several", path, v->string);
}

static struct value *mismatch(struct diagnostics *d, const struct field *f, const struct value *v,
                              const char *path) {
    bool list = f->type == FIELD_FLOATS || f->type == FIELD_INTS || f->type == FIELD_STRINGS ||
                f->type == FIELD_PROMPTS || f->type == FIELD_NAMES;
    const char *several = list ? "" : schema_several(d->pool, v, path);
    diagnostics_add(d, v->place, path, "expected %s, found %s%s", schema_expected(d->pool, f),
                    value_describe(d->pool, v),
                    *several ? several : number_within(d->pool, f, v));
    return NULL;
}

/* ---- numbers --------------------------------------------------------------------------------- */
/* Parses VALUE_TEXT as a number; any other value is returned unchanged. */
static const struct value *read_number(struct pool *p, const struct value *v) {
    if (v->type != VALUE_TEXT) return v;
    char *end;
    errno = 0;
    long long i = strtoll(v->string, &end, 10);
    if (errno == 0 && end != v->string && !*end) return value_int(p, i, v->place);
    double d = strtod(v->string, &end);
    if (end != v->string && !*end) return value_float(p, d, v->place);
    return v;
}

struct value *schema_text_scalar(struct pool *p, struct value *text) {
    bool yes = strcmp(text->string, "true") == 0;
    if (!yes && strcmp(text->string, "false") != 0)
        return value_copy(p, read_number(p, text));
    struct value *b = value_new(p, VALUE_BOOL, text->place);
    b->b = yes;
    return b;
}

static bool in_range(const struct field *f, double x) {
    if (f->flags & FIELD_ABOVE_MIN ? !(x > f->min) : !(x >= f->min)) return false;
    return f->flags & FIELD_BELOW_MAX ? x < f->max : x <= f->max;
}

/* A double cannot hold every integer above 2^53, so the limits are compared as integers. */
static bool int_in_range(const struct field *f, int64_t i) {
    return (f->min < -0x1p63 || i >= (int64_t)f->min) && (f->max >= 0x1p63 || i <= (int64_t)f->max);
}

static struct value *typed_int(struct diagnostics *d, const struct field *f, const struct value *v,
                               const char *path) {
    const struct value *number = read_number(d->pool, v);
    int64_t i = number->i;
    if (number->type == VALUE_FLOAT && fabs(number->f) < 0x1p53 && floor(number->f) == number->f)
        i = (int64_t)number->f;
    else if (number->type != VALUE_INT)
        return mismatch(d, f, v, path);
    if (!int_in_range(f, i)) return mismatch(d, f, v, path);
    return value_int(d->pool, i, v->place);
}

static struct value *typed_float(struct diagnostics *d, const struct field *f,
                                 const struct value *v, const char *path) {
    const struct value *number = read_number(d->pool, v);
    if (number->type != VALUE_FLOAT && number->type != VALUE_INT) return mismatch(d, f, v, path);
    double x = number->type == VALUE_INT ? (double)number->i : number->f;
    if (!isfinite(x) || !in_range(f, x)) return mismatch(d, f, v, path);
    if (x != 0 && (float)x == 0.0f) { /* the trainer would take it for 0 */
        diagnostics_add(d, v->place, path, "%s is less than single precision has: write %sa larger "
                        "number", value_describe(d->pool, v),
                        f->flags & FIELD_ABOVE_MIN ? "" : "0, or ");
        return NULL;
    }
    return value_float(d->pool, x == 0 ? 0.0 : x, v->place); /* -0 is 0 */
}

/* ---- durations ------------------------------------------------------------------------------- */
enum { DURATION_PART_MAX = 1000000 };

/* Parses "90", "1.5" or ".5" in units of `unit` seconds, and advances *text. -1 if it is not such a
 * number, or is not a whole number of seconds. */
static int64_t read_part(const char **text, int64_t unit) {
    int64_t whole = 0, scale = 1, parts = 0;
    const char *at = *text, *digits = at;
    for (; *at >= '0' && *at <= '9' && whole <= DURATION_PART_MAX; at++)
        whole = whole * 10 + (*at - '0');
    if ((at == digits && *at != '.') || whole > DURATION_PART_MAX) return -1;
    if (*at == '.') {
        for (digits = ++at; *at >= '0' && *at <= '9' && scale < DURATION_PART_MAX; at++) {
            parts = parts * 10 + (*at - '0');
            scale *= 10;
        }
        if (at == digits) return -1;
    }
    *text = at;
    return parts * unit % scale == 0 ? whole * unit + parts * unit / scale : -1;
}

/* "1h56m", "90s", "2d", "1.5h": numbers with decreasing units. -1 for any other text. */
static int64_t units_s(const char *text) {
    static const struct { char unit; int64_t s; } UNITS[] = {
        { 'd', 86400 }, { 'h', 3600 }, { 'm', 60 }, { 's', 1 }
    };
    int64_t total = 0;
    size_t next = 0;
    while (*text) {
        const char *end = text + strspn(text, "0123456789.");
        while (next < 4 && UNITS[next].unit != *end) next++;
        if (next == 4) return -1;
        int64_t s = read_part(&text, UNITS[next++].s);
        if (s < 0 || text != end) return -1;
        total += s;
        text++;
    }
    return total;
}

/* "01:56:00", or "2-01:56:00" with days, as in Slurm. Three numbers are required: two are minutes
 * and seconds in Slurm, but hours and minutes elsewhere. -1 for any other text. */
static int64_t clock_s(const char *text) {
    const char *days = strchr(text, '-');
    int64_t total = 0;
    if (days) {
        total = read_part(&text, 86400);
        if (total < 0 || text++ != days) return -1;
    }
    for (int64_t unit = 3600; unit > 0; unit /= 60) {
        size_t n = strspn(text, "0123456789");
        int64_t s = text[n] == '.' ? -1 : read_part(&text, unit);
        bool two = n == 2 && s < 60 * unit;
        if (s < 0 || !(two || (unit == 3600 && !days))) return -1;
        if (*text != (unit > 1 ? ':' : '\0')) return -1;
        total += s;
        text++;
    }
    return total;
}

static struct value *typed_duration(struct diagnostics *d, const struct field *f,
                                    const struct value *v, const char *path) {
    const struct value *number = read_number(d->pool, v);
    int64_t s = -1;
    if (number->type == VALUE_INT)
        s = number->i;
    else if ((v->type == VALUE_STRING || v->type == VALUE_TEXT) &&
             strlen(v->string) == v->string_bytes)
        s = strchr(v->string, ':') ? clock_s(v->string) : units_s(v->string);
    if (s < 1 || (double)s > f->max) return mismatch(d, f, v, path);
    return value_int(d->pool, s, v->place);
}

/* ---- strings --------------------------------------------------------------------------------- */
static bool name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

/* The first control character, with its place, as an error. False if there is one. */
static bool no_control(struct diagnostics *d, const struct value *v, const char *path) {
    static const char *const NAMES[0x20] = {
        [0] = "NUL", ['\a'] = "bell", ['\b'] = "backspace", ['\t'] = "tab", ['\n'] = "newline",
        ['\r'] = "carriage return", [0x1b] = "escape",
    };
    size_t at = 0;
    while (at < v->string_bytes && (unsigned char)v->string[at] >= 0x20) at++;
    if (at == v->string_bytes) return true;
    int c = v->string[at];
    diagnostics_add(d, v->place, path, "expected text without control characters, found %s "
                    "(U+%04X) at byte %zu of %s", NAMES[c] ? NAMES[c] : "a control character", c,
                    at + 1, value_describe(d->pool, v));
    return false;
}

static struct value *typed_string(struct diagnostics *d, const struct field *f,
                                  const struct value *v, const char *path) {
    if (v->type != VALUE_STRING && v->type != VALUE_TEXT) return mismatch(d, f, v, path);
    size_t n = v->string_bytes;
    if (!no_control(d, v, path)) return NULL;
    if (utf8_valid_prefix(v->string, n) != n) {
        diagnostics_add(d, v->place, path, "expected UTF-8 text, found %s",
                        value_describe(d->pool, v));
        return NULL;
    }
    bool plain = (double)n >= f->min && (double)n <= f->max;
    for (size_t i = 0; i < n && plain && f->type == FIELD_NAME; i++)
        plain = name_char(v->string[i]) && (i || v->string[i] != '.');
    if (!plain) return mismatch(d, f, v, path);
    return value_string(d->pool, v->string, v->place);
}

/* Why the word, in any case of its letters, is not one of ours; NULL if it is unknown. */
static const char *refused_word(const struct field *f, const char *word) {
    for (const struct other_name *o = f->refused; o && o->given; o++)
        if (strcasecmp(o->given, word) == 0) return o->ours;
    return NULL;
}

static struct value *typed_word(struct diagnostics *d, const struct field *f,
                                const struct value *v, const char *path) {
    int64_t count = 0;
    bool text = (v->type == VALUE_STRING || v->type == VALUE_TEXT) &&
                strlen(v->string) == v->string_bytes; /* a word has no NUL byte */
    for (; f->words[count]; count++)
        if (text && strcmp(f->words[count], v->string) == 0)
            return value_string(d->pool, v->string, v->place);
    const char *why = text ? refused_word(f, v->string) : NULL;
    if (why) {
        diagnostics_add(d, v->place, path, "there is no \"%s\": %s", v->string, why);
        return NULL;
    }
    const char *near = text ? nearest_name(v->string, f->words, count) : NULL;
    diagnostics_add(d, v->place, path, "expected %s, found %s%s%s%s", schema_expected(d->pool, f),
                    value_describe(d->pool, v), near ? "; did you mean \"" : "", near ? near : "",
                    near ? "\"?" : "");
    return NULL;
}

/* ---- lists ----------------------------------------------------------------------------------- */
struct value *schema_json_list(struct pool *p, const struct value *text, const char **why) {
    json_error_t error = { 0 };
    json_t *json = NULL;
    *why = NULL;
    if (text->type != VALUE_TEXT || *text->string != '[') return NULL;
    enum status st = json_parse(&json, text->string, text->string_bytes, 0, &error);
    struct value *list = st == OK ? value_from_json(p, json, text->place) : NULL;
    if (!list) *why = pool_copy(p, error.text);
    json_decref(json);
    return list;
}

/* A pattern such as [ab]*.txt begins as a JSON list does: rejects it, and names the JSON that means
 * it. */
static void bracket_pattern(struct diagnostics *d, const struct value *v, const char *path) {
    struct text set = { 0 };
    text_puts(&set, path);
    for (const char *at = v->string, *before = "=[";; at++, before = ",") {
        size_t n = strcspn(at, ",");
        text_puts(&set, before);
        canonical_add_string(&set, at, n);
        at += n;
        if (!*at) break;
    }
    text_puts(&set, "]");
    char *word = set.bytes && !set.failed ? shell_word(set.bytes) : NULL;
    diagnostics_add(d, v->place, path, "a value that begins with [ is a JSON list; a pattern that "
                    "does is an item of one: --set %s", word ? word : path);
    free(word);
    text_free(&set);
}

/* Rejects a list of --set with the brackets or quotes of Lua or a shell, which would become part of
 * the values. Returns false after a diagnostic. `why`: see schema_json_list(). */
static bool plain_list(struct diagnostics *d, const struct field *f, const struct value *v,
                       const char *path, const char *why) {
    static const char MARKS[] = "[]{}\"' ";
    if (v->type != VALUE_TEXT || !*v->string || !strchr("[{\"' ", *v->string)) return true;
    bool numbers = f->type == FIELD_FLOATS || f->type == FIELD_INTS;
    if (why && f->type == FIELD_STRINGS && v->string[v->string_bytes - 1] != ']' &&
        !strchr("\"'", v->string[1]))
        return bracket_pattern(d, v, path), false;
    if (why && numbers) {
        diagnostics_add(d, v->place, path, "expected %s, found no valid JSON: %s",
                        schema_expected(d->pool, f), why);
        return false;
    }
    char *plain = pool_copy(d->pool, v->string), *to = plain;
    for (const char *at = v->string; *at; at++)
        if (!strchr(MARKS, *at)) *to++ = *at;
    *to = '\0';
    diagnostics_add(d, v->place, path, "write a list with commas, without brackets, quotes or "
                    "spaces: --set %s=%s%s", path, *plain ? plain : "A,B", numbers ? "" :
                    pool_format(d->pool, "; or, if an item has a comma, as JSON: --set "
                                "'%s=[\"A,B\", \"C\"]'", path));
    return false;
}

/* The list that "0.9,0.95" means. */
static const struct value *read_list(struct pool *p, const struct value *v) {
    if (v->type != VALUE_TEXT) return v;
    struct value *list = value_new(p, VALUE_TABLE, v->place);
    for (const char *at = v->string;; at++) {
        size_t n = strcspn(at, ",");
        struct value *item = value_new(p, VALUE_TEXT, v->place);
        item->string = pool_copy_n(p, at, n);
        item->string_bytes = n;
        value_append(p, list, item);
        at += n;
        if (!*at) return list;
    }
}

enum { TOKEN_ID_MAX = (1 << 24) - 1 }; /* the largest vocabulary of the schema */

/* The type of one item of a list. */
static struct field item_field(const struct field *list, const struct value *item) {
    struct field each = *list;
    each.type = list->type == FIELD_FLOATS ? FIELD_FLOAT : list->type == FIELD_INTS ? FIELD_INT
                                                                                    : FIELD_STRING;
    if (list->type == FIELD_PROMPTS && item->type == VALUE_TABLE) {
        each.type = FIELD_INTS;
        each.min = 0;
        each.max = TOKEN_ID_MAX;
    }
    return each;
}

static struct value *typed_list(struct diagnostics *d, const struct field *f,
                                const struct value *v, const char *path) {
    const char *why;
    const struct value *list = schema_json_list(d->pool, v, &why);
    if (!list && !plain_list(d, f, v, path, why)) return NULL;
    if (!list) list = read_list(d->pool, v);
    if (list->type != VALUE_TABLE || list->member_count || list->kind || list->item_count == 0)
        return mismatch(d, f, list, path);
    if (f->type == FIELD_FLOATS && list->item_count != f->length) {
        diagnostics_add(d, v->place, path, "expected %s, found a list of %" PRId64,
                        schema_expected(d->pool, f), list->item_count);
        return NULL;
    }
    struct value *out = value_new(d->pool, VALUE_TABLE, v->place);
    out->list = true;
    for (int64_t i = 0; i < list->item_count; i++) {
        const char *below = pool_format(d->pool, "%s[%" PRId64 "]", path, i + 1);
        struct field each = item_field(f, list->items[i]);
        struct value *item = schema_typed(d, &each, list->items[i], below);
        if (item) value_append(d->pool, out, item);
    }
    return out;
}

/* Adds the numbers of `table` to `out`. Inner tables, which --set makes of "layers.0-3", become
 * names with dots. */
static void add_factors(struct diagnostics *d, const struct field *f, const struct value *table,
                        const char *path, const char *before, struct value *out) {
    struct field each = *f;
    each.type = FIELD_FLOAT;
    for (int64_t i = 0; i < table->member_count; i++) {
        const struct value_member *m = &table->members[i];
        const char *name = schema_path(d->pool, before, m->key);
        const char *below = schema_path(d->pool, path, m->key);
        if (m->value->type == VALUE_TABLE && !m->value->kind && !m->value->item_count) {
            add_factors(d, f, m->value, below, name, out);
            continue;
        }
        struct value *factor = typed_float(d, &each, m->value, below);
        if (factor) value_set(d->pool, out, name, factor, m->place);
    }
}

static struct value *typed_factors(struct diagnostics *d, const struct field *f,
                                   const struct value *v, const char *path) {
    struct value *out = value_new(d->pool, VALUE_TABLE, v->place);
    if (v->type != VALUE_TABLE || v->kind || v->item_count || !v->member_count)
        return mismatch(d, f, v, path);
    add_factors(d, f, v, path, "", out);
    return out;
}

/* The files of a set; one file stands for a list of it. */
static struct value *set_files(struct diagnostics *d, const struct value *v, const char *path) {
    const struct field files = { .key = "paths", .type = FIELD_STRINGS, .min = 1, .max = 4096 };
    struct value *list = value_new(d->pool, VALUE_TABLE, v->place);
    if (v->type != VALUE_STRING) return typed_list(d, &files, v, path);
    value_append(d->pool, list, value_copy(d->pool, v));
    return typed_list(d, &files, list, path);
}

/* A table of lists, in bytewise order of the names. */
static struct value *typed_sets(struct diagnostics *d, const struct field *f,
                                const struct value *v, const char *path) {
    struct value *out = value_new(d->pool, VALUE_TABLE, v->place);
    if (v->type != VALUE_TABLE || v->kind || v->item_count || !v->member_count)
        return mismatch(d, f, v->type == VALUE_TABLE && v->item_count ? v->items[0] : v, path);
    for (int64_t i = 0; i < v->member_count; i++) {
        const struct value_member *m = &v->members[i];
        if (!eval_set_is_name(m->key)) {
            diagnostics_add(d, m->place, path, "the name of a set is 1 to %d letters, digits and "
                            "'_', a letter first, found '%s'", EVAL_SET_NAME_CAP - 1, m->key);
            continue;
        }
        struct value *files = set_files(d, m->value, schema_path(d->pool, path, m->key));
        if (files) value_set(d->pool, out, m->key, files, m->place);
    }
    if (v->member_count > EVAL_SETS_MAX)
        diagnostics_add(d, v->place, path, "%" PRId64 " sets; at most %d are possible",
                        v->member_count, EVAL_SETS_MAX);
    value_sort_members(out);
    return out;
}

/* ---- one value ------------------------------------------------------------------------------- */
struct value *schema_typed(struct diagnostics *d, const struct field *f, const struct value *v,
                           const char *path) {
    switch (f->type) {
    case FIELD_INT: return typed_int(d, f, v, path);
    case FIELD_FLOAT: return typed_float(d, f, v, path);
    case FIELD_DURATION: return typed_duration(d, f, v, path);
    case FIELD_STRING:
    case FIELD_NAME: return typed_string(d, f, v, path);
    case FIELD_WORD: return typed_word(d, f, v, path);
    case FIELD_FLOATS:
    case FIELD_INTS:
    case FIELD_STRINGS:
    case FIELD_PROMPTS:
    case FIELD_NAMES: return typed_list(d, f, v, path);
    case FIELD_FACTORS: return typed_factors(d, f, v, path);
    case FIELD_SETS: return typed_sets(d, f, v, path);
    case FIELD_ENV: return schema_env(d, v, path);
    case FIELD_FUNCTION:
        if (v->type == VALUE_FUNCTION) return value_copy(d->pool, v);
        return mismatch(d, f, v, path);
    case FIELD_BOOL: {
        bool yes = v->type == VALUE_TEXT && strcmp(v->string, "true") == 0;
        bool no = v->type == VALUE_TEXT && strcmp(v->string, "false") == 0;
        if (v->type != VALUE_BOOL && !yes && !no) return mismatch(d, f, v, path);
        struct value *b = value_new(d->pool, VALUE_BOOL, v->place);
        b->b = v->type == VALUE_BOOL ? v->b : yes;
        return b;
    }
    case FIELD_TABLE:
    case FIELD_TABLES:
    case FIELD_VARIANT: break;
    }
    return mismatch(d, f, v, path);
}
