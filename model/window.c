#include "model/window.h"

#include <stdlib.h>

enum status window_upload(struct backend *b, const struct tensor *first_key, int64_t window,
                          struct err *e) {
    int64_t n = tensor_count(first_key), length = first_key->dim[1];
    int32_t *first = malloc((size_t)n * sizeof *first);
    if (!first) return FAIL(e, ERR_MEMORY, "no host memory for the first keys of a window");
    for (int64_t i = 0; i < n; i++) {
        int64_t key = i % length - window + 1;
        first[i] = (int32_t)(key > 0 ? key : 0);
    }
    enum status st = b->ops->upload(b, LANE_COMPUTE, first_key->data, first, 4 * n, e);
    free(first);
    return st;
}
