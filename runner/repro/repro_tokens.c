#include "runner/repro/repro_tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/record/ingest_record.h"
#include "runner/repro/repro_data.h"
#include "runner/script/render.h"

/* ---- the shards ------------------------------------------------------------------------------ */

static bool lists_file(const json_t *files, const char *prefix, const char *suffix) {
    const json_t *row;
    size_t i, n = strlen(prefix);
    json_array_foreach(files, i, row) {
        const char *path = json_text(row, "path", "");
        if (!strncmp(path, prefix, n) && !strcmp(path + n, suffix)) return true;
    }
    return false;
}

/* The links to the shards become the tokens of the new run. */
static enum status take_staged(const json_t *record, const char *root, const char *own,
                               struct cache_entry *out, struct err *e) {
    char *whole = realpath(root, NULL); /* workers may have another working directory */
    if (!whole) return FAIL(e, ERR_IO, "%s is gone", root);
    json_t *here = cache_record_moved(record, whole);
    enum status st = here ? cache_entry_recorded(here, json_text(here, "prefix", ""), own, out, e)
                          : FAIL(e, ERR_MEMORY, "the record of the tokens in %s", whole);
    json_decref(here);
    free(whole);
    return st;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* Text, tokenizer and options are the bundle's: other tokens come from another ingestion. */
static enum status check_same(const json_t *then, const json_t *now, struct err *e) {
    const json_t *files = json_object_get(then, "files"), *made = json_object_get(now, "files");
    const json_t *shards = json_object_get(then, "shards"), *mine = json_object_get(now, "shards");
    if (json_equal(files, made)) return OK;
    const char *options = strcmp(json_text(then, "key", ""), json_text(now, "key", "?"))
                              ? "its options or its version of the ingestion are not those here"
                              : "text, tokenizer and options are the same";
    return FAIL(e, ERR_CONFIG, "the bundle's text gives other tokens here: %" PRId64 " tokens in %"
                PRId64 " documents with hash %.12s, in the bundle %" PRId64 " in %" PRId64 " with "
                "%.12s; %s. --data DIR with the bundle's own token files repeats the run",
                json_int(mine, "tokens"), json_int(mine, "documents"), json_text(made, "bin", "?"),
                json_int(shards, "tokens"), json_int(shards, "documents"),
                json_text(files, "bin", "?"), options);
}

static enum status check_all(const json_t *then, const json_t *now, struct err *e) {
    const json_t *sets = json_object_get(now, "also");
    const char *name;
    json_t *set;
    TRY(check_same(then, now, e));
    json_object_foreach(json_object_get(then, "also"), name, set) {
        enum status st = check_same(set, json_object_get(sets, name), e);
        if (st != OK) return err_prefix(e, "eval.also.%.32s", name), st;
    }
    return OK;
}

static enum status make_again(const struct cli *cli, const struct repro_source *s,
                              const char *root, const char *cache, const char *own,
                              struct cache_entry *out, struct err *e) {
    const struct chat_render_source render = script_render(s->script, s->lib);
    const struct cache_request q = { .cli = cli, .config = s->config, .data_root = root,
                                     .own = own, .folder = cache, .render = &render };
    TRY(cache_take(&q, out, e));
    return check_all(s->view.ingest, out->record, e);
}

/* ---- both ------------------------------------------------------------------------------------ */

/* The text first: another machine rarely has a cache with the run's tokens. */
static enum status join_lists(char **missing, char *shards, char *text, struct err *e) {
    struct text all = { 0 };
    text_puts(&all, text);
    text_puts(&all, "or instead of this text the tokens that the run made of it:\n");
    text_puts(&all, shards);
    *missing = all.bytes; /* moved */
    if (!all.failed) return OK;
    text_free(&all);
    *missing = NULL;
    return FAIL(e, ERR_MEMORY, "a list of files");
}

enum status repro_find_tokens(const struct cli *cli, const struct repro_source *s,
                              const char *folder, const char *cache, struct cache_entry *out,
                              char **missing, struct err *e) {
    const json_t *record = s->view.ingest;
    const char *prefix = json_text(record, "prefix", NULL);
    char root[PATH_CAP], own[PATH_CAP];
    char *shards = NULL, *text = NULL;
    *out = (struct cache_entry){ 0 };
    *missing = NULL;
    if (!prefix || !lists_file(s->data_files, prefix, ".bin") ||
        !lists_file(s->data_files, prefix, ".idx"))
        return FAIL(e, ERR_FORMAT, "the bundle's data/experiment/ingest.json does not say which of "
                    "its data are the tokens");
    TRY(path_join(own, s->work, "bundle/" INGEST_FOLDER, e));
    TRY(repro_stage_data(s, s->data_files, "tokens", folder, root, &shards, e));
    if (!shards) return take_staged(record, root, own, out, e);
    enum status st = cache_find_recorded(cli, record, cache, own, out, e);
    if (st == OK && !out->record) {
        st = repro_stage_data(s, s->sources, "data", folder, root, &text, e);
        if (st == OK && text) st = join_lists(missing, shards, text, e);
        else if (st == OK) st = make_again(cli, s, root, cache, own, out, e);
    }
    free(shards);
    free(text);
    return st;
}
