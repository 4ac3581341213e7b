#include "runner/data_sample_shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"
#include "runner/generate/text_model.h"
#include "runner/ingest/tokenizer_content.h"
#include "runner/sample_text.h"
#include "runner/shard_files.h"

/* More of a document than this fills a terminal and says nothing new. */
enum { TOKENS_SHOWN = 2000 };

struct document {
    int64_t number, tokens; /* of all of it */
    int64_t shown;
    uint32_t id[TOKENS_SHOWN];
    unsigned char loss[TOKENS_SHOWN]; /* 0 without a .loss */
};

/* ---- the tokenizer --------------------------------------------------------------------------- */

static enum status same_tokenizer(const struct shard_files *f, const struct tokenizer *t,
                                  const char *path, struct err *e) {
    const struct tokenizer_hash made =
        tokenizer_hash_read(json_object_get(f->description, "tokenizer"));
    const struct tokenizer_hash given = tokenizer_hash_of(t);
    if (!*made.file || tokenizer_hash_equal(&made, &given)) return OK;
    return FAIL(e, ERR_CONFIG, "%s was made with a tokenizer of SHA-256 %s, and %s has %s; name "
                "the right one with --tokenizer", f->prefix, made.file, path, given.file);
}

static enum status open_tokenizer(const struct cli *cli, const struct shard_files *f,
                                  struct tokenizer **t, struct err *e) {
    const json_t *made = json_object_get(f->description, "tokenizer");
    const struct tokenizer_options o = { .pattern = cli_value(cli, "pattern") };
    const char *name = cli_value(cli, "tokenizer");
    char path[PATH_CAP];
    if (!name) name = json_text(made, "path", NULL);
    if (!name)
        return FAIL(e, ERR_ARG, "%s: name the tokenizer of these shards with --tokenizer",
                    f->prefix);
    if (path_is_directory(name)) TRY(path_join(path, name, "tokenizer.json", e));
    else snprintf(path, sizeof path, "%s", name);
    TRY(tokenizer_open(t, path, &o, e));
    return same_tokenizer(f, *t, path, e);
}

/* ---- one document ---------------------------------------------------------------------------- */

static enum status read_document(const struct shard_files *f, int64_t number, int64_t begin,
                                 struct document *d, struct err *e) {
    int64_t end;
    TRY(shard_ends(f, number, 1, &end, e));
    d->number = number;
    d->tokens = end - begin;
    d->shown = d->tokens < TOKENS_SHOWN ? d->tokens : TOKENS_SHOWN;
    memset(d->loss, 0, sizeof d->loss);
    TRY(shard_ids(f, begin, d->shown, d->id, e));
    if (!f->loss.path) return OK;
    if (f->loss.bytes != f->tokens)
        return FAIL(e, ERR_FORMAT, "%s has %" PRId64 " bytes for %" PRId64 " tokens; `fp8lab data "
                    "verify` says more", f->loss.path, f->loss.bytes, f->tokens);
    return input_read(&f->loss, begin, d->shown, d->loss, e);
}

/* The first token from `at` on whose loss is another. */
static int64_t same_loss(const struct document *d, int64_t at) {
    int64_t end = at + 1;
    while (end < d->shown && d->loss[end] == d->loss[at]) end++;
    return end;
}

/* Prints stretches of equal loss. A stretch is what it adds to the text: some decoders treat the
 * beginning of a text in another way. */
static enum status print_stretches(const struct cli *cli, const struct tokenizer *t,
                                   const struct document *d, struct err *e) {
    struct sample_text s;
    size_t before = 0;
    sample_text_begin(&s, cli);
    for (int64_t at = 0, end; at < d->shown; at = end) {
        char *text;
        size_t n;
        end = same_loss(d, at);
        TRY(tokenizer_decode(t, d->id, end, false, &text, &n, e));
        if (n > before)
            sample_text_put(&s, text + before, (int64_t)(n - before), d->loss[at] ? "green" : "");
        before = n;
        free(text);
    }
    sample_text_end(&s);
    return OK;
}

static enum status print_document(const struct cli *cli, const struct shard_files *f,
                                  const struct tokenizer *t, const struct document *d,
                                  struct err *e) {
    int64_t ones = 0;
    for (int64_t i = 0; i < d->shown; i++) ones += d->loss[i];
    cli_out(cli, "%s%s%s  document %" PRId64 ", %" PRId64 " tokens", cli_style(cli, "bold"),
            PLAIN(f->prefix), cli_style(cli, NULL), d->number, d->tokens);
    if (d->shown < d->tokens) cli_out(cli, ", of which the first %" PRId64, d->shown);
    if (f->loss.path) cli_out(cli, ", %" PRId64 " with loss", ones);
    cli_out(cli, "\n");
    return print_stretches(cli, t, d, e);
}

static enum status add_document(const struct shard_files *f, const struct tokenizer *t,
                                const struct document *d, json_t *documents, struct err *e) {
    json_t *ids = json_array(), *loss = f->loss.path ? json_array() : json_null();
    char *text;
    size_t n;
    bool failed = !ids || !loss;
    for (int64_t i = 0; i < d->shown; i++) json_append(ids, json_integer(d->id[i]), &failed);
    for (int64_t at = 0, end; f->loss.path && at < d->shown; at = end) {
        end = same_loss(d, at);
        if (d->loss[at])
            json_append(loss, json_pack("[I,I]", (json_int_t)at, (json_int_t)end), &failed);
    }
    enum status st = tokenizer_decode(t, d->id, d->shown, false, &text, &n, e);
    if (st != OK) {
        json_decref(ids);
        json_decref(loss);
        return st;
    }
    json_append(documents,
                json_pack("{s:o,s:I,s:I,s:o,s:o,s:o}", "path", json_from_text(f->prefix),
                          "document", (json_int_t)d->number, "tokens", (json_int_t)d->tokens,
                          "text", text_json(text, n), "ids", ids, "loss", loss), &failed);
    free(text);
    return failed ? FAIL(e, ERR_MEMORY, "a document as JSON") : OK;
}

/* ---- the shards ------------------------------------------------------------------------------ */

static enum status show(const struct cli *cli, const struct shard_files *f, int64_t *left,
                        json_t *documents, struct err *e) {
    struct tokenizer *t = NULL;
    struct document *d = malloc(sizeof *d);
    enum status st = d ? open_tokenizer(cli, f, &t, e)
                       : FAIL(e, ERR_MEMORY, "%zu bytes for a document", sizeof *d);
    int64_t begin = 0;
    for (int64_t i = 0; st == OK && i < f->documents && *left != 0; i++, --*left) {
        st = read_document(f, i, begin, d, e);
        if (st == OK && cli->json) st = add_document(f, t, d, documents, e);
        else if (st == OK) st = print_document(cli, f, t, d, e);
        begin += d->tokens;
        if (st == ERR_ARG) err_prefix(e, "%s, document %" PRId64, f->prefix, i);
    }
    tokenizer_close(t);
    free(d);
    return st;
}

enum status data_sample_shards(const struct cli *cli, const char *path, int64_t *left,
                               json_t *documents, bool *loss, struct err *e) {
    struct shard_files f;
    enum status st = shard_files_open(&f, path, e);
    *loss |= st == OK && f.loss.path;
    if (st == OK) st = show(cli, &f, left, documents, e);
    shard_files_close(&f);
    return st;
}
