#include "runner/data_verify.h"

#include <inttypes.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"
#include "runner/shard_files.h"
#include "runner/token_stats.h"

/* ---- the description ------------------------------------------------------------------------- */

static enum status same_number(const struct shard_files *f, const json_t *said, const char *key,
                               int64_t found, struct err *e) {
    int64_t wanted = json_int(said, key);
    if (wanted == found) return OK;
    return FAIL(e, ERR_VERIFY, "%s.json: shards.%s is %" PRId64 ", but the files have %" PRId64,
                f->prefix, key, wanted, found);
}

static enum status same_hash(const struct shard_files *f, const json_t *said, const char *key,
                             const char *file, const char *found, struct err *e) {
    const char *wanted = json_text(said, key, "missing");
    if (!strcmp(wanted, found)) return OK;
    return FAIL(e, ERR_VERIFY, "%s.%s was changed: its SHA-256 is %s, but %s.json has %s; make the "
                "shards again", f->prefix, file, found, f->prefix, wanted);
}

/* Ids against the vocabulary of the tokenizer, or of the end of documents if that is beyond. */
static enum status check_ids(const struct shard_files *f, int64_t id_max, struct err *e) {
    int64_t vocab = json_int(json_object_get(f->description, "tokenizer"), "vocab");
    const json_t *end = json_object_get(f->description, "end_of_document");
    if (json_is_integer(end) && json_integer_value(end) >= vocab)
        vocab = json_integer_value(end) + 1;
    if (id_max < vocab) return OK;
    return FAIL(e, ERR_VERIFY, "%s.bin has the token %" PRId64 ", but the vocabulary in %s.json "
                "has %" PRId64, f->prefix, id_max, f->prefix, vocab);
}

/* ---- the loss -------------------------------------------------------------------------------- */

static enum status count_loss(const struct shard_files *f, int64_t *ones, struct sha256 *sha,
                              struct err *e) {
    unsigned char piece[1 << 14];
    if (f->loss.bytes != f->tokens)
        return FAIL(e, ERR_VERIFY, "%s has %" PRId64 " bytes, but %s has %" PRId64 " tokens; there "
                    "is one byte per token", f->loss.path, f->loss.bytes, f->bin->path, f->tokens);
    for (int64_t at = 0, n; at < f->loss.bytes; at += n) {
        n = f->loss.bytes - at;
        if (n > (int64_t)sizeof piece) n = (int64_t)sizeof piece;
        TRY(input_read(&f->loss, at, n, piece, e));
        sha256_add(sha, piece, (size_t)n);
        for (int64_t i = 0; i < n; i++) {
            if (piece[i] > 1)
                return FAIL(e, ERR_VERIFY, "%s: byte %" PRId64 " is %d; 1 carries loss, 0 does not",
                            f->loss.path, at + i, piece[i]);
            *ones += piece[i];
        }
    }
    return OK;
}

static enum status check_loss(const struct shard_files *f, const json_t *said, int64_t *ones,
                              struct err *e) {
    char digest[SHA256_HEX];
    struct sha256 *sha;
    *ones = 0;
    if (!f->loss.path && json_object_get(said, "loss_sha256"))
        return FAIL(e, ERR_VERIFY, "%s.loss is missing, but %s.json describes it", f->prefix,
                    f->prefix);
    if (!f->loss.path) return OK;
    TRY(sha256_create(&sha, e));
    enum status st = count_loss(f, ones, sha, e);
    sha256_finish(sha, digest);
    sha256_destroy(sha);
    if (st == OK && said) st = same_hash(f, said, "loss_sha256", "loss", digest, e);
    if (st == OK && said) st = same_number(f, said, "loss_tokens", *ones, e);
    return st;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static enum status check_documents(const struct shard_files *f, struct err *e) {
    int64_t end[256], n;
    for (int64_t at = 0; at < f->documents; at += n) {
        n = f->documents - at < 256 ? f->documents - at : 256;
        TRY(shard_ends(f, at, n, end, e));
    }
    return OK;
}

static enum status check(const struct cli *cli, const struct shard_files *f, json_t *list,
                         struct err *e) {
    const json_t *said = json_object_get(f->description, "shards");
    struct token_stats stats;
    char index[SHA256_HEX];
    int64_t ones = 0;
    bool failed = false;
    TRY(check_documents(f, e));
    TRY(token_stats_file(f->prefix, TOKENS_MEGATRON, &stats, e));
    if (f->description) {
        TRY(same_number(f, said, "tokens", f->tokens, e));
        TRY(same_number(f, said, "documents", f->documents, e));
        TRY(same_number(f, said, "token_bytes", f->token_bytes, e));
        TRY(same_hash(f, said, "sha256", "bin", stats.sha256, e));
        TRY(sha256_file(f->idx->path, index, NULL, e));
        TRY(same_hash(f, said, "index_sha256", "idx", index, e));
        TRY(check_ids(f, stats.id_max, e));
    }
    TRY(check_loss(f, said, &ones, e));
    if (cli->json) {
        json_append(list, json_pack("{s:o,s:b,s:I,s:I,s:I,s:s,s:o}", "path",
                                    json_from_text(f->prefix), "described", f->description != NULL,
                                    "tokens", (json_int_t)f->tokens, "documents",
                                    (json_int_t)f->documents, "id_max", (json_int_t)stats.id_max,
                                    "sha256", stats.sha256, "loss_tokens",
                                    f->loss.path ? json_integer(ones) : json_null()), &failed);
        return failed ? FAIL(e, ERR_MEMORY, "the result as JSON") : OK;
    }
    cli_out(cli, "valid: %s\n  %" PRId64 " tokens in %" PRId64 " document%s, ids up to %" PRId64,
            PLAIN(f->prefix), f->tokens, f->documents, f->documents == 1 ? "" : "s", stats.id_max);
    if (f->loss.path) cli_out(cli, ", %" PRId64 " tokens with loss", ones);
    cli_out(cli, "\n  sha256 %s%s\n", stats.sha256,
            f->description ? "" : "; there is no .json to compare it with");
    return OK;
}

int data_verify(const struct cli *cli) {
    json_t *list = json_array();
    struct err e = { 0 };
    enum status st = list ? OK : FAIL(&e, ERR_MEMORY, "a list");
    if (st == OK && cli->arg_count < 2)
        st = FAIL(&e, ERR_ARG, "missing argument: fp8lab data verify PREFIX...");
    for (int64_t i = 1; st == OK && i < cli->arg_count; i++) {
        struct shard_files f;
        st = shard_files_open(&f, cli->args[i], &e);
        if (st == OK) st = check(cli, &f, list, &e);
        shard_files_close(&f);
    }
    json_t *object = NULL;
    if (st == OK && cli->json)
        object = json_pack("{s:s,s:O}", "schema", "fp8lab.data.verify/1", "shards", list);
    if (object) cli_out_json(cli, object);
    json_decref(object);
    json_decref(list);
    if (st == OK) return EXIT_OK;
    int code = cli_fail(cli, &e);
    return st == ERR_FORMAT || st == ERR_VERIFY ? EXIT_VERIFY : st == ERR_IO ? EXIT_USAGE : code;
}
