/* cuDNN's FP8 attention as a device has it, beside the operators: how many plans the library lists,
 * and one call of a plan whose outputs are codes, deterministic or not. No operator has such
 * outputs, but sm_90 has no others. So the graphs of kernels/cuda/cudnn_graph.cu are compared with
 * the reference there too. Host memory in and out; every call waits. */
#ifndef FP8LAB_TESTS_GPU_CUDNN_CODES_H
#define FP8LAB_TESTS_GPU_CUDNN_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CODES_TEXT = 256, CODES_ROUNDS = 3 };

struct codes_shape {
    int64_t batch, length;
    int heads, kv_heads, dim;
    bool backward, gradient_e5m2, o_codes;
};

struct codes_call {
    struct codes_shape shape;
    const uint8_t *qkv;   /* [B*T, (H+2G)*D] E4M3 */
    const uint8_t *d_o;   /* [B*T, H*D] */
    const void *o;        /* the same: E4M3 codes, or BF16 */
    float factor, d_o_factor, o_factor, p_multiplier, ds_multiplier;
    float multiplier[3];  /* of the output, or of d_q, d_k, d_v */
    float *lse;           /* [B,H,T]; written by the forward */
    uint8_t *out;         /* o, or d_qkv: what is computed times its multiplier, as codes */
    float amax;           /* found: of P, or of dS */
    bool repeats;         /* found: CODES_ROUNDS calls gave the same bits */
    int engine;           /* found: of the plan */
};

struct codes_library *codes_open(void); /* NULL: without a GPU or cuDNN */
void codes_close(struct codes_library *l);
int64_t codes_version(struct codes_library *l);
int codes_capability(const struct codes_library *l); /* 90 for 9.0 */

/* How many plans the library lists, and how many have no note of another order. text: what it says
 * of a graph without plans. */
void codes_count(struct codes_library *l, const struct codes_shape *s, bool codes_out,
                 int *listed, int *deterministic, char text[CODES_TEXT]);
/* False, with text, if there is no plan or it fails. */
bool codes_run(struct codes_library *l, struct codes_call *c, char text[CODES_TEXT]);

#ifdef __cplusplus
}
#endif
#endif
