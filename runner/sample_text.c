#include "runner/sample_text.h"

#include <string.h>

#include "runner/base/plain_text.h"

static void change(struct sample_text *s, const char *to) {
    bool before = !strcmp(s->style, "green"), now = !strcmp(to, "green");
    if (!strcmp(s->style, to)) return;
    s->style = to;
    if (s->cli->color)
        cli_out(s->cli, "%s%s", cli_style(s->cli, NULL), *to ? cli_style(s->cli, to) : "");
    else if (before != now) cli_out(s->cli, "%s", now ? "{+" : "+}");
}

void sample_text_begin(struct sample_text *s, const struct cli *cli) {
    *s = (struct sample_text){ cli, "" };
    cli_out(cli, "  | ");
}

void sample_text_put(struct sample_text *s, const char *text, int64_t n, const char *style) {
    const struct cli *cli = s->cli;
    for (int64_t at = 0; at < n;) {
        uint32_t code;
        bool plain;
        int64_t length = (int64_t)plain_character(text + at, &code, &plain);
        change(s, style);
        if (plain) cli_out(cli, "%.*s", (int)length, text + at);
        else if (code == '\n') cli_out(cli, "%s\n  | %s", cli_style(cli, NULL),
                                       *style ? cli_style(cli, style) : "");
        else cli_out(cli, "%s", code == '\t' ? "    " : "?");
        at += length;
    }
}

void sample_text_end(struct sample_text *s) {
    change(s, "");
    cli_out(s->cli, "\n");
}

void sample_text_legend(const struct cli *cli, const char *dim) {
    if (!cli->color) {
        cli_out(cli, "{+...+}: text with loss\n");
        return;
    }
    cli_out(cli, "%sgreen%s: text with loss", cli_style(cli, "green"), cli_style(cli, NULL));
    if (dim) cli_out(cli, "; %sdim%s: %s", cli_style(cli, "dim"), cli_style(cli, NULL), dim);
    cli_out(cli, "\n");
}
