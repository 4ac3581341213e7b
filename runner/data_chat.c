#include "runner/data_chat.h"

#include <string.h>

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
        TRY(chat_template_set_text(t, cli_nth(cli, "variable", i), "--variable", e));
    return OK;
}
