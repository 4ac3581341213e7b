#include "kernels/certify/attention_mask.h"

#include <stdio.h>
#include <stdlib.h>

/* Kernels have tiles of 64 and 128 keys. */
enum { TILE = 64, BORDERS = 7 };

static void fill_starts(int32_t *start, int64_t length, int64_t sequence) {
    const int64_t borders[BORDERS] = { 1, TILE, TILE + 1, 2 * TILE, 4 * TILE,
                                       length / 2 - 7 * (sequence % 8),
                                       length - length / 4 - sequence % 5 };
    memset(start, 0, (size_t)length * sizeof *start);
    for (int i = 0; i < BORDERS; i++)
        if (borders[i] > 0 && borders[i] < length) start[borders[i]] = (int32_t)borders[i];
    for (int64_t t = 1; t < length; t++)
        if (!start[t]) start[t] = start[t - 1];
}

enum status attention_mask_open(struct attention_mask *m, int64_t batch, int64_t length,
                                int64_t window, bool documents, struct err *e) {
    *m = (struct attention_mask){ .batch = batch, .length = length, .window = window };
    if (!documents) return OK;
    m->start = malloc((size_t)(batch * length) * sizeof *m->start);
    if (!m->start) return FAIL(e, ERR_MEMORY, "no memory for the certificate of attention");
    for (int64_t s = 0; s < batch; s++) fill_starts(m->start + s * length, length, s);
    return OK;
}

void attention_mask_free(struct attention_mask *m) {
    free(m->start);
    m->start = NULL;
}

int64_t attention_mask_low(const struct attention_mask *m, enum mask_mistake mistake,
                           int64_t sequence, int64_t token) {
    bool window = m->window > 0 && mistake != MASK_NO_WINDOW && mistake != MASK_NEITHER;
    bool documents = m->start && mistake != MASK_NO_DOCUMENTS && mistake != MASK_NEITHER;
    int64_t low = window && token >= m->window ? token - m->window + 1 : 0;
    int64_t start = documents ? m->start[sequence * m->length + token] : 0;
    return low > start ? low : start;
}

int64_t attention_mask_end(const struct attention_mask *m, enum mask_mistake mistake,
                           int64_t sequence, int64_t key) {
    int64_t end = key + 1;
    while (end < m->length && attention_mask_low(m, mistake, sequence, end) <= key) end++;
    return end;
}

enum status attention_mask_upload(const struct attention_mask *m, struct backend *b, void *data,
                                  struct err *e) {
    int64_t tokens = m->batch * m->length;
    int32_t *first = malloc((size_t)tokens * sizeof *first);
    if (!first) return FAIL(e, ERR_MEMORY, "no memory for the certificate of attention");
    for (int64_t i = 0; i < tokens; i++)
        first[i] = (int32_t)attention_mask_low(m, MASK_RIGHT, i / m->length, i % m->length);
    enum status st = b->ops->upload(b, LANE_COMPUTE, data, first, 4 * tokens, e);
    free(first);
    return st;
}

/* ---- words ---- */

bool attention_mask_can(const struct attention_mask *m, enum mask_mistake mistake) {
    switch (mistake) {
    case MASK_NO_WINDOW: return m->window > 0;
    case MASK_NO_DOCUMENTS: return m->start != NULL;
    case MASK_NEITHER: return m->window > 0 && m->start;
    default: return false;
    }
}

const char *attention_mask_fault(enum mask_mistake mistake) {
    static const char *const FAULTS[MASK_MISTAKES] = { "", "ignored window", "ignored documents",
                                                       "ignored first key" };
    return FAULTS[mistake];
}

void attention_mask_sentence(const struct attention_mask *m, enum mask_mistake mistake,
                             char out[96]) {
    char window[32] = "";
    if (m->window > 0) snprintf(window, sizeof window, "a window of %lld", (long long)m->window);
    snprintf(out, 96, "this is right without %s%s%s",
             mistake == MASK_NO_DOCUMENTS ? "" : window, mistake == MASK_NEITHER ? " and " : "",
             mistake == MASK_NO_WINDOW ? "" : "documents");
}
