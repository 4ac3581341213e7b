/* The flags about conversations that `data tokenise --chat` and `data sample` have in common. */
#ifndef FP8LAB_RUNNER_DATA_CHAT_H
#define FP8LAB_RUNNER_DATA_CHAT_H

#include "runner/base/cli.h"
#include "runner/chat/loss.h"

/* The template that --template and --tokenizer-config name, with --date and each --variable, and
 * the turns of --loss. `config` is the tokenizer_config.json without that flag, or NULL. The caller
 * frees the template, after an error too. */
NODISCARD enum status data_chat_template(const struct cli *cli, const char *config,
                                         struct chat_template *t, enum chat_loss *which,
                                         struct err *e);

#endif
