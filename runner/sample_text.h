/* Text of a user's file on a terminal, with the part that carries loss marked. */
#ifndef FP8LAB_RUNNER_SAMPLE_TEXT_H
#define FP8LAB_RUNNER_SAMPLE_TEXT_H

#include "runner/base/cli.h"

struct sample_text {
    const struct cli *cli;
    const char *style; /* of the last byte: "green" carries loss, "dim", or "" */
};

/* Every line of the text begins with "  | ", and unsafe characters become '?': text of a file can
 * neither control the terminal nor look like a line of ours. Without colours, loss stands between
 * {+ and +}. */
void sample_text_begin(struct sample_text *s, const struct cli *cli);
/* text[0..n-1] is part of a text that ends with a NUL. `style` is a literal. */
void sample_text_put(struct sample_text *s, const char *text, int64_t n, const char *style);
void sample_text_end(struct sample_text *s);

/* The last line of all: what the colours or marks mean. `dim` is what dim text is, or NULL. */
void sample_text_legend(const struct cli *cli, const char *dim);

#endif
