#include "runner/infer/answers_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/output_file.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"

#define SCHEMA "fp8lab.answers/1"
#define HASH "answers_sha256"
enum { FILE_MAX = 256 << 20 /* bytes; HellaSwag's 10,042 questions take 3 MB */ };

enum status answers_file_may_replace(const char *path, struct err *e) {
    static const struct output_kind KIND = { "file of answers", "{\"" HASH "\":", SCHEMA };
    return output_may_replace("answers", path, &KIND, e);
}

/* ---- writing ----------------------------------------------------------------------------------*/

static enum status add_line(struct text *t, json_t *value, bool failed, struct err *e) {
    char *line = NULL;
    size_t n = 0;
    enum status st = value && !failed ? json_canonical(value, &line, &n, e)
                                      : FAIL(e, ERR_MEMORY, "a line of answers");
    json_decref(value);
    if (st == OK) text_add(t, line, n);
    if (st == OK) text_puts(t, "\n");
    free(line);
    return st;
}

static json_t *question_json(const struct questions *c, const struct question *q,
                             const struct answer *a, bool *failed) {
    static const char *const RIGHT[RULES] = { "right_sum", "right_byte", "right_token" };
    json_t *line = json_object(), *nats = json_array(), *tokens = json_array();
    json_t *bytes = c->has_bytes ? json_array() : json_null();
    for (int64_t k = 0; k < q->completions; k++) {
        json_append(nats, json_real(a[k].nats), failed);
        json_append(tokens, json_integer(a[k].tokens), failed);
        if (c->has_bytes) json_append(bytes, json_integer(a[k].bytes), failed);
    }
    json_put(line, "question", json_integer(q->number), failed);
    json_put(line, "answer", json_integer(q->right), failed);
    json_put(line, "nats", nats, failed);
    json_put(line, "tokens", tokens, failed);
    json_put(line, "bytes", bytes, failed);
    for (enum rule rule = 0; rule < RULES; rule++)
        json_put(line, RIGHT[rule], rule == RULE_BYTE && !c->has_bytes ? json_null()
                 : json_boolean(rule_choose(rule, a, q->completions) == q->right), failed);
    return line;
}

static json_t *header_json(const json_t *model, const struct questions *c, const struct answer *a,
                           bool *failed) {
    json_t *header = json_copied(model, failed), *right = json_object();
    struct answers_result r = answers_judge(c, a);
    for (enum rule rule = 0; rule < RULES; rule++)
        json_put(right, rule_name(rule), r.right[rule] < 0 ? json_null()
                                         : json_integer(r.right[rule]), failed);
    json_put(header, "schema", json_string(SCHEMA), failed);
    json_put(header, "questions_file", json_from_text(c->path), failed);
    json_put(header, "questions_sha256", json_string(c->sha256), failed);
    json_put(header, "questions", json_integer(c->count), failed);
    json_put(header, "right", right, failed);
    return header;
}

/* *body: all lines, the header without the hash. */
static enum status make_body(const json_t *header, const struct questions *c,
                             const struct answer *a, struct text *body, struct err *e) {
    TRY(add_line(body, json_incref((json_t *)header), false, e));
    for (int64_t i = 0; i < c->count; i++) {
        bool failed = false;
        json_t *line = question_json(c, &c->question[i], a + c->question[i].row, &failed);
        TRY(add_line(body, line, failed, e));
    }
    return body->failed ? FAIL(e, ERR_MEMORY, "the text of answers") : OK;
}

static enum status write_whole(const char *path, json_t *header, const struct questions *c,
                               const struct answer *a, struct text *body, struct text *whole,
                               struct err *e) {
    char sha256[SHA256_HEX];
    bool failed = false;
    TRY(make_body(header, c, a, body, e));
    TRY(sha256_bytes(body->bytes, body->size, sha256, e));
    json_put(header, HASH, json_string(sha256), &failed);
    TRY(add_line(whole, json_incref(header), failed, e));
    const char *rest = memchr(body->bytes, '\n', body->size);
    text_add(whole, rest + 1, body->size - (size_t)(rest + 1 - body->bytes));
    if (whole->failed) return FAIL(e, ERR_MEMORY, "the text of answers");
    return file_replace(path, whole->bytes, whole->size, e);
}

enum status answers_file_write(const char *path, const json_t *model, const struct questions *c,
                               const struct answer *a, struct err *e) {
    struct text body = { 0 }, whole = { 0 };
    bool failed = false;
    json_t *header = header_json(model, c, a, &failed);
    header = json_whole(header, failed);
    enum status st = header ? write_whole(path, header, c, a, &body, &whole, e)
                            : FAIL(e, ERR_MEMORY, "a header of answers");
    json_decref(header);
    text_free(&body);
    text_free(&whole);
    return st;
}

/* ---- reading ----------------------------------------------------------------------------------*/

struct reader {
    const char *path;
    const struct questions *c;
    struct answers_file *out;
    const char *at, *end; /* the text that is not read yet */
    int64_t line;         /* the last that was read, from 1 */
};

/* The next line as an object; owned by the caller. */
static enum status next_object(struct reader *r, json_t **out, struct err *e) {
    json_error_t why;
    const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
    *out = NULL;
    r->line++;
    if (!stop)
        return FAIL(e, ERR_FORMAT, "%s:%" PRId64 ": the file ends here (truncated?)", r->path,
                    r->line);
    enum status st = json_parse(out, r->at, (size_t)(stop - r->at), JSON_REJECT_DUPLICATES, &why);
    r->at = stop + 1;
    if (st != OK) return FAIL(e, st, "%s:%" PRId64 ": %s", r->path, r->line, why.text);
    return json_is_object(*out) ? OK : FAIL(e, ERR_FORMAT, "%s:%" PRId64 ": no object", r->path,
                                            r->line);
}

static enum status check_hash(const struct reader *r, struct err *e) {
    const char *wanted = json_text(r->out->header, HASH, "?");
    char found[SHA256_HEX];
    struct text t = { 0 };
    bool failed = false;
    json_t *bare = json_copied(r->out->header, &failed);
    (void)json_object_del(bare, HASH);
    enum status st = add_line(&t, bare, failed, e);
    text_add(&t, r->at, (size_t)(r->end - r->at));
    if (st == OK && t.failed) st = FAIL(e, ERR_MEMORY, "the text of answers");
    if (st == OK) st = sha256_bytes(t.bytes, t.size, found, e);
    text_free(&t);
    if (st != OK || !strcmp(found, wanted)) return st;
    return FAIL(e, ERR_FORMAT, "%s: it was changed or cut after eval wrote it: its hash is "
                "%.12s..., and " HASH " %.12s...; write it again with --answers", r->path, found,
                PLAIN(wanted));
}

static enum status check_header(struct reader *r, struct err *e) {
    const struct questions *c = r->c;
    enum status st = next_object(r, &r->out->header, e);
    const json_t *header = r->out->header;
    if (st == ERR_MEMORY) return st;
    if (st != OK || strcmp(json_text(header, "schema", ""), SCHEMA) != 0)
        return FAIL(e, ERR_FORMAT, "%s: no file of answers: its first line has no schema " SCHEMA
                    "; `fp8lab eval --choices FILE --answers FILE` writes one", r->path);
    TRY(check_hash(r, e));
    const char *hash = json_text(header, "questions_sha256", "?");
    if (strcmp(hash, c->sha256) != 0)
        return FAIL(e, ERR_FORMAT, "%s: it has the answers to other questions: %.200s with SHA-256 "
                    "%.12s..., not %.200s with %.12s...; ask both models the same file", r->path,
                    PLAIN(json_text(header, "questions_file", "?")), PLAIN(hash), c->path,
                    c->sha256);
    if (json_int(header, "questions") == c->count) return OK;
    return FAIL(e, ERR_FORMAT, "%s: it has the answers to %" PRId64 " questions, and %" PRId64
                " are asked here: --skip-bad left out others", r->path,
                json_int(header, "questions"), c->count);
}

static bool take_number(const json_t *object, const char *key, int64_t k, int64_t *out) {
    const json_t *value = json_array_get(json_object_get(object, key), (size_t)k);
    *out = json_integer_value(value);
    return *out >= 1;
}

static enum status take_question(struct reader *r, const json_t *line, const struct question *q,
                                 struct err *e) {
    struct answer *a = r->out->answers + q->row;
    size_t n = (size_t)q->completions;
    const json_t *nats = json_object_get(line, "nats"), *tokens = json_object_get(line, "tokens");
    if (json_int(line, "question") != q->number)
        return FAIL(e, ERR_FORMAT, "%s:%" PRId64 ": it answers %s %" PRId64 " of the questions, "
                    "and %" PRId64 " comes next here: --skip-bad left out another one", r->path,
                    r->line, r->c->unit, json_int(line, "question"), q->number);
    bool whole = json_array_size(nats) == n && json_array_size(tokens) == n;
    for (size_t k = 0; k < n && whole; k++) {
        a[k].nats = json_number_value(json_array_get(nats, k));
        whole = json_is_real(json_array_get(nats, k)) && isfinite(a[k].nats) &&
                take_number(line, "tokens", (int64_t)k, &a[k].tokens);
        a[k].bytes = r->c->row[q->row + (int64_t)k].bytes; /* of the same text */
    }
    return whole ? OK : FAIL(e, ERR_FORMAT, "%s:%" PRId64 ": expected %zu numbers in nats and as "
                             "many in tokens", r->path, r->line, n);
}

static enum status read_answers(struct reader *r, struct err *e) {
    TRY(check_header(r, e));
    r->out->answers = calloc((size_t)r->c->rows, sizeof *r->out->answers);
    if (!r->out->answers) return FAIL(e, ERR_MEMORY, "%" PRId64 " answers", r->c->rows);
    for (int64_t i = 0; i < r->c->count; i++) {
        json_t *line;
        enum status st = next_object(r, &line, e);
        if (st == OK) st = take_question(r, line, &r->c->question[i], e);
        json_decref(line);
        TRY(st);
    }
    return r->at == r->end ? OK : FAIL(e, ERR_FORMAT, "%s: lines follow the last question",
                                       r->path);
}

enum status answers_file_read(const char *path, const struct questions *c,
                              struct answers_file *out, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    *out = (struct answers_file){ 0 };
    enum status st = file_read(path, FILE_MAX, &text, &n, e);
    struct reader r = { .path = path, .c = c, .out = out, .at = text, .end = text + n };
    if (st == OK) st = read_answers(&r, e);
    free(text);
    return st == ERR_FORMAT || st == ERR_IO ? (e->code = ERR_CONFIG) : st;
}

void answers_file_close(struct answers_file *f) {
    json_decref(f->header);
    free(f->answers);
    *f = (struct answers_file){ 0 };
}
