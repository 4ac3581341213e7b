/* Whether a text ends in a loop. The likeliest token each time often leads into one. */
#ifndef FP8LAB_RUNNER_GENERATE_TEXT_LOOP_H
#define FP8LAB_RUNNER_GENERATE_TEXT_LOOP_H

#include "runner/generate/generator.h"

struct text_loop {
    int64_t tokens; /* that come again and again; 0: the text ends in no loop */
    int64_t times;  /* whole ones, at least 3 */
};

/* The shortest loop of the new tokens at the end of x, of at least 24 tokens in all. None if x has
 * come to an end of its own. */
struct text_loop text_loop_find(const struct generation *x);

#endif
