#include "runner/ingest/tokenizer_choice.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/nearest.h"
#include "runner/base/plain_text.h"
#include "runner/ingest/tokenizer_config.h"

/* ---- the end of a document ------------------------------------------------------------------ */

int32_t tokenizer_eos(const struct tokenizer *t, const char *path, char text[TOKENIZER_EOS_CAP]) {
    char folder[PATH_CAP], file[PATH_CAP];
    struct err ignored; /* a file that nobody named */
    json_t *config = NULL;
    text[0] = '\0';
    path_parent(folder, path);
    if (tokenizer_facts(t).kind != TOKENIZER_JSON ||
        path_join(file, folder, TOKENIZER_CONFIG, NULL) != OK || !path_exists(file) ||
        tokenizer_config_read(file, &config, &ignored) != OK)
        return -1;
    const json_t *token = json_object_get(config, "eos_token");
    if (json_is_object(token)) token = json_object_get(token, "content");
    const char *name = json_is_string(token) ? json_string_value(token) : "";
    snprintf(text, TOKENIZER_EOS_CAP, "%s", name);
    int32_t id = *name ? tokenizer_id(t, name) : -1;
    json_decref(config);
    return id;
}

/* Without a word of the user. */
static void find_own_end(struct tokenizer_choice *c, const struct tokenizer_options *o) {
    int32_t eos = o->ignores_eos ? -1 : tokenizer_eos(c->tokenizer, c->path, c->eos);
    c->end = eos >= 0 ? eos : tokenizer_facts(c->tokenizer).end;
    c->why = eos >= 0 ? "the eos_token of " TOKENIZER_CONFIG : "a known end of text";
}

void tokenizer_end_token(const struct tokenizer_choice *c, char out[TOKENIZER_EOS_CAP]) {
    struct err ignored; /* a tiktoken file does not list its special tokens */
    char *text = NULL;
    size_t n;
    uint32_t id = (uint32_t)c->mark;
    out[0] = '\0';
    if (c->mark < 0) return;
    enum status st = tokenizer_decode(c->tokenizer, &id, 1, false, &text, &n, &ignored);
    snprintf(out, TOKENIZER_EOS_CAP, "%s", st == OK && *text ? PLAIN(text) : "a token");
    free(text);
}

void tokenizer_end_text(const struct tokenizer_choice *c, char out[TOKENIZER_END_CAP]) {
    char token[TOKENIZER_EOS_CAP];
    tokenizer_end_token(c, token);
    int n = c->mark < 0
                ? snprintf(out, TOKENIZER_END_CAP, "no token ends a document: %s", c->why)
                : snprintf(out, TOKENIZER_END_CAP, "each document ends with %s, %" PRId32 ": %s",
                           token, c->mark, c->why);
    if (*c->eos && tokenizer_id(c->tokenizer, c->eos) < 0)
        snprintf(out + n, (size_t)(TOKENIZER_END_CAP - n), "; the tokenizer lacks the eos_token "
                 "that " TOKENIZER_CONFIG " names, %s", PLAIN(c->eos));
}

static enum status find_end(struct tokenizer_choice *c, const struct tokenizer_options *o,
                            const char *word, const char *name, struct err *e) {
    struct tokenizer_facts f = tokenizer_facts(c->tokenizer);
    char *rest;
    c->why = name;
    if (!word) find_own_end(c, o);
    if (!word && c->end < 0) c->why = "the tokenizer names none, and has none of known spelling";
    if (!word || !strcmp(word, "none")) return OK;
    long id = strtol(word, &rest, 10);
    if (*rest || rest == word) id = tokenizer_id(c->tokenizer, word);
    bool any = f.kind == TOKENIZER_TIKTOKEN; /* the file does not list its special tokens */
    if (id < 0 || id >= (any ? 1 << 22 : f.vocab))
        return FAIL(e, ERR_ARG, "%s %s: the tokenizer has no such token; name a token, an "
                    "id from 0 to %" PRId64 ", or none", name, word, f.vocab - 1);
    c->end = (int32_t)id;
    return OK;
}

enum status tokenizer_choose(struct tokenizer_choice *out, const char *name,
                             const struct tokenizer_options *options, const char *end,
                             const char *end_name, struct err *e) {
    *out = (struct tokenizer_choice){ .end = -1, .mark = -1 };
    if (path_is_directory(name)) TRY(path_join(out->path, name, "tokenizer.json", e));
    else snprintf(out->path, PATH_CAP, "%s", name);
    static const char *const WORDS[] = { "bytes" };
    bool absent = strcmp(name, "bytes") != 0 && !path_exists(out->path);
    if (absent && nearest_name(name, WORDS, 1))
        return FAIL(e, ERR_CONFIG, "open %s: %s; did you mean \"bytes\"?", out->path,
                    strerror(errno));
    if (absent)
        return FAIL(e, ERR_CONFIG, "open %s: %s; name a tokenizer.json, its folder, a tiktoken "
                    "file, or \"bytes\"; none is downloaded", out->path, strerror(errno));
    enum status st = tokenizer_open(&out->tokenizer, out->path, options, e);
    if (st == ERR_IO || st == ERR_FORMAT) st = e->code = ERR_CONFIG; /* the user's to change */
    if (st == OK) st = find_end(out, options, end, end_name, e);
    if (st == OK) {
        struct tokenizer_facts f = tokenizer_facts(out->tokenizer);
        out->vocab = f.vocab > out->end ? f.vocab : (int64_t)out->end + 1;
        if (out->end < 0 && f.behind >= 0) out->why = "the tokenizer's post-processor sets it";
        out->mark = out->end < 0 ? f.behind : out->end;
        if (out->end == f.behind) out->end = -1; /* the post-processor sets it */
    }
    if (st != OK) tokenizer_choice_free(out);
    return st;
}

void tokenizer_choice_free(struct tokenizer_choice *c) {
    tokenizer_close(c->tokenizer);
    c->tokenizer = NULL;
}

int tokenise_threads(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > TOKENISE_THREADS_MAX ? TOKENISE_THREADS_MAX : n;
}
