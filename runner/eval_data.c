#include "runner/eval_data.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/cache/cache_key.h"
#include "runner/infer/model_text.h"
#include "runner/record/ingest_record.h"
#include "runner/record/text_look.h"
#include "runner/repro/repro_data.h"
#include "runner/repro/repro_tokens.h"
#include "runner/script/render.h"
#include "runner/shard_files.h"

static const json_t *data_of(const struct eval_data_request *q) {
    return json_object_get(q->opened->view.resolved, "data");
}

static bool is_run(const struct eval_data_request *q) { return *q->opened->found.of; }

/* The options of the shards of a text, whose configuration is `config`. */
static enum status take_shards(struct eval_data *d, const json_t *config, struct err *e) {
    const json_t *shards = json_object_get(d->tokens.record, "shards");
    int64_t bytes = json_int(d->tokens.record, "text_bytes"), tokens = json_int(shards, "tokens");
    bool all = !json_object_get(d->tokens.record, "chat"); /* of them have loss */
    if (all && bytes > 0 && tokens > 0) d->bytes_a_token = (double)bytes / (double)tokens;
    TRY(options_with_shards(config, d->tokens.record, &d->config, e));
    return options_read_data(d->config, &d->options, e);
}

/* ---- the run's own ----------------------------------------------------------------------------*/

static enum status refuse_missing(const char *missing, struct err *e) {
    return FAIL(e, ERR_CONFIG, "the run's own data are not here; --data FOLDER finds them by "
                "content, --data FILE evaluates on another file:\n%.700s", missing);
}

/* `folder`: also look for them here; or NULL. */
static enum status find_own(const struct eval_data_request *q, const char *folder,
                            struct eval_data *d, struct err *e) {
    const struct repro_source *s = &d->source;
    const char *kind = json_text(data_of(q), "kind", "");
    bool text = cache_is_needed(s->config);
    char *missing = NULL;
    enum status st = OK;
    TRY(repro_without_sets(&d->source, e));
    if (!strcmp(kind, "synthetic")) return options_read_data(s->config, &d->options, e);
    if (json_array_size(s->data_files) == 0)
        return FAIL(e, ERR_CONFIG, "the run lists no file of its data: --data FILE names another");
    if (text) st = repro_find_tokens(q->cli, s, folder, q->model->cache, &d->tokens, &missing, e);
    else st = repro_stage_data(s, s->data_files, "data", folder, d->root, &missing, e);
    if (st == OK && missing) st = refuse_missing(missing, e);
    free(missing);
    TRY(st);
    if (text) return take_shards(d, s->config, e);
    TRY(options_read_data(s->config, &d->options, e));
    d->options.root = d->root;
    return OK;
}

/* ---- files ------------------------------------------------------------------------------------*/

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end);
}

static bool has_index(const char *path) {
    char name[PATH_CAP];
    int n = (int)strlen(path) - (ends_with(path, ".bin") ? 4 : 0);
    return ends_with(path, ".idx") ||
           (snprintf(name, sizeof name, "%.*s.idx", n, path) < PATH_CAP && path_exists(name));
}

static bool is_shard(const char *path) { return has_index(path) || ends_with(path, ".bin"); }

/* The bytes per token of Megatron shards that `data tokenise` described; 0: not known. */
static enum status find_bytes(const struct eval_data_request *q, double *out, struct err *e) {
    double bytes = 0, tokens = 0;
    bool known = true;
    *out = 0;
    for (int64_t i = 0; i < q->count && known; i++) {
        struct shard_files f;
        enum status st = shard_files_open(&f, q->files[i], e);
        int64_t text = json_int(f.description, "text_bytes");
        known = st == OK && text > 0 && !f.loss.path;
        bytes += (double)text;
        tokens += (double)f.tokens;
        shard_files_close(&f);
        TRY(st);
    }
    if (known && tokens > 0) *out = bytes / tokens;
    return OK;
}

static enum status take_list(const struct eval_data_request *q, enum data_kind kind,
                             struct eval_data *d, struct err *e) {
    size_t bytes = (size_t)q->count * sizeof *q->files;
    const char **paths = malloc(bytes);
    if (!paths) return FAIL(e, ERR_MEMORY, "%" PRId64 " files", q->count);
    memcpy(paths, q->files, bytes);
    d->options.kind = kind;
    d->options.paths = paths;
    d->options.path_count = q->count;
    return OK;
}

/* ---- another tokenizer ---- */

/* Warns if two descriptions name other tokenizers. A file of another kind may have the same ids,
 * so this is no error. */
static void compare_tokenizers(const struct eval_data_request *q, const json_t *own,
                               const struct shard_files *f) {
    const json_t *theirs = json_object_get(f->description, "tokenizer");
    const json_t *mine = json_object_get(own, "tokenizer");
    const char *name = json_text(theirs, "path", ""), *of_own = json_text(mine, "path", "");
    const struct tokenizer_hash hash = tokenizer_hash_read(theirs);
    const struct tokenizer_hash known = tokenizer_hash_read(mine);
    if (!tokenizer_hash_known(&hash, &known) || tokenizer_hash_equal(&hash, &known)) return;
    cli_warn(q->cli, "%s.bin has tokens of the tokenizer %.200s, and the model was trained on "
             "those of %.200s: unless both give the same ids, this loss says nothing", f->prefix,
             PLAIN(name), PLAIN(of_own));
}

/* What describes the run's own tokens: its record, or the file beside its first shards, which may
 * be gone. */
static void warn_of_tokenizer(const struct eval_data_request *q) {
    const struct data_options *own = &q->opened->options.data;
    const json_t *record = q->opened->view.ingest;
    struct shard_files mine = { 0 };
    struct err ignored;
    if (!record && own->path_count && shard_files_open(&mine, own->paths[0], &ignored) == OK)
        record = mine.description;
    for (int64_t i = 0; i < q->count && record; i++) {
        struct shard_files f;
        if (shard_files_open(&f, q->files[i], &ignored) == OK) compare_tokenizers(q, record, &f);
        shard_files_close(&f);
    }
    shard_files_close(&mine);
}

/* Documents are laid out as in the run, if its data were or became Megatron's shards as well. */
static enum status take_shard_files(const struct eval_data_request *q, struct eval_data *d,
                                    struct err *e) {
    const struct data_options *own = &q->opened->options.data; /* of a folder: zero */
    bool shard = is_shard(q->files[0]), index = has_index(q->files[0]);
    for (int64_t i = 0; i < q->count; i++)
        if (is_shard(q->files[i]) != shard || has_index(q->files[i]) != index)
            return FAIL(e, ERR_CONFIG, "--data %s and %s are of two kinds: give files of one",
                        q->files[0], q->files[i]);
    TRY(take_list(q, index ? DATA_MEGATRON : DATA_LLMC, d, e));
    if (index && is_run(q)) warn_of_tokenizer(q);
    if (index && own->kind == DATA_MEGATRON) {
        bool chats = !strcmp(json_text(data_of(q), "kind", ""), "chats");
        enum data_layout whole = own->documents.mask ? LAYOUT_PACKED : LAYOUT_PADDED;
        d->options.layout = chats ? whole : own->layout;
        d->options.documents = own->documents;
        d->options.loss = own->loss || chats;
    }
    return index && !d->options.loss ? find_bytes(q, &d->bytes_a_token, e) : OK;
}

/* The data section of the text: the run's with other files, or one of a tokenizer alone. */
static json_t *section_of_text(const struct eval_data_request *q, const char *tokenizer) {
    bool failed = false;
    json_t *paths = json_array(), *section;
    for (int64_t i = 0; i < q->count; i++)
        json_append(paths, json_string_nocheck(q->files[i]), &failed);
    if (tokenizer)
        section = json_pack("{s:s,s:o}", "kind", "text", "tokenizer",
                            json_string_nocheck(tokenizer));
    else section = json_copied(data_of(q), &failed);
    json_put(section, "paths", paths, &failed);
    if (q->field) json_put(section, "field", json_string_nocheck(q->field), &failed);
    if (q->skip_bad >= 0) json_put(section, "skip_bad", json_integer(q->skip_bad), &failed);
    return json_whole(section, failed);
}

/* Refuses what is no text, as a run does; a model would give its bytes a loss, too. */
static enum status look_at_text(const struct eval_data_request *q, const char *tokenizer,
                                struct err *e) {
    char warning[TEXT_HEAD_CAP];
    json_t *section = section_of_text(q, tokenizer);
    json_t *config = json_pack("{s:o}", "data", section);
    if (!config) return FAIL(e, ERR_MEMORY, "the configuration of the text");
    enum status st = text_look(config, NULL, warning, e);
    json_decref(config);
    if (st == OK && *warning) cli_warn(q->cli, "%s", PLAIN(warning));
    return st;
}

/* --tokenizer; `record`: of the tokens that it made. */
static void warn_of_given(const struct eval_data_request *q, const json_t *record) {
    const struct tokenizer_hash given = tokenizer_hash_read(json_object_get(record, "tokenizer"));
    char warning[MODEL_TEXT_NOTE];
    model_text_compare(q->opened, q->tokenizer, &given, warning);
    if (*warning) cli_warn(q->cli, "%s", warning);
}

/* Makes tokens of the files as a run does. `tokenizer` NULL: that of its data. `of_run`: the
 * tokenizer is the one that the run kept, whatever its name. */
static enum status tokenise_files(const struct eval_data_request *q, const char *tokenizer,
                                  bool of_run, struct eval_data *d, struct err *e) {
    char own[PATH_CAP];
    const struct chat_render_source render = script_render(d->source.script, d->source.lib);
    json_t *model = json_pack("{s:I}", "vocab", (json_int_t)q->opened->options.model.vocab);
    json_t *config = json_pack("{s:s,s:o,s:o}", "schema", "fp8lab.experiment/1", "model", model,
                               "data", section_of_text(q, tokenizer));
    if (!config) return FAIL(e, ERR_MEMORY, "the configuration of the text");
    const struct cache_request request = {
        .cli = q->cli, .config = config, .own = of_run ? own : NULL,
        .folder = q->model->cache, .render = &render,
    };
    enum status st = path_join(own, d->source.work, "bundle/" INGEST_FOLDER, e);
    if (st == OK) st = cache_take(&request, &d->tokens, e);
    if (st == OK && q->tokenizer) warn_of_given(q, d->tokens.record);
    if (st == OK) st = take_shards(d, config, e);
    json_decref(config);
    return st;
}

/* --tokenizer, or the tokenizer in the folder of a model, or the name of the one that a run on
 * tokens kept for its samples; "": none of these. */
static enum status find_tokenizer(const struct eval_data_request *q, const struct eval_data *d,
                                  char out[PATH_CAP], struct err *e) {
    char folder[PATH_CAP], kept[PATH_CAP];
    out[0] = '\0';
    if (q->tokenizer) {
        snprintf(out, PATH_CAP, "%s", q->tokenizer);
        return OK;
    }
    if (is_run(q)) {
        if (strcmp(json_text(data_of(q), "kind", ""), "tokens") != 0) return OK;
        TRY(path_join(folder, d->source.work, "bundle/" INGEST_FOLDER, e));
        if (cache_kept_tokenizer(folder, kept)) path_base(out, kept);
        return OK;
    }
    TRY(path_join(out, q->opened->found.path, "tokenizer.json", e));
    if (!path_exists(out)) out[0] = '\0';
    return OK;
}

/* --field and --skip-bad say how to read lines. `read`: a tokenizer reads the files. */
static enum status check_lines(const struct eval_data_request *q, const char *tokenizer, bool read,
                               struct err *e) {
    bool chats = !*tokenizer && !strcmp(json_text(data_of(q), "kind", ""), "chats");
    bool field = !q->field || (read && !chats), skip = q->skip_bad < 0 || read;
    if (field && skip) return OK;
    return FAIL(e, ERR_ARG, "--field names a field of JSON lines of text, --skip-bad leaves out "
                "lines of text or chats; %s %s", q->files[0],
                read ? "is read as chats" : "has tokens, or its bytes are the tokens");
}

static enum status find_files(const struct eval_data_request *q, struct eval_data *d,
                              struct err *e) {
    char tokenizer[PATH_CAP];
    bool run = is_run(q), bytes = !strcmp(json_text(data_of(q), "kind", ""), "text");
    for (int64_t i = 0; i < q->count; i++)
        if (!path_exists(q->files[i]) && !has_index(q->files[i]))
            return FAIL(e, ERR_CONFIG, "--data %s: there is no such file", q->files[i]);
    TRY(find_tokenizer(q, d, tokenizer, e));
    bool tokenised = *tokenizer || (run && cache_is_needed(q->opened->view.resolved));
    bool indexed = false; /* with an index beside it a file holds tokens, not bytes */
    for (int64_t i = 0; i < q->count; i++) indexed = indexed || has_index(q->files[i]);
    TRY(check_lines(q, tokenizer, tokenised && !indexed && !is_shard(q->files[0]), e));
    if (!tokenised && bytes && !indexed) {
        TRY(look_at_text(q, NULL, e));
        d->bytes_a_token = 1;
        return take_list(q, DATA_TEXT, d, e);
    }
    if (indexed || is_shard(q->files[0])) return take_shard_files(q, d, e);
    if (tokenised) {
        const char *name = *tokenizer ? tokenizer : NULL;
        TRY(look_at_text(q, name, e));
        return tokenise_files(q, name, run && !q->tokenizer, d, e);
    }
    return FAIL(e, ERR_CONFIG, "%s has no tokenizer, so %s cannot be read as text: --tokenizer "
                "FILE names one (`bytes`: of a model of bytes), or give token shards (.bin)",
                q->model->what, q->files[0]);
}

/* ---- both -------------------------------------------------------------------------------------*/

enum status eval_data_find(const struct eval_data_request *q, struct eval_data *out,
                           struct err *e) {
    *out = (struct eval_data){ 0 };
    const char *folder = q->count == 1 && path_is_directory(q->files[0]) ? q->files[0] : NULL;
    bool own = !q->count || folder;
    if (own && !is_run(q))
        return FAIL(e, ERR_ARG, "%s is not a run, so it has no data of its own: --data FILE names "
                    "what to evaluate on", q->model->what);
    const char *temporary = getenv("TMPDIR"), *of = q->opened->found.of;
    if (!temporary || !*temporary) temporary = "/tmp";
    if (is_run(q)) {
        TRY(folder_guard_open(&out->guard, e));
        enum status st = repro_unpack(of, q->model->runs, temporary, &out->source, e);
        folder_guard_watch(&out->guard, out->source.work);
        TRY(st);
    }
    if (own) {
        out->bytes_a_token = run_view_bytes_a_token(&q->opened->view);
        return find_own(q, folder, out, e);
    }
    TRY(find_files(q, out, e));
    out->options.eval_only = true;
    out->options.order = ORDER_WINDOWS;
    return OK;
}

void eval_data_close(struct eval_data *d) {
    options_free_data(&d->options);
    repro_close(&d->source);
    folder_guard_close(&d->guard);
    cache_entry_free(&d->tokens);
    json_decref(d->config);
    *d = (struct eval_data){ 0 };
}
