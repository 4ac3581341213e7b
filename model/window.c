#include "model/window.h"

#include <stdlib.h>

void window_first_keys(int32_t *out, const int32_t *starts, int64_t rows, int64_t length,
                       int64_t window) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t key = window > 0 ? i % length - window + 1 : 0, start = starts ? starts[i] : 0;
        out[i] = (int32_t)(key > start ? key : start);
    }
}

void window_positions(int32_t *out, const int32_t *starts, int64_t rows, int64_t length) {
    for (int64_t i = 0; i < rows; i++) out[i] = (int32_t)(i % length) - starts[i];
}

enum status window_upload(struct backend *b, const struct tensor *first_key, int64_t window,
                          struct err *e) {
    int64_t n = tensor_count(first_key), length = first_key->dim[1];
    int32_t *first = malloc((size_t)n * sizeof *first);
    if (!first) return FAIL(e, ERR_MEMORY, "no host memory for the first keys of a window");
    window_first_keys(first, NULL, n, length, window);
    enum status st = b->ops->upload(b, LANE_COMPUTE, first_key->data, first, 4 * n, e);
    free(first);
    return st;
}
