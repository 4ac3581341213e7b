/* Whether the files of text and chats are text, by their first bytes. A model would learn the bytes
 * of any other file, and no error would follow. */
#ifndef FP8LAB_RUNNER_RECORD_TEXT_LOOK_H
#define FP8LAB_RUNNER_RECORD_TEXT_LOOK_H

#include "kernels/base.h"

struct json_t;

enum { TEXT_LOOK_HEAD = 1 << 16, TEXT_LOOK_CAP = 512 };

/* Looks at the files that the configuration names, paths relative to `root` (NULL: to the working
 * directory). A file that cannot be read is left to those who read all of it. ERR_CONFIG: a file is
 * of another format (ingest/source_kind.h); with a tokenizer, of one that ingestion does not
 * unpack. `warning`: a line about files of `text` with bytes of zero, or "". */
NODISCARD enum status text_look(const struct json_t *config, const char *root,
                                char warning[TEXT_LOOK_CAP], struct err *e);

#endif
