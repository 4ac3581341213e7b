#include "runner/weights/state_source.h"

#include <inttypes.h>

/* WEIGHT_F16 and WEIGHT_OTHER are in no checkpoint. */
static enum dtype type_of(const struct tensor_entry *x) {
    switch (x->type) {
    case WEIGHT_F32: return DTYPE_F32;
    case WEIGHT_BF16: return DTYPE_BF16;
    case WEIGHT_E4M3: return DTYPE_E4M3;
    case WEIGHT_F16:
    case WEIGHT_OTHER: break;
    }
    return DTYPE_COUNT;
}

static enum status find(void *user, const char *name, int64_t count, enum dtype *type,
                        struct err *e) {
    const struct tensor_entry *x = tensor_find(user, name);
    char found[96];
    *type = x ? type_of(x) : DTYPE_COUNT;
    if (!x) return OK;
    if (*type != DTYPE_COUNT && x->bytes == count * dtype_bytes(*type)) return OK;
    tensor_text(x, found);
    return FAIL(e, ERR_CONFIG, "the state's %s is %s; expected %" PRId64 " elements of F32, BF16 "
                "or F8_E4M3", name, found, count);
}

static enum status read_some(void *user, const char *name, int64_t first, int64_t count,
                             float *out, struct err *e) {
    const struct tensor_files *state = user;
    return tensor_read(state, tensor_find(state, name), first, count, out, e);
}

struct state_source state_source_of(struct tensor_files *state) {
    return (struct state_source){ .find = find, .read = read_some, .user = state };
}
