#include "runner/bundle/crate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/record/documents.h"
#include "runner/record/streams.h"

static const char METADATA[] = "ro-crate-metadata.json";
static const char CRATE_URI[] = "https://w3id.org/ro/crate/1.1";
static const char PROFILE_URI[] = "https://w3id.org/ro/wfrun/process/0.5";

/* The format of the wide streams. */
static const char NPY_URI[] = "https://numpy.org/neps/nep-0001-npy-format.html";

struct crate {
    const json_t *run;
    json_t *graph;                     /* owned by the document */
    json_t *parts, *objects, *results; /* references; owned */
    bool arrays;                       /* some file is a NumPy array */
    bool failed;                       /* an allocation failed */
};

static json_t *reference(const char *id) { return json_pack("{s:s}", "@id", id); }

static void add(struct crate *c, json_t *entity) { json_append(c->graph, entity, &c->failed); }

static bool starts(const char *text, const char *head) {
    return strncmp(text, head, strlen(head)) == 0;
}

/* ---- files --------------------------------------------------------------------------------- */

static const char *media_type(const char *path) {
    static const char *const TYPES[][2] = {
        { ".jsonl", "application/jsonl" }, { ".json", "application/json" },
        { ".lua", "text/x-lua" },          { ".log", "text/plain" },
        { ".patch", "text/x-diff" },       { ".safetensors", "application/octet-stream" },
    };
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof TYPES / sizeof *TYPES; i++)
        if (strcmp(dot, TYPES[i][0]) == 0) return TYPES[i][1];
    return "application/octet-stream";
}

static bool ends(const char *path, const char *tail) {
    size_t n = strlen(path), length = strlen(tail);
    return n > length && strcmp(path + n - length, tail) == 0;
}

/* Describes a stream for a reader who has only the bundle: its metrics and their units. For an
 * array also where the names of the values are. */
static void describe_stream(struct crate *c, json_t *file, const struct stream *s) {
    struct text about = { 0 };
    bool bits = false;
    text_puts(&about, s->labels ? "One row per record; numpy.load reads it. Metrics: "
                                : "One JSON object per record. Metrics: ");
    for (int64_t i = 0; i < s->metric_count; i++) {
        const struct metric *m = &s->metric[i];
        bits |= !s->labels && m->type == COLUMN_U32;
        text_puts(&about, i ? "; " : "");
        text_puts(&about, m->name);
        text_puts(&about, *m->unit ? " (" : "");
        text_puts(&about, m->unit);
        text_puts(&about, *m->unit ? ")" : "");
    }
    if (bits) text_puts(&about, ". NAME_bits has the 8 hexadecimal digits of NAME as a float32");
    if (s->labels) {
        text_puts(&about, ". An array has a value for each name in ");
        text_puts(&about, s->labels + strlen("data/"));
        json_put(file, "conformsTo", reference(NPY_URI), &c->failed);
        c->arrays = true;
    }
    c->failed |= about.failed;
    json_put(file, "description", json_stringn(about.bytes ? about.bytes : "", about.size),
             &c->failed);
    text_free(&about);
}

/* Writes a file id as a URI reference: other characters are percent-encoded. */
static void encode_id(char out[3 * PATH_CAP], const char *path) {
    static const char SAFE[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "-._~/@!$&'()+,;=";
    size_t n = 0;
    for (; *path; path++) {
        if (strchr(SAFE, *path)) out[n++] = *path;
        else n += (size_t)snprintf(out + n, 4, "%%%02X", (unsigned char)*path);
    }
    out[n] = 0;
}

static void add_file(struct crate *c, const struct tree_file *file) {
    const char *path = file->path + strlen("data/");
    char id[3 * PATH_CAP];
    if (strcmp(path, METADATA) == 0) return; /* the descriptor is an entity of its own type */
    encode_id(id, path);
    const char *base = strrchr(path, '/');
    json_t *type = ends(path, ".lua") ? json_pack("[s,s]", "File", "SoftwareSourceCode")
                                      : json_string("File");
    char size[32]; /* RO-Crate 1.1 wants the number of bytes as text */
    snprintf(size, sizeof size, "%lld", (long long)file->size);
    json_t *entity = json_pack("{s:s, s:o, s:s, s:s, s:s}", "@id", id, "@type", type, "name",
                               base ? base + 1 : path, "encodingFormat", media_type(path),
                               "contentSize", size);
    int stream = stream_of_file(file->path);
    if (stream >= 0) describe_stream(c, entity, &STREAMS[stream]);
    add(c, entity);
    json_append(c->parts, reference(id), &c->failed);
    if (starts(path, "experiment/")) json_append(c->objects, reference(id), &c->failed);
    else if (starts(path, "metrics/") || starts(path, "logs/") || starts(path, "checkpoints/") ||
             starts(path, "tensorboard/"))
        json_append(c->results, reference(id), &c->failed);
}

/* ---- the entities every crate has ---------------------------------------------------------- */

static void add_frame(struct crate *c) {
    char about[1024];
    const char *id = json_text(c->run, "id", "run"), *name = json_text(c->run, "name", "run");
    const char *ended = json_text(c->run, "ended", json_text(c->run, "started", "1970-01-01"));
    snprintf(about, sizeof about, "fp8lab run %s of experiment %s: %s", id, name,
             json_text(c->run, "status", "unknown"));
    add(c, json_pack("{s:s, s:s, s:o, s:o}", "@id", METADATA, "@type", "CreativeWork", "about",
                     reference("./"), "conformsTo", reference(CRATE_URI)));
    add(c, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:O, s:o}", "@id", "./", "@type",
                     "Dataset", "name", id, "description", about, "datePublished", ended, "license",
                     "As the owner of the experiment decides", "conformsTo",
                     reference(PROFILE_URI), "hasPart", c->parts, "mentions",
                     reference("#run")));
    add(c, json_pack("{s:s, s:s, s:s, s:s}", "@id", PROFILE_URI, "@type", "CreativeWork", "name",
                     "Process Run Crate", "version", "0.5"));
    if (c->arrays)
        add(c, json_pack("{s:s, s:s, s:s, s:s}", "@id", NPY_URI, "@type", "CreativeWork", "name",
                         "NumPy array file", "version", "1.0"));
    add(c, json_pack("{s:s, s:s, s:s, s:s, s:s}", "@id", "#fp8lab", "@type",
                     "SoftwareApplication", "name", "fp8lab", "softwareVersion",
                     json_text(c->run, "version", "unknown"), "description",
                     "Trains transformers in FP8 as a Lua experiment says and bundles the run"));
    add(c, json_pack("{s:s, s:s, s:s, s:s}", "@id", "#operator", "@type", "Organization", "name",
                     "the operator of fp8lab", "description",
                     "Bundles do not record who ran them; the machine is in system/facts.json"));
}

/* The profile's schema knows "+00:00", not "Z". */
static json_t *zoned(const char *utc) {
    size_t n = strlen(utc);
    return n && utc[n - 1] == 'Z' ? json_sprintf("%.*s+00:00", (int)(n - 1), utc)
                                  : json_string(utc);
}

static void add_action(struct crate *c) {
    const char *status = json_text(c->run, "status", "unknown");
    const json_t *error = json_object_get(c->run, "error");
    bool completed = strcmp(status, "done") == 0 || strcmp(status, "time_limit") == 0;
    json_t *action =
        json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:O, s:O}", "@id", "#run", "@type",
                  "CreateAction", "name", json_text(c->run, "id", "run"), "description",
                  "Training as the experiment's script says", "instrument", reference("#fp8lab"),
                  "agent", reference("#operator"), "actionStatus",
                  json_string(completed ? "http://schema.org/CompletedActionStatus"
                                        : "http://schema.org/FailedActionStatus"),
                  "object", c->objects, "result", c->results);
    const char *started = json_text(c->run, "started", NULL);
    const char *ended = json_text(c->run, "ended", NULL);
    if (started) json_put(action, "startTime", zoned(started), &c->failed);
    if (ended) json_put(action, "endTime", zoned(ended), &c->failed);
    if (!completed) {
        const char *text = json_text(error, "text", NULL);
        json_put(action, "error",
                 text ? json_string(text) : json_sprintf("the run ended as %s", status),
                 &c->failed);
    }
    add(c, action);
}

enum status crate_write(const char *dir, const json_t *run, const struct tree *files,
                        struct err *e) {
    char path[PATH_CAP];
    struct crate c = { .run = run, .graph = json_array(), .parts = json_array(),
                       .objects = json_array(), .results = json_array() };
    for (int64_t i = 0; i < files->count; i++)
        if (starts(files->file[i].path, "data/")) add_file(&c, &files->file[i]);
    add_frame(&c);
    add_action(&c);
    json_t *document = json_pack("{s:s, s:O}", "@context",
                                 "https://w3id.org/ro/crate/1.1/context", "@graph", c.graph);
    enum status st = document && !c.failed ? path_join(path, dir, RUN_PATH_crate, e)
                              : FAIL(e, ERR_MEMORY, "no memory for the RO-Crate of %s", dir);
    if (st == OK) st = json_file_write(path, document, e);
    json_decref(document);
    json_decref(c.parts);
    json_decref(c.objects);
    json_decref(c.results);
    json_decref(c.graph);
    return st;
}
