/* Facts of the CUDA backend that need no device: which architectures it serves, and how much memory
 * it allocates beside the arenas of a plan. kernels/cuda/device.c implements this header. The
 * program and the plugin both link it. */
#ifndef FP8LAB_KERNELS_DEVICE_H
#define FP8LAB_KERNELS_DEVICE_H

#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The compute capability of an architecture that --caps accepts: "sm_121" gives 121. For others
 * *cc is 0 and ERR_UNSUPPORTED lists the architectures. */
NODISCARD enum status device_capability(const char *architecture, int *cc, struct err *e);

/* Whether a device of this capability multiplies twins with such scales untransposed: the slot
 * twins_untransposed of its backend. */
bool device_twins_untransposed(int cc, enum scale_kind kind);

/* Why this version of cuBLASLt does not multiply operands with such scales natively, where other
 * versions do on this device: short, static. NULL: the version is not the reason. library: 130400
 * for 13.4.0; 0: a sound version. */
const char *device_library_fault(int cc, enum scale_kind kind, int64_t library);

/* Whether the backend asks cuDNN for an attention on a device of this capability. */
bool device_asks_cudnn(int cc);

/* ---- memory, from sizes alone ---- */

/* One GEMM of a step: out [m,n] = a [m,k] b [n,k]^T. */
struct device_gemm {
    int64_t m, n, k, out_bytes; /* out_bytes: of one element of out */
    bool fp8;
    enum scale_kind a, b;       /* of FP8 operands */
    bool twin_a, twin_b;        /* which of them are twins */
    bool residual;              /* a residual is added to the product */
    bool late; /* first called after attention's backward, whose scratch then exists */
};

struct attention_size { int64_t batch, length, heads, kv_heads, head_dim; };

/* Whether cuDNN may serve FP8 attention of this shape. Whether it does depends on its plans, which
 * are known on the device alone. masked: by documents or a window. */
bool device_may_ask_fp8_attention(int cc, const struct attention_size *a, bool masked);

/* What a rank computes in a step. */
struct device_work {
    const struct device_gemm *gemm; /* borrowed */
    int64_t gemms;
    struct attention_size attention;
    int64_t attention_fp8, attention_bf16; /* layers with FP8 attention, and with BF16 */
    bool attention_sums; /* attention's backward adds the column sums of d_qkv to a bias */
    int64_t tokens;      /* of a micro-batch */
    int world;           /* ranks */
    int64_t shard, shard_bytes; /* the largest shard that a rank reduces: elements, bytes of each */
    bool shard_codes; /* the ranks' terms of it are 8-bit codes (comm_codes.h) */
};

struct device_item { const char *name; int64_t bytes; };
enum { DEVICE_ITEMS_MAX = 10 };

/* Fills item [DEVICE_ITEMS_MAX] with the memory of a device, as nvidia-smi reports it at the peak.
 * The items are context, scratch, and the buffers that exist while algorithms are timed before step
 * 0 (less with a choice table). `cc` is the compute capability: 90 for 9.0. Returns the number of
 * items. Names are static storage; no item has 0 bytes. */
int device_memory(int cc, const struct device_work *work,
                  struct device_item item[DEVICE_ITEMS_MAX]);

#ifdef __cplusplus
}
#endif
#endif
