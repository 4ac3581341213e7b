#include "runner/ingest/tokenise_screen.h"

#include <stdio.h>
#include <unistd.h>

#include "runner/base/clock.h"

struct tokenise_screen tokenise_screen(const struct cli *cli) {
    return (struct tokenise_screen){ cli, !cli->quiet && isatty(STDERR_FILENO), false,
                                     clock_ms() };
}

void tokenise_screen_close(struct tokenise_screen *s) {
    if (s->open) fputs("\r\033[K", stderr);
    s->open = false;
}

void tokenise_screen_progress(void *screen, double share, int64_t tokens) {
    struct tokenise_screen *s = screen;
    if (!s->terminal) return;
    double seconds = (double)(clock_ms() - s->begin_ms) / 1e3;
    double left = share > 0 ? seconds * (1 - share) / share : 0;
    fprintf(stderr, "\r\033[Ktokenising: %3.0f %%, %.1f million tokens, %.0f s left", 100 * share,
            (double)tokens / 1e6, left);
    s->open = true;
}

void tokenise_screen_warn(void *screen, const char *text) {
    struct tokenise_screen *s = screen;
    tokenise_screen_close(s);
    cli_warn(s->cli, "%s", text);
}
