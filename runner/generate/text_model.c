#include "runner/generate/text_model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache_chat.h"
#include "runner/cache/cache_key.h"
#include "runner/ingest/tokenizer_config.h"
#include "runner/ingest/unicode.h"

/* ---- opening ----------------------------------------------------------------------------------*/

enum status text_model_kept(const char *own, bool bytes, struct text_model *out, bool *found,
                            struct err *e) {
    char path[PATH_CAP];
    *out = (struct text_model){ 0 };
    *found = cache_kept_tokenizer(own, path);
    if (*found) return text_model_open(path, out, e);
    *found = bytes;
    return bytes ? text_model_open("bytes", out, e) : OK;
}

enum status text_model_of_run(const json_t *data, const char *own, struct text_model *out,
                              struct err *e) {
    const char *kind = json_text(data, "kind", "?");
    bool found;
    *out = (struct text_model){ 0 };
    if (!strcmp(kind, "text") || !strcmp(kind, "chats"))
        return cache_tokenizer(data, NULL, own, &out->choice, e);
    TRY(text_model_kept(own, false, out, &found, e));
    if (found) return OK;
    return FAIL(e, ERR_CONFIG, "the run's data are %.20s, not text, so it has no tokenizer", kind);
}

enum status text_model_open(const char *name, struct text_model *out, struct err *e) {
    const struct tokenizer_options how = { 0 };
    *out = (struct text_model){ 0 };
    enum status st = tokenizer_choose(&out->choice, name, &how, NULL, "", e);
    if (st != OK) err_prefix(e, "tokenizer");
    return st;
}

static bool has(const char *folder, const char *name) {
    char path[PATH_CAP];
    return path_join(path, folder, name, NULL) == OK && path_exists(path);
}

/* Among what a run keeps of its tokenizer, whatever its data are. */
static bool has_template(const char *folder) {
    char config[PATH_CAP];
    return has(folder, "chat_template.jinja") || has(folder, "chat_template.json") ||
           (path_join(config, folder, TOKENIZER_CONFIG, NULL) == OK &&
            tokenizer_config_has_template(config));
}

enum status text_model_chat(struct text_model *m, const json_t *data, const char *own,
                            struct err *e) {
    json_t *none = json_object(), *kept = json_object();
    enum status st = none && kept ? OK : FAIL(e, ERR_MEMORY, "a chat template");
    if (st == OK && json_object_get(data, "render"))
        st = FAIL(e, ERR_CONFIG, "a function of the run's script rendered its conversations, so "
                  "there is no chat template; write the prompt as the function would, or name a "
                  "tokenizer with a template");
    if (st == OK && own && !has_template(own))
        st = FAIL(e, ERR_CONFIG, "the run has no chat template: its data were no chats, and none "
                  "lay beside its tokenizer");
    if (st == OK)
        st = cache_chat_open(&m->chat, data ? data : none, NULL, own, m->choice.path, kept, e);
    json_decref(kept);
    json_decref(none);
    return st;
}

void text_model_close(struct text_model *m) {
    chat_tokens_close(&m->chat);
    tokenizer_choice_free(&m->choice);
    *m = (struct text_model){ 0 };
}

int64_t text_model_ids(const struct text_model *m) { return m->choice.vocab; }

static bool is_chat(const struct text_model *m) { return m->chat.template.tree != NULL; }

int32_t text_model_end(const struct text_model *m) {
    struct tokenizer_facts f = tokenizer_facts(m->choice.tokenizer);
    int32_t turn = is_chat(m) && *m->chat.markers.end
                       ? tokenizer_id(m->choice.tokenizer, m->chat.markers.end) : -1;
    return turn >= 0 ? turn : m->choice.end >= 0 ? m->choice.end : f.behind;
}

/* ---- encoding ---------------------------------------------------------------------------------*/

/* The conversation with the beginning of an answer. */
static enum status add_conversation(const struct text_model *m, struct encoder *x,
                                    const struct conversation *c, struct err *e) {
    struct chat_rendering r = { 0 };
    struct chat_text rendered = { 0 };
    enum status st = chat_render(&m->chat.template, c, c->count, true, &r, e);
    if (st == OK)
        st = chat_template_text(&m->chat.template, &m->chat.markers, c, &r, CHAT_LOSS_ALL,
                                &rendered, e);
    if (st == OK)
        st = encoder_add_placed(x, rendered.text, (size_t)rendered.n, rendered.control,
                                rendered.controls, e);
    chat_text_free(&rendered);
    chat_rendering_free(&r);
    return st;
}

static enum status add_message(const struct text_model *m, struct encoder *x, const char *text,
                               struct err *e) {
    struct conversation c = { 0 };
    json_t *row = json_pack("{s:[{s:s,s:s}]}", "messages", "role", "user", "content", text);
    enum status st = row ? conversation_read(row, &c, e)
                         : FAIL(e, ERR_CONFIG, "the prompt is not UTF-8, which a chat needs");
    if (st == OK) st = add_conversation(m, x, &c, e);
    conversation_free(&c);
    json_decref(row);
    return st;
}

static enum status add_object(const struct text_model *m, struct encoder *x, const char *object,
                              struct err *e) {
    struct conversation c = { 0 };
    enum status st = conversation_parse(object, strlen(object), &c, e);
    if (st == ERR_FORMAT) st = e->code = ERR_CONFIG; /* of a file that the user names */
    if (st == OK && (c.count == 0 || c.assistant[c.count - 1]))
        st = FAIL(e, ERR_CONFIG, "%s, but the model is to answer; end it with another role's",
                  c.count ? "its last message is the assistant's" : "it has no message");
    if (st == OK) st = add_conversation(m, x, &c, e);
    conversation_free(&c);
    return st;
}

static enum status add_plain(const struct text_model *m, struct encoder *x, const char *text,
                             struct err *e) {
    int64_t count;
    TRY(encoder_begin(x, e));
    TRY(encoder_add(x, text, strlen(text), e));
    (void)encoder_ids(x, &count);
    /* A document begins behind the end of another one. */
    if (count == 0 && m->choice.end >= 0) return encoder_push(x, (uint32_t)m->choice.end, e);
    return OK;
}

static enum status take_ids(const struct encoder *x, int64_t vocab, int32_t **ids, int64_t *count,
                            struct err *e) {
    const uint32_t *found = encoder_ids(x, count);
    if (*count == 0)
        return FAIL(e, ERR_CONFIG, "the prompt is empty, and this tokenizer has no token that "
                    "begins a text");
    *ids = malloc((size_t)*count * sizeof **ids);
    if (!*ids) return FAIL(e, ERR_MEMORY, "a prompt of %" PRId64 " tokens", *count);
    for (int64_t i = 0; i < *count; i++) {
        if (found[i] >= vocab)
            return FAIL(e, ERR_CONFIG, "the tokenizer makes token %u of the prompt, but the model "
                        "has %" PRId64 ": it is another model's tokenizer", found[i], vocab);
        (*ids)[i] = (int32_t)found[i];
    }
    return OK;
}

typedef enum status (*add_prompt)(const struct text_model *m, struct encoder *x, const char *text,
                                  struct err *e);

static enum status encode(const struct text_model *m, add_prompt add, const char *text,
                          int64_t vocab, int32_t **ids, int64_t *count, struct err *e) {
    struct encoder *x = NULL;
    *ids = NULL;
    TRY(encoder_create(&x, m->choice.tokenizer, e));
    enum status st = add(m, x, text, e);
    if (st == OK) st = take_ids(x, vocab, ids, count, e);
    encoder_destroy(x);
    if (st == OK) return OK;
    free(*ids);
    *ids = NULL;
    return st;
}

enum status text_model_encode(const struct text_model *m, const char *text, int64_t vocab,
                              int32_t **ids, int64_t *count, struct err *e) {
    return encode(m, is_chat(m) ? add_message : add_plain, text, vocab, ids, count, e);
}

enum status text_model_encode_chat(const struct text_model *m, const char *object, int64_t vocab,
                                   int32_t **ids, int64_t *count, struct err *e) {
    return encode(m, add_object, object, vocab, ids, count, e);
}

/* ---- decoding ---------------------------------------------------------------------------------*/

static enum status decode(const struct text_model *m, const int32_t *ids, int64_t count,
                          char **text, size_t *n, struct err *e) {
    return tokenizer_decode(m->choice.tokenizer, (const uint32_t *)(const void *)ids, count, true,
                            text, n, e);
}

/* Decoded with the prompt: the first token of a text may lose its space. */
enum status text_model_decode(const struct text_model *m, const int32_t *ids, int64_t prompt,
                              int64_t count, char **text, size_t *n, struct err *e) {
    char *before = NULL;
    size_t had = 0, same = 0;
    TRY(decode(m, ids, prompt, &before, &had, e));
    enum status st = decode(m, ids, count, text, n, e);
    if (st == OK) {
        while (same < had && same < *n && before[same] == (*text)[same]) same++;
        /* The prompt's text changed within a character: it is shown whole. */
        while (same < had && same > 0 && ((unsigned char)(*text)[same] & 0xC0) == 0x80) same--;
        *n -= same;
        memmove(*text, *text + same, *n + 1);
    }
    free(before);
    return st;
}

json_t *text_json(const char *text, size_t n) {
    struct text t = { 0 };
    text_puts(&t, "");
    for (size_t at = 0, length; at < n; at += length ? length : 1) {
        length = utf8_character(text + at, n - at);
        if (length) text_add(&t, text + at, length);
        else text_puts(&t, "\xef\xbf\xbd");
    }
    json_t *string = t.failed ? NULL : json_string(t.bytes);
    text_free(&t);
    return string;
}

size_t text_settled(const char *text, size_t n) {
    static const char UNKNOWN[] = "\xef\xbf\xbd";
    while (n >= 3 && !memcmp(text + n - 3, UNKNOWN, 3)) n -= 3;
    return n - utf8_torn((const uint8_t *)text, n);
}

size_t text_until_stop(const char *text, size_t n, const char *const *stops, int64_t count,
                       bool *found) {
    size_t end = n, open = n;
    *found = false;
    for (int64_t i = 0; i < count; i++) {
        size_t length = strlen(stops[i]);
        const char *at = length ? memmem(text, n, stops[i], length) : NULL;
        if (at && (size_t)(at - text) <= end) {
            end = (size_t)(at - text);
            *found = true;
        }
        for (size_t k = length < n ? length : n; k > 0; k--)
            if (!memcmp(text + n - k, stops[i], k)) {
                if (n - k < open) open = n - k;
                break;
            }
    }
    return *found ? end : open;
}
