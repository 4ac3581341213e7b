/* What a user sees while text is tokenised: the share that is done and the time left. */
#ifndef FP8LAB_RUNNER_INGEST_TOKENISE_SCREEN_H
#define FP8LAB_RUNNER_INGEST_TOKENISE_SCREEN_H

#include "runner/base/cli.h"

struct tokenise_screen {
    const struct cli *cli;
    bool terminal, open; /* the cursor is at the end of a progress line */
    int64_t begin_ms;
};

struct tokenise_screen tokenise_screen(const struct cli *cli);
/* `progress` and `warn` of tokenise(), with the screen as their context. */
void tokenise_screen_progress(void *screen, double share, int64_t tokens);
void tokenise_screen_warn(void *screen, const char *text);
/* Removes the line. */
void tokenise_screen_close(struct tokenise_screen *s);

#endif
