/* What `fp8lab run` checks before the first row starts: the machine matches the script, the rows
 * fit its memory, and their data are there. */
#ifndef FP8LAB_RUNNER_RUN_PREFLIGHT_H
#define FP8LAB_RUNNER_RUN_PREFLIGHT_H

#include "runner/repro/extend.h"
#include "runner/run/suite.h"

/* Adds to `facts` what only a process that opened the device knows; a child process asks. Does
 * nothing for the cpu backend. */
NODISCARD enum status preflight_probe(const struct run_settings *s, json_t *facts, struct err *e);

/* Matches each row's hardware query. Then compares the memory that each row needs with that of the
 * machine. Fills mismatch and too_big of the rows. *fits is false if a row does not fit and
 * --anywhere is not given. Tells the user why. */
NODISCARD enum status preflight_machine(struct suite *s, bool *fits, struct err *e);

/* Reports that no row runs on this machine; under --json as fp8lab.run_refused/1. Returns the exit
 * code. */
int preflight_refuse(const struct suite *s);

/* Looks at the first bytes of each row's text. ERR_CONFIG: a file is of another format. Warns of a
 * file that may be no text, and of initial weights that have another tokenizer. `extension` is NULL
 * without --extend. */
NODISCARD enum status preflight_text(const struct suite *s, const struct extension *extension,
                                     struct err *e);

/* Looks at the names and shapes of each row's initial weights: text may take minutes
 * to tokenise. */
NODISCARD enum status preflight_weights(const struct suite *s, struct err *e);

/* Makes or finds the tokens of each row whose text has a tokenizer, and hashes them as inputs do.
 * A row whose length is in epochs gets its steps. `resolution` is the suite's; `extension` is NULL
 * without --extend. */
NODISCARD enum status preflight_tokens(struct suite *s, struct resolution *resolution,
                                       const struct extension *extension, struct err *e);

/* Reads and hashes the inputs of each row. `extension` is NULL without --extend. */
NODISCARD enum status preflight_inputs(struct suite *s, const struct extension *extension,
                                       struct err *e);

/* Tells the user that a smoke run's numbers mean nothing, which checkpoints the rows keep, and
 * where an extended run begins. ERR_IO if the disk has no room for the checkpoints. */
NODISCARD enum status preflight_say(const struct suite *s, const struct extension *extension,
                                    struct err *e);

#endif
