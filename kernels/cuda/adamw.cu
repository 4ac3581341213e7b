/* AdamW by spans: a warp takes 256 elements, eight a lane. The spans of many tensors form one
 * sequence, distributed over warps, so that small tensors share a launch. This kernel takes the
 * tensors that adamw_tile.cu cannot take; a second pass makes their codes. */
#include "kernels/cuda/adamw.cuh"

enum { SPAN = PER_LANE * WARP };

struct adamw_spans {
    struct adamw_tensor tensor[ADAMW_TENSORS];
    int count;
    struct adamw_step step;
};

struct by_span {
    __device__ static int64_t at(int64_t span) {
        return span * SPAN + threadIdx.x % WARP * PER_LANE;
    }
    /* The largest |bits| of the weights, in the form of an amax slot. */
    __device__ static uint32_t from_weights(uint4 weights) {
        uint32_t top = bf16x8_largest(weights);
        return max(top << 16, top & 0xFFFF0000u);
    }
};

/* All tensors share the state's dtype, whether the weight has a master, and the gradient's
 * dtype. */
template <int STATE, bool MASTER, int GRAD>
__global__ void __launch_bounds__(ADAMW_THREADS, adamw_blocks(STATE, MASTER))
    adamw_kernel(const __grid_constant__ struct adamw_spans a) {
    __shared__ struct scalars s;
    __shared__ uint64_t key[ADAMW_TENSORS];
    if (*a.step.flag >= 0) return;
    adamw_begin(s, key, a.step, a.tensor, a.count);
    int64_t span = (blockIdx.x * (int64_t)ADAMW_THREADS + threadIdx.x) / WARP;
    int64_t step = (int64_t)gridDim.x * (ADAMW_THREADS / WARP);
    for (int i = 0; i < a.count; i++) { /* span counts from the beginning of tensor i */
        const struct adamw_tensor &t = a.tensor[i];
        int64_t whole = t.n / SPAN, spans = (t.n + SPAN - 1) / SPAN;
        uint32_t top = 0;
        bool any = span < spans;
        for (; span < whole; span += step)
            top = max(top, update<by_span, STATE, MASTER, GRAD>(t, s, key[i], span));
        if (span < spans) {
            top = max(top, update_slow_path<by_span, false, STATE, MASTER, GRAD>(t, s, key[i],
                                                                                 span));
            span += step;
        }
        if (any) warp_amax_into(t.amax, top);
        span -= spans;
    }
}

struct span_kernels {
    template <int STATE, bool MASTER, int GRAD> static auto of() {
        return adamw_kernel<STATE, MASTER, GRAD>;
    }
};

static void launch_spans(struct backend *b, int lane, const struct adamw_group *group) {
    struct adamw_spans a = {};
    int64_t spans = 0;
    for (; a.count < group->count; a.count++) {
        a.tensor[a.count] = adamw_tensor_of(group->of[a.count]);
        spans += ceil_div(a.tensor[a.count].n, SPAN);
    }
    a.step = adamw_step_of(group->of[0]);
    unsigned blocks = adamw_grid(b, group->of[0], ceil_div(spans, ADAMW_THREADS / WARP));
    auto kernel = adamw_kernel_for<span_kernels>(group->of[0]);
    if (blocks) kernel<<<blocks, ADAMW_THREADS, 0, cuda_lane(b, lane)>>>(a);
}

/* ---- arguments ---- */

static enum status check_state(const struct tensor *x, const char *what, int64_t n, struct err *e) {
    TRY(cuda_check_packed(x, what, IS_GRAD | IS_E4M3, -1, -1, e));
    if (x->dtype == DTYPE_E4M3 &&
        (x->scale.kind != SCALE_1X128 || !x->scale.data || x->scale.dtype != DTYPE_F32 ||
         x->scale.dim[0] != 1 || x->scale.dim[1] != ceil_div(n, STATE_BLOCK)))
        return FAIL(e, ERR_ARG, "%s is e4m3 without a 1x128 scale over [1, %lld]", what,
                    (long long)n);
    if (tensor_count(x) != n)
        return FAIL(e, ERR_ARG, "%s has %lld elements, not %lld", what, (long long)tensor_count(x),
                    (long long)n);
    return OK;
}

static enum status check_args(const struct adamw_args *a, struct err *e) {
    const struct tensor *value = a->weight->value;
    TRY(cuda_check_packed(value, "adamw: weight", IS_BF16, -1, -1, e));
    int64_t n = tensor_count(value);
    TRY(cuda_check_sink(a->weight, "adamw: weight", tensor_rows(value), tensor_cols(value), e));
    TRY(check_state(a->m, "adamw: m", n, e));
    TRY(check_state(a->v, "adamw: v", n, e));
    if (a->m->dtype != a->v->dtype)
        return FAIL(e, ERR_ARG, "adamw: m in %s, v in %s", dtype_name(a->m->dtype),
                    dtype_name(a->v->dtype));
    TRY(cuda_check_packed(a->grad, "adamw: grad", IS_GRAD, -1, -1, e));
    if (a->master) TRY(cuda_check_packed(a->master, "adamw: master", IS_F32, -1, -1, e));
    if (tensor_count(a->grad) != n || (a->master && tensor_count(a->master) != n))
        return FAIL(e, ERR_ARG, "adamw: grad or master does not have the weight's %lld elements",
                    (long long)n);
    const void *data[5] = { value->data, a->m->data, a->v->data, a->grad->data,
                            a->master ? a->master->data : NULL };
    for (int i = 0; i < 5; i++)
        if ((uintptr_t)data[i] % 16)
            return FAIL(e, ERR_ARG, "adamw: tensors must be 16-byte aligned");
    TRY(cuda_check(a->lr, "adamw: lr", IS_F32, 1, 1, e));
    TRY(cuda_check(a->clip, "adamw: clip", IS_F32, 1, 1, e));
    TRY(cuda_check(a->bias1, "adamw: bias1", IS_F32, 1, 1, e));
    TRY(cuda_check(a->bias2, "adamw: bias2", IS_F32, 1, 1, e));
    TRY(cuda_check(a->step, "adamw: step", IS_I32, 1, 1, e));
    TRY(cuda_check(a->flag, "adamw: flag", IS_I32, 2, 1, e));
    if (a->element_base < 0)
        return FAIL(e, ERR_ARG, "adamw: element_base %lld", (long long)a->element_base);
    return OK;
}

/* ---- launching ---- */

struct adamw_tensor adamw_tensor_of(const struct adamw_args *args) {
    struct adamw_tensor t = {};
    t.value = sink_value_of(args->weight);
    t.master = args->master ? (float *)args->master->data : NULL;
    t.m = args->m->data;
    t.v = args->v->data;
    t.m_scale = (float *)args->m->scale.data;
    t.v_scale = (float *)args->v->scale.data;
    t.grad = args->grad->data;
    t.amax = sink_amax(args->weight);
    t.n = tensor_count(args->weight->value);
    t.element_base = args->element_base;
    t.weight_decay = args->weight_decay;
    t.tensor_id = args->tensor_id;
    return t;
}

struct adamw_step adamw_step_of(const struct adamw_args *args) {
    struct adamw_step s = {};
    s.lr = (const float *)args->lr->data;
    s.clip = (const float *)args->clip->data;
    s.bias1 = (const float *)args->bias1->data;
    s.bias2 = (const float *)args->bias2->data;
    s.step = (const int32_t *)args->step->data;
    s.flag = (const int32_t *)args->flag->data;
    s.beta1 = args->beta1;
    s.beta2 = args->beta2;
    s.eps = args->eps;
    s.seed = args->seed;
    return s;
}

unsigned adamw_grid(struct backend *b, const struct adamw_args *args, int64_t items) {
    int64_t room = (int64_t)cuda_of(b)->sm_count *
                   adamw_blocks(args->m->dtype, args->master != NULL);
    return (unsigned)min_i64(items, room * ADAMW_WAVES);
}

/* Whether two updates may share a launch: they have the same dtypes and scalars. */
static bool same_launch(const struct adamw_args *a, const struct adamw_args *b) {
    return a->m->dtype == b->m->dtype && a->grad->dtype == b->grad->dtype &&
           !a->master == !b->master && a->lr->data == b->lr->data &&
           a->clip->data == b->clip->data && a->bias1->data == b->bias1->data &&
           a->bias2->data == b->bias2->data && a->step->data == b->step->data &&
           a->flag->data == b->flag->data && a->beta1 == b->beta1 && a->beta2 == b->beta2 &&
           a->eps == b->eps && a->seed == b->seed;
}

/* Queues the updates of args [n] for which adamw_fuses() is `fused`, in as few launches as fit. */
static void launch_all(struct backend *b, int lane, const struct adamw_args *args, int64_t n,
                       bool fused) {
    struct adamw_group group = {};
    int room = fused ? ADAMW_TILE_TENSORS : ADAMW_TENSORS;
    for (int64_t i = 0; i <= n; i++) {
        bool end = i == n;
        if (!end && adamw_fuses(&args[i]) != fused) continue;
        if (group.count && (end || group.count == room || !same_launch(group.of[0], &args[i]))) {
            if (fused) adamw_launch_tiles(b, lane, &group);
            else launch_spans(b, lane, &group);
            group.count = 0;
        }
        if (!end) group.of[group.count++] = &args[i];
    }
}

enum status cuda_adamw(struct backend *b, int lane, const struct adamw_args *args, int64_t n,
                       struct err *e) {
    for (int64_t i = 0; i < n; i++) TRY(check_args(&args[i], e));
    launch_all(b, lane, args, n, true);
    launch_all(b, lane, args, n, false);
    TRY(cuda_launched("adamw", e));
    for (int64_t i = 0; i < n; i++)
        if (!adamw_fuses(&args[i]))
            TRY(cuda_sink_emit_gated(b, lane, args[i].weight,
                                     (const int32_t *)args[i].flag->data, e));
    return OK;
}
