#include "runner/ingest/progress.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/base/version.h"

enum { FORMAT = 1 };

/* ---- the work -------------------------------------------------------------------------------- */

/* *again is false for a pipe. A file that cannot be opened is reported when it is read. */
static json_t *sources_json(const struct tokenise_options *o, bool *again, bool *failed) {
    json_t *list = json_array();
    struct stat is;
    *again = true;
    for (int64_t i = 0; i < o->path_count; i++) {
        if (stat(o->paths[i], &is) != 0) is = (struct stat){ .st_mode = S_IFREG };
        *again = *again && S_ISREG(is.st_mode);
        json_append(list, json_pack("{s:o,s:I}", "path", json_from_text(o->paths[i]), "bytes",
                                    (json_int_t)is.st_size), failed);
    }
    return list;
}

enum status progress_work(const struct tokenise_options *o, int id_bytes, json_t **out,
                          struct err *e) {
    struct tokenizer_facts f = tokenizer_facts(o->tokenizer);
    bool failed = false, again;
    json_t *options = json_pack("{s:s,s:i,s:i,s:b,s:b}", "field", o->field ? o->field : "",
                                "end", (int)o->end, "id_bytes", id_bytes, "unique", o->unique,
                                "ordinary", f.ordinary);
    json_t *tokenizer = json_pack("{s:i,s:s,s:s}", "kind", (int)f.kind, "sha256", f.sha256,
                                  "split", f.split);
    json_t *work = json_pack("{s:[i,i,s],s:o,s:o,s:o}", "program", FORMAT, INGESTION_VERSION,
                             FP8LAB_VERSION, "tokenizer", tokenizer, "options", options, "files",
                             sources_json(o, &again, &failed));
    if (o->lines) json_put(work, "chat", o->lines->describe(o->lines->context), &failed);
    *out = json_whole(work, failed || !again);
    return work && !failed ? OK : FAIL(e, ERR_MEMORY, "memory for the progress of the ingestion");
}

const char *progress_difference(const json_t *work, const json_t *saved) {
    static const char *const MEMBERS[] = { "program", "files", "tokenizer", "options", "chat" };
    const json_t *then = json_object_get(saved, "work");
    for (size_t i = 0; i < sizeof MEMBERS / sizeof *MEMBERS; i++) {
        json_t *a = json_object_get(work, MEMBERS[i]), *b = json_object_get(then, MEMBERS[i]);
        if ((a || b) && !json_equal(a, b)) return MEMBERS[i];
    }
    return NULL;
}

/* ---- the state ------------------------------------------------------------------------------- */

static const struct { const char *name; size_t at; } COUNTS[] = {
#define COUNT(name) { #name, offsetof(struct tokenise_result, name) }
    COUNT(documents), COUNT(empty), COUNT(skipped), COUNT(text_bytes), COUNT(replaced),
    COUNT(dropped), COUNT(duplicates), COUNT(cut), COUNT(lossless),
#undef COUNT
};
enum { COUNT_COUNT = sizeof COUNTS / sizeof *COUNTS };

static int64_t *count_of(const struct progress *p, size_t i) {
    return (int64_t *)(void *)((char *)p->counts + COUNTS[i].at);
}

json_t *progress_json(const struct progress *p, json_t *work) {
    json_t *counts = json_object(), *documents = json_array();
    bool failed = false;
    for (size_t i = 0; i < COUNT_COUNT; i++)
        json_put(counts, COUNTS[i].name, json_integer(*count_of(p, i)), &failed);
    for (int64_t i = 0; i <= p->at.source; i++)
        json_append(documents, json_integer(p->documents[i]), &failed);
    json_t *state = json_pack("{s:s,s:O,s:I,s:I,s:s,s:I,s:I,s:o,s:o}", "schema",
                              "fp8lab.ingestion/1", "work", work, "batches",
                              (json_int_t)p->at.batches, "source", (json_int_t)p->at.source,
                              "read_sha256", p->at.read_sha256, "open_tokens",
                              (json_int_t)p->open_tokens, "open_text", (json_int_t)p->open_text,
                              "counts", counts, "documents", documents);
    return json_whole(state, failed);
}

enum status progress_take(struct progress *p, const struct tokenise_options *o,
                          const json_t *saved, struct err *e) {
    const json_t *documents = json_object_get(saved, "documents");
    const json_t *counts = json_object_get(saved, "counts");
    p->at.batches = json_int(saved, "batches");
    p->at.source = json_int(saved, "source");
    if (p->at.batches < 1 || p->at.source < 0 || p->at.source >= o->path_count ||
        json_array_size(documents) != (size_t)p->at.source + 1)
        return FAIL(e, ERR_FORMAT, "it has batch %" PRId64 " of file %" PRId64, p->at.batches,
                    p->at.source);
    snprintf(p->at.read_sha256, SHA256_HEX, "%s", json_text(saved, "read_sha256", ""));
    p->open_tokens = json_int(saved, "open_tokens");
    p->open_text = json_int(saved, "open_text");
    for (size_t i = 0; i < COUNT_COUNT; i++) *count_of(p, i) = json_int(counts, COUNTS[i].name);
    for (int64_t i = 0; i <= p->at.source; i++)
        p->documents[i] = json_integer_value(json_array_get(documents, (size_t)i));
    return OK;
}
