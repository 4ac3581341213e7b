/* Opening a tokenizer of any kind, what it is, and where its texts may be cut. */
#include "runner/ingest/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "model/ground/input_file.h"
#include "runner/base/run_files.h"
#include "runner/ingest/tokenizer_parts.h"

/* ---- which kind ---------------------------------------------------------------------------- */

static bool is_base64(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           c == '+' || c == '/';
}

/* Whether the first line is base64, a space and a number. */
static bool looks_tiktoken(const char *p) {
    size_t n = 0, digits = 0;
    while (is_base64(p[n])) n++;
    size_t padding = strspn(p + n, "=");
    if (n == 0 || padding > 2 || (n + padding) % 4 || p[n + padding] != ' ') return false;
    p += n + padding + 1;
    while (p[digits] >= '0' && p[digits] <= '9') digits++;
    return digits > 0 && (p[digits] == '\n' || p[digits] == '\r');
}

static bool is_object(const char *head) { return head[strspn(head, " \t\r\n")] == '{'; }

static bool has_name(const char *path) {
    char name[PATH_CAP];
    path_base(name, path);
    return !strcmp(name, "tokenizer.json");
}

/* By the first bytes alone. Lines of JSON may also have a key `model`. */
static bool looks_json(const char *head) {
    return is_object(head) && (strstr(head, "\"added_tokens\"") ||
                               (strstr(head, "\"model\"") && strstr(head, "\"vocab\"")));
}

enum status tokenizer_find(const char *path, enum tokenizer_kind *out, struct err *e) {
    struct input_file f;
    char head[4097] = "";
    TRY(input_open(&f, path, e));
    int64_t n = f.bytes < 4096 ? f.bytes : 4096;
    enum status st = input_read(&f, 0, n, head, e);
    input_close(&f);
    *out = looks_json(head) || (is_object(head) && has_name(path)) ? TOKENIZER_JSON
           : looks_tiktoken(head) ? TOKENIZER_TIKTOKEN : TOKENIZER_BYTES;
    return st;
}

/* The kind of a file that the user calls a tokenizer, by its whole text. */
static enum tokenizer_kind kind_of(const char *text, const char *path) {
    return is_object(text) && (has_name(path) || strstr(text, "\"model\"")) ? TOKENIZER_JSON
           : looks_tiktoken(text) ? TOKENIZER_TIKTOKEN : TOKENIZER_BYTES;
}

/* ---- opening ------------------------------------------------------------------------------- */

static enum status load_bytes(struct tokenizer *t, struct err *e) {
    uint8_t byte[256];
    struct vocab_row row[256];
    for (int i = 0; i < 256; i++) {
        byte[i] = (uint8_t)i;
        row[i] = (struct vocab_row){ &byte[i], 1, TOKEN_MODEL };
    }
    t->tokens = 256;
    strcpy(t->split_words, "none");
    TRY(sha256_bytes("", 0, t->sha256, e));
    return vocab_build(&t->vocab, &(struct vocab_rows){ row, 256, 256 }, e);
}

static enum status load_file(struct tokenizer *t, const char *path,
                             const struct tokenizer_options *o, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    TRY(file_read(path, TOKENIZER_FILE_MAX, &text, &n, e));
    enum status st = sha256_bytes(text, n, t->sha256, e);
    t->bytes = (int64_t)n;
    t->kind = kind_of(text, path);
    if (t->kind == TOKENIZER_BYTES)
        st = FAIL(e, ERR_FORMAT, "%s is not a tokenizer: neither a tokenizer.json of Hugging Face "
                  "nor a tiktoken file (lines of base64, a space, a number). A sentencepiece "
                  "tokenizer.model is not read: name the tokenizer.json beside it. The tokenizer "
                  "`bytes` makes every byte a token", path);
    else if (st == OK && t->kind == TOKENIZER_JSON && o->pattern)
        st = FAIL(e, ERR_CONFIG, "%s names its split patterns itself; --pattern is for tiktoken "
                  "files, which do not", path);
    else if (st == OK && t->kind == TOKENIZER_JSON)
        st = tokenizer_load_json(t, path, text, n, e);
    else if (st == OK)
        st = tokenizer_load_tiktoken(t, path, text, n, o->pattern, e);
    free(text);
    return st;
}

/* The end of a document in the base models of the known families. tokenizer_choose() prefers the
 * eos_token of tokenizer_config.json. */
static void find_end(struct tokenizer *t) {
    static const char *const ENDS[] = { "<|endoftext|>", "<|end_of_text|>",
                                        "<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence"
                                        "\xef\xbd\x9c>", "</s>" };
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS && t->end < 0; i++) {
        t->end = tokenizer_id(t, ENDS[i]);
        if (t->end >= 0) t->end_text = ENDS[i];
    }
}

/* Words of bytes that all have a token begin with a table of their own. */
static enum status prepare_bytes(struct tokenizer *t, struct err *e) {
    t->whole_bytes = t->byte_level;
    for (int i = 0; i < 256; i++) t->whole_bytes = t->whole_bytes && t->byte_id[i] != NO_TOKEN;
    return t->whole_bytes ? bpe_set_bytes(t->bpe, t->byte_id, e) : OK;
}

/* Whether a token is only white space. */
static bool is_space(const struct unicode *u, const struct added *token) {
    int length;
    for (size_t at = 0; at < token->n; at += (size_t)length)
        if (!(u->class_of[utf8_at((const uint8_t *)token->text + at, &length)] & UC_SPACE))
            return false;
    return true;
}

/* Tokens with which the package `tokenizers` fails or has no sensible ids. It finds an empty token
 * between all characters. Of two equal tokens it takes either, at random. It fails where lstrip
 * would begin a token behind its own end: inside the spaces that another one takes. */
static enum status check_added(const struct tokenizer *t, const char *path,
                               const struct added_pass *a, struct err *e) {
    bool rstrip = false;
    for (int64_t i = 0; i < a->count; i++) rstrip = rstrip || a->token[i].rstrip;
    for (int64_t i = 0; i < a->count; i++) {
        const struct added *token = &a->token[i], *last = i ? token - 1 : NULL;
        if (!token->n)
            return FAIL(e, ERR_FORMAT, "%s: the normalizer leaves nothing of the added token %u: "
                        "set its normalized to false", path, token->id);
        if (last && token->n == last->n && !memcmp(token->text, last->text, token->n))
            return FAIL(e, ERR_FORMAT, "%s: the normalizer makes \"%.60s\" of the added tokens %u "
                        "and %u: keep one of them", path, token->text,
                        token->id < last->id ? token->id : last->id,
                        token->id < last->id ? last->id : token->id);
        if (rstrip && token->lstrip && !token->rstrip && is_space(t->unicode, token))
            return FAIL(e, ERR_FORMAT, "%s: the added token %u is white space with lstrip and "
                        "without rstrip, and another one has rstrip. The package tokenizers fails "
                        "where they meet: set the rstrip of %u", path, token->id, token->id);
    }
    return OK;
}

enum status tokenizer_open(struct tokenizer **out, const char *path,
                           const struct tokenizer_options *options, struct err *e) {
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) return FAIL(e, ERR_MEMORY, "%zu bytes for a tokenizer", sizeof *t);
    t->unk = NO_TOKEN;
    t->end = -1;
    t->ordinary = options->ordinary;
    enum status st = unicode_create(&t->unicode, e);
    if (st == OK)
        st = strcmp(path, "bytes") ? load_file(t, path, options, e) : load_bytes(t, e);
    if (st == OK) st = prepare_bytes(t, e);
    added_build(&t->raw);
    added_build(&t->normalized);
    if (st == OK) st = check_added(t, path, &t->raw, e);
    if (st == OK) st = check_added(t, path, &t->normalized, e);
    if (st != OK) {
        tokenizer_close(t);
        return st;
    }
    find_end(t);
    *out = t;
    return OK;
}

void tokenizer_close(struct tokenizer *t) {
    if (!t) return;
    for (int i = 0; i < STAGES_MAX; i++) {
        free(t->step[i].a.text);
        free(t->step[i].b.text);
        free(t->decoder[i].a.text);
        free(t->decoder[i].b.text);
        free(t->stage[i].replacement.text);
        pattern_destroy(t->stage[i].pattern);
    }
    added_free(&t->raw);
    added_free(&t->normalized);
    vocab_free(&t->vocab);
    bpe_destroy(t->bpe);
    unicode_destroy(t->unicode);
    free(t->before);
    free(t->behind);
    free(t);
}

/* ---- facts --------------------------------------------------------------------------------- */

struct tokenizer_facts tokenizer_facts(const struct tokenizer *t) {
    struct tokenizer_facts f = {
        .kind = t->kind, .bytes = t->bytes, .vocab = t->vocab.size, .tokens = t->tokens,
        .merges = t->merges, .added = t->raw.count + t->normalized.count, .split = t->split_words,
        .end = t->end, .end_text = t->end_text, .ordinary = t->ordinary,
        .behind = t->behind_count ? (int32_t)t->behind[t->behind_count - 1] : -1,
    };
    for (int64_t i = 0; i < t->vocab.size; i++) f.specials += !!(t->vocab.flags[i] & TOKEN_SPECIAL);
    memcpy(f.sha256, t->sha256, sizeof f.sha256);
    return f;
}

int32_t tokenizer_id(const struct tokenizer *t, const char *text) {
    const struct vocab *v = &t->vocab;
    size_t n = strlen(text);
    for (int64_t i = 0; i < v->size; i++)
        if (v->flags[i] & TOKEN_ADDED && vocab_length(v, (uint32_t)i) == n &&
            !memcmp(v->text + v->begin[i], text, n))
            return (int32_t)i;
    uint32_t id = vocab_find(v, (const uint8_t *)text, n);
    return id == NO_TOKEN ? -1 : (int32_t)id;
}

/* ---- cuts ---------------------------------------------------------------------------------- */

static bool spans_spaces(const struct tokenizer *t, const struct added_pass *a) {
    for (int64_t i = 0; i < a->count; i++) {
        const struct added *token = &a->token[i];
        if (token->lstrip || token->rstrip) return true;
        for (size_t at = 0; at < token->n;) {
            int length;
            uint32_t code = utf8_at((const uint8_t *)token->text + at, &length);
            if (t->unicode->class_of[code] & UC_SPACE) return true;
            at += (size_t)length;
        }
    }
    return false;
}

bool tokenizer_may_cut(const struct tokenizer *t) {
    bool words = t->kind == TOKENIZER_BYTES;
    if (spans_spaces(t, &t->raw) || spans_spaces(t, &t->normalized)) return false;
    for (int i = 0; i < t->steps; i++)
        if (t->step[i].kind != STEP_NFC) return false;
    for (int i = 0; i < t->stages; i++) {
        if (t->stage[i].kind != STAGE_SPLIT) return false;
        words = words || (t->stage[i].split >= SPLIT_GPT2 && t->stage[i].split <= SPLIT_DEEPSEEK);
    }
    return words;
}

/* Whether text[0..n-1] ends with a character that is not white space. */
static bool ends_dark(const struct tokenizer *t, const uint8_t *text, size_t n) {
    size_t back = 1;
    int length;
    if (n == 0) return false;
    while (back < 4 && back < n && (text[n - back] & 0xc0) == 0x80) back++;
    if (utf8_valid(text + n - back, back) != back) return false;
    return !(t->unicode->class_of[utf8_at(text + n - back, &length)] & UC_SPACE);
}

/* Every known pattern begins a new word at "x| y", y a letter of ASCII; and at "x\n|y", y any
 * letter: one newline is a word, or the end of one, whether text follows or not. */
size_t tokenizer_cut(const struct tokenizer *t, const char *text, size_t n) {
    const uint8_t *p = (const uint8_t *)text;
    int length;
    if (t->kind == TOKENIZER_BYTES) return n > 1 ? n - 1 : 0;
    for (size_t i = n < 8 ? 0 : n - 8; i > 0; i--) {
        if (p[i] == ' ' && (uint8_t)((p[i + 1] | 0x20) - 'a') < 26 && ends_dark(t, p, i)) return i;
        if (p[i - 1] != '\n' || !ends_dark(t, p, i - 1)) continue;
        size_t whole = utf8_valid(p + i, 4); /* at least 8 bytes are left */
        if (whole && t->unicode->class_of[utf8_at(p + i, &length)] & UC_LETTER) return i;
    }
    return 0;
}
