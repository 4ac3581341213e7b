/* What each query of a trial of attention sees: private to kernels/certify. */
#ifndef FP8LAB_KERNELS_CERTIFY_ATTENTION_MASK_H
#define FP8LAB_KERNELS_CERTIFY_ATTENTION_MASK_H

#include "kernels/certify/certificate.h"

/* The mistakes that outputs are compared with. MASK_RIGHT: none. */
enum mask_mistake { MASK_RIGHT, MASK_NO_WINDOW, MASK_NO_DOCUMENTS, MASK_NEITHER, MASK_MISTAKES };

struct attention_mask {
    int64_t batch, length;
    int64_t window;  /* keys that a query sees, its own too; 0: no window */
    int32_t *start;  /* [batch * length], owned: the first token of its document; NULL: none */
};

/* Documents of one token, some that end at the edge of a tile, and long ones, which differ between
 * sequences. The mask is freed by attention_mask_free in any case. */
NODISCARD enum status attention_mask_open(struct attention_mask *m, int64_t batch, int64_t length,
                                          int64_t window, bool documents, struct err *e);
void attention_mask_free(struct attention_mask *m);

static inline bool attention_mask_any(const struct attention_mask *m) {
    return m->window > 0 || m->start;
}
/* The first key that a query sees, or would see under a mistake. */
int64_t attention_mask_low(const struct attention_mask *m, enum mask_mistake mistake,
                           int64_t sequence, int64_t token);
/* Behind the last query that sees a key. */
int64_t attention_mask_end(const struct attention_mask *m, enum mask_mistake mistake,
                           int64_t sequence, int64_t key);
/* first_key of a whole batch, uploaded to data [batch * length] i32. */
NODISCARD enum status attention_mask_upload(const struct attention_mask *m, struct backend *b,
                                            void *data, struct err *e);

/* Whether a mask can have this mistake, the mistake in a certificate's words, and in a sentence. */
bool attention_mask_can(const struct attention_mask *m, enum mask_mistake mistake);
const char *attention_mask_fault(enum mask_mistake mistake);
void attention_mask_sentence(const struct attention_mask *m, enum mask_mistake mistake,
                             char out[96]);

#endif
