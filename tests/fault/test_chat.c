/* Every allocation of reading, rendering and marking a conversation that can fail, failing. What
 * answers OK must give the text and the loss that it gives with memory to spare. */
#include <stdio.h>
#include <stdlib.h>

#include "runner/chat/chat_lines.h"
#include "runner/chat/loss.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"

static const char SOURCE[] =
    "{% for m in messages %}<|h|>{{ m.role }}\n{{ m.content | trim ~ 0.5 ~ (m | tojson) }}<|e|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|h|>assistant\n{% endif %}";

static const char LINE[] =
    "{\"conversations\":[{\"from\":\"human\",\"value\":\" q\"},{\"from\":\"gpt\",\"value\":\"a \"},"
    "{\"from\":\"function_call\",\"value\":"
    "\"{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{\\\"x\\\":1.5}}\"},"
    "{\"from\":\"gpt\",\"value\":\"b\"}],\"tools\":\"[{}]\"}\n";

struct scene {
    const char *path;
    char text[1024]; /* the rendered text and its ranges */
    char wanted[1024];
};

static enum status mark(struct scene *s, const struct chat_template *t,
                        const struct conversation *c, struct err *e) {
    struct chat_markers m;
    struct chat_rendering r;
    struct chat_range *ranges = NULL;
    int64_t count = 0;
    TRY(chat_markers_find(t, &m, e));
    enum status st = chat_render(t, c, c->count, false, &r, e);
    if (st == OK) {
        st = chat_loss_ranges(t, &m, c, &r, CHAT_LOSS_ALL, &ranges, &count, e);
        int at = snprintf(s->text, sizeof s->text, "%s", r.text);
        for (int64_t i = 0; i < count && st == OK; i++)
            at += snprintf(s->text + at, sizeof s->text - (size_t)at, " %d-%d",
                           (int)ranges[i].begin, (int)ranges[i].end);
        free(ranges);
        chat_rendering_free(&r);
    }
    chat_markers_free(&m);
    return st;
}

static enum status attempt(void *context, struct err *e) {
    struct scene *s = context;
    struct chat_template t;
    struct chat_lines lines;
    struct conversation c = { 0 };
    bool more = false;
    s->text[0] = 0;
    TRY(chat_template_parse(&t, "t", SOURCE, sizeof SOURCE - 1, e));
    enum status st = chat_lines_open(&lines, s->path, e);
    if (st == OK) {
        st = chat_lines_next(&lines, &c, &more, e);
        if (st == OK && more) st = mark(s, &t, &c, e);
        conversation_free(&c);
        chat_lines_close(&lines);
    }
    chat_template_free(&t);
    return st;
}

static enum status after(void *context, enum status st, struct err *e) {
    struct scene *s = context;
    if (st != OK || !strcmp(s->text, s->wanted)) return OK;
    return FAIL(e, ERR_VERIFY, "\"%s\", not \"%s\"", s->text, s->wanted);
}

static void conversations_survive(void **state) {
    char path[] = "/tmp/fp8lab-chat-XXXXXX";
    struct scene s = { .path = path };
    FILE *file = fdopen(mkstemp(path), "w");
    (void)state;
    assert_true(file && fputs(LINE, file) >= 0 && fclose(file) == 0);
    MUST(attempt(&s, E));
    snprintf(s.wanted, sizeof s.wanted, "%s", s.text);
    assert_non_null(strstr(s.wanted, " 1")); /* it has a range */
    fault_every_allocation(&(struct fault_case){ .name = "a conversation", .attempt = attempt,
                                                 .after = after, .context = &s });
    remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(conversations_survive) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
