#include "runner/ingest/tokenizer_choice.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/nearest.h"

static enum status find_end(struct tokenizer_choice *c, const char *word, const char *name,
                            struct err *e) {
    struct tokenizer_facts f = tokenizer_facts(c->tokenizer);
    char *rest;
    c->end = f.end;
    if (word && !strcmp(word, "none")) c->end = -1;
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
    *out = (struct tokenizer_choice){ .end = -1 };
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
    if (st == OK) st = find_end(out, end, end_name, e);
    if (st == OK) {
        struct tokenizer_facts f = tokenizer_facts(out->tokenizer);
        out->vocab = f.vocab > out->end ? f.vocab : (int64_t)out->end + 1;
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
