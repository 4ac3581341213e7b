#include "runner/bundle/run_view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/archive.h"
#include "runner/bundle/bag_tags.h"
#include "runner/bundle/bundle_reader.h"
#include "runner/bundle/columns.h"
#include "runner/bundle/recheck.h"
#include "runner/record/inputs.h"

static const int64_t MEMBER_LIMIT = INT64_C(4) << 30; /* one file of columns or JSON lines */

struct loader {
    struct run_view *view;
    struct bundle *bundle;        /* owned */
    struct bag_tags tags;         /* owned; empty for a live run */
    json_t *fp8_labels, *trace_labels; /* owned; for the JSON lines of a live run */
    enum run_view_depth depth;
};

static bool has_manifest(const struct loader *l) { return l->tags.text[BAG_MANIFEST] != NULL; }

/* Reads the current entry whole and checks it against the manifest. */
static enum status take(struct loader *l, const char *name, int64_t limit, char **out, size_t *n,
                        struct err *e) {
    char hex[SHA256_HEX];
    TRY(bundle_read_all(l->bundle, limit, out, n, e));
    if (!has_manifest(l)) return OK;
    struct bag_line *line = bag_manifest_find(&l->tags.manifest, name);
    enum status st = sha256_bytes(*out, *n, hex, e);
    if (line) line->seen = true;
    if (st == OK && line && strcmp(line->hex, hex) == 0) return OK;
    free(*out);
    *out = NULL;
    if (st != OK) return st;
    return line ? FAIL(e, ERR_VERIFY, "wrong hash: %s is %.16s…, the manifest says %.16s…", name,
                       hex, line->hex)
                : FAIL(e, ERR_VERIFY, "extra file that the manifest does not list: %s", name);
}

static enum status take_json(struct loader *l, const char *name, json_t **out, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    json_error_t why;
    TRY(take(l, name, JSON_FILE_LIMIT, &text, &n, e));
    json_decref(*out);
    enum status st = json_parse(out, text, n, JSON_REJECT_DUPLICATES, &why);
    free(text);
    return st == OK ? OK : FAIL(e, st, "%s:%d: %s", name, why.line, why.text);
}

/* Converts the JSON lines of a run without columns in memory, with the same code. */
static enum status take_lines(struct loader *l, const char *name, json_t *labels,
                              struct columns **out, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    int fd = -1;
    FILE *in = NULL;
    TRY(take(l, name, MEMBER_LIMIT, &text, &n, e));
    if (n == 0) { /* no record yet */
        free(text);
        return OK;
    }
    enum status st = OK;
    in = fmemopen(text, n, "rb");
    fd = memfd_create("columns", MFD_CLOEXEC);
    if (!in || fd < 0) {
        st = FAIL(e, ERR_IO, "no memory file for %s: %s", name, strerror(errno));
        goto done;
    }
    st = columns_convert(in, name, labels, fd, NULL, e);
    if (st != OK) goto done;
    int64_t size = lseek(fd, 0, SEEK_END);
    char *bytes = malloc((size_t)size);
    if (!bytes) {
        st = FAIL(e, ERR_MEMORY, "%lld bytes of columns of %s", (long long)size, name);
    } else if (pread(fd, bytes, (size_t)size, 0) != size) {
        st = FAIL(e, ERR_IO, "read the columns of %s back: %s", name, strerror(errno));
        free(bytes);
    } else {
        st = columns_parse(bytes, (size_t)size, name, out, e);
    }
done:
    if (fd >= 0) close(fd);
    if (in) fclose(in);
    free(text);
    return st;
}

static enum status take_columns(struct loader *l, const char *name, struct columns **out,
                                struct err *e) {
    char *bytes = NULL;
    size_t n = 0;
    TRY(take(l, name, MEMBER_LIMIT, &bytes, &n, e));
    columns_destroy(*out);
    *out = NULL;
    return columns_parse(bytes, n, name, out, e);
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
        return FAIL(e, ERR_FORMAT, "%s stands before the manifest", name);
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
        { "data/run.json", &v->run },
        { "data/metrics/summary.json", &v->summary },
        { "data/experiment/resolved.json", &v->resolved },
        { "data/experiment/argv.json", &v->argv },
        { "data/system/facts.json", &v->facts },
        { "data/system/libraries.json", &v->libraries },
        { "data/system/environment.json", &v->environment },
        { "data/system/image.json", &v->image },
        { "data/source/commit.json", &v->commit },
        { "data/decisions.json", &v->decisions },
        { "data/metrics/fp8_slots.json", &l->fp8_labels },
        { "data/metrics/trace_tensors.json", &l->trace_labels },
    };
    for (size_t i = 0; i < sizeof SLOTS / sizeof *SLOTS; i++)
        if (strcmp(path, SLOTS[i].path) == 0) return SLOTS[i].slot;
    return NULL;
}

static enum status take_stream(struct loader *l, const char *path, struct err *e) {
    struct run_columns *c = &l->view->columns;
    const struct {
        const char *lines;
        struct columns **slot;
        json_t *labels;
    } STREAMS[] = {
        { "data/metrics/train.jsonl", &c->train, NULL },
        { "data/metrics/eval.jsonl", &c->eval, NULL },
        { "data/metrics/telemetry.jsonl", &c->telemetry, NULL },
        { "data/metrics/ranks.jsonl", &c->ranks, NULL },
        { "data/metrics/fp8.jsonl", &c->fp8, l->fp8_labels },
        { "data/metrics/trace.jsonl", &c->trace, l->trace_labels },
    };
    struct columns **slot = run_columns_slot(c, path);
    if (slot) return take_columns(l, path, slot, e);
    for (size_t i = 0; i < sizeof STREAMS / sizeof *STREAMS; i++)
        if (strcmp(path, STREAMS[i].lines) == 0 && !*STREAMS[i].slot)
            return take_lines(l, path, STREAMS[i].labels, STREAMS[i].slot, e);
    return OK;
}

/* Whether no needed file follows: entries come in the bundle's order. */
static bool enough(const struct loader *l, const char *path) {
    const struct run_view *v = l->view;
    if (archive_is_checkpoint(path)) return true;
    if (l->depth == RUN_VIEW_BRIEF && has_manifest(l)) return archive_stage(path) == 3;
    if (l->depth == RUN_VIEW_INPUTS && has_manifest(l) && v->resolved) return true;
    bool finished = v->identity[0] && v->columns.train &&
                    json_array_size(json_object_get(v->summary, "problems")) == 0;
    size_t n = strlen(path);
    return finished && n > 6 && strcmp(path + n - 6, ".jsonl") == 0;
}

static enum status take_entry(struct loader *l, const char *path, struct err *e) {
    json_t **slot = json_slot(l, path);
    /* Without a manifest the summary is computed from the records; a stored one is ignored. */
    if (slot == &l->view->summary && !has_manifest(l)) return OK;
    return slot ? take_json(l, path, slot, e) : take_stream(l, path, e);
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
        bool asked = l->depth == RUN_VIEW_FULL
                         ? json_slot(l, line->path) ||
                               run_columns_slot(&l->view->columns, line->path)
                         : archive_stage(line->path) < 3 ||
                               (l->depth == RUN_VIEW_INPUTS &&
                                json_slot(l, line->path) == &l->view->resolved);
        if (asked && !line->seen) return FAIL(e, ERR_VERIFY, "missing file %s", line->path);
    }
    return has_manifest(l) && !l->view->summary
               ? FAIL(e, ERR_VERIFY, "missing file data/metrics/summary.json") : OK;
}

enum status run_view_load(const char *path, enum run_view_depth depth, struct run_view *out,
                          struct err *e) {
    struct loader l = { .view = out, .depth = depth };
    *out = (struct run_view){ .directory = path_is_directory(path) };
    snprintf(out->path, sizeof out->path, "%s", path);
    out->checkpoints = json_array();
    enum status st = bundle_open(path, &BUNDLE_LIMITS, &l.bundle, e);
    if (st == OK) {
        st = take_entries(&l, e);
        if (st == OK) st = check_complete(&l, e);
        if (st != OK) err_prefix(e, "%s", path);
    }
    if (st == OK && !json_is_object(out->run))
        st = FAIL(e, ERR_FORMAT, "%s holds no data/run.json: it is not a run", path);
    if (st == OK && depth == RUN_VIEW_INPUTS) {
        st = inputs_check(out->run, out->resolved, e);
        if (st != OK) err_prefix(e, "%s", path);
    }
    if (st == OK && !out->summary)
        st = summary_make(&out->columns, json_object_get(out->run, "attempts"), &out->summary, e);
    else if (st == OK && depth == RUN_VIEW_FULL) {
        st = recheck_numbers(&out->columns, out->run, out->resolved, out->summary, e);
        if (st != OK) err_prefix(e, "%s", path);
    }
    bundle_close(l.bundle);
    bag_tags_free(&l.tags);
    json_decref(l.fp8_labels);
    json_decref(l.trace_labels);
    if (st != OK) run_view_free(out);
    if (st != OK && e) plain_text(e->text); /* the text may quote the bundle */
    return st;
}

void run_view_free(struct run_view *v) {
    json_t *all[] = { v->run, v->summary, v->resolved, v->argv, v->facts, v->libraries,
                      v->environment, v->image, v->commit, v->decisions, v->checkpoints };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) json_decref(all[i]);
    run_columns_free(&v->columns);
    *v = (struct run_view){ 0 };
}
