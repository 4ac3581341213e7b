#include "runner/chat/renderer.h"

#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"

void chat_text_free(struct chat_text *t) {
    free(t->text);
    free(t->control);
    free(t->loss);
    *t = (struct chat_text){ 0 };
}

/* ---- by a renderer --------------------------------------------------------------------------- */

/* The object that a function gets. */
static json_t *object_of(const struct conversation *c) {
    json_t *object = json_pack("{s:O}", "messages", c->messages);
    bool failed = false;
    if (c->tools) json_put(object, "tools", json_incref(c->tools), &failed);
    if (c->documents) json_put(object, "documents", json_incref(c->documents), &failed);
    if (c->arguments)
        json_put(object, "chat_template_kwargs", json_incref(c->arguments), &failed);
    return json_whole(object, failed);
}

static enum status allocate(const json_t *fragments, struct chat_text *out, struct err *e) {
    size_t count = json_array_size(fragments), n = 0;
    for (size_t i = 0; i < count; i++)
        n += json_string_length(json_object_get(json_array_get(fragments, i), "text"));
    out->text = malloc(n + 1);
    out->control = calloc(count + 1, sizeof *out->control);
    out->loss = calloc(count + 1, sizeof *out->loss);
    if (out->text && out->control && out->loss) return OK;
    return FAIL(e, ERR_MEMORY, "%zu fragments of a conversation", count);
}

/* Fragments that touch make one range. */
static void join(const json_t *fragments, struct chat_text *out) {
    const json_t *one;
    size_t i;
    json_array_foreach(fragments, i, one) {
        const json_t *text = json_object_get(one, "text");
        int64_t begin = out->n, n = (int64_t)json_string_length(text);
        if (n == 0) continue;
        memcpy(out->text + begin, json_string_value(text), (size_t)n);
        out->n += n;
        if (json_is_true(json_object_get(one, "special"))) {
            struct byte_range *last = out->control + out->controls;
            if (out->controls && last[-1].end == begin) last[-1].end = out->n;
            else out->control[out->controls++] = (struct byte_range){ begin, out->n };
        }
        if (json_is_true(json_object_get(one, "loss"))) {
            struct chat_range *last = out->loss + out->losses;
            if (out->losses && last[-1].end == begin) last[-1].end = out->n;
            else out->loss[out->losses++] = (struct chat_range){ begin, out->n, -1 };
        }
    }
    out->text[out->n] = '\0';
}

enum status chat_render_text(const struct chat_renderer *r, const struct conversation *c,
                             struct chat_text *out, struct err *e) {
    json_t *object = object_of(c), *fragments = NULL;
    *out = (struct chat_text){ 0 };
    enum status st = object ? r->render(r->context, object, &fragments, e)
                            : FAIL(e, ERR_MEMORY, "a conversation");
    json_decref(object);
    if (st == OK) st = allocate(fragments, out, e);
    if (st == OK) join(fragments, out);
    else chat_text_free(out);
    json_decref(fragments);
    return st;
}

/* ---- by a template --------------------------------------------------------------------------- */

/* The parts of the text in which special tokens may be found, joined where they touch. */
static enum status control_ranges(const struct chat_rendering *r, struct chat_text *out,
                                  struct err *e) {
    struct byte_range *list = calloc((size_t)r->count + 1, sizeof *list);
    out->control = list;
    if (!list) return FAIL(e, ERR_MEMORY, "the parts of a conversation");
    for (int64_t i = 0; i < r->count; i++) {
        const struct chat_fragment *f = &r->fragments[i];
        if (f->begin == f->end || !chat_origin_is_control(f->origin)) continue;
        if (out->controls && list[out->controls - 1].end == f->begin)
            list[out->controls - 1].end = f->end;
        else
            list[out->controls++] = (struct byte_range){ f->begin, f->end };
    }
    return OK;
}

enum status chat_template_text(const struct chat_template *t, const struct chat_markers *m,
                               const struct conversation *c, const struct chat_rendering *r,
                               enum chat_loss which, struct chat_text *out, struct err *e) {
    *out = (struct chat_text){ .text = malloc((size_t)r->n + 1), .n = r->n };
    enum status st = out->text ? OK : FAIL(e, ERR_MEMORY, "the text of a conversation");
    if (st == OK) memcpy(out->text, r->text, (size_t)r->n + 1);
    if (st == OK) st = control_ranges(r, out, e);
    if (st == OK) st = chat_loss_ranges(t, m, c, r, which, &out->loss, &out->losses, e);
    if (st != OK) chat_text_free(out);
    return st;
}
