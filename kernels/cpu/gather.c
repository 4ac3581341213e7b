/* Copies pieces of several tensors into one buffer: for a check on the host (kernels/recompute.h).
 * One thread, since the pieces are short. */
#include "kernels/cpu/cpu.h"

/* The elements of x at `to`, row-major. */
static void gather_one(char *to, const struct tensor *x) {
    size_t bytes = (size_t)dtype_bytes(x->dtype);
    const char *from = x->data;
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t j = 0; j < x->dim[1]; j++)
            for (int64_t k = 0; k < x->dim[2]; k++) {
                int64_t at = i * x->stride[0] + j * x->stride[1] + k * x->stride[2];
                for (int64_t l = 0; l < x->dim[3]; l++, to += bytes)
                    memcpy(to, from + (at + l * x->stride[3]) * (int64_t)bytes, bytes);
            }
}

enum status cpu_gather(struct backend *b, int lane, const struct tensor *out,
                       const struct tensor *x, int64_t n, struct err *e) {
    if (!out || !out->data || !cpu_is_packed(out))
        return FAIL(e, ERR_ARG, "gather: out is missing or not packed");
    if (n < 0) return FAIL(e, ERR_ARG, "gather: %lld pieces", (long long)n);
    int64_t room = tensor_count(out) * dtype_bytes(out->dtype), at = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t bytes = tensor_count(&x[i]) * dtype_bytes(x[i].dtype);
        if (!x[i].data) return FAIL(e, ERR_ARG, "gather: x[%lld] is missing", (long long)i);
        at = round_up(at, GATHER_ALIGN);
        if (at + bytes > room)
            return FAIL(e, ERR_ARG, "gather: out has %lld bytes; x[%lld] ends at %lld",
                        (long long)room, (long long)i, (long long)(at + bytes));
        gather_one((char *)out->data + at, &x[i]);
        at += bytes;
    }
    return OK;
}
