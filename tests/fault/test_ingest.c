/* Every allocation of opening a tokenizer, encoding, decoding, and writing shards that can fail,
 * failing. What answers OK must give the ids that it gives with memory to spare. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/chat/chat_tokens.h"
#include "runner/ingest/batch.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"

#define RECORDED "tests/ingest/recorded/"

/* ---- tokenizers ------------------------------------------------------------------------------ */

static const char TEXT[] = "<s> It's a  word, wo\xcc\x88rds 12345 \xe4\xb8\xad\xe6\x96\x87\r\n\n"
                           "<|im_end|><tool_call>{} \xf0\x9f\x98\x80 end\xff";

struct scene {
    const char *path, *pattern;
    uint32_t id[512];
    int64_t count;
    uint32_t wanted[512];
    int64_t wanted_count;
};

static enum status use(struct scene *s, const struct tokenizer *t, struct encoder *x,
                       struct err *e) {
    const struct byte_range control = { 0, 40 };
    char *text;
    size_t n;
    TRY(encoder_begin(x, e));
    TRY(encoder_add(x, TEXT, sizeof TEXT - 1, e));
    TRY(encoder_end(x, e));
    TRY(encoder_add_placed(x, TEXT, sizeof TEXT - 2, &control, 1, e));
    const uint32_t *ids = encoder_ids(x, &s->count);
    assert_true(s->count < 512);
    memcpy(s->id, ids, (size_t)s->count * sizeof *ids);
    TRY(tokenizer_decode(t, ids, s->count, false, &text, &n, e));
    free(text);
    return OK;
}

static enum status attempt(void *context, struct err *e) {
    struct scene *s = context;
    struct tokenizer *t;
    struct encoder *x;
    s->count = 0;
    TRY(tokenizer_open(&t, s->path, &(struct tokenizer_options){ .pattern = s->pattern }, e));
    enum status st = encoder_create(&x, t, e);
    if (st == OK) {
        st = use(s, t, x, e);
        encoder_destroy(x);
    }
    tokenizer_close(t);
    return st;
}

static enum status after(void *context, enum status st, struct err *e) {
    struct scene *s = context;
    if (st != OK) return OK;
    if (s->count == s->wanted_count && !memcmp(s->id, s->wanted, (size_t)s->count * sizeof *s->id))
        return OK;
    return FAIL(e, ERR_VERIFY, "%lld ids, not the wanted %lld", (long long)s->count,
                (long long)s->wanted_count);
}

static void tokenizers_survive(void **state) {
    static const struct { const char *path, *pattern; } CASES[] = {
        { "bytes", NULL },
        { RECORDED "qwen2.json", NULL },
        { RECORDED "mistral.json", NULL },
        { RECORDED "others.json", NULL },
        { RECORDED "ranks.tiktoken", "o200k" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct scene s = { .path = CASES[i].path, .pattern = CASES[i].pattern };
        struct err e = { .text = "" };
        if (attempt(&s, &e) != OK && e.code != ERR_FORMAT) fail_msg("%s: %s", s.path, e.text);
        memcpy(s.wanted, s.id, sizeof s.id);
        s.wanted_count = s.count;
        fault_every_allocation(&(struct fault_case){ .name = s.path, .attempt = attempt,
                                                     .after = after, .context = &s });
    }
}

/* ---- shards ---------------------------------------------------------------------------------- */

static const char TALKS[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
    "{\"role\":\"assistant\",\"content\":\"a\"}]}\n"
    "{\"prompt\":\"x\",\"completion\":\"y\",\"text\":\"z\"}\n"
    "{\"prompt\":\"x\",\"completion\":\"y\",\"text\":\"z\"}\n{\"bad\": 1}\n";

struct workshop {
    char folder[64], input[80], prefix[80];
    struct tokenizer *tokenizer;
    struct chat_tokens *chat; /* NULL: text */
    char made[SHA256_HEX], wanted[SHA256_HEX];
    int64_t save_bytes; /* if set, an attempt goes on where the last one failed */
};

static void ignore_progress(void *context, double share, int64_t tokens) {
    (void)context;
    (void)share;
    (void)tokens;
}

static void ignore_warning(void *context, const char *text) {
    (void)context;
    (void)text;
}

static void remove_shards(void *context) {
    static const char *const ENDS[] = { "bin", "idx", "json", "loss" };
    const struct workshop *w = context;
    char path[128];
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++) {
        snprintf(path, sizeof path, "%s.%s", w->prefix, ENDS[i]);
        remove(path);
    }
}

/* One thread only encodes, and it is not watched; a batch below is encoded by the watched one. */
static enum status make_shards(void *context, struct err *e) {
    struct workshop *w = context;
    const char *const paths[] = { w->input };
    struct tokenise_options o = {
        .tokenizer = w->tokenizer, .tokenizer_path = "t", .paths = paths, .path_count = 1,
        .prefix = w->prefix, .field = w->chat ? NULL : "text", .end = -1, .threads = 1,
        .skip_bad = 2, .unique = true, .lines = w->chat ? &w->chat->lines : NULL,
        .save_bytes = w->save_bytes, .progress = ignore_progress, .warn = ignore_warning,
    };
    struct tokenise_result made;
    enum status st = tokenise(&o, &made, e);
    const json_t *shards = json_object_get(made.description, "shards");
    if (st == OK) strcpy(w->made, json_text(shards, "sha256", ""));
    json_decref(made.description);
    return st;
}

/* Nothing is left of a run that failed, unless the next one goes on with it. */
static enum status check_shards(void *context, enum status st, struct err *e) {
    const struct workshop *w = context;
    struct tree files;
    TRY(tree_list(w->folder, 100, &files, e));
    int64_t count = files.count;
    tree_free(&files);
    int64_t wanted = 1 + (st != OK ? 0 : w->chat ? 4 : 3);
    if (count != wanted && !(st != OK && w->save_bytes))
        return FAIL(e, ERR_VERIFY, "%lld files, not %lld", (long long)count, (long long)wanted);
    if (st != OK || !*w->wanted || !strcmp(w->made, w->wanted)) return OK;
    return FAIL(e, ERR_VERIFY, "other tokens were written");
}

static enum status encode_batch(void *context, struct err *e) {
    struct workshop *w = context;
    struct batch b = { .lines = true, .line = 1 };
    const struct batch_options o = { .tokenizer = w->tokenizer, .field = "text", .end = -1,
                                     .lines = w->chat ? &w->chat->lines : NULL, .id_bytes = 2,
                                     .unique = true };
    struct encoder *x;
    struct bytes spare = { 0 };
    enum status st = bytes_add(&b.text, TALKS, sizeof TALKS - 1, e);
    if (st == OK) st = encoder_create(&x, w->tokenizer, e);
    if (st == OK) {
        batch_encode(&b, &o, x, &spare);
        st = b.status;
        if (st != OK) *e = b.e;
        encoder_destroy(x);
    }
    if (st == OK) st = sha256_bytes(b.ids.bytes, b.ids.count, w->made, e);
    batch_free(&b);
    free(spare.bytes);
    return st;
}

static enum status check_batch(void *context, enum status st, struct err *e) {
    const struct workshop *w = context;
    if (st != OK || !*w->wanted || !strcmp(w->made, w->wanted)) return OK;
    return FAIL(e, ERR_VERIFY, "other tokens were made");
}

static void run_both(struct workshop *w) {
    *w->wanted = 0;
    remove_shards(w);
    MUST(make_shards(w, E));
    strcpy(w->wanted, w->made);
    fault_every_allocation(&(struct fault_case){ .name = w->chat ? "shards of chats" : "shards",
                                                 .before = remove_shards, .attempt = make_shards,
                                                 .after = check_shards, .context = w });
    w->save_bytes = 1;
    fault_every_allocation(&(struct fault_case){ .name = "goes on", .before = remove_shards,
                                                 .attempt = make_shards, .after = check_shards,
                                                 .context = w });
    w->save_bytes = 0;
    remove_shards(w);
    *w->wanted = 0;
    MUST(encode_batch(w, E));
    strcpy(w->wanted, w->made);
    fault_every_allocation(&(struct fault_case){ .name = w->chat ? "chats" : "lines of text",
                                                 .attempt = encode_batch, .after = check_batch,
                                                 .context = w });
}

static void shards_survive(void **state) {
    struct workshop w = { .folder = "/tmp/fp8lab-ingest-XXXXXX" };
    struct chat_template t;
    struct chat_tokens chat;
    (void)state;
    assert_non_null(mkdtemp(w.folder));
    snprintf(w.input, sizeof w.input, "%s/in", w.folder);
    snprintf(w.prefix, sizeof w.prefix, "%s/out", w.folder);
    MUST(file_replace(w.input, TALKS, sizeof TALKS - 1, E));
    MUST(tokenizer_open(&w.tokenizer, RECORDED "qwen2.json", &(struct tokenizer_options){ 0 }, E));
    MUST(chat_template_load(&t, "tests/chat/templates/chatml.jinja", NULL, E));
    MUST(chat_tokens_open(&chat, &t, CHAT_LOSS_ALL, 0, E));
    run_both(&w);
    w.chat = &chat;
    run_both(&w);
    chat_tokens_close(&chat);
    tokenizer_close(w.tokenizer);
    MUST(tree_remove(w.folder, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokenizers_survive),
        cmocka_unit_test(shards_survive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
