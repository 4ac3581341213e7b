/* The disk that the tokens of an experiment's text will take. */
#ifndef FP8LAB_RUNNER_CACHE_CACHE_ROOM_H
#define FP8LAB_RUNNER_CACHE_CACHE_ROOM_H

#include <jansson.h>

#include "kernels/base.h"

/* About the most bytes that a run of the configuration adds to the folder of tokens; 0: the tokens
 * seem to be there, or need not or cannot be made. `root`: prefix of the paths, or NULL. Reads the
 * tokenizer, and no text: tokens are there if their description has the tokenizer and the sizes of
 * the files. A token has at least a byte of text, so the bound is that of the worst text. That of
 * packed text is a guess. */
int64_t cache_room(const json_t *config, const char *root, const char *folder);

#endif
