#include "runner/run/run_tokens.h"

#include "runner/cache/cache_key.h"
#include "runner/record/documents.h"
#include "runner/record/image_record.h"
#include "runner/record/ingest_record.h"
#include "runner/script/render.h"

void run_tokens_hint(const json_t *config, const char *data_root, struct err *e) {
    struct err absent;
    if (cache_text_check(config, data_root, &absent) == ERR_IO) image_data_hint(config, e);
}

enum status run_tokens_find(const struct run_settings *s, const struct run_dir *dir,
                            const json_t *resolved, struct cache_entry *out, struct err *e) {
    char folder[PATH_CAP], own[PATH_CAP], script[PATH_CAP], lib[PATH_CAP];
    json_t *record = NULL;
    *out = (struct cache_entry){ 0 };
    if (!cache_is_needed(resolved)) return OK;
    TRY(cache_folder(folder, s->cache, s->runs, e));
    TRY(json_read_beneath(dir->root, DOCUMENT_ingest, dir->path, &record, e));
    const struct chat_render_source render = script_render(script, lib);
    const struct cache_request q = {
        .cli = s->cli, .config = resolved, .data_root = s->data_root, .folder = folder,
        .own = own, .render = &render,
    };
    enum status st = path_join(own, dir->path, INGEST_FOLDER, e);
    if (st == OK) st = path_join(script, own, "main.lua", e);
    if (st == OK) st = path_join(lib, own, "lib", e);
    if (st == OK) st = cache_find_recorded(s->cli, record, folder, own, out, e);
    if (st == OK && !out->record) {
        st = cache_take(&q, out, e);
        if (st != OK) run_tokens_hint(resolved, s->data_root, e);
    }
    json_decref(record);
    return st;
}

enum status run_tokens_record(const struct run_dir *dir, const struct cache_entry *x,
                              struct err *e) {
    return x->record ? run_dir_put(dir, DOCUMENT_ingest, x->record, e) : OK;
}
