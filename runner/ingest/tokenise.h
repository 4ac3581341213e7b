/* Files of text into token shards: one thread reads and writes, the others encode. The shards are
 * the same bytes for any number of threads; memory does not grow with the text. */
#ifndef FP8LAB_RUNNER_INGEST_TOKENISE_H
#define FP8LAB_RUNNER_INGEST_TOKENISE_H

#include "runner/ingest/tokenise_options.h"

/* Goes on where a run with the same work was killed, or failed for want of memory or disk; says so
 * by `warn`. The files are the same bytes as without that.
 * ERR_FORMAT with file and line for damage and for a bad JSON line; ERR_CONFIG for a file that
 * cannot be opened, for no document at all, and where PREFIX exists; ERR_IO for the output. */
NODISCARD enum status tokenise(const struct tokenise_options *o, struct tokenise_result *out,
                               struct err *e);

#endif
