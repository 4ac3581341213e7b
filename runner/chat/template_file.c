/* Finding the template of a tokenizer: chat_template.jinja, or the key of tokenizer_config.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/chat/template.h"
#include "runner/ingest/tokenizer_config.h"

/* The template among several named ones: "default". */
static enum status choose(struct chat_template *t, const json_t *list, const char *path,
                          const json_t **out, struct err *e) {
    bool tool_use = false;
    *out = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *name = json_text(item, "name", "");
        if (!strcmp(name, "default")) *out = json_object_get(item, "template");
        tool_use |= !strcmp(name, "tool_use");
    }
    t->without_tools = tool_use;
    if (*out) return OK;
    return FAIL(e, ERR_FORMAT, "%s: chat_template: no template of the name 'default'", path);
}

static enum status parse_key(struct chat_template *t, const json_t *config, const char *path,
                             struct err *e) {
    const json_t *text = json_object_get(config, "chat_template");
    struct chat_template chosen = { 0 };
    if (!text || json_is_null(text))
        return FAIL(e, ERR_FORMAT, "%s has no chat_template; put chat_template.jinja beside it, "
                    "or name the template's file: `fp8lab data --template`, data.template in a "
                    "script", path);
    if (json_is_array(text)) TRY(choose(&chosen, text, path, &text, e));
    if (!json_is_string(text))
        return FAIL(e, ERR_FORMAT, "%s: chat_template: expected a string", path);
    char name[PATH_CAP + 32];
    snprintf(name, sizeof name, "%s, chat_template", path);
    TRY(chat_template_parse(t, name, json_string_value(text), json_string_length(text), e));
    t->without_tools = chosen.without_tools;
    return OK;
}

static enum status parse_file(struct chat_template *t, const char *path, struct err *e) {
    char *bytes;
    size_t n;
    TRY(file_read(path, CHAT_TEMPLATE_LIMIT, &bytes, &n, e));
    enum status st = chat_template_parse(t, path, bytes, n, e);
    free(bytes);
    return st;
}

static bool is_json(const char *path) {
    size_t n = strlen(path);
    return n > 5 && !strcmp(path + n - 5, ".json");
}

enum status chat_template_load(struct chat_template *t, const char *template, const char *config,
                               struct err *e) {
    json_t *tokens = NULL, *own = NULL;
    char folder[PATH_CAP], path[PATH_CAP];
    enum status st = config ? tokenizer_config_read(config, &tokens, e) : OK;
    *t = (struct chat_template){ 0 };
    if (st == OK && !template && !config)
        st = FAIL(e, ERR_ARG, "no chat template: give --template or --tokenizer-config");
    if (st == OK && !template) {
        path_parent(folder, config);
        st = path_join(path, folder, "chat_template.jinja", e);
        if (st == OK && path_exists(path)) template = path;
    }
    if (st == OK && template && is_json(template)) st = tokenizer_config_read(template, &own, e);
    if (st == OK && own) st = parse_key(t, own, template, e);
    else if (st == OK && template) st = parse_file(t, template, e);
    else if (st == OK) st = parse_key(t, tokens, config, e);
    if (st == OK && (tokens || own)) st = chat_template_tokens(t, tokens ? tokens : own, e);
    if (st != OK) chat_template_free(t);
    json_decref(tokens);
    json_decref(own);
    return st;
}

enum status chat_template_set_text(struct chat_template *t, const char *given, const char *what,
                                   struct err *e) {
    char name[64];
    size_t n = strcspn(given, "=");
    if (n == 0 || n >= sizeof name || !given[n])
        return FAIL(e, ERR_ARG, "%s '%s': expected NAME=JSON", what, given);
    memcpy(name, given, n);
    name[n] = 0;
    json_t *value = json_loads(given + n + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!value) value = json_string(given + n + 1);
    if (!value) return FAIL(e, ERR_ARG, "%s %s: the value is not UTF-8 text", what, name);
    enum status st = chat_template_set(t, name, value, e);
    json_decref(value);
    return st;
}
