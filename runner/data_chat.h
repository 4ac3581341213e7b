/* The flags about conversations that `data tokenise --chat` and `data sample` have in common.
 * --render FILE.lua names a script that returns a function: it renders in place of a template. */
#ifndef FP8LAB_RUNNER_DATA_CHAT_H
#define FP8LAB_RUNNER_DATA_CHAT_H

#include "runner/base/cli.h"
#include "runner/chat/renderer.h"

/* The template that --template and --tokenizer-config name, or what lies beside --tokenizer; with
 * --date and each --variable, and the turns of --loss. The caller frees the template, after an
 * error too. */
NODISCARD enum status data_chat_template(const struct cli *cli, struct chat_template *t,
                                         enum chat_loss *which, struct err *e);

/* The function of --render, for so many threads. ERR_ARG for a flag that it replaces. */
NODISCARD enum status data_chat_render(const struct cli *cli, int threads,
                                       struct chat_renderer *out, struct err *e);

#endif
