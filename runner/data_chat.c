#include "runner/data_chat.h"

#include <string.h>

#include "runner/base/paths.h"
#include "runner/script/render.h"
#include "runner/script/resolve.h"

/* Writes the path of `name` in a folder, "" if it is not there. */
static enum status find(char out[PATH_CAP], const char *folder, const char *name, struct err *e) {
    TRY(path_join(out, folder, name, e));
    if (!path_exists(out)) *out = 0;
    return OK;
}

/* What lies beside the tokenizer, as for data = chats {...}; "" if it is not there. Beside a named
 * template that is only what a tokenizer's folder tells of special tokens. */
static enum status find_beside(const struct cli *cli, char config[PATH_CAP], char jinja[PATH_CAP],
                               struct err *e) {
    const char *tokenizer = cli_value(cli, "tokenizer");
    char folder[PATH_CAP];
    *config = *jinja = 0;
    if (!tokenizer || !strcmp(tokenizer, "bytes")) return OK;
    bool is_folder = path_is_directory(tokenizer), named = cli_has(cli, "template");
    path_parent(folder, tokenizer);
    if (is_folder || !named)
        TRY(find(config, is_folder ? tokenizer : folder, "tokenizer_config.json", e));
    if (!named) TRY(find(jinja, is_folder ? tokenizer : folder, "chat_template.jinja", e));
    return OK;
}

static enum status load(const struct cli *cli, struct chat_template *t, struct err *e) {
    const char *template = cli_value(cli, "template"), *config = cli_value(cli, "tokenizer-config");
    char config_beside[PATH_CAP], jinja[PATH_CAP];
    if (config) return chat_template_load(t, template, config, e);
    TRY(find_beside(cli, config_beside, jinja, e));
    if (!template && *jinja) template = jinja;
    return chat_template_load(t, template, *config_beside ? config_beside : NULL, e);
}

enum status data_chat_template(const struct cli *cli, struct chat_template *t,
                               enum chat_loss *which, struct err *e) {
    const char *loss = cli_value(cli, "loss"), *date = cli_value(cli, "date");
    if (loss && strcmp(loss, "all") != 0 && strcmp(loss, "last") != 0)
        return FAIL(e, ERR_ARG, "--loss: expected all or last, found '%s'", loss);
    *which = loss && !strcmp(loss, "last") ? CHAT_LOSS_LAST : CHAT_LOSS_ALL;
    TRY(load(cli, t, e));
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
