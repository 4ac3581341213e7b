/* Choice tables that force an algorithm: `place N : -` takes the Nth algorithm of each class, the
 * last one if there are fewer, instead of the fastest. */
#ifndef FP8LAB_TESTS_GPU_PLACE_H
#define FP8LAB_TESTS_GPU_PLACE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"

enum { PLACE_HEAD_CAP = 512, PLACE_TABLE_CAP = 640 };

/* The head of a table, which names device and libraries: b makes a first small product for it, and
 * can load no table after that. */
static inline enum status place_head(struct backend *b, char out[PLACE_HEAD_CAP], struct err *e) {
    char *whole;
    void *memory;
    TRY(b->ops->memory_create(b, "a product", 1 << 16, &memory, e));
    struct tensor x = tensor_2d(memory, DTYPE_BF16, 64, 64), y = x;
    y.data = (char *)memory + (1 << 15);
    TRY(b->ops->matmul(b, LANE_COMPUTE, &(struct matmul_args){ .out = &y, .a = &x, .b = &x }, e));
    TRY(b->ops->choices_save(b, &whole, e));
    b->ops->memory_destroy(b, memory);
    char *line = strstr(whole, "\n#");
    enum status st = OK;
    if (line && line - whole < PLACE_HEAD_CAP)
        snprintf(out, PLACE_HEAD_CAP, "%.*s", (int)(line - whole), whole);
    else st = FAIL(e, ERR_STATE, "the choice table has another head: %s", whole);
    free(whole);
    return st;
}

static inline enum status place_load(struct backend *b, const char *head, int place,
                                     struct err *e) {
    char table[PLACE_TABLE_CAP];
    snprintf(table, sizeof table, "%s\nplace %d : -\n", head, place);
    return b->ops->choices_load(b, table, e);
}

#endif
