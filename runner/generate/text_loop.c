#include "runner/generate/text_loop.h"

/* Fewer tokens may be a rule of dashes or the spaces before a line of code. */
enum { TIMES_MIN = 3, TOKENS_MIN = 24 };

struct text_loop text_loop_find(const struct generation *x) {
    int64_t n = x->count - x->prompt;
    if (n < TOKENS_MIN || x->end == GENERATION_STOP) return (struct text_loop){ 0 };
    for (int64_t period = 1; period <= n / TIMES_MIN; period++) {
        const int32_t *last = x->ids + x->count - 1;
        int64_t same = 0; /* tokens at the end that are those of one period before */
        while (same < n - period && last[-same] == last[-same - period]) same++;
        int64_t all = same + period;
        if (all >= TOKENS_MIN && all >= TIMES_MIN * period)
            return (struct text_loop){ period, all / period };
    }
    return (struct text_loop){ 0 };
}
