/* What is known of a GPU without one: see kernels/device.h. tests/gpu/plan_peak.py compares the
 * memory with nvidia-smi. */
#include "kernels/device.h"

#include <stdio.h>
#include <string.h>

#include "kernels/cuda/attention_rule.h"
#include "kernels/cuda/byte_scales.h"
#include "kernels/cuda/native.h"

enum status device_capability(const char *architecture, int *cc, struct err *e) {
    static const int KNOWN[] = { 80, 89, 90, 100, 103, 120, 121 };
    char name[16];
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        snprintf(name, sizeof name, "sm_%d", KNOWN[i]);
        *cc = KNOWN[i];
        if (!strcmp(architecture, name)) return OK;
    }
    *cc = 0;
    return FAIL(e, ERR_UNSUPPORTED, "caps %s: sm_80, sm_89, sm_90, sm_100, sm_103, sm_120 or "
                "sm_121", architecture);
}

bool device_twins_untransposed(int cc, enum scale_kind kind) {
    return scale_is_mxfp8(kind) && device_multiplies_untransposed(cc);
}

const char *device_library_fault(int cc, enum scale_kind kind, int64_t library) {
    /* any shape that a sound version multiplies */
    const struct gemm_kind g = { .cc = cc, .library = library, .a = kind, .b = kind, .m = 128,
                                 .n = 128, .k = 128 };
    return gemm_refused_by_version(&g) ? gemm_refusal(&g) : NULL;
}

/* As may_have_plan() in attention_choice.cu and cudnn_fp8_may_serve(). */
bool device_asks_cudnn(int cc) { return cc == 90 || cc == 100; }

/* On sm_90 cuDNN is asked, and has no plan whose outputs are BF16 (CHOICES.md). */
bool device_may_ask_fp8_attention(int cc, const struct attention_size *a, bool masked) {
    return cc != 90 && cudnn_fp8_may_serve(cc, a, CUDNN_FP8_FORWARD, masked);
}

/* A CUDA context with the machine code of this program, cuBLASLt and cuDNN, streams, graphs, and
 * the rounding of allocations. Measured: NVIDIA H200, driver 580.159, CUDA 13.0, cuBLASLt 13.1,
 * cuDNN 9.19: 532 MiB once open, 28 to 36 MiB more after the warm-up of 8 to 32 layers. */
static const int64_t CONTEXT_BYTES = (int64_t)564 << 20;

/* A communicator of NCCL 2.28.9: buffers, machine code, and buffers for each peer. Measured per
 * rank over NVLink: 1,112 MiB with two H200, 2,138 MiB with four. */
static const int64_t NCCL_BYTES = (int64_t)600 << 20, NCCL_PEER_BYTES = (int64_t)512 << 20;

/* Bytes. Products that use a buffer in turn need the largest. */
struct need {
    int cc;
    int64_t factors[2];      /* scales in the library's layout */
    int64_t packed[2];       /* NVFP4's codes, two a byte */
    int64_t wide[2], result; /* emulated: operands in BF16, the product in f32 */
    int64_t trial[2];        /* timing: before, after attention's backward */
};

static void most(int64_t *x, int64_t y) {
    if (y > *x) *x = y;
}

/* One operand with `outer` rows. Scales of a tensor or a row need no copy. */
static int64_t factor_bytes(enum scale_kind kind, int64_t outer, int64_t k) {
    if (scale_is_byte(kind)) return 4 * swizzle_words(outer, ceil_div(k, scale_block(kind)));
    if (kind == SCALE_1X128) return 4 * round_up(outer, 4) * ceil_div(k, 128);
    if (kind == SCALE_128X128) return 4 * ceil_div(outer, 128) * round_up(ceil_div(k, 128), 4);
    return 0;
}

/* An operand in BF16, whose lines are padded to 16 bytes. */
static int64_t wide_bytes(int64_t outer, int64_t k, bool untransposed) {
    return 2 * (untransposed ? k * round_up(outer, 8) : outer * round_up(k, 8));
}

/* Algorithm candidates are timed on copies of the operands and the output. */
static void count(struct need *need, const struct device_gemm *p) {
    bool of_a = p->twin_a && device_twins_untransposed(need->cc, p->a);
    bool of_b = p->twin_b && device_twins_untransposed(need->cc, p->b);
    const struct gemm_kind kind = { need->cc, 0, p->a, p->b, p->m, p->n, p->k, of_a, of_b };
    enum gemm_by by = gemm_by_of(&kind);
    int64_t halves = p->fp8 ? 2 : 4, out = p->out_bytes; /* an operand's element, in half bytes */
    bool timed = !p->fp8 || by != GEMM_BY_SYNC; /* our kernel on mma.sync serves without a trial */
    if (p->fp8 && by == GEMM_BY_LIBRARY) {
        most(&need->factors[0], factor_bytes(p->a, p->m, p->k));
        most(&need->factors[1], factor_bytes(p->b, p->n, p->k));
        if (scale_is_nvfp4(p->a)) {
            halves = 1;
            most(&need->packed[0], p->m * p->k / 2);
            most(&need->packed[1], p->n * p->k / 2);
        }
    } else if (p->fp8 && by == GEMM_EMULATED) {
        halves = 4;
        most(&need->wide[0], wide_bytes(p->m, p->k, of_a));
        most(&need->wide[1], wide_bytes(p->n, p->k, of_b));
        if (scale_block(p->a) == 0 || scale_is_nvfp4(p->a)) {
            out = 4; /* factors are applied to the f32 product */
            most(&need->result, 4 * p->m * p->n);
        }
    }
    /* If a row is not a multiple of 16 bytes, our kernel adds the residual, from f32. */
    if (p->residual && p->n % 8) most(&need->result, 4 * p->m * p->n);
    int64_t operands = halves * (p->m * p->k + p->n * p->k) / 2;
    if (timed) most(&need->trial[p->late], operands + out * p->m * p->n);
}

static void add_item(struct device_item *item, int *items, const char *name, int64_t bytes) {
    if (bytes) item[(*items)++] = (struct device_item){ name, bytes };
}

int device_memory(int cc, const struct device_work *work,
                  struct device_item item[DEVICE_ITEMS_MAX]) {
    int n = 0, world = work->world;
    struct need need = { .cc = cc };
    for (int64_t i = 0; i < work->gemms; i++) count(&need, &work->gemm[i]);
    int64_t scores = work->attention_bf16 ? attention_scratch_bytes(cc, &work->attention) : 0;
    int64_t wide = work->attention_fp8 ? attention_wide_bytes(&work->attention) : 0;
    bool sums = scores > 0 && work->attention_sums;
    most(&scores, wide); /* one buffer */
    int64_t timing = need.trial[0] - (scores - wide);
    most(&timing, need.trial[1]);
    add_item(item, &n, "context, modules, graphs", CONTEXT_BYTES);
    add_item(item, &n, "GEMM workspace", GEMM_WORKSPACE_BYTES);
    add_item(item, &n, wide ? "attention, widened to BF16" : "attention's backward", scores);
    if (sums)
        add_item(item, &n, "sums of its columns", attention_partial_bytes(&work->attention));
    add_item(item, &n, "operands widened to BF16", need.wide[0] + need.wide[1] + need.result);
    int64_t packed = need.packed[0] + need.packed[1];
    add_item(item, &n, packed ? "scales and FP4 for cuBLASLt" : "scales for cuBLASLt",
             need.factors[0] + need.factors[1] + packed);
    add_item(item, &n, "tokens sorted", 32 * work->tokens);
    if (world > 1) {
        add_item(item, &n, "terms of a sum over ranks",
                 work->shard_codes
                     ? 2 * world * collective_codes_stride(work->shard, world)
                     : world * collective_stride(work->shard, world, work->shard_bytes));
        add_item(item, &n, "NCCL", NCCL_BYTES + (world - 1) * NCCL_PEER_BYTES);
    }
    add_item(item, &n, "timing GEMMs, before step 0", timing);
    return n;
}
