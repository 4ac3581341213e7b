#include "runner/data_sample.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/chat/chat_lines.h"
#include "runner/data_chat.h"
#include "runner/data_sample_shards.h"
#include "runner/sample_text.h"
#include "runner/token_stats.h"

struct sample {
    const struct cli *cli;
    struct chat_template template;
    struct chat_markers markers;
    enum chat_loss which;
    struct chat_renderer renderer; /* in place of the three above if it has `render` */
    int64_t left;     /* conversations still to show */
    int64_t skip_max; /* conversations with errors that --skip-bad allows */
    json_t *shown, *skipped, *documents;
    bool rendered, loss; /* the template is there; some shards have loss */
};

/* ---- a conversation on a terminal ------------------------------------------------------------ */

/* The style of the byte at `at`; *range and *control are the last ones that were looked at. */
static const char *style_at(const struct chat_text *t, int64_t at, int64_t *range,
                            int64_t *control) {
    while (*range < t->losses && t->loss[*range].end <= at) ++*range;
    while (*control < t->controls && t->control[*control].end <= at) ++*control;
    if (*range < t->losses && t->loss[*range].begin <= at) return "green";
    return *control < t->controls && t->control[*control].begin <= at ? "dim" : "";
}

static void print_text(const struct cli *cli, const struct chat_text *t) {
    int64_t range = 0, control = 0;
    struct sample_text s;
    sample_text_begin(&s, cli);
    for (int64_t at = 0, n; at < t->n; at += n) {
        uint32_t code;
        bool plain;
        n = (int64_t)plain_character(t->text + at, &code, &plain);
        sample_text_put(&s, t->text + at, n, style_at(t, at, &range, &control));
    }
    sample_text_end(&s);
}

static int64_t loss_bytes(const struct chat_text *t) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < t->losses; i++) bytes += t->loss[i].end - t->loss[i].begin;
    return bytes;
}

static void print_sample(const struct cli *cli, const struct chat_lines *l,
                         const struct conversation *c, const struct chat_text *t) {
    cli_out(cli, "%s%s:%" PRId64 "%s  %" PRId64 " messages, %" PRId64 " bytes, %" PRId64
            " with loss\n", cli_style(cli, "bold"), PLAIN(l->path), l->number,
            cli_style(cli, NULL), c->count, t->n, loss_bytes(t));
    print_text(cli, t);
}

/* ---- a conversation as JSON ------------------------------------------------------------------ */

static json_t *fragments_json(const struct chat_rendering *r) {
    static const char *const FIELDS[] = { "template", "role", "content", "reasoning", "tool_calls",
                                          "other", "tools", "variable" };
    json_t *list = json_array();
    bool failed = !list;
    for (int64_t i = 0; i < r->count; i++) {
        const struct chat_fragment *f = &r->fragments[i];
        json_append(list, json_pack("{s:I,s:I,s:o,s:s}", "begin", (json_int_t)f->begin, "end",
                                    (json_int_t)f->end, "message",
                                    f->origin.message < 0 ? json_null()
                                                          : json_integer(f->origin.message),
                                    "field", FIELDS[f->origin.field]), &failed);
    }
    return json_whole(list, failed);
}

/* Those of a function: the text in which special tokens are found, and the rest. */
static json_t *parts_json(const struct chat_text *t) {
    json_t *list = json_array();
    bool failed = !list;
    for (int64_t i = 0, at = 0; at < t->n; i++) {
        int64_t begin = i < t->controls ? t->control[i].begin : t->n;
        int64_t end = i < t->controls ? t->control[i].end : t->n;
        if (begin > at)
            json_append(list, json_pack("{s:I,s:I,s:n,s:s}", "begin", (json_int_t)at, "end",
                                        (json_int_t)begin, "message", "field", "text"), &failed);
        if (end > begin)
            json_append(list, json_pack("{s:I,s:I,s:n,s:s}", "begin", (json_int_t)begin, "end",
                                        (json_int_t)end, "message", "field", "special"), &failed);
        at = end;
    }
    return json_whole(list, failed);
}

static json_t *ranges_json(const struct chat_text *t) {
    json_t *list = json_array();
    bool failed = !list;
    for (int64_t i = 0; i < t->losses; i++)
        json_append(list, json_pack("[I,I]", (json_int_t)t->loss[i].begin,
                                    (json_int_t)t->loss[i].end), &failed);
    return json_whole(list, failed);
}

/* r: NULL if a function rendered. */
static enum status add_sample(struct sample *s, const struct chat_lines *l,
                              const struct conversation *c, const struct chat_rendering *r,
                              const struct chat_text *t, struct err *e) {
    bool failed = false;
    json_append(s->shown, json_pack("{s:o,s:I,s:I,s:o,s:I,s:o,s:o}", "path",
                                    json_from_text(l->path), "line", (json_int_t)l->number,
                                    "messages", (json_int_t)c->count, "text",
                                    json_stringn(t->text, (size_t)t->n), "loss_bytes",
                                    (json_int_t)loss_bytes(t), "loss", ranges_json(t),
                                    "fragments", r ? fragments_json(r) : parts_json(t)),
                &failed);
    return failed ? FAIL(e, ERR_MEMORY, "%s:%" PRId64 ": no memory for its JSON", l->path,
                         l->number) : OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum status show(struct sample *s, const struct chat_lines *l, const struct conversation *c,
                        struct err *e) {
    struct chat_rendering r = { 0 };
    struct chat_text t = { 0 };
    bool function = s->renderer.render;
    enum status st = function ? chat_render_text(&s->renderer, c, &t, e)
                              : chat_render(&s->template, c, c->count,
                                            cli_has(s->cli, "generation-prompt"), &r, e);
    if (st == OK && !function)
        st = chat_template_text(&s->template, &s->markers, c, &r, s->which, &t, e);
    if (st == OK && s->cli->json) st = add_sample(s, l, c, function ? NULL : &r, &t, e);
    else if (st == OK) print_sample(s->cli, l, c, &t);
    chat_text_free(&t);
    chat_rendering_free(&r);
    if (st != OK) err_prefix(e, "%s:%" PRId64, l->path, l->number);
    return st;
}

/* Lists a conversation with an error and goes on, as often as --skip-bad allows. */
static enum status skip(struct sample *s, enum status st, struct err *e) {
    bool failed = false;
    bool line = st == ERR_FORMAT || st == ERR_CONFIG || st == ERR_UNSUPPORTED;
    if (!line || (int64_t)json_array_size(s->skipped) >= s->skip_max) return st;
    json_append(s->skipped, json_from_text(e->text), &failed);
    if (failed) return FAIL(e, ERR_MEMORY, "the list of skipped conversations");
    cli_warn(s->cli, "skipped: %s", e->text);
    return OK;
}

static enum status show_file(struct sample *s, const char *path, struct err *e) {
    struct chat_lines lines;
    struct conversation c;
    bool more = true;
    TRY(chat_lines_open(&lines, path, e));
    enum status st = OK;
    while (st == OK && s->left != 0) {
        st = chat_lines_next(&lines, &c, &more, e);
        if (st == OK && !more) break;
        if (st == OK) {
            st = show(s, &lines, &c, e);
            conversation_free(&c);
        }
        if (st == OK) s->left--;
        else st = skip(s, st, e);
    }
    chat_lines_close(&lines);
    return st;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static enum status prepare_template(struct sample *s, struct err *e) {
    if (cli_has(s->cli, "render")) return data_chat_render(s->cli, 1, &s->renderer, e);
    TRY(data_chat_template(s->cli, &s->template, &s->which, e));
    return chat_markers_find(&s->template, &s->markers, e);
}

static enum status prepare(struct sample *s, struct err *e) {
    const struct cli *cli = s->cli;
    int64_t show_count = 3;
    if (cli->arg_count < 2)
        return FAIL(e, ERR_ARG, "missing argument: fp8lab data sample --template FILE FILE.jsonl, "
                    "or PREFIX of shards");
    if (cli_has(cli, "bytes")) return FAIL(e, ERR_ARG, "--bytes does not fit `data sample`");
    TRY(cli_int(cli, "show", 0, INT32_MAX, &show_count, e));
    TRY(cli_int(cli, "skip-bad", 0, INT32_MAX, &s->skip_max, e));
    s->left = show_count ? show_count : -1;
    return OK;
}

static void finish(const struct sample *s) {
    const struct cli *cli = s->cli;
    if (cli->json) {
        json_t *object = json_pack("{s:s,s:O,s:O,s:O}", "schema", "fp8lab.data.sample/1",
                                   "conversations", s->shown, "skipped", s->skipped, "documents",
                                   s->documents);
        if (object) cli_out_json(cli, object);
        json_decref(object);
    } else if (s->rendered || s->loss) {
        sample_text_legend(cli, !s->rendered ? NULL
                           : s->renderer.render ? "text that may have special tokens"
                                                : "the template's own text");
    }
}

/* The template or function is needed only if there is a file of conversations. */
static enum status sample_file(struct sample *s, const char *path, struct err *e) {
    enum token_format format = TOKENS_NONE;
    struct stat is;
    bool pipe = stat(path, &is) == 0 && S_ISFIFO(is.st_mode); /* it can be opened once only */
    if (s->left == 0) return OK;
    if (!pipe) TRY(token_format_find(path, &format, e));
    if (format == TOKENS_MEGATRON)
        return data_sample_shards(s->cli, path, &s->left, s->documents, &s->loss, e);
    if (!s->rendered) TRY(prepare_template(s, e));
    s->rendered = true;
    return show_file(s, path, e);
}

int data_sample(const struct cli *cli) {
    struct sample s = { .cli = cli, .shown = json_array(), .skipped = json_array(),
                        .documents = json_array() };
    bool room = s.shown && s.skipped && s.documents;
    struct err e = { 0 };
    int code = EXIT_OK;
    enum status st = room ? prepare(&s, &e) : FAIL(&e, ERR_MEMORY, "a list");
    for (int64_t i = 1; i < cli->arg_count && st == OK; i++)
        st = sample_file(&s, cli->args[i], &e);
    if (st == OK) finish(&s);
    if (st != OK) {
        code = cli_fail(cli, &e);
        if (st != ERR_MEMORY) code = EXIT_USAGE; /* the user must fix the file or the template */
    }
    if (s.renderer.close) s.renderer.close(s.renderer.context);
    chat_markers_free(&s.markers);
    chat_template_free(&s.template);
    json_decref(s.shown);
    json_decref(s.skipped);
    json_decref(s.documents);
    return code;
}
