#include "runner/chat/chat_tokens.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/ingest/unicode.h"

/* One byte for each id: whether the last byte that it stands for is in a range. *any: one is. */
static enum status add_loss(const uint32_t *place, int64_t ids, const struct chat_range *range,
                            int64_t ranges, struct bytes *loss, bool *any, struct err *e) {
    TRY(bytes_reserve(loss, (size_t)ids, e));
    for (int64_t i = 0, at = 0; i < ids; i++) {
        int64_t last = (int64_t)place[i] - 1;
        while (at < ranges && range[at].end <= last) at++;
        bool has = at < ranges && range[at].begin <= last;
        *any |= has;
        loss->bytes[loss->count++] = has;
    }
    return OK;
}

/* The ids of a text, up to the limit. */
static enum status encode(const struct chat_tokens *c, const struct chat_text *t,
                          struct encoder *x, struct bytes *loss, struct line_outcome *out,
                          struct err *e) {
    int64_t before, count;
    size_t losses = loss->count;
    bool any = false;
    encoder_ids(x, &before);
    enum status st = encoder_add_placed(x, t->text, (size_t)t->n, t->control, t->controls, e);
    encoder_ids(x, &count);
    count -= before;
    if (c->max_tokens && count > c->max_tokens) {
        out->cut = true;
        count = c->max_tokens;
        encoder_cut(x, before + count);
    }
    if (st == OK) st = add_loss(encoder_places(x), count, t->loss, t->losses, loss, &any, e);
    if (st != OK || any) return st;
    *out = (struct line_outcome){ .lossless = true };
    encoder_cut(x, before);
    loss->count = losses;
    return OK;
}

/* Two conversations are equal if their text and what carries loss are. */
static enum status key_of(const struct chat_text *t, unsigned char key[UNIQUE_KEY],
                          struct err *e) {
    struct sha256 *sha;
    char hex[SHA256_HEX];
    TRY(sha256_create(&sha, e));
    sha256_add(sha, t->text, (size_t)t->n);
    for (int64_t i = 0; i < t->losses; i++)
        sha256_add(sha, (const int64_t[]){ t->loss[i].begin, t->loss[i].end },
                   2 * sizeof(int64_t));
    sha256_finish(sha, hex);
    sha256_destroy(sha);
    unique_key(hex, key);
    return OK;
}

static enum status encode_text(const struct chat_tokens *c, const struct chat_text *t,
                               struct encoder *x, struct bytes *loss, struct line_outcome *out,
                               struct err *e) {
    out->text_bytes = t->n;
    TRY(encode(c, t, x, loss, out, e));
    return key_of(t, out->key, e);
}

static enum status encode_by_template(const struct chat_tokens *c, const struct conversation *talk,
                                      struct encoder *x, struct bytes *loss,
                                      struct line_outcome *out, struct err *e) {
    struct chat_rendering r;
    struct chat_text t = { 0 };
    enum status st = chat_render(&c->template, talk, talk->count, false, &r, e);
    if (st == OK) {
        st = chat_template_text(&c->template, &c->markers, talk, &r, c->which, &t, e);
        chat_rendering_free(&r);
    }
    if (st == OK) st = encode_text(c, &t, x, loss, out, e);
    chat_text_free(&t);
    if (st == ERR_CONFIG || st == ERR_UNSUPPORTED) st = e->code = ERR_FORMAT; /* of this line */
    return st;
}

static enum status encode_by_renderer(const struct chat_tokens *c, const struct conversation *talk,
                                      struct encoder *x, struct bytes *loss,
                                      struct line_outcome *out, struct err *e) {
    struct chat_text t;
    TRY(chat_render_text(&c->renderer, talk, &t, e));
    enum status st = encode_text(c, &t, x, loss, out, e);
    chat_text_free(&t);
    return st;
}

static enum status encode_line(const void *context, const char *line, size_t n, struct encoder *x,
                               struct bytes *loss, struct line_outcome *out, struct err *e) {
    const struct chat_tokens *c = context;
    struct conversation talk;
    TRY(conversation_parse(line, n, &talk, e));
    enum status st = c->renderer.render ? encode_by_renderer(c, &talk, x, loss, out, e)
                                        : encode_by_template(c, &talk, x, loss, out, e);
    conversation_free(&talk);
    return st;
}

static json_t *describe_template(const struct chat_tokens *c) {
    const struct chat_template *t = &c->template;
    return json_pack("{s:o,s:s,s:s,s:I,s:s,s:O,s:O}", "template", json_from_text(t->name),
                     "template_sha256", t->sha256, "loss",
                     c->which == CHAT_LOSS_ALL ? "all" : "last", "max_tokens",
                     (json_int_t)c->max_tokens, "date", t->date, "variables", t->variables,
                     "special_tokens", t->tokens);
}

static json_t *describe(const void *context) {
    const struct chat_tokens *c = context;
    bool failed = false;
    if (!c->renderer.render) return describe_template(c);
    json_t *d = c->renderer.describe(c->renderer.context);
    json_put(d, "max_tokens", json_integer(c->max_tokens), &failed);
    return json_whole(d, failed);
}

enum status chat_tokens_open(struct chat_tokens *c, struct chat_template *template,
                             enum chat_loss which, int64_t max_tokens, struct err *e) {
    *c = (struct chat_tokens){ .template = *template, .which = which, .max_tokens = max_tokens };
    *template = (struct chat_template){ 0 };
    c->lines = (struct line_encoder){ c, encode_line, describe };
    enum status st = chat_markers_find(&c->template, &c->markers, e);
    if (st != OK) chat_tokens_close(c);
    return st;
}

void chat_tokens_open_with(struct chat_tokens *c, struct chat_renderer *renderer,
                           int64_t max_tokens) {
    *c = (struct chat_tokens){ .renderer = *renderer, .max_tokens = max_tokens };
    *renderer = (struct chat_renderer){ 0 };
    c->lines = (struct line_encoder){ c, encode_line, describe };
}

void chat_tokens_close(struct chat_tokens *c) {
    if (c->renderer.close) c->renderer.close(c->renderer.context);
    chat_markers_free(&c->markers);
    chat_template_free(&c->template);
    *c = (struct chat_tokens){ 0 };
}
