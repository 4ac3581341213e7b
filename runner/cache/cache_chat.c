#include "runner/cache/cache_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/ingest/tokenizer_config.h"

bool cache_is_chat(const json_t *data) { return !strcmp(json_text(data, "kind", ""), "chats"); }

bool cache_is_rendered(const json_t *data) {
    return json_is_string(json_object_get(data, "render"));
}

enum status cache_chat_render(struct chat_tokens *out, const json_t *data,
                              const struct chat_render_source *source, int threads,
                              struct err *e) {
    struct chat_renderer renderer;
    enum status st = source->open(source, json_text(data, "render", ""), threads, &renderer, e);
    if (st == OK) chat_tokens_open_with(out, &renderer, json_int(data, "max_tokens"));
    else err_prefix(e, "data.render");
    return st;
}

/* The file `name` in `folder` if it is there. */
static const char *file_in(char out[PATH_CAP], const char *folder, const char *name) {
    return path_join(out, folder, name, NULL) == OK && path_exists(out) ? out : NULL;
}

static bool is_json(const char *path) {
    size_t n = strlen(path);
    return n > 5 && !strcmp(path + n - 5, ".json");
}

/* The template that the user names, else the one of `own`, else what lies beside the tokenizer. */
static const char *find_template(char out[PATH_CAP], const json_t *data, const char *root,
                                 const char *own, const char *beside) {
    const char *named = json_text(data, "template", NULL), *found = NULL;
    if (own && (found = file_in(out, own, "chat_template.json"))) return found;
    if (own && (found = file_in(out, own, "chat_template.jinja"))) return found;
    if (named && !own) {
        snprintf(out, PATH_CAP, "%s%s%s", root ? root : "", root ? "/" : "", named);
        return out;
    }
    return *beside ? file_in(out, beside, "chat_template.jinja") : NULL;
}

static enum status set_variables(struct chat_template *t, const json_t *data, struct err *e) {
    const json_t *list = json_object_get(data, "variables"), *item;
    const char *date = json_text(data, "date", NULL);
    size_t i;
    if (date) TRY(chat_template_date(t, date, e));
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        TRY(chat_template_set_text(t, text ? text : "", "data.variables", e));
    }
    return OK;
}

enum status cache_chat_open(struct chat_tokens *out, const json_t *data, const char *root,
                            const char *own, const char *tokenizer, json_t *kept,
                            struct err *e) {
    char beside[PATH_CAP] = "", at[PATH_CAP], there[PATH_CAP];
    struct chat_template template = { 0 };
    enum chat_loss which = !strcmp(json_text(data, "loss", "all"), "last") ? CHAT_LOSS_LAST
                                                                           : CHAT_LOSS_ALL;
    bool failed = false;
    if (strcmp(tokenizer, "bytes") != 0) path_parent(beside, tokenizer);
    const char *config = *beside ? file_in(at, beside, TOKENIZER_CONFIG) : NULL;
    const char *file = find_template(there, data, root, own, beside);
    if (!config && !file)
        return FAIL(e, ERR_CONFIG, "data.template: no chat template lies beside %s "
                    "(tokenizer_config.json or chat_template.jinja); put one there, or name one "
                    "in a script: template = \"FILE\"", tokenizer);
    if (config) json_put(kept, TOKENIZER_CONFIG, json_string_nocheck(config), &failed);
    if (file)
        json_put(kept, is_json(file) ? "chat_template.json" : "chat_template.jinja",
                 json_string_nocheck(file), &failed);
    if (failed) return FAIL(e, ERR_MEMORY, "the files of the chat template");
    enum status st = chat_template_load(&template, file, config, e);
    if (st == OK) st = set_variables(&template, data, e);
    if (st == OK) st = chat_tokens_open(out, &template, which, json_int(data, "max_tokens"), e);
    chat_template_free(&template);
    if (st == OK || st == ERR_MEMORY) return st;
    err_prefix(e, "data.template");
    return e->code = ERR_CONFIG;
}
