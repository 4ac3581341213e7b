/* The interpreter of chat templates: equal to transformers on recorded results (record.py made
 * them), errors with the line of the template, and limits. */
#include <stdio.h>
#include <stdlib.h>

#include "runner/base/run_files.h"
#include "runner/chat/template.h"
#include "tests/support/must.h"

/* ---- recorded results ------------------------------------------------------------------------ */

static json_t *parse(const char *line) {
    json_error_t why;
    json_t *value = json_loads(line, JSON_ALLOW_NUL, &why);
    if (!value) fail_msg("%s in %.60s", why.text, line);
    return value;
}

/* The template of a case: its own source, or a file. */
static void load(struct chat_template *t, const json_t *first, const json_t *one) {
    const char *source = json_text(one, "source", NULL), *file = json_text(one, "template", NULL);
    char path[PATH_CAP];
    if (source) {
        struct err e = { .text = "" };
        if (chat_template_parse(t, "source", source, strlen(source), &e) != OK)
            fail_msg("%s: %s", source, e.text);
    } else {
        snprintf(path, sizeof path, "tests/chat/templates/%s", file);
        MUST(chat_template_load(t, path, NULL, E));
    }
    MUST(chat_template_tokens(t, json_object_get(first, "tokens"), E));
    MUST(chat_template_date(t, json_text(first, "date", ""), E));
}

static void check_fragments(const struct chat_rendering *r) {
    int64_t at = 0;
    for (int64_t i = 0; i < r->count; i++) {
        assert_int_equal(r->fragments[i].begin, at);
        at = r->fragments[i].end;
    }
    assert_int_equal(at, r->n);
}

static void check_case(const json_t *first, const json_t *one) {
    struct chat_template t;
    struct conversation c;
    struct chat_rendering r;
    struct err e = { .text = "" };
    const json_t *wanted = json_object_get(one, "text");
    const char *name = json_text(one, "source", json_text(one, "template", ""));
    load(&t, first, one);
    MUST(conversation_read(json_object_get(one, "row"), &c, E));
    enum status st = chat_render(&t, &c, c.count, json_is_true(json_object_get(one, "prompt")), &r,
                                 &e);
    if (st == OK && json_is_null(wanted)) fail_msg("%s: \"%s\", but Jinja raises", name, r.text);
    if (st != OK && !json_is_null(wanted)) fail_msg("%s: %s", name, e.text);
    if (st == OK) {
        bool same = (size_t)r.n == json_string_length(wanted) &&
                    !memcmp(r.text, json_string_value(wanted), (size_t)r.n);
        if (!same) fail_msg("%s:\n%s\nbut Jinja:\n%s", name, r.text, json_string_value(wanted));
        check_fragments(&r);
        chat_rendering_free(&r);
    }
    conversation_free(&c);
    chat_template_free(&t);
}

static void recorded_results_are_equal(void **state) {
    char *bytes, *next;
    size_t n;
    int count = 0;
    json_t *first = NULL;
    (void)state;
    MUST(file_read("tests/chat/recorded.jsonl", 1 << 20, &bytes, &n, E));
    for (char *line = strtok_r(bytes, "\n", &next); line; line = strtok_r(NULL, "\n", &next)) {
        json_t *one = parse(line);
        if (first) {
            check_case(first, one);
            count++;
            json_decref(one);
        } else {
            first = one;
        }
    }
    assert_true(count > 100);
    json_decref(first);
    free(bytes);
}

/* ---- errors and limits ----------------------------------------------------------------------- */

struct bad {
    const char *source;
    enum status code;
    const char *words;
};

/* `words` must be in the message, behind "t.jinja:". */
static const struct bad SYNTAX[] = {
    { "a\nb\n{{ x | nofilter }}", ERR_UNSUPPORTED, "3: the filter 'nofilter' is not supported" },
    { "{% if x is notest %}{% endif %}", ERR_UNSUPPORTED, "1: the test 'notest'" },
    { "\n{% include 'x' %}", ERR_UNSUPPORTED, "2: the statement 'include' is not supported" },
    { "{% call f() %}{% endcall %}", ERR_UNSUPPORTED, "the statement 'call'" },
    { "{% for x in y recursive %}{% endfor %}", ERR_UNSUPPORTED, "recursive" },
    { "{{ f(*a) }}", ERR_UNSUPPORTED, "'*' before an argument" },
    { "{% macro m() %}{{ varargs }}{% endmacro %}", ERR_UNSUPPORTED, "'varargs' in a macro" },
    { "{{ 'a\nb", ERR_CONFIG, "1: the string has no end" },
    { "{{ 'a' ", ERR_CONFIG, "1: the tag has no end" },
    { "{# a", ERR_CONFIG, "1: the comment has no end" },
    { "{% raw %} a", ERR_CONFIG, "1: the raw block has no end" },
    { "\n{% if x %}\n a", ERR_CONFIG, "the block of line 2 has no {% endif" },
    { "{% for x in y %}", ERR_CONFIG, "the block of line 1 has no" },
    { "{% endif %}", ERR_UNSUPPORTED, "the statement 'endif'" },
    { "{{ }}", ERR_CONFIG, "expected an expression, found '}}'" },
    { "{{ a b }}", ERR_CONFIG, "expected '}}', found 'b'" },
    { "{{ (a] }}", ERR_CONFIG, "']' closes no bracket" },
    { "{{ a ? b }}", ERR_CONFIG, "the character 0x3f cannot stand here" },
    { "{% break %}", ERR_CONFIG, "'break' stands outside of a loop" },
    { "{% set %}", ERR_CONFIG, "expected a name" },
    { "{% macro m(a=1, b) %}{% endmacro %}", ERR_CONFIG, "a parameter without a default" },
    { "{{ 99999999999999999999 }}", ERR_UNSUPPORTED, "the number '99999999999999999999" },
    { "{{ 0x10 }}", ERR_UNSUPPORTED, "the number '0x'" },
    { "{{ '\\ud800' }}", ERR_UNSUPPORTED, "the escape '\\u'" },
    { "{{ '\\N{DASH}' }}", ERR_UNSUPPORTED, "the escape '\\N'" },
    { "a\n\xff", ERR_CONFIG, "2: the template is not UTF-8 text: byte 0xff" },
};

static void syntax_errors_name_the_line(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof SYNTAX / sizeof *SYNTAX; i++) {
        struct chat_template t;
        const struct bad *b = &SYNTAX[i];
        char words[128];
        snprintf(words, sizeof words, "%s", b->words);
        MUST_FAIL(b->code, words,
                  chat_template_parse(&t, "t.jinja", b->source, strlen(b->source), E));
        MUST_FAIL(b->code, "t.jinja:",
                  chat_template_parse(&t, "t.jinja", b->source, strlen(b->source), E));
    }
}

static const struct bad RUNNING[] = {
    { "\n\n{{ missing.x }}", ERR_CONFIG, "t.jinja:3: 'missing' is undefined" },
    { "{% if true %}\n{{ missing() }}{% endif %}", ERR_CONFIG,
      "t.jinja:2: 'missing' is undefined" },
    { "{{ raise_exception('roles must\nalternate') }}", ERR_CONFIG,
      "t.jinja:1: the template rejects the conversation: roles must\nalternate" },
    { "{{ strftime_now('%d') }}", ERR_CONFIG, "'strftime_now' is undefined" },
    { "{{ 'a'.format(1) }}", ERR_UNSUPPORTED, "the method 'format' of a string is not supported" },
    { "{{ [].append(1) }}", ERR_UNSUPPORTED, "the method 'append' of a list" },
    { "{{ '%s' % 1 }}", ERR_UNSUPPORTED, "formatting a string with %" },
    { "{{ 9223372036854775807 + 1 }}", ERR_UNSUPPORTED, "an integer of more than 64 bits" },
    { "{{ 2 ** 64 }}", ERR_UNSUPPORTED, "an integer of more than 64 bits" },
    { "{{ -9223372036854775807 * 2 }}", ERR_UNSUPPORTED, "an integer of more than 64 bits" },
    { "{{ 1 // 0 }}", ERR_CONFIG, "division by zero" },
    { "{{ 1 % 0 }}", ERR_CONFIG, "division by zero" },
    { "{% set v = 5 %}{{ v[1:] }}", ERR_CONFIG, "an integer cannot be sliced" },
    { "{{ 5[1:] }}", ERR_CONFIG, "an integer cannot be sliced" }, /* Jinja prints nothing */
    { "{{ messages[0][1:] }}", ERR_CONFIG, "a mapping cannot be sliced" },
    { "{{ (messages | reject)[1:] }}", ERR_CONFIG,
      "an iterator cannot be sliced; apply the filter 'list'" },
    { "{{ 'abc'[::false] }}", ERR_CONFIG, "the step of a slice is 0" },
    { "{{ 'abc'[::1.0] }}", ERR_CONFIG, "a real number cannot be the step of a slice" },
    { "{{ range(3) }}", ERR_UNSUPPORTED, "cannot be printed; apply the filter 'list'" },
    { "{{ range(1000000000) }}", ERR_UNSUPPORTED, "a range of more than 100000 elements" },
    { "{{ range(0, 1, 0) }}", ERR_CONFIG, "the step is 0" },
    { "{{ 'aΣ' | lower }}", ERR_UNSUPPORTED, "'lower' of the character 'Σ'" },
    { "{{ 'straße' | upper }}", ERR_UNSUPPORTED, "'upper' of the character 'ß'" },
    { "{{ ('<' | safe) + '<' }}", ERR_UNSUPPORTED, "escape HTML" },
    { "{{ 'x' | join(unknown=1) }}", ERR_CONFIG, "'join' has no argument 'unknown'" },
    { "{{ 'x' | replace('y') }}", ERR_CONFIG, "'replace' needs 2 arguments" },
    { "{% set x = 1 %}{% set x.y = 2 %}", ERR_CONFIG, "'x' is not a namespace" },
    { "{% for i in [1] %}{{ loop.cycle(1) }}{% endfor %}", ERR_UNSUPPORTED, "loop.cycle" },
    { "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ERR_UNSUPPORTED,
      "more than 600 expressions and calls" },
    { "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      ERR_UNSUPPORTED, "more than 20000000 steps" },
    { "{% set ns = namespace(s='x' * 1000) %}{% for a in range(100000) %}"
      "{% set ns.s = ns.s + ns.s %}{% endfor %}", ERR_UNSUPPORTED, "more than" },
    { "{{ 'x' * 100000000 }}", ERR_UNSUPPORTED, "more than" },
    { "{{ [0] * 100000000 }}", ERR_UNSUPPORTED, "more than" },
    { "{% for a in range(100000) %}{{ 'x' * 1000 }}{% endfor %}", ERR_UNSUPPORTED, "more than" },
    { "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x == [ns.x, 1] }}{{ ns.x | tojson }}", ERR_UNSUPPORTED, "more than" },
    { "{% set ns = namespace(x=[1], y=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}", ERR_UNSUPPORTED,
      "more than 20000000 steps" },
    { "{% set ns = namespace(x=[]) %}{% for a in range(200) %}{% set ns.x = [ns.x] %}{% endfor %}"
      "{{ ns.x }}", ERR_UNSUPPORTED, "a value of more than 100 levels" },
    { "{{ 'a' | indent(2000000000) }}", ERR_UNSUPPORTED, "more than" },
    { "{{ (['a' * 1000000] * 100) | sort(case_sensitive=true) | length }}", ERR_UNSUPPORTED,
      "more than 20000000 steps" },
    { "{% set a = 'a' * 1000000 %}{% set b = 'a' * 1000000 %}{% for i in range(50) %}"
      "{% if a is eq(b) %}{% endif %}{% endfor %}", ERR_UNSUPPORTED, "more than 20000000 steps" },
    { "{% set a = 'a' * 1000000 %}{% set b = 'a' * 1000000 %}{% for i in range(50) %}"
      "{% if a is lt(b) %}{% endif %}{% endfor %}", ERR_UNSUPPORTED, "more than 20000000 steps" },
};

static json_t *hello(void) {
    return json_pack("{s:[{s:s,s:s}]}", "messages", "role", "user", "content", "hello");
}

static void running_errors_name_the_line_and_end(void **state) {
    struct conversation c;
    json_t *row = hello();
    (void)state;
    MUST(conversation_read(row, &c, E));
    for (size_t i = 0; i < sizeof RUNNING / sizeof *RUNNING; i++) {
        const struct bad *b = &RUNNING[i];
        struct chat_template t;
        struct chat_rendering r;
        MUST(chat_template_parse(&t, "t.jinja", b->source, strlen(b->source), E));
        MUST_FAIL(b->code, b->words, chat_render(&t, &c, 1, false, &r, E));
        MUST_FAIL(b->code, "t.jinja:", chat_render(&t, &c, 1, false, &r, E));
        chat_template_free(&t);
    }
    conversation_free(&c);
    json_decref(row);
}

/* n times `what`. */
static char *repeated(const char *before, const char *what, int n, const char *behind) {
    size_t one = strlen(what);
    char *text = malloc(strlen(before) + one * (size_t)n + strlen(behind) + 1), *at = text;
    at += sprintf(at, "%s", before);
    for (int i = 0; i < n; i++, at += one) memcpy(at, what, one);
    strcpy(at, behind);
    return text;
}

static void deep_nesting_is_an_error(void **state) {
    static const char *const DEEP[][3] = {
        { "{{ ", "(", "" },       { "{{ ", "[", "" },  { "{{ ", "not ", "x }}" },
        { "{{ ", "-", "1 }}" },   { "", "{% if x %}", "" }, { "{{ ", "a if b else ", "c }}" },
        { "{{ ", "x(", "" },      { "{{ ", "{1:", "" }, { "{{ x", "|d(x", "" },
    };
    struct chat_template t;
    struct conversation c;
    struct chat_rendering r;
    json_t *row = hello();
    (void)state;
    for (size_t i = 0; i < sizeof DEEP / sizeof *DEEP; i++) {
        char *text = repeated(DEEP[i][0], DEEP[i][1], 50000, DEEP[i][2]);
        MUST_FAIL(ERR_UNSUPPORTED, "more than",
                  chat_template_parse(&t, "t.jinja", text, strlen(text), E));
        free(text);
    }
    /* A long chain is no nesting for the parser, but it is for the evaluation. */
    char *text = repeated("{{ 1", " + 1", 5000, " }}");
    MUST(chat_template_parse(&t, "t.jinja", text, strlen(text), E));
    MUST(conversation_read(row, &c, E));
    MUST_FAIL(ERR_UNSUPPORTED, "t.jinja:1: more than 600", chat_render(&t, &c, 1, false, &r, E));
    conversation_free(&c);
    chat_template_free(&t);
    json_decref(row);
    free(text);
}

/* Each key that is looked up in a mapping of n others costs steps, also in a literal and in ==. */
static void wide_mappings_use_up_the_steps(void **state) {
    enum { KEYS = 20000 };
    static const char *const PARTS[][3] = { { "{{ {", "'a%05d':1,", "}|length }}" },
                                            { "{{ dict(", "a%05d=1,", ")|length }}" },
                                            { "{{ tools == tools }}", "", "" } };
    struct chat_template t;
    struct conversation c;
    struct chat_rendering r;
    json_t *row = hello(), *wide = json_object();
    (void)state;
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        snprintf(key, sizeof key, "a%05d", i);
        json_object_set_new(wide, key, json_integer(1));
    }
    json_object_set_new(row, "tools", json_pack("[o]", wide));
    MUST(conversation_read(row, &c, E));
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        char *text = repeated(PARTS[i][0], PARTS[i][1], *PARTS[i][1] ? KEYS : 0, PARTS[i][2]);
        char *at = text, digits[8];
        for (int k = 0; (at = strstr(at, "%05d")) != NULL; k++) {
            snprintf(digits, sizeof digits, "%04d", k % 10000);
            memcpy(at, digits, 4);
            if (k >= KEYS / 2) at[-1] = 'b';
        }
        MUST(chat_template_parse(&t, "t.jinja", text, strlen(text), E));
        MUST_FAIL(ERR_UNSUPPORTED, "t.jinja:1: the template needs more than 20000000 steps",
                  chat_render(&t, &c, 1, false, &r, E));
        chat_template_free(&t);
        free(text);
    }
    conversation_free(&c);
    json_decref(row);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_results_are_equal),
        cmocka_unit_test(syntax_errors_name_the_line),
        cmocka_unit_test(running_errors_name_the_line_and_end),
        cmocka_unit_test(deep_nesting_is_an_error),
        cmocka_unit_test(wide_mappings_use_up_the_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
