/* Whether the files of text and chats are text, by their first bytes. A model would learn the bytes
 * of any other file, and no error would follow. */
#ifndef FP8LAB_RUNNER_RECORD_TEXT_LOOK_H
#define FP8LAB_RUNNER_RECORD_TEXT_LOOK_H

#include "runner/ingest/text_head.h"

struct json_t;

/* Looks at the files that the configuration names, paths relative to `root` (NULL: to the working
 * directory). A file that cannot be read is left to those who read all of it. ERR_CONFIG: a file is
 * a folder, of another format (ingest/source_kind.h), or no text and read by a tokenizer other than
 * "bytes" (ingest/text_head.h). With a tokenizer the formats that ingestion unpacks pass.
 * `warning`: a line about files of `text` whose bytes are read though they may be no text; "". */
NODISCARD enum status text_look(const struct json_t *config, const char *root,
                                char warning[TEXT_HEAD_CAP], struct err *e);

#endif
