/* A verb that takes a script: its flags --set, --only, --smoke, --lib resolved,
 * its errors printed. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCRIPT_FLAGS_H
#define FP8LAB_RUNNER_SCRIPT_SCRIPT_FLAGS_H

#include "runner/base/cli.h"
#include "runner/script/resolve.h"

/* Resolves cli->args[0], its errors left in *out (resolve.h), which is valid for
 * resolution_destroy() in any case. */
NODISCARD enum status script_read(const struct cli *cli, struct resolution *out, struct err *e);

/* The same, as if hardware.gpus were `gpus` (a number; NULL: as it stands), and where the script is
 * at fault every error is printed and `e` counts them. */
NODISCARD enum status script_resolve(const struct cli *cli, const char *gpus,
                                     struct resolution *out, struct err *e);

/* The next useful command after a script was looked at: to run it with the same flags, or, where
 * `rehearse` says that this is not the machine for it, to rehearse it here. */
void script_next(const struct cli *cli, const char *verb, bool rehearse);

#endif
