/* What a run trained, and on what, in a line each: for `show`. */
#ifndef FP8LAB_RUNNER_SHOW_WORDS_H
#define FP8LAB_RUNNER_SHOW_WORDS_H

#include "runner/bundle/run_view.h"

enum { SHOW_WORDS_CAP = 400 };

/* "2 layers, width 64, 4 heads (2 of keys), ffn 128, vocab 704, sequences of 128"; "" without a
 * configuration. */
void show_words_model(const struct run_view *v, char out[SHOW_WORDS_CAP]);

/* "text, a.txt and 5 more", "tokens, corpus", "synthetic"; "" without a configuration. Names of
 * files may be foreign. */
void show_words_data(const struct run_view *v, char out[SHOW_WORDS_CAP]);

#endif
