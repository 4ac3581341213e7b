/* Generated text on stdout. A model writes any bytes: on a terminal the unsafe ones become '?',
 * in a pipe all bytes are as they are. */
#ifndef FP8LAB_RUNNER_GENERATED_TEXT_H
#define FP8LAB_RUNNER_GENERATED_TEXT_H

#include "runner/base/cli.h"

/* A text that grows: prints what text[0..n-1] has beyond the last call, at once. */
struct generated_text { size_t shown; };
void generated_text_show(struct generated_text *g, const char *text, size_t n);
/* Ends it with a newline. */
void generated_text_end(void);

/* One of several texts, behind its prompt. */
void generated_text_of_many(const struct cli *cli, const char *prompt, const char *text, size_t n);

#endif
