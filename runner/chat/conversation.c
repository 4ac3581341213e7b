#include "runner/chat/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"

static const char *kind_of(const json_t *v) {
    static const char *const NAMES[] = { "an object", "an array", "a string", "an integer",
                                         "a real number", "true", "false", "null" };
    return v ? NAMES[json_typeof(v)] : "missing";
}

static bool is_null(const json_t *v) { return !v || json_is_null(v); }

/* ---- one message ----------------------------------------------------------------------------- */

static enum status check_role(const json_t *message, const char *place, struct err *e) {
    static const char *const ROLES[] = { "system", "developer", "user", "assistant", "tool",
                                         "ipython", "function" };
    const json_t *role = json_object_get(message, "role");
    if (!json_is_string(role))
        return FAIL(e, ERR_FORMAT, "%s.role: expected a string, found %s", place, kind_of(role));
    for (size_t i = 0; i < sizeof ROLES / sizeof *ROLES; i++)
        if (!strcmp(json_string_value(role), ROLES[i])) return OK;
    return FAIL(e, ERR_FORMAT, "%s.role: '%s' is unknown; expected system, developer, user, "
                "assistant, tool, ipython or function", place, json_string_value(role));
}

static enum status check_parts(const json_t *parts, const char *place, struct err *e) {
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_object(part))
            return FAIL(e, ERR_FORMAT, "%s.content[%zu]: expected an object, found %s", place, i,
                        kind_of(part));
        if (!type || strcmp(type, "text") != 0)
            return FAIL(e, ERR_FORMAT, "%s.content[%zu].type: only \"text\" is supported, "
                        "found '%s'", place, i, type ? type : kind_of(json_object_get(part,
                        "type")));
        if (!json_is_string(json_object_get(part, "text")))
            return FAIL(e, ERR_FORMAT, "%s.content[%zu].text: expected a string, found %s", place,
                        i, kind_of(json_object_get(part, "text")));
    }
    return OK;
}

static enum status check_tool_calls(const json_t *calls, const char *place, struct err *e) {
    if (!json_is_array(calls))
        return FAIL(e, ERR_FORMAT, "%s.tool_calls: expected an array, found %s", place,
                    kind_of(calls));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *inner = json_object_get(call, "function");
        const json_t *name = json_object_get(inner ? inner : call, "name");
        if (!json_is_string(name))
            return FAIL(e, ERR_FORMAT, "%s.tool_calls[%zu].function.name: expected a string, "
                        "found %s", place, i, kind_of(name));
    }
    return OK;
}

/* `weight` and `training`, which say whether a message carries loss. */
static enum status check_flags(const json_t *message, const char *place, struct err *e) {
    const json_t *weight = json_object_get(message, "weight");
    const json_t *training = json_object_get(message, "training");
    if (!is_null(weight) && !json_is_number(weight))
        return FAIL(e, ERR_FORMAT, "%s.weight: expected a number, found %s", place,
                    kind_of(weight));
    double w = is_null(weight) ? 1 : json_number_value(weight);
    if (w != 0 && w != 1)
        return FAIL(e, ERR_FORMAT, "%s.weight: expected 0 (no loss) or 1, found %g; no loss has "
                    "another weight here", place, w);
    if (!is_null(training) && !json_is_boolean(training))
        return FAIL(e, ERR_FORMAT, "%s.training: expected true or false, found %s", place,
                    kind_of(training));
    return OK;
}

static enum status check_message(const json_t *message, const char *place, struct err *e) {
    const json_t *content = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls");
    TRY(check_role(message, place, e));
    TRY(check_flags(message, place, e));
    if (!is_null(calls)) TRY(check_tool_calls(calls, place, e));
    if (json_is_string(content)) return OK;
    if (json_is_array(content)) return check_parts(content, place, e);
    if (is_null(content) && !is_null(calls)) return OK;
    if (is_null(content) && !is_null(json_object_get(message, "reasoning_content"))) return OK;
    return FAIL(e, ERR_FORMAT, "%s.content: expected a string or a list of parts, found %s", place,
                kind_of(content));
}

/* A copy of a message without nulls. Its reasoning stands first as `thinking` and last as
 * `reasoning_content`, in the order in which transformers puts the keys. */
static json_t *normal(const json_t *message) {
    static const char *const NAMES[] = { "reasoning_content", "thinking", "reasoning" };
    json_t *out = json_object(), *reasoning = NULL, *value;
    const char *key;
    bool failed = !out;
    for (size_t i = 0; i < 3 && is_null(reasoning); i++)
        reasoning = json_object_get(message, NAMES[i]);
    if (!is_null(reasoning)) json_put(out, "thinking", json_incref(reasoning), &failed);
    json_object_foreach((json_t *)message, key, value) /* jansson's iterators take no const */
        if (!json_is_null(value)) json_put(out, key, json_incref(value), &failed);
    if (!is_null(reasoning)) json_put(out, "reasoning_content", json_incref(reasoning), &failed);
    return json_whole(out, failed);
}

static enum status add_message(struct conversation *c, const json_t *message, const char *place,
                               struct err *e) {
    bool failed = false;
    if (!json_is_object(message))
        return FAIL(e, ERR_FORMAT, "%s: expected an object, found %s", place, kind_of(message));
    json_t *own = normal(message);
    enum status st = own ? check_message(own, place, e) : OK;
    json_append(c->messages, own, &failed);
    if (st == OK && failed) return FAIL(e, ERR_MEMORY, "%s: no memory for the message", place);
    return st;
}

/* A message of a role and a text that some other format spells. */
static enum status add_text(struct conversation *c, const char *role, const json_t *text,
                            const char *place, struct err *e) {
    if (!json_is_string(text))
        return FAIL(e, ERR_FORMAT, "%s: expected a string, found %s", place, kind_of(text));
    json_t *message = json_pack("{s:s,s:O}", "role", role, "content", text);
    enum status st = message ? add_message(c, message, place, e)
                             : FAIL(e, ERR_MEMORY, "%s: no memory for the message", place);
    json_decref(message);
    return st;
}

static enum status add_list(struct conversation *c, const json_t *list, const char *name,
                            struct err *e) {
    char place[64];
    if (!json_is_array(list))
        return FAIL(e, ERR_FORMAT, "%s: expected an array, found %s", name, kind_of(list));
    if (json_array_size(list) == 0) return FAIL(e, ERR_FORMAT, "%s: no message in it", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        snprintf(place, sizeof place, "%s[%zu]", name, i);
        TRY(add_message(c, json_array_get(list, i), place, e));
    }
    return OK;
}

/* ---- ShareGPT -------------------------------------------------------------------------------- */

/* A text that is JSON itself. */
static enum status inner_json(const json_t *text, const char *place, json_t **out,
                              struct err *e) {
    json_error_t why;
    enum status st = json_parse(out, json_string_value(text), json_string_length(text),
                                JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    return st == OK ? OK : FAIL(e, st, "%s: expected JSON: %s", place, why.text);
}

/* {"name", "arguments"} as a message with one call, or a list of them. */
static enum status function_call(struct conversation *c, const json_t *value, const char *place,
                                 struct err *e) {
    json_t *call = NULL, *calls = json_array(), *message;
    bool failed = !calls;
    enum status st = inner_json(value, place, &call, e);
    bool many = json_is_array(call);
    for (size_t i = 0; st == OK && i < (many ? json_array_size(call) : 1); i++)
        json_append(calls, json_pack("{s:s,s:O}", "type", "function", "function",
                                     many ? json_array_get(call, i) : call), &failed);
    message = failed ? NULL : json_pack("{s:s,s:O}", "role", "assistant", "tool_calls", calls);
    if (st == OK && !message) st = FAIL(e, ERR_MEMORY, "%s: no memory for the message", place);
    if (st == OK) st = add_message(c, message, place, e);
    json_decref(message);
    json_decref(calls);
    json_decref(call);
    return st;
}

/* The last message gets the flags of the turn that it was made of. */
static enum status take_flags(struct conversation *c, const json_t *turn, const char *place,
                              struct err *e) {
    static const char *const NAMES[] = { "weight", "training" };
    json_t *message = json_array_get(c->messages, json_array_size(c->messages) - 1);
    bool failed = false;
    TRY(check_flags(turn, place, e));
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        json_t *flag = json_object_get(turn, NAMES[i]);
        if (!is_null(flag)) json_put(message, NAMES[i], json_incref(flag), &failed);
    }
    return failed ? FAIL(e, ERR_MEMORY, "%s: no memory for the message", place) : OK;
}

/* The message of a turn, without the turn's flags. */
static enum status sharegpt_message(struct conversation *c, const json_t *turn,
                                    const char *place, struct err *e) {
    static const struct { const char *from, *role; } ROLES[] = {
        { "human", "user" },       { "user", "user" },     { "gpt", "assistant" },
        { "assistant", "assistant" }, { "chatgpt", "assistant" }, { "bing", "assistant" },
        { "bard", "assistant" },   { "model", "assistant" }, { "system", "system" },
        { "observation", "tool" }, { "tool", "tool" },
    };
    const json_t *from = json_object_get(turn, "from"), *value = json_object_get(turn, "value");
    char at[96];
    if (!json_is_string(from))
        return FAIL(e, ERR_FORMAT, "%s.from: expected a string, found %s", place, kind_of(from));
    snprintf(at, sizeof at, "%s.value", place);
    if (!json_is_string(value))
        return FAIL(e, ERR_FORMAT, "%s: expected a string, found %s", at, kind_of(value));
    if (!strcmp(json_string_value(from), "function_call")) return function_call(c, value, at, e);
    for (size_t i = 0; i < sizeof ROLES / sizeof *ROLES; i++)
        if (!strcmp(json_string_value(from), ROLES[i].from))
            return add_text(c, ROLES[i].role, value, at, e);
    return FAIL(e, ERR_FORMAT, "%s.from: '%s' is unknown; expected human, gpt, system, observation "
                "or function_call", place, json_string_value(from));
}

static enum status sharegpt_turn(struct conversation *c, const json_t *turn, const char *place,
                                 struct err *e) {
    TRY(sharegpt_message(c, turn, place, e));
    return take_flags(c, turn, place, e);
}

static enum status sharegpt(struct conversation *c, const json_t *row, struct err *e) {
    const json_t *list = json_object_get(row, "conversations"), *turn = json_array_get(list, 0);
    const json_t *system = json_object_get(row, "system");
    char place[64];
    /* The column's name says little: some files have messages under it. */
    if (json_object_get(turn, "role")) return add_list(c, list, "conversations", e);
    if (!json_is_array(list) || !turn)
        return FAIL(e, ERR_FORMAT, "conversations: expected an array of turns, found %s",
                    json_is_array(list) ? "an empty array" : kind_of(list));
    if (!is_null(system) && json_string_length(system))
        TRY(add_text(c, "system", system, "system", e));
    for (size_t i = 0; i < json_array_size(list); i++) {
        snprintf(place, sizeof place, "conversations[%zu]", i);
        TRY(sharegpt_turn(c, json_array_get(list, i), place, e));
    }
    return OK;
}

/* ---- prompts, and Alpaca's columns ----------------------------------------------------------- */

static enum status side(struct conversation *c, const json_t *row, const char *key,
                        const char *role, struct err *e) {
    const json_t *value = json_object_get(row, key);
    if (json_is_array(value)) return add_list(c, value, key, e);
    return add_text(c, role, value, key, e);
}

static enum status history(struct conversation *c, const json_t *turns, struct err *e) {
    char place[64];
    if (!json_is_array(turns))
        return FAIL(e, ERR_FORMAT, "history: expected an array, found %s", kind_of(turns));
    for (size_t i = 0; i < json_array_size(turns); i++) {
        const json_t *pair = json_array_get(turns, i);
        snprintf(place, sizeof place, "history[%zu]", i);
        if (json_array_size(pair) != 2)
            return FAIL(e, ERR_FORMAT, "%s: expected a question and an answer", place);
        TRY(add_text(c, "user", json_array_get(pair, 0), place, e));
        TRY(add_text(c, "assistant", json_array_get(pair, 1), place, e));
    }
    return OK;
}

/* The instruction, and after a newline the input if there is one (LLaMA-Factory's
 * data/parser.py). */
static enum status alpaca(struct conversation *c, const json_t *row, struct err *e) {
    const json_t *system = json_object_get(row, "system"), *past = json_object_get(row, "history");
    const json_t *ask = json_object_get(row, "instruction"), *input = json_object_get(row, "input");
    if (!is_null(system) && json_string_length(system))
        TRY(add_text(c, "system", system, "system", e));
    if (!is_null(past)) TRY(history(c, past, e));
    if (!json_is_string(ask))
        return FAIL(e, ERR_FORMAT, "instruction: expected a string, found %s", kind_of(ask));
    if (!is_null(input) && !json_is_string(input))
        return FAIL(e, ERR_FORMAT, "input: expected a string, found %s", kind_of(input));
    struct text t = { 0 };
    text_add(&t, json_string_value(ask), json_string_length(ask));
    if (!is_null(input) && json_string_length(input)) {
        text_puts(&t, "\n");
        text_add(&t, json_string_value(input), json_string_length(input));
    }
    json_t *both = t.failed ? NULL : json_stringn(t.bytes, t.size);
    text_free(&t);
    enum status st = both ? add_text(c, "user", both, "instruction", e)
                          : FAIL(e, ERR_MEMORY, "instruction: no memory to join it with input");
    json_decref(both);
    return st == OK ? add_text(c, "assistant", json_object_get(row, "output"), "output", e) : st;
}

/* ---- the row --------------------------------------------------------------------------------- */

static enum status messages_of(struct conversation *c, const json_t *row, struct err *e) {
    if (json_object_get(row, "messages"))
        return add_list(c, json_object_get(row, "messages"), "messages", e);
    if (json_object_get(row, "conversations")) return sharegpt(c, row, e);
    if (json_object_get(row, "instruction")) return alpaca(c, row, e);
    if (!json_object_get(row, "prompt") || !json_object_get(row, "completion"))
        return FAIL(e, ERR_FORMAT, "no conversation in it; expected messages, conversations, "
                    "prompt and completion, or instruction and output");
    TRY(side(c, row, "prompt", "user", e));
    return side(c, row, "completion", "assistant", e);
}

/* A column that is an array, or a text that is one. */
static enum status list_of(const json_t *row, const char *key, json_t **out, struct err *e) {
    json_t *value = json_object_get(row, key), *inner = NULL;
    if (is_null(value) || (json_is_string(value) && json_string_length(value) == 0)) return OK;
    if (json_is_string(value)) TRY(inner_json(value, key, &inner, e));
    else inner = json_incref(value);
    if (json_is_array(inner)) {
        if (json_array_size(inner)) *out = json_incref(inner);
        json_decref(inner);
        return OK;
    }
    enum status st = FAIL(e, ERR_FORMAT, "%s: expected an array, found %s", key, kind_of(inner));
    json_decref(inner);
    return st;
}

/* Fills the flags of each message. */
static enum status flags(struct conversation *c, struct err *e) {
    c->count = (int64_t)json_array_size(c->messages);
    c->assistant = calloc((size_t)c->count + 1, sizeof *c->assistant);
    c->trained = calloc((size_t)c->count + 1, sizeof *c->trained);
    if (!c->assistant || !c->trained)
        return FAIL(e, ERR_MEMORY, "flags of %lld messages", (long long)c->count);
    for (int64_t i = 0; i < c->count; i++) {
        const json_t *message = json_array_get(c->messages, (size_t)i);
        const json_t *weight = json_object_get(message, "weight");
        const json_t *role = json_object_get(message, "role");
        c->assistant[i] = !strcmp(json_string_value(role), "assistant");
        c->trained[i] = !json_is_false(json_object_get(message, "training")) &&
                        !(json_is_number(weight) && json_number_value(weight) == 0);
    }
    return OK;
}

enum status conversation_read(const json_t *row, struct conversation *out, struct err *e) {
    *out = (struct conversation){ .messages = json_array() };
    if (!out->messages) return FAIL(e, ERR_MEMORY, "the messages of a conversation");
    enum status st = messages_of(out, row, e);
    if (st == OK) st = list_of(row, "tools", &out->tools, e);
    if (st == OK) st = list_of(row, "documents", &out->documents, e);
    json_t *arguments = json_object_get(row, "chat_template_kwargs");
    if (st == OK && !is_null(arguments) && !json_is_object(arguments))
        st = FAIL(e, ERR_FORMAT, "chat_template_kwargs: expected an object, found %s",
                  kind_of(arguments));
    if (st == OK && json_is_object(arguments)) out->arguments = json_incref(arguments);
    if (st == OK) st = flags(out, e);
    if (st != OK) conversation_free(out);
    return st;
}

enum status conversation_parse(const char *bytes, size_t n, struct conversation *out,
                               struct err *e) {
    json_error_t why;
    json_t *row = NULL;
    *out = (struct conversation){ 0 };
    if (n > CONVERSATION_LIMIT)
        return FAIL(e, ERR_FORMAT, "a conversation of more than %d MiB", CONVERSATION_LIMIT >> 20);
    if (n > 0 && *bytes == '[')
        return FAIL(e, ERR_FORMAT, "expected an object, found an array; each line is one "
                    "conversation, as jq -c '.[]' FILE makes them");
    enum status st = json_parse(&row, bytes, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (st != OK) st = FAIL(e, st, "no JSON object: %s", why.text);
    else st = conversation_read(row, out, e);
    json_decref(row);
    return st;
}

void conversation_free(struct conversation *c) {
    json_decref(c->messages);
    json_decref(c->tools);
    json_decref(c->documents);
    json_decref(c->arguments);
    free(c->assistant);
    free(c->trained);
    *c = (struct conversation){ 0 };
}
