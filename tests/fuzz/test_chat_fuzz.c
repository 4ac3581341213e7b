/* A small mutation fuzzer for chat templates and conversations: good templates and JSON lines,
 * damaged in ways drawn from fixed seeds. The interpreter may refuse or accept, but must not crash,
 * hang or leak, and fragments must cover the text; CONFIG=asan is where this earns its keep. */
#include <stdio.h>
#include <stdlib.h>

#include "runner/base/run_files.h"
#include "runner/chat/loss.h"
#include "tests/support/must.h"

enum { ROUNDS = 6000 };

static const char *const FILES[] = { "smollm2", "thinking" };

/* One expression of each construct, so that damage reaches all of them. */
static const char CONSTRUCTS[] =
    "{%- set ns = namespace(a=1, b=[]) %}{% macro m(x, y=2) %}{{ x ~ y }}{% endmacro %}\n"
    "{% for k, v in {'a': 1, 'b': [2, 3.5e-1]}.items() if v %}{{ loop.index0 }}{{ k }}{{ v }}\n"
    "{% set ns.a = ns.a + 1 %}{% if loop.last %}{% break %}{% else %}{% continue %}{% endif %}\n"
    "{% else %}{% endfor %}{{ m('q', y='r') }}{{ 'abc'[::-1][0:2] }}{{ [1,2,3][1:] | join('-') }}\n"
    "{{ messages | tojson(indent=2) }}{{ 'a b'.split(' ', 1)[-1] | trim | upper }}"
    "{{ -7 // 2 % 3 }}\n"
    "{{ messages | selectattr('role', 'eq', 'user') | map(attribute='content') | list | length }}\n"
    "{% set t %}x{{ 1 if true else 2 }}{% endset %}{{ t.replace('x', 'y').strip() | indent(2) }}\n"
    "{% generation %}{{ messages[-1].content }}{% endgeneration %}{# c #}"
    "{% raw %}{{ }}{% endraw %}\n"
    "{{ range(1, 9, 2) | list }}{{ {'b': 2, 'a': 1} | dictsort }}"
    "{{ [3, 1] | sort | reverse | first }}";

static const char ROW[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},"
    "{\"role\":\"user\",\"content\":\"u <think> x\"},"
    "{\"role\":\"assistant\",\"content\":\"<think>\\nt\\n</think>\\n\\na\",\"tool_calls\":[{\"id\":"
    "\"call00001\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":[1,2.5,null]}}}]},"
    "{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"call00001\"},"
    "{\"role\":\"assistant\",\"content\":\"b\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\"}}]}";

static uint64_t draw(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

/* A damaged copy; the caller frees it. */
static char *mutate(const char *good, size_t n, size_t *size, uint64_t *seed) {
    static const char *const WORDS[] = {
        "{{", "}}", "{%", "%}", "-", "(", ")", "[", "]", "|", ".", "if ", "endfor", "not ", ":",
        "9999999999", "'", "~", "\xc3", "ns", "messages", "**", " in ", "loop", "range(", "*", ",",
    };
    char *bad = malloc(n + 256);
    memcpy(bad, good, n);
    int edits = 1 + (int)(draw(seed) % 4);
    for (int i = 0; i < edits && n > 0; i++) {
        size_t at = draw(seed) % n, to = draw(seed) % n, run = 1 + draw(seed) % 24;
        const char *word = WORDS[draw(seed) % (sizeof WORDS / sizeof *WORDS)];
        if (at + run > n) run = n - at;
        switch (draw(seed) % 4) {
        case 0: bad[at] ^= (char)(1 << (draw(seed) % 8)); break;
        case 1: /* removes */
            memmove(bad + at, bad + at + run, n - at - run);
            n -= run;
            break;
        case 2: /* inserts a word */
            memmove(bad + at + strlen(word), bad + at, n - at);
            memcpy(bad + at, word, strlen(word));
            n += strlen(word);
            break;
        case 3: /* copies */
            if (to + run <= n) memmove(bad + to, bad + at, run);
            break;
        }
    }
    *size = n;
    return bad;
}

static void check(const struct chat_template *t, const struct conversation *c,
                  const struct chat_rendering *r, const struct chat_markers *m) {
    struct chat_range *ranges = NULL;
    int64_t count = 0, at = 0;
    for (int64_t i = 0; i < r->count; i++) {
        assert_int_equal(r->fragments[i].begin, at);
        at = r->fragments[i].end;
    }
    assert_int_equal(at, r->n);
    MUST(chat_loss_ranges(t, m, c, r, CHAT_LOSS_ALL, &ranges, &count, E));
    at = 0;
    for (int64_t i = 0; i < count; i++) {
        assert_true(ranges[i].begin >= at && ranges[i].begin < ranges[i].end);
        at = ranges[i].end;
    }
    assert_true(at <= r->n);
    free(ranges);
}

/* Renders a template; returns whether it was accepted. */
static bool try_template(const char *source, size_t n, const struct conversation *c) {
    struct chat_template t;
    struct chat_markers m;
    struct chat_rendering r;
    struct err e = { .text = "" };
    if (chat_template_parse(&t, "t", source, n, &e) != OK) {
        assert_true(!strncmp(e.text, "t:", 2));
        return false;
    }
    enum status st = chat_render(&t, c, c->count, false, &r, &e);
    if (st == OK) {
        MUST(chat_markers_find(&t, &m, E));
        check(&t, c, &r, &m);
        chat_markers_free(&m);
        chat_rendering_free(&r);
    } else {
        assert_true(!strncmp(e.text, "t:", 2));
    }
    chat_template_free(&t);
    return st == OK;
}

static void fuzz_source(const char *good, size_t n, uint64_t seed, int rounds) {
    struct conversation c;
    json_t *row = json_loads(ROW, 0, NULL);
    int accepted = 0;
    MUST(conversation_read(row, &c, E));
    assert_true(try_template(good, n, &c));
    for (int i = 0; i < rounds; i++) {
        size_t size;
        char *bad = mutate(good, n, &size, &seed);
        accepted += try_template(bad, size, &c);
        free(bad);
    }
    assert_true(accepted > 0 && accepted < rounds);
    conversation_free(&c);
    json_decref(row);
}

static void damaged_templates(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        char path[128], *bytes;
        size_t n;
        snprintf(path, sizeof path, "tests/chat/templates/%s.jinja", FILES[i]);
        MUST(file_read(path, 1 << 20, &bytes, &n, E));
        fuzz_source(bytes, n, 11 + i, ROUNDS / 6);
        free(bytes);
    }
    fuzz_source(CONSTRUCTS, sizeof CONSTRUCTS - 1, 5, ROUNDS);
}

static void damaged_rows(void **state) {
    uint64_t seed = 77;
    struct chat_template t;
    int accepted = 0;
    (void)state;
    MUST(chat_template_load(&t, "tests/chat/templates/thinking.jinja", NULL, E));
    for (int i = 0; i < ROUNDS; i++) {
        struct conversation c;
        struct chat_rendering r;
        struct err e = { .text = "" };
        size_t size;
        char *bad = mutate(ROW, sizeof ROW - 1, &size, &seed);
        json_t *row = json_loadb(bad, size, JSON_ALLOW_NUL, NULL);
        if (row && conversation_read(row, &c, &e) == OK) {
            if (chat_render(&t, &c, c.count, true, &r, &e) == OK) {
                accepted++;
                chat_rendering_free(&r);
            }
            conversation_free(&c);
        } else if (row) {
            assert_true(e.text[0] != 0);
        }
        json_decref(row);
        free(bad);
    }
    assert_true(accepted > 0);
    chat_template_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_templates),
        cmocka_unit_test(damaged_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
