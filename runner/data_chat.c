#include "runner/data_chat.h"

#include <jansson.h>
#include <string.h>

/* NAME=JSON; a value that is no JSON is a string. */
static enum status set_variable(struct chat_template *t, const char *given, struct err *e) {
    char name[64];
    size_t n = strcspn(given, "=");
    if (n == 0 || n >= sizeof name || !given[n])
        return FAIL(e, ERR_ARG, "--variable '%s': expected NAME=JSON", given);
    memcpy(name, given, n);
    name[n] = 0;
    json_t *value = json_loads(given + n + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!value) value = json_string(given + n + 1);
    if (!value) return FAIL(e, ERR_ARG, "--variable %s: the value is not UTF-8 text", name);
    enum status st = chat_template_set(t, name, value, e);
    json_decref(value);
    return st;
}

enum status data_chat_template(const struct cli *cli, const char *config,
                               struct chat_template *t, enum chat_loss *which, struct err *e) {
    const char *loss = cli_value(cli, "loss"), *date = cli_value(cli, "date");
    const char *named = cli_value(cli, "tokenizer-config");
    if (loss && strcmp(loss, "all") != 0 && strcmp(loss, "last") != 0)
        return FAIL(e, ERR_ARG, "--loss: expected all or last, found '%s'", loss);
    *which = loss && !strcmp(loss, "last") ? CHAT_LOSS_LAST : CHAT_LOSS_ALL;
    TRY(chat_template_load(t, cli_value(cli, "template"), named ? named : config, e));
    if (date) TRY(chat_template_date(t, date, e));
    for (int64_t i = 0; i < cli_count(cli, "variable"); i++)
        TRY(set_variable(t, cli_nth(cli, "variable", i), e));
    return OK;
}
