/* Conversations as tokens with loss: equal to transformers and tokenizers on recorded ones
 * (record_tokens.py made them). The generated conversations have no text of special tokens. */
#include <stdio.h>
#include <stdlib.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/chat/chat_tokens.h"
#include "runner/ingest/unicode.h"
#include "tests/support/must.h"

static json_t *parse(const char *line) {
    json_error_t why;
    json_t *value = json_loads(line, JSON_ALLOW_NUL, &why);
    if (!value) fail_msg("%s in %.60s", why.text, line);
    return value;
}

static void open_both(const json_t *first, const json_t *one, struct tokenizer **k,
                      struct chat_tokens *c) {
    struct chat_template t;
    char path[PATH_CAP];
    snprintf(path, sizeof path, "tests/chat/templates/%s", json_text(one, "template", ""));
    MUST(chat_template_load(&t, path, NULL, E));
    MUST(chat_template_tokens(&t, json_object_get(first, "tokens"), E));
    MUST(chat_template_date(&t, json_text(first, "date", ""), E));
    MUST(chat_tokens_open(c, &t, CHAT_LOSS_ALL, 0, E));
    snprintf(path, sizeof path, "tests/ingest/recorded/%s", json_text(one, "tokenizer", ""));
    MUST(tokenizer_open(k, path, &(struct tokenizer_options){ 0 }, E));
}

static void check_case(const json_t *first, const json_t *one) {
    struct chat_tokens c;
    struct tokenizer *k;
    struct encoder *x;
    struct bytes loss = { 0 };
    struct line_outcome outcome = { 0 };
    const json_t *wanted = json_object_get(one, "ids");
    const char *wanted_loss = json_text(one, "loss", "");
    char *line = json_dumps(json_object_get(one, "row"), 0);
    int64_t count;
    open_both(first, one, &k, &c);
    MUST(encoder_create(&x, k, E));
    MUST(c.lines.encode(c.lines.context, line, strlen(line), x, &loss, &outcome, E));
    const uint32_t *ids = encoder_ids(x, &count);
    if (count != (int64_t)json_array_size(wanted) || loss.count != (size_t)count)
        fail_msg("%lld tokens, %zu of loss; %zu wanted: %s, %.2000s", (long long)count, loss.count,
                 json_array_size(wanted), json_text(one, "template", ""), line);
    for (int64_t i = 0; i < count; i++) {
        int id = (int)json_integer_value(json_array_get(wanted, (size_t)i));
        if ((int)ids[i] != id || loss.bytes[i] != wanted_loss[i] - '0')
            fail_msg("%s, %s: token %lld is %u with loss %u, not %d with loss %c: %.2000s",
                     json_text(one, "template", ""), json_text(one, "tokenizer", ""), (long long)i,
                     ids[i], loss.bytes[i], id, wanted_loss[i], line);
    }
    assert_false(outcome.cut || outcome.lossless);
    free(line);
    free(loss.bytes);
    encoder_destroy(x);
    tokenizer_close(k);
    chat_tokens_close(&c);
}

static void recorded_tokens_are_equal(void **state) {
    char *bytes, *next;
    size_t n;
    int count = 0;
    json_t *first = NULL;
    (void)state;
    MUST(file_read("tests/chat/recorded_tokens.jsonl", 1 << 20, &bytes, &n, E));
    for (char *line = strtok_r(bytes, "\n", &next); line; line = strtok_r(NULL, "\n", &next)) {
        json_t *one = parse(line);
        if (!first) {
            first = one;
            continue;
        }
        check_case(first, one);
        json_decref(one);
        count++;
    }
    assert_true(count > 30);
    json_decref(first);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(recorded_tokens_are_equal) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
