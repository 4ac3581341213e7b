#include "runner/infer/model_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/unpack.h"
#include "runner/cache/cache_key.h"
#include "runner/record/ingest_record.h"
#include "runner/record/shards_tokenizer.h"
#include "runner/run/init_tokenizer.h"
#include "runner/weights/hf_config.h"

/* ---- a run's ----------------------------------------------------------------------------------*/

/* *listed: the run's list of data files, in the folder of its record, has the hash. */
static enum status find_listed(const char *folder, const char *sha256, bool *listed,
                               struct err *e) {
    char path[PATH_CAP], name[PATH_CAP];
    json_t *list = NULL;
    const json_t *file;
    size_t i;
    *listed = false;
    path_base(name, RUN_PATH_data_files);
    TRY(path_join(path, folder, name, e));
    TRY(json_file_read(path, &list, e));
    json_array_foreach(list, i, file)
        *listed = *listed || !strcmp(json_text(file, "sha256", ""), sha256);
    json_decref(list);
    return OK;
}

/* The tokenizer that made the run's shards, which lie where they were at the run. */
static enum status open_described(const json_t *data, const char *folder, struct text_model *out,
                                  char note[MODEL_TEXT_NOTE], struct err *e) {
    struct shards_tokenizer s;
    bool listed;
    TRY(shards_tokenizer_find(data, NULL, &s, e));
    if (!path_exists(s.described))
        return FAIL(e, ERR_CONFIG, "the run's data are tokens, and %s, where `data tokenise` names "
                    "their tokenizer, is not here", s.described);
    if (!*s.name)
        return FAIL(e, ERR_CONFIG, "the run's data are tokens, and %s is not of `data tokenise`: "
                    "it names no tokenizer", s.described);
    TRY(find_listed(folder, s.shards, &listed, e));
    if (!listed)
        return FAIL(e, ERR_CONFIG, "%s describes other shards than those of the run: none of its "
                    "files has their SHA-256, %.12s...", s.described, s.shards);
    enum status st = text_model_open(s.name, out, e);
    if (st != OK) return err_prefix(e, "the tokenizer that %s names", s.described), st;
    TRY(shards_tokenizer_check(&s, &out->choice, e));
    if (s.end >= 0 && s.end < out->choice.vocab) out->choice.end = s.end;
    snprintf(note, MODEL_TEXT_NOTE, "tokenizer %.200s, which %.200s names", s.name, s.described);
    return OK;
}

static enum status open_kept(const struct open_model *m, const char *folder, bool chat,
                             struct text_model *out, char note[MODEL_TEXT_NOTE], struct err *e) {
    const json_t *data = json_object_get(m->view.resolved, "data");
    char kept[PATH_CAP];
    if (!strcmp(json_text(data, "kind", ""), "tokens") && !cache_kept_tokenizer(folder, kept)) {
        TRY(open_described(data, folder, out, note, e));
        return chat ? text_model_chat(out, NULL, NULL, e) : OK;
    }
    TRY(text_model_of_run(data, folder, out, e));
    return chat ? text_model_chat(out, data, folder, e) : OK;
}

/* The tokenizer is read whole when it is opened, so its files need not stay. */
static enum status open_packed(const struct open_model *m, bool chat, struct text_model *out,
                               char note[MODEL_TEXT_NOTE], struct err *e) {
    static const char *const TAKEN[] = { INGEST_FOLDER "/", NULL };
    const char *temporary = getenv("TMPDIR");
    struct unpack_report report;
    struct err ignored; /* the first error is reported */
    char parent[PATH_CAP], inside[PATH_CAP], folder[PATH_CAP];
    int n = snprintf(parent, sizeof parent, "%s/fp8lab-text-XXXXXX",
                     temporary && *temporary ? temporary : "/tmp");
    if (n >= PATH_CAP || !mkdtemp(parent))
        return FAIL(e, ERR_IO, "create %.200s: %s", parent, strerror(errno));
    enum status st = path_join(inside, parent, "run", e);
    if (st == OK) st = bundle_unpack_part(m->found.of, inside, TAKEN, &BUNDLE_LIMITS, &report, e);
    if (st == OK) st = path_join(folder, inside, INGEST_FOLDER, e);
    if (st == OK) st = open_kept(m, folder, chat, out, note, e);
    enum status removed = tree_remove(parent, st == OK ? e : &ignored);
    return st == OK ? removed : st;
}

static enum status open_run(const struct open_model *m, bool chat, struct text_model *out,
                            char note[MODEL_TEXT_NOTE], struct err *e) {
    const json_t *data = json_object_get(m->view.resolved, "data");
    char folder[PATH_CAP];
    TRY(path_join(folder, m->found.of, INGEST_FOLDER, e));
    bool may = json_object_get(data, "tokenizer") || json_object_get(m->view.resolved, "sample") ||
               !strcmp(json_text(data, "kind", ""), "tokens");
    bool packed = may && !m->view.directory;
    return packed ? open_packed(m, chat, out, note, e) : open_kept(m, folder, chat, out, note, e);
}

/* ---- any model's ------------------------------------------------------------------------------*/

static enum status open_folder(const struct open_model *m, bool chat, struct text_model *out,
                               struct err *e) {
    char file[PATH_CAP];
    TRY(path_join(file, m->found.path, "tokenizer.json", e));
    if (!path_exists(file))
        return FAIL(e, ERR_CONFIG, "%s has no tokenizer.json", m->found.path);
    TRY(text_model_open(file, out, e));
    return chat ? text_model_chat(out, NULL, NULL, e) : OK;
}

/* The tokenizer that the user names for the model. */
static enum status open_named(const struct open_model *m, const char *name, struct text_model *out,
                              struct err *e) {
    TRY(text_model_open(name, out, e));
    int64_t ids = text_model_ids(out), vocab = m->options.model.vocab;
    if (ids <= vocab) return OK;
    return FAIL(e, ERR_CONFIG, "the tokenizer %s has ids up to %" PRId64 ", but the model has %"
                PRId64 " tokens: it is another model's tokenizer", name, ids - 1, vocab);
}

enum status model_text_open(const struct open_model *m, const char *tokenizer, bool chat,
                            struct text_model *out, char note[MODEL_TEXT_NOTE], struct err *e) {
    *out = (struct text_model){ 0 };
    note[0] = '\0';
    if (tokenizer) {
        TRY(open_named(m, tokenizer, out, e));
        return chat ? text_model_chat(out, NULL, NULL, e) : OK;
    }
    enum status st = *m->found.of ? open_run(m, chat, out, note, e) : open_folder(m, chat, out, e);
    if (st != ERR_CONFIG || !e) return st;
    size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n, "; --tokenizer names %s",
             chat ? "a folder that has one"
                  : "one: a file, a folder, or bytes, for a model of bytes");
    return st;
}

void model_text_compare(const struct open_model *m, const char *name,
                        const struct tokenizer_hash *hash, char warning[MODEL_TEXT_NOTE]) {
    struct tokenizer_id own, given = { .hash = *hash };
    warning[0] = '\0';
    if (*m->found.of) tokenizer_of_run(&m->view, &own);
    else tokenizer_of_folder(m->found.path, &own);
    if (tokenizer_differs(&own, &given))
        snprintf(warning, MODEL_TEXT_NOTE, "the model was trained on ids of the tokenizer %.150s, "
                 "not %.150s: unless both give the same ids, the result says nothing; leave out "
                 "--tokenizer", PLAIN(own.name), PLAIN(name));
}

/* ---- the tokens that end a text ---------------------------------------------------------------*/

static void add_stop(const json_t *id, int32_t out[STOPS_MAX], int64_t *count) {
    json_int_t value = json_integer_value(id);
    if (json_is_integer(id) && value >= 0 && value <= INT32_MAX && *count < STOPS_MAX)
        out[(*count)++] = (int32_t)value;
}

/* eos_token_id: a number or a list of them. *found: the file has the key. */
static enum status read_stops(const char *folder, const char *name, int32_t out[STOPS_MAX],
                              int64_t *count, bool *found, struct err *e) {
    char path[PATH_CAP], *text = NULL;
    json_t *root = NULL;
    json_error_t why;
    size_t n = 0, i;
    const json_t *item;
    TRY(path_join(path, folder, name, e));
    if (!path_exists(path)) return OK;
    TRY(file_read(path, HF_CONFIG_MAX, &text, &n, e));
    enum status st = json_parse(&root, text, n, 0, &why);
    free(text);
    if (st == ERR_FORMAT)
        return FAIL(e, ERR_CONFIG, "%s: line %d: %s", path, why.line, why.text);
    if (st != OK) return FAIL(e, st, "%s: %s", path, why.text);
    const json_t *ids = json_object_get(root, "eos_token_id");
    *found = ids && !json_is_null(ids);
    add_stop(ids, out, count);
    json_array_foreach(ids, i, item) add_stop(item, out, count);
    json_decref(root);
    return OK;
}

enum status model_text_stops(const struct open_model *m, const struct text_model *text,
                             int32_t out[STOPS_MAX], int64_t *count, struct err *e) {
    int32_t end = text_model_end(text);
    bool bytes = tokenizer_facts(text->choice.tokenizer).kind == TOKENIZER_BYTES, found = false;
    *count = 0;
    if (end >= 0) out[(*count)++] = end;
    if (*m->found.of || bytes) return OK; /* the ids are those of another tokenizer */
    TRY(read_stops(m->found.path, "generation_config.json", out, count, &found, e));
    return found ? OK : read_stops(m->found.path, "config.json", out, count, &found, e);
}
