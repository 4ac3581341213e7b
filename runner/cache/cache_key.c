#include "runner/cache/cache_key.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache_chat.h"
#include "runner/cache/eval_sets.h"
#include "runner/ingest/tokenise_options.h"
#include "runner/ingest/tokenizer_config.h"
#include "runner/ingest/tokenizer_content.h"

static const json_t *data_of(const json_t *config) { return json_object_get(config, "data"); }

bool cache_is_needed(const json_t *config) {
    return json_is_string(json_object_get(data_of(config), "tokenizer"));
}

/* ---- files ----------------------------------------------------------------------------------- */

static char *with_root(const char *root, const char *path) {
    char *full = NULL;
    if (!root) return strdup(path);
    return asprintf(&full, "%s/%s", root, path) < 0 ? NULL : full;
}

/* Ingestion reads JSON lines by this part of the name, whatever the file is packed with. */
static bool named_as_lines(const char *path) {
    char base[PATH_CAP];
    path_base(base, path);
    return strcasestr(base, ".jsonl") || strcasestr(base, ".ndjson");
}

static enum status hash_source(struct cache_text *t, const char *path, const char *root,
                               bool *failed, struct err *e) {
    char digest[SHA256_HEX], *full = with_root(root, path);
    int64_t bytes = 0;
    if (!full) return FAIL(e, ERR_MEMORY, "the path %s", path);
    t->paths[t->path_count++] = full;
    enum status st = sha256_file(full, digest, &bytes, e);
    if (st != OK) err_prefix(e, "%s", json_text(t->data, CACHE_OF_KEY, "data.paths"));
    if (st == ERR_IO) st = e->code = ERR_CONFIG; /* the user must name another */
    TRY(st);
    json_append(t->sources, json_pack("{s:o,s:I,s:s}", "path", json_from_text(path), "bytes",
                                      (json_int_t)bytes, "sha256", digest), failed);
    return OK;
}

static enum status hash_sources(struct cache_text *t, const char *root, struct err *e) {
    const json_t *list = json_object_get(t->data, "paths"), *path;
    bool failed = false;
    size_t i;
    t->sources = json_array();
    t->paths = calloc(json_array_size(list) + 1, sizeof *t->paths);
    if (!t->sources || !t->paths) return FAIL(e, ERR_MEMORY, "the list of data.paths");
    json_array_foreach(list, i, path) {
        const char *text = json_string_value(path);
        TRY(hash_source(t, text ? text : "", root, &failed, e));
    }
    return failed ? FAIL(e, ERR_MEMORY, "the list of data.paths") : OK;
}

/* ---- the tokenizer --------------------------------------------------------------------------- */

static enum status check_vocab(const struct cache_text *t, const json_t *config, struct err *e) {
    int64_t vocab = json_int(json_object_get(config, "model"), "vocab");
    if (vocab >= t->choice.vocab) return OK;
    if (!json_object_get(config, "train")) /* `eval` of a model that is there already */
        return FAIL(e, ERR_CONFIG, "the tokenizer %s has ids up to %" PRId64 ", but the model has %"
                    PRId64 " tokens: it is another model's tokenizer",
                    json_text(t->data, "tokenizer", "?"), t->choice.vocab - 1, vocab);
    return FAIL(e, ERR_CONFIG, "model.vocab is %" PRId64 ", but the tokenizer %s has ids up to %"
                PRId64 ": write vocab = %" PRId64 " or more in the model, or --set model.vocab=%"
                PRId64, vocab, json_text(t->data, "tokenizer", "?"), t->choice.vocab - 1,
                t->choice.vocab, t->choice.vocab);
}

/* The names under which a bundle has the file, by the kind of tokenizer; bytes have no file. */
static const char *const KEPT_AS[] = { NULL, "tokenizer.json", "tokenizer.tiktoken" };

const char *cache_kept_name(enum tokenizer_kind kind) { return KEPT_AS[kind]; }

bool cache_kept_tokenizer(const char *own, char path[PATH_CAP]) {
    for (int kind = TOKENIZER_JSON; kind <= TOKENIZER_TIKTOKEN; kind++)
        if (path_join(path, own, KEPT_AS[kind], NULL) == OK && path_exists(path)) return true;
    path[0] = '\0';
    return false;
}

static char *tokenizer_path(const char *word, const char *root, const char *own) {
    if (!strcmp(word, "bytes")) return strdup(word);
    if (!own) return with_root(root, word);
    char *path = with_root(own, KEPT_AS[TOKENIZER_TIKTOKEN]);
    if (!path || path_exists(path)) return path;
    free(path);
    return with_root(own, KEPT_AS[TOKENIZER_JSON]);
}

const char *const CACHE_BESIDE[] = { TOKENIZER_CONFIG, "special_tokens_map.json",
                                     "chat_template.jinja", NULL };

/* Adds the files that transformers reads beside the tokenizer, for an export. Conversations keep
 * the template that they are rendered by, which cache_chat_open() adds. */
static void keep_beside(struct cache_text *t, bool *failed) {
    bool rendered = !cache_is_chat(t->data) || cache_is_rendered(t->data);
    char folder[PATH_CAP], path[PATH_CAP];
    path_parent(folder, t->choice.path);
    for (int i = 0; CACHE_BESIDE[i]; i++) {
        bool template = strstr(CACHE_BESIDE[i], ".jinja");
        if (path_join(path, folder, CACHE_BESIDE[i], NULL) != OK || (template && !rendered) ||
            path_is_directory(path) || access(path, R_OK) != 0)
            continue;
        json_put(t->kept, CACHE_BESIDE[i], json_string_nocheck(path), failed);
    }
}

static enum status keep_tokenizer(struct cache_text *t, struct err *e) {
    const char *name = KEPT_AS[tokenizer_facts(t->choice.tokenizer).kind];
    bool failed = false;
    t->kept = json_object();
    if (name) json_put(t->kept, name, json_string_nocheck(t->choice.path), &failed);
    if (name) keep_beside(t, &failed);
    return t->kept && !failed ? OK : FAIL(e, ERR_MEMORY, "the files of the tokenizer");
}

enum status cache_tokenizer(const json_t *data, const char *root, const char *own,
                            struct tokenizer_choice *out, struct err *e) {
    const char *word = json_text(data, "tokenizer", "bytes");
    struct tokenizer_options how = { json_text(data, "pattern", NULL),
                                     json_is_true(json_object_get(data, "ordinary")),
                                     cache_is_chat(data) }; /* its template ends a conversation */
    char *full = tokenizer_path(word, root, own);
    if (!full) return FAIL(e, ERR_MEMORY, "the path %s", word);
    enum status st = tokenizer_choose(out, full, &how, json_text(data, "eod", NULL), "data.eod",
                                      e);
    if (st != OK) err_prefix(e, "data.tokenizer");
    /* An absent one may be on another machine, as absent data may. */
    if (st == ERR_CONFIG && strcmp(word, "bytes") != 0 && !path_exists(full)) st = e->code = ERR_IO;
    free(full);
    return st == ERR_ARG ? ERR_CONFIG : st; /* a word of the script, not of the command line */
}

static enum status open_tokenizer(struct cache_text *t, const json_t *config, const char *root,
                                  const char *own, struct err *e) {
    enum status st = cache_tokenizer(t->data, root, own, &t->choice, e);
    if (st == OK) st = keep_tokenizer(t, e);
    t->of_run = own && json_object_size(t->kept) > 0;
    if (st == OK && cache_is_chat(t->data) && !cache_is_rendered(t->data))
        st = cache_chat_open(&t->chat, t->data, root, own, t->choice.path, t->kept, e);
    return st == OK ? check_vocab(t, config, e) : st;
}

/* ---- the key --------------------------------------------------------------------------------- */

static const char *const KINDS[] = { "bytes", "tokenizer.json", "tiktoken" };

static json_t *tokenizer_json(const struct cache_text *t) {
    struct tokenizer_facts f = tokenizer_facts(t->choice.tokenizer);
    return json_pack("{s:s,s:s}", "kind", KINDS[f.kind], "sha256", f.sha256);
}

/* What determines the tokens of a conversation, apart from the conversation; not a file's name. */
static json_t *chat_json(const struct cache_text *t) {
    json_t *d = t->chat.lines.describe(t->chat.lines.context);
    if (d) (void)json_object_del(d, "template");
    return d;
}

/* The options that change a token. Threads, places and names do not. */
static json_t *key_json(const struct cache_text *t) {
    static const char *const OPTIONS[] = { "field", "ordinary", "pattern", "skip_bad",
                                           "unique" };
    json_t *key = json_pack("{s:i,s:o,s:i}", "version", INGESTION_VERSION, "tokenizer",
                            tokenizer_json(t), "end_of_document", (int)t->choice.end);
    json_t *sources = json_array(), *source;
    bool failed = false;
    size_t i;
    json_array_foreach(t->sources, i, source)
        json_append(sources, json_pack("{s:O,s:b}", "sha256", json_object_get(source, "sha256"),
                                       "lines", named_as_lines(t->paths[i])), &failed);
    json_put(key, "sources", sources, &failed);
    if (cache_is_chat(t->data)) json_put(key, "chat", chat_json(t), &failed);
    for (i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++) {
        json_t *value = json_object_get(t->data, OPTIONS[i]);
        if (value) json_put(key, OPTIONS[i], json_incref(value), &failed);
    }
    return json_whole(key, failed);
}

static enum status make_key(struct cache_text *t, struct err *e) {
    json_t *key = key_json(t);
    char *bytes = NULL;
    size_t n = 0;
    enum status st = key ? json_canonical(key, &bytes, &n, e)
                         : FAIL(e, ERR_MEMORY, "the key of the tokens");
    if (st == OK) st = sha256_bytes(bytes, n, t->key, e);
    free(bytes);
    json_decref(key);
    return st;
}

enum status cache_text_open(struct cache_text *out, const json_t *config, const char *root,
                            const char *own, const struct chat_render_source *render,
                            struct err *e) {
    *out = (struct cache_text){ .data = data_of(config),
                                .of_script = json_object_get(config, "train") };
    /* First: its children then do not copy the tokenizer's memory at each conversation. */
    if (cache_is_rendered(out->data))
        TRY(cache_chat_render(&out->chat, out->data, render, tokenise_threads(), e));
    TRY(open_tokenizer(out, config, root, own, e));
    TRY(hash_sources(out, root, e));
    return make_key(out, e);
}

static enum status check_files(const json_t *list, const char *root, struct err *e) {
    const json_t *path;
    size_t i;
    enum status st = OK;
    json_array_foreach(list, i, path) {
        char *full = st == OK ? with_root(root, json_string_value(path)) : NULL;
        if (full && access(full, R_OK) != 0)
            st = FAIL(e, ERR_IO, "open %s: %s", full, strerror(errno));
        free(full);
    }
    return st;
}

enum status cache_text_check(const json_t *config, const char *root, struct err *e) {
    struct cache_text t = { .data = data_of(config) };
    const char *name;
    json_t *files;
    enum status st = open_tokenizer(&t, config, root, NULL, e);
    if (st == OK) st = check_files(json_object_get(t.data, "paths"), root, e);
    json_object_foreach(eval_sets_of(config), name, files) {
        if (st != OK) break;
        st = check_files(files, root, e);
        if (st != OK) err_prefix(e, "eval.also.%s", name);
    }
    cache_text_close(&t);
    return st;
}

void cache_text_close(struct cache_text *t) {
    for (int64_t i = 0; i < t->path_count; i++) free(t->paths[i]);
    free(t->paths);
    json_decref(t->sources);
    json_decref(t->kept);
    chat_tokens_close(&t->chat);
    tokenizer_choice_free(&t->choice);
    *t = (struct cache_text){ 0 };
}

/* ---- the record ------------------------------------------------------------------------------ */

json_t *cache_record(const struct cache_text *t, const char *prefix, const json_t *description) {
    static const char *const COUNTS[] = { "text_bytes", "empty_documents", "skipped_lines",
                                          "replaced_bytes", "dropped_characters", "shards",
                                          "end_of_document", "field", "files",
                                          "cut_documents", "lossless_documents",
                                          "duplicate_documents" };
    json_t *tokenizer = tokenizer_json(t), *kept = json_array(), *record, *ignored;
    const char *name;
    char end[TOKENIZER_EOS_CAP];
    bool failed = false;
    json_put(tokenizer, "path", json_from_text(json_text(t->data, "tokenizer", "")), &failed);
    json_put(tokenizer, "content_sha256",
             json_string(tokenizer_hash_of(t->choice.tokenizer).content), &failed);
    json_put(tokenizer, "vocab", json_integer(t->choice.vocab), &failed);
    tokenizer_end_token(&t->choice, end);
    json_put(tokenizer, "end", *end ? json_from_text(end) : json_null(), &failed);
    json_object_foreach(t->kept, name, ignored) json_append(kept, json_string(name), &failed);
    record = json_pack("{s:s,s:s,s:o,s:O,s:o,s:o}", "schema", "fp8lab.ingest/1", "key", t->key,
                       "prefix", json_string_nocheck(prefix), "sources", t->sources, "tokenizer",
                       tokenizer, "kept", kept);
    if (cache_is_chat(t->data)) json_put(record, "chat", chat_json(t), &failed);
    for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++) {
        json_t *value = json_object_get(description, COUNTS[i]);
        if (value) json_put(record, COUNTS[i], json_incref(value), &failed);
    }
    return json_whole(record, failed);
}
