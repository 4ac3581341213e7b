#include "runner/infer/questions_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/input_file.h"
#include "model/ground/input_kind.h"
#include "model/ground/json_safe.h"
#include "runner/base/jsonl.h"
#include "runner/base/run_files.h"
#include "runner/infer/completion_tokens.h"
#include "runner/infer/question_forms.h"

enum { FILE_MAX = 256 << 20 /* bytes; HellaSwag's has 12 MB */ };

static const char MARK[] = "\xef\xbb\xbf"; /* byte-order mark */

static bool is_space(char c) { return c && strchr(" \t\r\n", c); }

/* What the first bytes tell, with a NUL behind them. A file of llm.c has NULs among these. */
static enum status judge_head(const char *path, const char *head, int64_t n, bool *json,
                              struct err *e) {
    const char *kind = input_kind(head, (size_t)n), *p = head;
    if (kind)
        return FAIL(e, ERR_CONFIG, "%s is %s, which is not read as questions; unpack it", path,
                    kind);
    if (n >= 2 && (!memcmp(head, "\xff\xfe", 2) || !memcmp(head, "\xfe\xff", 2)))
        return FAIL(e, ERR_CONFIG, "%s is text in UTF-16; expected UTF-8, as `iconv -f UTF-16 -t "
                    "UTF-8` writes it", path);
    if (!strncmp(p, MARK, 3)) p += 3;
    while (is_space(*p)) p++;
    bool spaces = n > 0 && p == head + n; /* the first line may be farther on */
    *json = *p == '{' || spaces;
    if (*p == '[')
        return FAIL(e, ERR_CONFIG, "%s is one JSON array; expected one object a line, as `jq -c "
                    ".[]` writes them", path);
    if (*json || memchr(head, '\0', (size_t)n)) return OK;
    return FAIL(e, ERR_CONFIG, "%s %s; expected JSON lines of questions, such as {\"context\": "
                "\"...\", \"choices\": [\"...\", \"...\"], \"answer\": 0}, or a file of llm.c",
                path, n ? "begins with no JSON object" : "is empty");
}

enum status questions_are_json(const char *path, bool *json, struct err *e) {
    struct input_file f;
    char head[INPUT_KIND_HEAD + 1] = "";
    if (input_open(&f, path, e) != OK) return e->code = ERR_CONFIG; /* name another */
    int64_t n = f.bytes < INPUT_KIND_HEAD ? f.bytes : INPUT_KIND_HEAD;
    enum status st = input_read(&f, 0, n, head, e);
    input_close(&f);
    TRY(st);
    return judge_head(path, head, n, json, e);
}

/* ---- one line ---------------------------------------------------------------------------------*/

struct reader {
    const struct questions_source *of;
    struct questions *out;
    struct completion_tokens *tokens;
    int64_t inside;  /* completions that begin inside a token of their context */
    int64_t skipped;
};

static enum status check_tokens(const struct reader *r, const int32_t *ids, int64_t count,
                                struct err *e) {
    for (int64_t i = 0; i < count; i++)
        if (ids[i] >= r->of->vocab)
            return FAIL(e, ERR_CONFIG, "the tokenizer makes token %d, but the model has %" PRId64
                        ": it is another model's tokenizer", ids[i], r->of->vocab);
    return OK;
}

static enum status add_completion(struct reader *r, const char *text, int64_t k, int64_t *inside,
                                  struct err *e) {
    const int32_t *ids;
    int64_t keep, count;
    bool torn;
    enum status st = completion_tokens_behind(r->tokens, text, &ids, &keep, &count, &torn, e);
    if (st != OK) return err_prefix(e, "completion %" PRId64, k), st;
    TRY(check_tokens(r, ids, count, e));
    if (keep + count - 1 > r->of->seq_len)
        return FAIL(e, ERR_FORMAT, "completion %" PRId64 " and what is before it are %" PRId64
                    " tokens; the model reads at most %" PRId64 ": shorten the context", k,
                    keep + count, r->of->seq_len + 1);
    *inside += torn;
    return questions_add_completion(r->out, keep, ids, count, (int64_t)strlen(text), e);
}

static enum status add_question(struct reader *r, const struct question_text *text,
                                int64_t number, struct err *e) {
    const int32_t *ids;
    int64_t count, inside = 0;
    TRY(completion_tokens_context(r->tokens, text->context, &ids, &count, e));
    TRY(check_tokens(r, ids, count, e));
    TRY(questions_add(r->out, number, text->right, ids, count, e));
    enum status st = OK;
    for (int64_t k = 0; k < text->completions && st == OK; k++)
        st = add_completion(r, text->completion[k], k, &inside, e);
    if (st == OK) r->inside += inside;
    else questions_drop(r->out);
    return st;
}

static enum status read_line(struct reader *r, const char *line, size_t n, int64_t number,
                             struct err *e) {
    struct question_text text;
    json_t *object = NULL;
    json_error_t why;
    if (n > JSONL_LINE_LIMIT)
        return FAIL(e, ERR_FORMAT, "%zu bytes; a line has at most %d", n, JSONL_LINE_LIMIT);
    enum status st = json_parse(&object, line, n, JSON_REJECT_DUPLICATES, &why);
    if (st != OK) return FAIL(e, st, "no JSON object: %s", why.text);
    st = question_form_read(object, &text, e);
    if (st == OK) st = add_question(r, &text, number, e);
    json_decref(object);
    return st;
}

/* ---- the file ---------------------------------------------------------------------------------*/

/* A bad line is left out, or is the error. */
static enum status judge_line(struct reader *r, enum status st, int64_t number, struct err *e) {
    if (st == OK) return OK;
    err_prefix(e, "%s:%" PRId64, r->of->path, number);
    if (st != ERR_FORMAT) return st;
    if (r->skipped++ < r->of->skip) {
        cli_warn(r->of->cli, "left out: %s", e->text);
        return OK;
    }
    size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n, ". --skip-bad N leaves out up to N such lines");
    return e->code = ERR_CONFIG;
}

static enum status read_lines(struct reader *r, const char *text, size_t n, struct err *e) {
    const char *p = text, *end = text + n;
    if (n >= 3 && !memcmp(p, MARK, 3)) p += 3;
    for (int64_t number = 1; p < end; number++) {
        const char *next = memchr(p, '\n', (size_t)(end - p)), *from = p;
        const char *stop = next ? next : end;
        p = stop + (next != NULL);
        while (from < stop && is_space(*from)) from++;
        if (from == stop) continue; /* an empty line */
        TRY(judge_line(r, read_line(r, from, (size_t)(stop - from), number, e), number, e));
    }
    if (r->out->count) return OK;
    return FAIL(e, ERR_CONFIG, "%s has no question%s", r->of->path,
                r->skipped ? " that could be read" : "");
}

static enum status read_text(struct reader *r, struct err *e) {
    const struct questions_source *s = r->of;
    char *text = NULL;
    size_t n = 0;
    enum status st = file_read(s->path, FILE_MAX, &text, &n, e);
    if (st == ERR_FORMAT || st == ERR_IO) st = e->code = ERR_CONFIG; /* name another */
    if (st == OK) st = sha256_bytes(text, n, r->out->sha256, e);
    if (st == OK) st = completion_tokens_create(&r->tokens, s->choice, e);
    if (st == OK) st = read_lines(r, text, n, e);
    completion_tokens_destroy(r->tokens);
    free(text);
    return st;
}

enum status questions_json_open(const struct questions_source *s, struct questions *out,
                                struct err *e) {
    struct reader r = { .of = s, .out = out };
    *out = (struct questions){ .unit = "line", .path = strdup(s->path) };
    if (!out->path) return FAIL(e, ERR_MEMORY, "the path of questions");
    TRY(read_text(&r, e));
    questions_finish(out);
    if (r.inside)
        cli_warn(s->cli, "%s: %" PRId64 " of %" PRId64 " completions begin inside a token of their "
                 "context: their loss has that of the whole token", s->path, r.inside, out->rows);
    return OK;
}
