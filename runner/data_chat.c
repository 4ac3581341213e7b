#include "runner/data_chat.h"

#include <string.h>

#include "runner/script/render.h"
#include "runner/script/resolve.h"

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

enum status data_chat_render(const struct cli *cli, int threads, struct chat_renderer *out,
                             struct err *e) {
    static const char *const REPLACED[] = { "template", "tokenizer-config", "loss", "date",
                                            "variable", "generation-prompt" };
    char lib[PATH_CAP];
    for (size_t i = 0; i < sizeof REPLACED / sizeof *REPLACED; i++)
        if (cli_has(cli, REPLACED[i]))
            return FAIL(e, ERR_ARG, "--%s does not fit --render: the function writes the whole "
                        "text and says what carries loss", REPLACED[i]);
    resolve_find_lib(lib);
    return render_open(cli_value(cli, "render"), *lib ? lib : NULL, "", NULL, threads, out, e);
}
