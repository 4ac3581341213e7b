#include "runner/bundle/run_view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/archive.h"
#include "runner/bundle/bag_tags.h"
#include "runner/bundle/bundle_reader.h"
#include "runner/bundle/columns.h"
#include "runner/bundle/format.h"
#include "runner/bundle/recheck.h"
#include "runner/bundle/step_order.h"
#include "runner/record/inputs.h"

enum { LAST_MAX = 256, /* of the last step */
       LEVELS_MAX = 64, /* of a JSON file */
       PIECE = 256 * 1024 /* bytes of JSON lines read at a time */ };
static const int64_t MEMBER_LIMIT = INT64_C(4) << 30; /* one file of columns or JSON lines */

struct loader {
    struct run_view *view;
    struct bundle *bundle;        /* owned */
    struct bag_tags tags;         /* owned; empty for a live run */
    json_t *labels[STREAM_COUNT]; /* owned */
    int64_t format;               /* of run.json; 1 before it was read */
    enum run_view_depth depth;
};

static bool has_manifest(const struct loader *l) { return l->tags.text[BAG_MANIFEST] != NULL; }

/* Reads the current entry whole and checks it against the manifest. */
static enum status take(struct loader *l, const char *name, int64_t limit, char **out, size_t *n,
                        struct err *e) {
    TRY(bundle_read_all(l->bundle, limit, out, n, e));
    enum status st = bag_tags_check_file(&l->tags, name, *out, *n, e);
    if (st == OK) return OK;
    free(*out);
    *out = NULL;
    return st;
}

/* Reads the current entry in pieces. A line that cannot be read is reported only if the entry has
 * its hash: else the entry was damaged. */
static enum status read_pieces(struct loader *l, const char *name, struct lines_reader *r,
                               struct sha256 *sha, char *piece, struct err *e) {
    struct err why = { 0 };
    char hex[SHA256_HEX];
    enum status parsed = OK;
    int64_t bytes = 0;
    for (size_t got = 1; got > 0; bytes += (int64_t)got) {
        TRY(bundle_read(l->bundle, piece, PIECE, &got, e));
        if (bytes > MEMBER_LIMIT)
            return FAIL(e, ERR_FORMAT, "%s has more than %lld bytes", name,
                        (long long)MEMBER_LIMIT);
        if (has_manifest(l)) sha256_add(sha, piece, got);
        if (parsed == OK) parsed = lines_reader_add(r, piece, got, &why);
    }
    sha256_finish(sha, hex);
    TRY(bag_tags_check_hash(&l->tags, name, hex, e));
    if (parsed != OK && e) *e = why;
    return parsed;
}

/* Reads the current entry, JSON lines, without holding its text. */
static enum status take_lines(struct loader *l, const char *name, struct columns **out,
                              struct err *e) {
    struct lines_reader *r = NULL;
    struct sha256 *sha = NULL;
    char *piece = malloc(PIECE);
    enum status st = piece ? OK : FAIL(e, ERR_MEMORY, "%d bytes of %s", PIECE, name);
    if (st == OK) st = sha256_create(&sha, e);
    if (st == OK) st = lines_reader_create(name, &r, e);
    if (st == OK) st = read_pieces(l, name, r, sha, piece, e);
    if (st == OK) st = lines_reader_finish(r, out, e);
    lines_reader_destroy(r);
    sha256_destroy(sha);
    free(piece);
    return st;
}

/* Whether arrays and objects lie at most `levels` deep in each other; [] has one level. What is
 * read here is printed again inside other objects, and json_canonical has a limit. */
static bool is_within(const json_t *v, int levels) {
    const char *key;
    json_t *value;
    size_t i;
    if (!json_is_object(v) && !json_is_array(v)) return true;
    if (levels == 0) return false;
    bool inside = true;
    json_object_foreach((json_t *)v, key, value) inside = inside && is_within(value, levels - 1);
    json_array_foreach(v, i, value) inside = inside && is_within(value, levels - 1);
    return inside;
}

static enum status take_json(struct loader *l, const char *name, json_t **out, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    json_error_t why;
    TRY(take(l, name, JSON_FILE_LIMIT, &text, &n, e));
    json_decref(*out);
    enum status st = json_parse(out, text, n, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (st != OK) return FAIL(e, st, "%s:%d: %s", name, why.line, why.text);
    if (is_within(*out, LEVELS_MAX)) return OK;
    return FAIL(e, ERR_FORMAT, "%s: more than %d levels of nesting", name, LEVELS_MAX);
}

/* Keeps the records of the last step that has some. A line that is no record is the last one of a
 * killed run, or an error that columns_of_lines() has found. */
static enum status take_last(json_t *list, const char *name, const char *bytes, size_t n,
                             struct err *e) {
    int64_t step = -1;
    bool failed = false;
    json_array_clear(list);
    for (const char *at = bytes, *end; (end = memchr(at, '\n', (size_t)(bytes + n - at)));
         at = end + 1) {
        json_t *record = NULL;
        json_error_t why;
        enum status st = json_parse(&record, at, (size_t)(end - at), 0, &why);
        if (st == ERR_MEMORY) return FAIL(e, st, "a record of the last step");
        if (st != OK || !json_is_object(record)) {
            json_decref(record);
            continue;
        }
        if (!is_within(record, LEVELS_MAX)) {
            json_decref(record);
            return FAIL(e, ERR_FORMAT, "%s: a record of more than %d levels of nesting", name,
                        LEVELS_MAX);
        }
        if (json_int(record, "step") != step) json_array_clear(list);
        step = json_int(record, "step");
        if (json_array_size(list) < LAST_MAX) json_append(list, record, &failed);
        else json_decref(record);
    }
    return failed ? FAIL(e, ERR_MEMORY, "the records of the last step") : OK;
}

/* Reads the file of a stream: lines, rows, or the columns of format 1. */
static enum status take_stream(struct loader *l, const char *path, struct stream_file file,
                               struct err *e) {
    struct columns **out = &l->view->columns.of[file.stream], *found = NULL;
    char *bytes = NULL;
    size_t n = 0;
    bool lines = !file.columns && !STREAMS[file.stream].labels;
    json_t *last = file.stream == STREAM_SAMPLES      ? l->view->samples
                   : file.stream == STREAM_HISTOGRAMS ? l->view->histograms : NULL;
    enum status st = OK;
    if (lines && !last) {
        st = take_lines(l, path, &found, e);
    } else if (lines) {
        TRY(take(l, path, MEMBER_LIMIT, &bytes, &n, e));
        st = columns_of_lines(bytes, n, path, &found, e);
        if (st == OK) st = take_last(last, path, bytes, n, e);
        free(bytes);
    } else {
        enum rows_end end = has_manifest(l) ? ROWS_COMPLETE : ROWS_GROWING;
        TRY(take(l, path, MEMBER_LIMIT, &bytes, &n, e));
        if (n > 0 || has_manifest(l)) st = columns_parse(bytes, n, end, path, &found, e);
        else free(bytes); /* no record yet */
    }
    if (st == OK) st = step_order_check(file.stream, found, path, e);
    if (st != OK) {
        columns_destroy(found);
        return st;
    }
    columns_destroy(*out);
    *out = found;
    return OK;
}

/* Lists the checkpoints of a finished run; the files themselves are not read. */
static enum status list_checkpoints(struct loader *l, struct err *e) {
    static const char HEAD[] = "data/checkpoints/";
    bool failed = false;
    for (int64_t i = 0; i < l->tags.manifest.count; i++) {
        const char *path = l->tags.manifest.line[i].path;
        if (strncmp(path, HEAD, sizeof HEAD - 1) == 0)
            json_append(l->view->checkpoints, json_string(path + sizeof HEAD - 1), &failed);
    }
    return failed ? FAIL(e, ERR_MEMORY, "the list of checkpoints") : OK;
}

/* Called before the first file of the run. An archive must have had its manifests by now. A
 * directory may be live, or not packed yet; then it is not verified. */
static enum status check_tags(struct loader *l, const char *name, struct err *e) {
    bool archive = !bundle_is_directory(l->bundle);
    if (archive && !has_manifest(l))
        return FAIL(e, ERR_FORMAT, "%s comes before the manifest", name);
    if (archive || (has_manifest(l) && l->tags.text[BAG_TAGMANIFEST]))
        TRY(bag_tags_check(&l->tags, e));
    l->view->verified = l->tags.vouched;
    if (l->tags.vouched)
        memcpy(l->view->identity, l->tags.hex[BAG_TAGMANIFEST], sizeof l->view->identity);
    return list_checkpoints(l, e);
}

/* The slot of a JSON file, by the path of its entry; NULL: another file. */
static json_t **json_slot(struct loader *l, const char *path) {
    struct run_view *v = l->view;
    const struct {
        const char *path;
        json_t **slot;
    } SLOTS[] = {
#define DOCUMENT_SLOT(name, path) { path, &v->name },
        DOCUMENTS(DOCUMENT_SLOT)
#undef DOCUMENT_SLOT
    };
    for (size_t i = 0; i < sizeof SLOTS / sizeof *SLOTS; i++)
        if (strcmp(path, SLOTS[i].path) == 0) return SLOTS[i].slot;
    for (int i = 0; i < STREAM_COUNT; i++)
        if (STREAMS[i].labels && strcmp(path, STREAMS[i].labels) == 0) return &l->labels[i];
    return NULL;
}

/* Whether the file is the one from which the stream is read. In format 1 these are the columns;
 * before a run is closed, they do not exist. */
static bool is_source(const struct loader *l, const char *path, struct stream_file file) {
    if (file.stream < 0 || stream_is_damaged(l->view->summary, path)) return false;
    if (file.columns) return l->format == 1;
    return l->format > 1 || !l->view->columns.of[file.stream];
}

/* The name of a Lua file in the experiment's folder; NULL: another file. */
static const char *script_name(const char *path) {
    static const char HEAD[] = "data/experiment/";
    size_t n = strlen(path);
    bool lua = n > 4 && strcmp(path + n - 4, ".lua") == 0;
    return lua && strncmp(path, HEAD, sizeof HEAD - 1) == 0 ? path + sizeof HEAD - 1 : NULL;
}

static enum status take_script(struct loader *l, const char *path, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    bool failed = false;
    TRY(take(l, path, JSON_FILE_LIMIT, &text, &n, e));
    json_put(l->view->scripts, script_name(path), json_from_text(text), &failed);
    free(text);
    return failed ? FAIL(e, ERR_MEMORY, "the text of %s", path) : OK;
}

/* Whether no needed file follows: entries come in the bundle's order. In format 1 the columns come
 * before the lines that repeat them. */
static bool enough(const struct loader *l, const char *path) {
    const struct run_view *v = l->view;
    if (archive_is_checkpoint(path)) return true;
    if (l->depth == RUN_VIEW_BRIEF && has_manifest(l)) return archive_stage(path) == 3;
    if (l->depth == RUN_VIEW_INPUTS && has_manifest(l) && v->resolved) return true;
    if (l->depth == RUN_VIEW_DOCUMENTS && has_manifest(l) && stream_file_of(path).stream >= 0)
        return true;
    bool finished = v->identity[0] && v->columns.of[STREAM_TRAIN] && l->format == 1 &&
                    json_array_size(json_object_get(v->summary, "problems")) == 0;
    struct stream_file file = stream_file_of(path);
    return finished && file.stream >= 0 && !file.columns;
}

static enum status take_entry(struct loader *l, const char *path, struct err *e) {
    json_t **slot = json_slot(l, path);
    struct stream_file file = stream_file_of(path);
    /* Without a manifest the summary is computed from the records; a stored one is ignored. */
    if (slot == &l->view->summary && !has_manifest(l)) return OK;
    if (slot) TRY(take_json(l, path, slot, e));
    if (l->depth == RUN_VIEW_FULL && script_name(path)) return take_script(l, path, e);
    if (slot == &l->view->run) return bundle_format_of(l->view->run, &l->format, e);
    return is_source(l, path, file) ? take_stream(l, path, file, e) : OK;
}

/* The first stream with the same file of labels: that file is kept there. */
static int labels_of(int stream) {
    int i = 0;
    while (!STREAMS[i].labels || strcmp(STREAMS[i].labels, STREAMS[stream].labels) != 0) i++;
    return i;
}

/* Gives the columns of format 2 the names of their values. */
static void attach_labels(struct loader *l) {
    for (int i = 0; i < STREAM_COUNT; i++) {
        struct columns *c = l->view->columns.of[i];
        if (c && !c->labels && STREAMS[i].labels)
            c->labels = json_incref(l->labels[labels_of(i)]);
    }
}

static enum status take_entries(struct loader *l, struct err *e) {
    for (bool first = true;;) {
        struct bundle_entry entry;
        TRY(bundle_next(l->bundle, &entry, e));
        if (!entry.path) return OK;
        char path[PATH_CAP];
        snprintf(path, sizeof path, "%s", entry.path);
        int tag = bag_tag_of(path);
        if (tag >= 0) {
            TRY(bag_tags_take(&l->tags, tag, l->bundle, e));
            continue;
        }
        if (first) TRY(check_tags(l, path, e));
        first = false;
        if (enough(l, path)) return OK;
        TRY(take_entry(l, path, e));
    }
}

/* ERR_VERIFY if the manifest lists a file of this depth and the file was not there. */
static enum status check_complete(struct loader *l, struct err *e) {
    for (int64_t i = 0; i < l->tags.manifest.count; i++) {
        const struct bag_line *line = &l->tags.manifest.line[i];
        struct stream_file file = stream_file_of(line->path);
        bool source = l->format == 1 ? file.columns : is_source(l, line->path, file);
        bool asked = l->depth == RUN_VIEW_FULL ? json_slot(l, line->path) || source ||
                                                     script_name(line->path)
                     : l->depth == RUN_VIEW_DOCUMENTS ? json_slot(l, line->path) != NULL
                         : archive_stage(line->path) < 3 ||
                               (l->depth == RUN_VIEW_INPUTS &&
                                json_slot(l, line->path) == &l->view->resolved);
        if (asked && !line->seen) return FAIL(e, ERR_VERIFY, "missing file %s", line->path);
    }
    return has_manifest(l) && !l->view->summary
               ? FAIL(e, ERR_VERIFY, "missing file %s", DOCUMENT_summary) : OK;
}

/* Errors of the archive itself name it. */
static void name_bundle(struct err *e, const char *path) {
    if (e && !strstr(e->text, path)) err_prefix(e, "%s", path);
}

enum status run_view_load(const char *path, enum run_view_depth depth, struct run_view *out,
                          struct err *e) {
    struct loader l = { .view = out, .depth = depth, .format = 1 };
    *out = (struct run_view){ .directory = path_is_directory(path) };
    snprintf(out->path, sizeof out->path, "%s", path);
    out->checkpoints = json_array();
    out->samples = json_array();
    out->histograms = json_array();
    out->scripts = json_object();
    enum status st = bundle_open(path, &BUNDLE_LIMITS, &l.bundle, e);
    if (st == OK) {
        st = take_entries(&l, e);
        if (st == OK) st = check_complete(&l, e);
        if (st != OK) name_bundle(e, path);
    }
    attach_labels(&l);
    if (st == OK && !json_is_object(out->run))
        st = FAIL(e, ERR_FORMAT, "%s holds no data/run.json: it is not a run", path);
    if (st == OK && (depth == RUN_VIEW_INPUTS || depth == RUN_VIEW_DOCUMENTS)) {
        st = inputs_check(out->run, out->resolved, e);
        if (st != OK) err_prefix(e, "%s", path);
    }
    if (st == OK && !out->summary)
        st = summary_make(&out->columns, json_object_get(out->run, "attempts"), &out->summary, e);
    else if (st == OK && depth == RUN_VIEW_FULL) {
        const struct statements said = { out->run, out->resolved, out->argv, out->summary };
        st = recheck_numbers(&out->columns, &said, e);
        if (st != OK) err_prefix(e, "%s", path);
    }
    bundle_close(l.bundle);
    bag_tags_free(&l.tags);
    for (int i = 0; i < STREAM_COUNT; i++) json_decref(l.labels[i]);
    if (st != OK) run_view_free(out);
    if (st != OK && e) plain_text(e->text); /* the text may quote the bundle */
    return st;
}

bool run_repeats(const json_t *run) {
    return json_text(run, "parent", NULL) && !json_object_get(run, "extends");
}

void run_view_free(struct run_view *v) {
#define DOCUMENT_OF_VIEW(name, path) v->name,
    json_t *all[] = { DOCUMENTS(DOCUMENT_OF_VIEW) v->checkpoints, v->samples, v->histograms,
                      v->scripts };
#undef DOCUMENT_OF_VIEW
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) json_decref(all[i]);
    run_columns_free(&v->columns);
    *v = (struct run_view){ 0 };
}

bool run_view_is_tokenised(const struct run_view *v) { return v->ingest != NULL; }

double run_view_bytes_a_token(const struct run_view *v) {
    const json_t *data = json_object_get(v->resolved, "data");
    const json_t *shards = json_object_get(v->ingest, "shards");
    int64_t bytes = json_int(v->ingest, "text_bytes"), tokens = json_int(shards, "tokens");
    if (json_object_get(v->summary, "loss_tokens") || json_object_get(v->ingest, "chat")) return 0;
    if (v->ingest) return bytes > 0 && tokens > 0 ? (double)bytes / (double)tokens : 0;
    return strcmp(json_text(data, "kind", ""), "text") ? 0 : 1;
}
