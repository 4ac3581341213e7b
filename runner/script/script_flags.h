/* For verbs that take a script: resolves it with --set, --only, --smoke and --lib, prints its
 * errors. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCRIPT_FLAGS_H
#define FP8LAB_RUNNER_SCRIPT_SCRIPT_FLAGS_H

#include "runner/base/cli.h"
#include "runner/script/resolve.h"

/* Lines of a verb's help. */
#define SCRIPT_SET_FORMS \
    "--set KEY=A,B is a list. If an item has a comma, write JSON: --set 'KEY=[\"A,B\",\"C\"]'.\n" \
    "--set matrix.KEY=1,2 gives the values of a suite's axis; those that are lists are JSON:\n" \
    "--set 'matrix.KEY=[[\"A,B\"],[\"C\"]]'.\n"

/* Resolves cli->args[0]. The script's errors are in *out (resolve.h), which is always valid for
 * resolution_destroy(). */
NODISCARD enum status script_read(const struct cli *cli, struct resolution *out, struct err *e);

/* The same, with hardware.gpus replaced by `gpus` (a number; NULL: not replaced). Every error of
 * the script is printed, and `e` has their number: call script_fail(). */
NODISCARD enum status script_resolve(const struct cli *cli, const char *gpus,
                                     struct resolution *out, struct err *e);

/* Prints every error of the script on stderr. */
void script_say_errors(const struct cli *cli, const struct resolution *r);

/* cli_fail() for a verb that resolves a script: with --json every verb lists the script's errors in
 * the object of `check`. Returns the exit code. */
int script_fail(const struct cli *cli, const struct resolution *r, const struct err *e);

/* Notes, once, keys of the runs that do nothing (plan/idle_key.h). */
void script_note_idle_keys(const struct cli *cli, const struct resolution *r);

/* Suggests the next command after a script was checked: to run it with the same flags. If this
 * machine does not fit it, `smoke_here` is set: then to run it here with --smoke. */
void script_next(const struct cli *cli, const char *verb, bool smoke_here);

#endif
