#include "runner/run/init_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/member.h"
#include "runner/cache/cache_key.h"
#include "runner/record/shards_tokenizer.h"

/* A warning alone depends on all of this: what cannot be read is not known. */

static bool has(const char *folder, const char *name) {
    char path[PATH_CAP];
    return path_join(path, folder, name, NULL) == OK && path_exists(path);
}

/* ---- of files ---------------------------------------------------------------------------------*/

static void take_file(const char *path, struct tokenizer_id *out) {
    snprintf(out->name, PATH_CAP, "%s", path);
    out->hash = tokenizer_hash_file(path);
}

void tokenizer_of_folder(const char *folder, struct tokenizer_id *out) {
    char path[PATH_CAP];
    *out = (struct tokenizer_id){ 0 };
    if (cache_kept_tokenizer(folder, path)) take_file(path, out);
}

/* `word`: as a script names a tokenizer. */
static void take_word(const char *word, const char *root, struct tokenizer_id *out) {
    char path[PATH_CAP], file[PATH_CAP];
    bool rooted = root && strcmp(word, "bytes") != 0;
    int n = snprintf(path, PATH_CAP, "%s%s%s", rooted ? root : "", rooted ? "/" : "", word);
    if (n >= PATH_CAP) return;
    bool folder = path_is_directory(path);
    if (!folder) take_file(path, out);
    else if (path_join(file, path, "tokenizer.json", NULL) == OK) take_file(file, out);
}

static void take_shards(const json_t *data, const char *root, struct tokenizer_id *out,
                        char shards[SHA256_HEX]) {
    struct shards_tokenizer s;
    struct err ignored;
    shards[0] = '\0';
    if (shards_tokenizer_find(data, root, &s, &ignored) != OK) return;
    memcpy(out->name, s.name, sizeof s.name);
    out->hash = s.hash;
    memcpy(out->shards, s.described, sizeof s.described);
    memcpy(shards, s.shards, sizeof s.shards);
}

void tokenizer_of_data(const json_t *data, const char *root, struct tokenizer_id *out) {
    const char *kind = json_text(data, "kind", "");
    char shards[SHA256_HEX];
    *out = (struct tokenizer_id){ 0 };
    if (!strcmp(kind, "text") || !strcmp(kind, "chats"))
        take_word(json_text(data, "tokenizer", "bytes"), root, out);
    else if (!strcmp(kind, "tokens")) take_shards(data, root, out, shards);
}

/* ---- of a run ---------------------------------------------------------------------------------*/

/* Whether the run read a file with this hash. */
static bool lists(const char *run, const char *sha256) {
    char *text = NULL;
    struct err ignored;
    json_error_t why;
    json_t *list = NULL;
    const json_t *file;
    bool found = false;
    size_t n = 0, i;
    enum status st = bundle_member(run, RUN_PATH_data_files, JSON_FILE_LIMIT, &text, &n, &ignored);
    if (st == OK && text && json_parse(&list, text, n, 0, &why) != OK) list = NULL;
    json_array_foreach(list, i, file) found |= !strcmp(json_text(file, "sha256", ""), sha256);
    json_decref(list);
    free(text);
    return found;
}

void tokenizer_of_run(const struct run_view *v, struct tokenizer_id *out) {
    const json_t *data = json_object_get(v->resolved, "data");
    const json_t *kept = json_object_get(v->ingest, "tokenizer");
    char shards[SHA256_HEX];
    *out = (struct tokenizer_id){ 0 };
    if (kept) {
        snprintf(out->name, PATH_CAP, "%s", json_text(kept, "path", "?"));
        out->hash = tokenizer_hash_read(kept);
    } else if (!strcmp(json_text(data, "kind", ""), "tokens")) {
        take_shards(data, NULL, out, shards);
        if (!lists(v->path, shards)) *out = (struct tokenizer_id){ 0 };
    } else if (!json_object_get(data, "tokenizer")) {
        tokenizer_of_data(data, NULL, out);
    }
}

/* ---- of initial weights ---------------------------------------------------------------------- */

/* The run that `from` names, as weights_find() looks for it. False: it is a folder or a file. */
static bool find_run(const char *from, const char *full, const char *runs, char out[PATH_CAP]) {
    struct err ignored;
    size_t n = strlen(full);
    bool bundle = n > 8 && !strcmp(full + n - 8, ".tar.zst");
    if (!path_exists(full))
        return run_locate_among(from, runs, RUNS_WHOLE, out, &ignored) == OK;
    snprintf(out, PATH_CAP, "%s", full);
    return bundle || has(full, DOCUMENT_run);
}

/* *run: whose weights they are, "" for a folder. */
static void of_weights(const char *from, const char *root, const char *runs,
                       struct tokenizer_id *out, char run[PATH_CAP]) {
    struct run_view view;
    struct err ignored;
    char full[PATH_CAP];
    *out = (struct tokenizer_id){ 0 };
    int n = snprintf(full, PATH_CAP, "%s%s%s", root ? root : "", root ? "/" : "", from);
    if (n >= PATH_CAP) return;
    if (!find_run(from, full, runs, run)) {
        run[0] = '\0';
        tokenizer_of_folder(full, out);
    } else if (run_view_load(run, RUN_VIEW_DOCUMENTS, &view, &ignored) == OK) {
        tokenizer_of_run(&view, out);
        run_view_free(&view);
    }
}

bool tokenizer_differs(const struct tokenizer_id *a, const struct tokenizer_id *b) {
    return tokenizer_hash_known(&a->hash, &b->hash) && !tokenizer_hash_equal(&a->hash, &b->hash);
}

/* ---- the warning ------------------------------------------------------------------------------*/

enum { PART_CAP = 800, WARNING_CAP = 3 * PART_CAP };

/* What makes the ids of the text. */
static void say_text(const json_t *data, const struct tokenizer_id *of, char out[PART_CAP]) {
    const char *name = json_text(data, "tokenizer", NULL);
    if (*of->shards)
        snprintf(out, PART_CAP, "the tokens of data are those of %.300s, as %.300s says",
                 PLAIN(of->name), PLAIN(of->shards));
    else if (name)
        snprintf(out, PART_CAP, "data.tokenizer is \"%.300s\", another one", PLAIN(name));
    else snprintf(out, PART_CAP, "data has no tokenizer, so each byte of the text is an id");
}

/* Whether the tokenizer is where its name says. */
static bool is_here(const struct tokenizer_id *of) {
    struct tokenizer_id now = { 0 };
    take_word(of->name, NULL, &now);
    return *now.hash.file && tokenizer_hash_equal(&now.hash, &of->hash);
}

/* `own`: of the weights; `run`: of which they are, or "". */
static void say_remedy(const struct tokenizer_id *own, const struct tokenizer_id *text,
                       const char *root, const char *run, char out[PART_CAP]) {
    bool here = is_here(own);
    size_t n = root ? strlen(root) : 0;
    const char *file = here ? own->name : "PATH";
    if (n && !strncmp(file, root, n) && file[n] == '/') file += n + 1;
    int at = *text->shards
                 ? snprintf(out, PART_CAP, "Make the tokens with `fp8lab data tokenise ... "
                            "--tokenizer %.300s`", PLAIN(file))
                 : snprintf(out, PART_CAP, "Write tokenizer = \"%.300s\" in data", PLAIN(file));
    if (!here && *run)
        snprintf(out + at, (size_t)(PART_CAP - at), "; `fp8lab extract %.200s --to DIR` gives it "
                 "as DIR/data/experiment/tokenizer.*", PLAIN(run));
}

/* "": the two are the same, or one is not known. */
static void look(const json_t *config, const char *root, const char *runs, char out[WARNING_CAP]) {
    const json_t *data = json_object_get(config, "data");
    const char *from = json_text(json_object_get(config, "init"), "from", NULL);
    struct tokenizer_id own = { 0 }, text;
    char run[PATH_CAP] = "", made[PART_CAP], remedy[PART_CAP];
    out[0] = '\0';
    if (!from) return;
    tokenizer_of_data(data, root, &text);
    if (*text.hash.file) of_weights(from, root, runs, &own, run);
    if (!tokenizer_differs(&own, &text)) return;
    say_text(data, &text, made);
    say_remedy(&own, &text, root, run, remedy);
    snprintf(out, WARNING_CAP, "the weights of init = \"%.300s\" have the tokenizer %.300s, but "
             "%s: unless both give the same ids, the weights mean other tokens. %s", PLAIN(from),
             PLAIN(own.name), made, remedy);
}

/* Whether two rows have the same in a section. */
static bool same(const struct resolution *r, int64_t row, const char *section) {
    return row > 0 && json_equal(json_object_get(r->runs[row].config_json, section),
                                 json_object_get(r->runs[row - 1].config_json, section));
}

void init_tokenizer_warn(const struct cli *cli, const struct resolution *r, const char *root) {
    char warning[WARNING_CAP];
    for (int64_t i = 0; i < r->run_count; i++) {
        if (same(r, i, "data") && same(r, i, "init")) continue;
        look(r->runs[i].config_json, root, cli_runs(cli), warning);
        if (*warning) cli_warn(cli, "%s: %s", r->runs[i].name, warning);
    }
}
