#include "tests/gpu/cudnn_codes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention_cudnn.cuh"

/* A backend of which cuDNN alone is used. */
struct codes_library { struct cuda_backend b; };

struct codes_library *codes_open(void) {
    struct codes_library *l = (struct codes_library *)calloc(1, sizeof *l);
    cudaDeviceProp prop;
    if (l && cudaGetDeviceProperties(&prop, 0) == cudaSuccess) {
        l->b.cc = l->b.caps = prop.major * 10 + prop.minor;
        if (cudnn_version(&l->b)) return l;
    }
    if (l) codes_close(l);
    return NULL;
}

void codes_close(struct codes_library *l) {
    cudnn_close(&l->b);
    free(l);
}

int64_t codes_version(struct codes_library *l) { return cudnn_version(&l->b); }
int codes_capability(const struct codes_library *l) { return l->b.cc; }

static struct cudnn_spec spec_of(const struct codes_shape *s, bool codes_out) {
    struct cudnn_spec spec = {};
    spec.pass = s->backward ? CUDNN_FP8_BACKWARD : CUDNN_FP8_FORWARD;
    spec.gradient_e5m2 = s->gradient_e5m2;
    spec.o_codes = s->o_codes;
    spec.codes_out = spec.any_order = codes_out;
    return spec;
}

static struct attention attention_of(const struct codes_shape *s) {
    struct attention a = {};
    a.batch = s->batch;
    a.length = s->length;
    a.heads = s->heads;
    a.kv_heads = s->kv_heads;
    a.head_dim = s->dim;
    a.width = (int64_t)(s->heads + 2 * s->kv_heads) * s->dim;
    a.scale = 1.0f / sqrtf((float)s->dim);
    return a;
}

void codes_count(struct codes_library *l, const struct codes_shape *s, bool codes_out,
                 int *listed, int *deterministic, char text[CODES_TEXT]) {
    static const struct cudnn_plan_name NO_PLAN = { -1, -1 }; /* so that each is looked at */
    struct cudnn_spec spec = spec_of(s, codes_out);
    struct attention a = attention_of(s);
    struct cudnn_found found;
    struct cudnn_plan *p = cudnn_plan_create(&l->b, &a, &spec, &NO_PLAN, &found);
    text[0] = 0;
    if (!found.listed) cudnn_last_error(&l->b, text, CODES_TEXT);
    cudnn_plan_destroy(&l->b, p);
    *listed = found.listed;
    *deterministic = found.deterministic;
}

/* ---- a call ---- */

/* Device memory of one call. */
enum { M_QKV, M_D_O, M_O, M_LSE, M_OUT, M_SCALARS, M_FACTORS, M_WORKSPACE, MEMORIES };
enum { F_QKV, F_D_O, F_O, F_P, F_DS, F_P_MULTIPLIER, F_DS_MULTIPLIER, FACTORS };
struct memory { void *at[MEMORIES]; int64_t bytes[MEMORIES]; };

static cudaError_t put(struct memory *m, int which, const void *from) {
    if (!from) return cudaSuccess;
    return cudaMemcpy(m->at[which], from, (size_t)m->bytes[which], cudaMemcpyHostToDevice);
}

static cudaError_t allocate(struct memory *m, const struct codes_call *c,
                            const struct cudnn_plan *p) {
    const struct codes_shape *s = &c->shape;
    int64_t rows = s->batch * s->length, head = (int64_t)s->heads * s->dim;
    int64_t all = head + 2 * (int64_t)s->kv_heads * s->dim;
    m->bytes[M_QKV] = rows * all;
    m->bytes[M_D_O] = rows * head;
    m->bytes[M_O] = rows * head * (s->o_codes ? 1 : 2);
    m->bytes[M_LSE] = rows * s->heads * 4;
    m->bytes[M_OUT] = rows * (s->backward ? all : head);
    m->bytes[M_SCALARS] = CUDNN_FP8_SCALARS * 4;
    m->bytes[M_FACTORS] = FACTORS * 4;
    m->bytes[M_WORKSPACE] = p->workspace_bytes + 256;
    cudaError_t status = cudaSuccess;
    for (int i = 0; status == cudaSuccess && i < MEMORIES; i++)
        status = cudaMalloc(&m->at[i], (size_t)m->bytes[i]);
    return status;
}

static cudaError_t upload(struct memory *m, const struct codes_call *c) {
    const float factors[FACTORS] = { c->factor, c->d_o_factor, c->o_factor, 1 / c->p_multiplier,
                                     1 / c->ds_multiplier, c->p_multiplier, c->ds_multiplier };
    cudaError_t status = put(m, M_QKV, c->qkv);
    if (status == cudaSuccess) status = put(m, M_D_O, c->shape.backward ? c->d_o : NULL);
    if (status == cudaSuccess) status = put(m, M_O, c->shape.backward ? c->o : NULL);
    if (status == cudaSuccess) status = put(m, M_LSE, c->shape.backward ? c->lse : NULL);
    if (status == cudaSuccess) status = put(m, M_FACTORS, factors);
    return status;
}

/* One call over bytes that no result has; out and *c are filled. */
static bool run_once(struct codes_library *l, const struct cudnn_plan *p, struct memory *m,
                     struct codes_call *c, uint8_t *out, char text[CODES_TEXT]) {
    struct attention a = attention_of(&c->shape);
    float scalars[CUDNN_FP8_SCALARS] = { 1.0f, c->multiplier[0], c->multiplier[1],
                                         c->multiplier[2] };
    const float *factor = (const float *)m->at[M_FACTORS];
    struct cudnn_fp8_call call = {};
    struct err e = {};
    call.a = &a;
    call.codes = (const uint8_t *)m->at[M_QKV];
    call.factor = factor + F_QKV;
    call.p_factor = factor + F_P;
    call.p_multiplier = factor + F_P_MULTIPLIER;
    call.lse = (float *)m->at[M_LSE];
    call.scalars = (float *)m->at[M_SCALARS];
    call.o = c->shape.backward ? m->at[M_O] : m->at[M_OUT];
    call.o_factor = c->shape.o_codes ? factor + F_O : NULL;
    call.d_o = (const uint8_t *)m->at[M_D_O];
    call.d_o_factor = factor + F_D_O;
    call.ds_factor = factor + F_DS;
    call.ds_multiplier = factor + F_DS_MULTIPLIER;
    call.d_qkv = m->at[M_OUT];
    cudaError_t status = cudaMemset(m->at[M_OUT], 0x55, (size_t)m->bytes[M_OUT]);
    if (status == cudaSuccess) status = put(m, M_SCALARS, scalars);
    if (status == cudaSuccess) {
        auto call_plan = c->shape.backward ? cudnn_plan_run_fp8_bwd : cudnn_plan_run_fp8_fwd;
        if (call_plan(&l->b, p, &call, m->at[M_WORKSPACE], NULL, &e) != OK) {
            snprintf(text, CODES_TEXT, "%.*s", CODES_TEXT - 1, e.text);
            return false;
        }
        status = cudaDeviceSynchronize();
    }
    if (status == cudaSuccess)
        status = cudaMemcpy(out, m->at[M_OUT], (size_t)m->bytes[M_OUT], cudaMemcpyDeviceToHost);
    if (status == cudaSuccess)
        status = cudaMemcpy(scalars, m->at[M_SCALARS], sizeof scalars, cudaMemcpyDeviceToHost);
    if (status == cudaSuccess && !c->shape.backward)
        status = cudaMemcpy(c->lse, m->at[M_LSE], (size_t)m->bytes[M_LSE],
                            cudaMemcpyDeviceToHost);
    c->amax = scalars[c->shape.backward ? CUDNN_FP8_DS_AMAX : CUDNN_FP8_P_AMAX];
    snprintf(text, CODES_TEXT, "%s", cudaGetErrorString(status));
    return status == cudaSuccess;
}

bool codes_run(struct codes_library *l, struct codes_call *c, char text[CODES_TEXT]) {
    struct cudnn_spec spec = spec_of(&c->shape, true);
    struct attention a = attention_of(&c->shape);
    struct memory m = {};
    struct cudnn_plan *p = cudnn_plan_create(&l->b, &a, &spec, NULL, NULL);
    if (!p) {
        cudnn_last_error(&l->b, text, CODES_TEXT);
        return false;
    }
    cudaError_t status = allocate(&m, c, p);
    if (status == cudaSuccess) status = upload(&m, c);
    snprintf(text, CODES_TEXT, "%s", cudaGetErrorString(status));
    bool good = status == cudaSuccess && run_once(l, p, &m, c, c->out, text);
    uint8_t *again = (uint8_t *)malloc((size_t)m.bytes[M_OUT]);
    c->engine = p->name.engine;
    c->repeats = again != NULL;
    for (int i = 1; good && again && i < CODES_ROUNDS; i++) {
        good = run_once(l, p, &m, c, again, text);
        c->repeats = c->repeats && !memcmp(again, c->out, (size_t)m.bytes[M_OUT]);
    }
    free(again);
    for (int i = 0; i < MEMORIES; i++) cudaFree(m.at[i]);
    cudnn_plan_destroy(&l->b, p);
    return good;
}
