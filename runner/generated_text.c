#include "runner/generated_text.h"

#include <stdio.h>
#include <unistd.h>

#include "runner/base/plain_text.h"

/* text[n] may be read: a text ends with a NUL. */
static void put(const char *text, size_t n) {
    if (!isatty(STDOUT_FILENO)) {
        (void)fwrite(text, 1, n, stdout); /* main() reports a full disk */
        return;
    }
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t code = 0;
        bool plain = false;
        length = text[at] ? plain_character(text + at, &code, &plain) : 1;
        if (plain || code == '\n' || code == '\t') (void)fwrite(text + at, 1, length, stdout);
        else (void)fputc('?', stdout);
    }
}

void generated_text_show(struct generated_text *g, const char *text, size_t n) {
    if (n <= g->shown) return;
    put(text + g->shown, n - g->shown);
    g->shown = n;
    (void)fflush(stdout);
}

void generated_text_end(void) { (void)fputc('\n', stdout); }

void generated_text_of_many(const struct cli *cli, const char *prompt, const char *text, size_t n) {
    cli_out(cli, "%s> %s%s\n", cli_style(cli, "bold"), PLAIN(prompt), cli_style(cli, NULL));
    put(text, n);
    cli_out(cli, "\n\n");
}
