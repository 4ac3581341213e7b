#include "runner/infer/question_forms.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- values -----------------------------------------------------------------------------------*/

static const char *kind_of(const json_t *value) {
    if (!value) return "absent";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a text";
    case JSON_INTEGER: return "a whole number";
    case JSON_REAL: return "a number with a fraction";
    case JSON_NULL: return "null";
    default: return "a truth value";
    }
}

static enum status take_text(const json_t *object, const char *key, const char **out,
                             struct err *e) {
    const json_t *value = json_object_get(object, key);
    *out = json_string_value(value);
    return *out ? OK : FAIL(e, ERR_FORMAT, "\"%s\" is %s; expected a text", key, kind_of(value));
}

static enum status take_texts(const json_t *list, const char *key, struct question_text *out,
                              struct err *e) {
    size_t n = json_array_size(list);
    if (!json_is_array(list))
        return FAIL(e, ERR_FORMAT, "\"%s\" is %s; expected an array of texts", key, kind_of(list));
    if (n < 2 || n > COMPLETIONS_MAX)
        return FAIL(e, ERR_FORMAT, "\"%s\" has %zu texts; expected from 2 to %d", key, n,
                    COMPLETIONS_MAX);
    for (size_t i = 0; i < n; i++) {
        out->completion[i] = json_string_value(json_array_get(list, i));
        if (!out->completion[i])
            return FAIL(e, ERR_FORMAT, "\"%s\" has %s as number %zu from 0; expected texts", key,
                        kind_of(json_array_get(list, i)), i);
    }
    out->completions = (int64_t)n;
    return OK;
}

/* A decimal number of one or two digits, alone. */
static int64_t decimal(const char *text) {
    size_t n = strspn(text, "0123456789");
    if (n < 1 || n > 2 || text[n]) return -1;
    return n == 1 ? text[0] - '0' : 10 * (text[0] - '0') + text[1] - '0';
}

/* The right completion, counted from 0; as a text if `text`. */
static enum status take_index(const json_t *object, const char *key, bool text,
                              struct question_text *out, struct err *e) {
    const json_t *value = json_object_get(object, key);
    const char *word = text ? json_string_value(value) : NULL;
    int64_t at = json_is_integer(value) ? json_integer_value(value) : word ? decimal(word) : -1;
    if (at >= 0 && at < out->completions) return out->right = at, OK;
    char found[48];
    if (json_is_integer(value))
        snprintf(found, sizeof found, "%lld", (long long)json_integer_value(value));
    else snprintf(found, sizeof found, word ? "\"%.24s\"" : "%s", word ? word : kind_of(value));
    return FAIL(e, ERR_FORMAT, "\"%s\" is %s; expected a whole number from 0 to %" PRId64
                "%s", key, found, out->completions - 1,
                value && !text ? "" : " (a test set may come without answers)");
}

/* ---- forms ------------------------------------------------------------------------------------*/

static enum status read_general(const json_t *o, struct question_text *out, struct err *e) {
    TRY(take_text(o, "context", &out->context, e));
    TRY(take_texts(json_object_get(o, "choices"), "choices", out, e));
    return take_index(o, "answer", false, out, e);
}

static enum status read_endings(const json_t *o, struct question_text *out, struct err *e) {
    TRY(take_text(o, "ctx", &out->context, e));
    TRY(take_texts(json_object_get(o, "endings"), "endings", out, e));
    return take_index(o, "label", true, out, e);
}

static enum status read_solutions(const json_t *o, struct question_text *out, struct err *e) {
    TRY(take_text(o, "goal", &out->context, e));
    TRY(take_text(o, "sol1", &out->completion[0], e));
    TRY(take_text(o, "sol2", &out->completion[1], e));
    out->completions = 2;
    return take_index(o, "label", true, out, e);
}

/* The right completion by its name among `labels`. */
static enum status take_key(const json_t *o, const json_t *labels, struct question_text *out,
                            struct err *e) {
    const char *key;
    int64_t found = 0;
    size_t n = json_array_size(labels);
    if ((int64_t)n != out->completions)
        return FAIL(e, ERR_FORMAT, "\"choices\" has %" PRId64 " in \"text\" and %zu in \"label\"; "
                    "expected as many", out->completions, n);
    TRY(take_text(o, "answerKey", &key, e));
    for (size_t i = 0; i < n; i++) {
        const char *label = json_string_value(json_array_get(labels, i));
        if (label && !strcmp(label, key)) out->right = (int64_t)i, found++;
    }
    return found == 1 ? OK : FAIL(e, ERR_FORMAT, "\"answerKey\" is \"%.24s\", which is %s labels "
                                  "of \"choices\"; expected one of them", key,
                                  found ? "several" : "none of the");
}

static enum status read_labelled(const json_t *o, struct question_text *out, struct err *e) {
    const json_t *choices = json_object_get(o, "choices");
    bool stem = json_object_get(o, "question_stem") != NULL;
    TRY(take_text(o, stem ? "question_stem" : "question", &out->context, e));
    TRY(take_texts(json_object_get(choices, "text"), "choices.text", out, e));
    return take_key(o, json_object_get(choices, "label"), out, e);
}

enum status question_form_read(const json_t *object, struct question_text *out, struct err *e) {
    const json_t *choices = json_object_get(object, "choices");
    bool endings = json_object_get(object, "endings") != NULL;
    bool solutions = json_object_get(object, "sol1") != NULL;
    *out = (struct question_text){ 0 };
    if (!json_is_object(object)) return FAIL(e, ERR_FORMAT, "it is no object");
    if ((choices != NULL) + endings + solutions != 1)
        return FAIL(e, ERR_FORMAT, "it has %s of \"choices\", \"endings\" and \"sol1\"; expected "
                    "one of the forms of runner/infer/README.md, such as {\"context\": \"...\", "
                    "\"choices\": [\"...\", \"...\"], \"answer\": 0}",
                    choices || endings || solutions ? "several" : "none");
    if (endings) return read_endings(object, out, e);
    if (solutions) return read_solutions(object, out, e);
    return json_is_object(choices) ? read_labelled(object, out, e) : read_general(object, out, e);
}
