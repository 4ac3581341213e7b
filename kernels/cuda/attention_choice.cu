/* The choice table of attention's forward, unless attention_backend has fixed it. cuDNN and our own
 * kernel have different bits, so device, head and length decide, never a time. Where cuDNN has a
 * deterministic plan, both are timed once all the same: a decision shows what the rule costs.
 *
 * Only the kernels are timed. Our kernels also take the maximum of their output; cuDNN needs
 * another pass for it, which the times exclude. One choice must hold for every use of a shape: a
 * forward that is recomputed for its backward must have the same bits. The backward is always our
 * own. */
#include "kernels/cuda/attention_choice.cuh"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/trial.cuh"

enum {
    TABLE_MAX = 64,    /* shapes; a model has one for its steps and one for evaluations */
    OWN_LENGTH = 8192, /* from here on our kernel on wgmma is faster for heads of 128: LOG.md */
    LENGTH_MIN = 256,  /* shorter ones take microseconds, building a plan takes up to seconds */
};

struct attention_choice {
    struct attention_size shape;
    bool fp8; /* of codes: only where attention_backend asks for cuDNN */
    bool by_cudnn;
    bool timed; /* by this process; false: loaded, offered, or without memory for a trial */
    struct cudnn_plan_name name; /* if by_cudnn */
    struct cudnn_plan *plan;     /* of that name, built on first use; owned */
    char why[64];
};

struct attention_table {
    struct trial trial;
    enum attention_backend only; /* ATTENTION_TIMED: the faster one */
    struct attention_choice choice[TABLE_MAX];
    int count;
};

static enum status table_of(struct cuda_backend *b, struct attention_table **out, struct err *e) {
    *out = b->attention;
    if (*out) return OK;
    struct attention_table *t = (struct attention_table *)calloc(1, sizeof *t);
    if (!t) return FAIL(e, ERR_MEMORY, "no memory for attention's choice table");
    *out = b->attention = t; /* the backend closes it, even if this function fails */
    t->trial.held = true;
    return trial_open(&t->trial, e);
}

static enum attention_backend only(const struct cuda_backend *b) {
    return b->attention ? b->attention->only : ATTENTION_TIMED;
}

enum status cuda_attention_backend(struct backend *b, enum attention_backend which,
                                   struct err *e) {
    struct cuda_backend *cb = cuda_of(b);
    struct attention_table *t;
    if (attention_choices(cb))
        return FAIL(e, ERR_STATE, "attention.backend: attention has chosen a kernel already");
    if (which == ATTENTION_CUDNN && !cudnn_version(cb))
        return FAIL(e, ERR_UNSUPPORTED, "attention.backend = \"cudnn\": cuDNN 9.11 or later was "
                    "not found (`fp8lab doctor` lists libraries); leave the key out");
    TRY(table_of(cb, &t, e));
    t->only = which;
    return OK;
}

void cuda_attention_close(struct cuda_backend *b) {
    struct attention_table *t = b->attention;
    for (int i = 0; t && i < t->count; i++) cudnn_plan_destroy(b, t->choice[i].plan);
    cudnn_close(b); /* cuDNN may still use the trial's stream */
    if (t) trial_close(&t->trial);
    free(t);
    b->attention = NULL;
}

/* ---- as text: the sixth integer is 1 for a backward, in older tables alone, and 2 for FP8 ---- */

enum { KEY_INTEGERS = 6, KEY_FP8 = 2 };

static void key_integers(const struct attention_choice *c, int64_t out[KEY_INTEGERS]) {
    const struct attention_size *s = &c->shape;
    const int64_t list[KEY_INTEGERS] = { s->batch,    s->length,   s->heads,
                                         s->kv_heads, s->head_dim, c->fp8 ? KEY_FP8 : 0 };
    memcpy(out, list, sizeof list);
}

int64_t attention_choices(const struct cuda_backend *b) {
    return b->attention ? b->attention->count : 0;
}

/* Times are left out: they differ in every run, and the text is hashed. */
void attention_choices_write(const struct cuda_backend *b, bool timed, FILE *out) {
    if (attention_choices(b))
        fputs("# attention batch length heads kv_heads head_dim backward : place and engine of "
              "cuDNN's plan, i32 each\n", out);
    for (int64_t i = 0; i < attention_choices(b); i++) {
        const struct attention_choice *from = &b->attention->choice[i];
        struct choice c = {};
        if (timed && !from->timed) continue;
        snprintf(c.kind, sizeof c.kind, "attention");
        c.keys = KEY_INTEGERS;
        key_integers(from, c.key);
        const int32_t value[2] = { from->name.place, from->name.engine };
        c.bytes = from->by_cudnn ? (int)sizeof value : 0;
        memcpy(c.value, value, (size_t)c.bytes);
        choices_put(out, &c);
    }
}

enum status attention_choice_take(struct cuda_backend *b, const struct choice *c, struct err *e) {
    struct attention_table *t;
    int32_t value[2] = { 0, 0 };
    TRY(table_of(b, &t, e));
    if (c->keys != KEY_INTEGERS || (c->bytes && c->bytes != (int)sizeof value))
        return FAIL(e, ERR_CONFIG, "choice table: an attention entry has %d integers and %d bytes",
                    c->keys, c->bytes);
    if (c->key[5] != 0 && c->key[5] != KEY_FP8)
        return FAIL(e, ERR_CONFIG, "the choice table names a cuDNN plan for attention's backward, "
                    "which this version does not use: measure again without this table");
    if (c->bytes && !cudnn_version(b))
        return FAIL(e, ERR_CONFIG,
                    "the choice table names a cuDNN plan, but cuDNN was not found");
    if (t->count == TABLE_MAX)
        return FAIL(e, ERR_CONFIG, "the choice table has more than %d attention shapes", TABLE_MAX);
    memcpy(value, c->value, (size_t)c->bytes);
    struct attention_choice *to = &t->choice[t->count++];
    memset(to, 0, sizeof *to);
    to->shape = { c->key[0], c->key[1], c->key[2], c->key[3], c->key[4] };
    to->fp8 = c->key[5] == KEY_FP8;
    to->by_cudnn = c->bytes > 0;
    to->name = { value[0], value[1] };
    snprintf(to->why, sizeof to->why, "by the choice table");
    return OK;
}

/* ---- the rule ---- */

static bool own_serves(const struct cuda_backend *b, const struct attention_size *s) {
    return b->caps == 90 && s->head_dim == 128 && s->length >= OWN_LENGTH;
}

/* ---- measuring ---- */

enum { CUDNN, OWN, CANDIDATES };

struct candidates {
    struct cuda_backend *b;
    const struct cudnn_plan *plan;
    struct forward f;
    void *workspace;
};

static bool queue_candidate(void *context, int i, cudaStream_t stream) {
    const struct candidates *c = (const struct candidates *)context;
    struct err e = {};
    if (i == OWN) return attention_own_fwd(c->b, &c->f, stream, &e) == OK;
    return cudnn_plan_run(c->b, c->plan, &c->f, c->workspace, stream, &e) == OK;
}

/* us [CANDIDATES] <- times with noise instead of qkv: in a warm-up all rows are equal. Overwrites
 * the call's outputs, but not its amax. The noise needs less memory than the trial of the GEMM that
 * made qkv. *timed is false without that memory. */
static enum status time_both(struct cuda_backend *b, const struct forward *f,
                             const struct cudnn_plan *plan, float us[CANDIDATES], bool *timed,
                             struct err *e) {
    int64_t bytes = round_up(f->a.batch * f->a.length * f->a.width * 2, 256);
    char *memory = NULL;
    cudaError_t status = cudaMalloc(&memory, (size_t)(bytes + plan->workspace_bytes));
    *timed = status != cudaErrorMemoryAllocation;
    if (!*timed) {
        (void)cudaGetLastError(); /* handled here; the next launch must not see it */
        return OK;
    }
    CUDA_TRY(e, status);
    struct candidates c = { b, plan, *f, memory + bytes };
    c.f.a.qkv = (const bf16_bits *)memory;
    c.f.amax = NULL;
    const struct trial *trial = &b->attention->trial;
    status = trial_noise(trial, memory, bytes, NOISE_BF16_KEEP, NOISE_BF16_SET);
    if (status == cudaSuccess) trial_run(trial, queue_candidate, &c, CANDIDATES, NULL, us);
    cudaFree(memory);
    CUDA_TRY(e, status);
    return OK;
}

static void format_times(struct attention_choice *c, const char *own, const float us[CANDIDATES]) {
    char text[CANDIDATES][24];
    for (int i = 0; i < CANDIDATES; i++)
        if (us[i] < 0.0f) snprintf(text[i], sizeof text[i], "failed");
        else snprintf(text[i], sizeof text[i], "%.1f us", (double)us[i]);
    snprintf(c->why, sizeof c->why, "cudnn %s, %s %s", text[CUDNN], own, text[OWN]);
}

static enum status measure(struct cuda_backend *b, const struct forward *f,
                           struct attention_choice *c, struct err *e) {
    float us[CANDIDATES];
    bool timed;
    TRY(cuda_sync(&b->base, e)); /* queued operators may use o and lse */
    TRY(time_both(b, f, c->plan, us, &timed, e));
    c->name = c->plan->name;
    c->by_cudnn = !own_serves(b, &c->shape);
    if (timed && us[c->by_cudnn ? CUDNN : OWN] < 0.0f) c->by_cudnn = !c->by_cudnn;
    c->timed = timed;
    if (timed) format_times(c, attention_own_name(b, &f->a), us);
    else snprintf(c->why, sizeof c->why, "not timed: no memory for it");
    return OK;
}

/* ---- choosing ---- */

/* Makes c->plan match c: no plan if our own kernel serves, else the named plan and no other. */
static enum status settle(struct cuda_backend *b, const struct attention *a,
                          struct attention_choice *c, struct err *e) {
    if (c->by_cudnn && c->plan && cudnn_same_plan(c->plan->name, c->name)) return OK;
    cudnn_plan_destroy(b, c->plan);
    c->plan = c->by_cudnn ? cudnn_plan_create(b, a, c->fp8, &c->name) : NULL;
    if (c->plan || !c->by_cudnn) return OK;
    return FAIL(e, ERR_DEVICE,
                "attention: this cuDNN does not offer plan %d with engine %d, which the choice "
                "table or rank 0 names", c->name.place, c->name.engine);
}

/* Ranks measure different times, so all use rank 0's choice. */
static enum status agree(struct cuda_backend *b, struct attention_choice *c, struct err *e) {
    const struct attention_size *s = &c->shape;
    const int64_t about[4] = { s->batch, s->length, s->heads << 32 | s->kv_heads, s->head_dim };
    int32_t agreed[3] = { c->by_cudnn, c->name.place, c->name.engine };
    TRY(cuda_agree(b, "choosing a kernel for attention", about, agreed, sizeof agreed, e));
    c->by_cudnn = agreed[0] != 0;
    c->name = { agreed[1], agreed[2] };
    return OK;
}

/* Whether an offered table has the shape's choice: our own kernel, or a plan that cuDNN still
 * has. */
static bool offered(struct cuda_backend *b, const struct attention *a, struct attention_choice *c) {
    struct choice kept;
    int32_t value[2];
    int64_t key[KEY_INTEGERS];
    key_integers(c, key);
    if (!b->offers || !choices_find(b->offers, "attention", key, KEY_INTEGERS, &kept)) return false;
    if (kept.bytes && kept.bytes != (int)sizeof value) return false;
    if (only(b) == ATTENTION_CUDNN && !kept.bytes) return false;
    if (only(b) != ATTENTION_CUDNN && own_serves(b, &c->shape) != !kept.bytes) {
        c->plan = kept.bytes ? NULL : cudnn_plan_create(b, a, c->fp8, NULL);
        return !kept.bytes && !c->plan; /* our own kernel, since cuDNN has no plan */
    }
    memcpy(value, kept.value, sizeof value);
    c->by_cudnn = kept.bytes > 0;
    c->name = { value[0], value[1] };
    if (c->by_cudnn) c->plan = cudnn_plan_create(b, a, c->fp8, &c->name);
    return c->plan || !c->by_cudnn;
}

/* Takes the offered choice if there is one. Only rank 0 looks: offers of ranks may differ. */
static enum status take_offer(struct cuda_backend *b, const struct attention *a,
                              struct attention_choice *c, bool *taken, struct err *e) {
    const struct attention_size *s = &c->shape;
    const int64_t about[4] = { s->batch, s->length, s->heads << 32 | s->kv_heads, s->head_dim };
    *taken = offered(b, a, c);
    int32_t agreed[4] = { *taken, c->by_cudnn, c->name.place, c->name.engine };
    TRY(cuda_agree(b, "looking for attention's kept choice", about, agreed, sizeof agreed, e));
    *taken = agreed[0] != 0;
    c->by_cudnn = *taken && agreed[1] != 0;
    c->name = { agreed[2], agreed[3] };
    if (*taken) snprintf(c->why, sizeof c->why, "timed by an earlier run");
    return OK;
}

static enum status refuse(const struct attention *a, const char *why, struct err *e) {
    return FAIL(e, ERR_UNSUPPORTED, "attention.backend = \"cudnn\" cannot serve %lld sequences of "
                "%lld tokens, heads %d/%d of %d: %s; leave the key out, or use \"own\"",
                (long long)a->batch, (long long)a->length, a->heads, a->kv_heads, a->head_dim, why);
}

/* The plan without a trial, where cuDNN alone may serve. */
static enum status fix(struct attention_choice *c, const struct attention *a, struct err *e) {
    if (!c->plan) return refuse(a, "cuDNN has no deterministic plan for them", e);
    c->name = c->plan->name;
    c->by_cudnn = true;
    c->timed = false;
    snprintf(c->why, sizeof c->why, "attention.backend");
    return OK;
}

static enum status choose(struct cuda_backend *b, const struct forward *f,
                          struct attention_choice *c, struct err *e) {
    bool taken;
    TRY(take_offer(b, &f->a, c, &taken, e));
    if (taken) return settle(b, &f->a, c, e);
    cudnn_plan_destroy(b, c->plan); /* of an offer that a leading rank does not have */
    c->plan = cudnn_plan_create(b, &f->a, c->fp8, NULL);
    c->timed = !c->plan; /* there is nothing to time */
    if (only(b) == ATTENTION_CUDNN) TRY(fix(c, &f->a, e));
    else if (c->plan) TRY(measure(b, f, c, e));
    else snprintf(c->why, sizeof c->why, "cuDNN has no plan for it");
    TRY(agree(b, c, e));
    return settle(b, &f->a, c, e);
}

/* Independent of the installed cuDNN: all ranks of a group get the same result. Our graph for cuDNN
 * has no first key. */
static bool may_have_plan(const struct cuda_backend *b, const struct attention *a) {
    return (b->caps == 90 || b->caps == 100) && a->head_dim >= 64 && a->length >= LENGTH_MIN &&
           a->batch > 0 && !a->first_key && !cuda_is_forbidden(b, "attention", "cudnn");
}

/* The shape's entry, made on its first use. */
static enum status choice_of(struct cuda_backend *b, const struct forward *f, bool fp8,
                             struct attention_choice **out, struct err *e) {
    const struct attention *a = &f->a;
    const struct attention_size shape = { a->batch, a->length, a->heads, a->kv_heads, a->head_dim };
    struct attention_table *t;
    TRY(table_of(b, &t, e));
    int i = 0;
    while (i < t->count && (t->choice[i].fp8 != fp8 ||
                            memcmp(&t->choice[i].shape, &shape, sizeof shape) != 0)) i++;
    if (i == TABLE_MAX)
        return FAIL(e, ERR_UNSUPPORTED, "more than %d attention shapes in one run", TABLE_MAX);
    struct attention_choice *c = *out = &t->choice[i];
    bool fresh = i == t->count;
    if (!fresh && !c->by_cudnn && t->only == ATTENTION_CUDNN)
        return refuse(a, "the choice table names our own kernel", e);
    if (!fresh && (c->plan || !c->by_cudnn)) return OK;
    if (b->capture)
        return FAIL(e, ERR_STATE, "attention of %lld x %lld, %d heads of %d, was not seen in the "
                    "warm-up pass", (long long)a->batch, (long long)a->length, a->heads,
                    a->head_dim);
    if (!fresh) return settle(b, a, c, e);
    memset(c, 0, sizeof *c);
    c->shape = shape;
    c->fp8 = fp8;
    enum status st = choose(b, f, c, e);
    if (st == OK) t->count++;
    else cudnn_plan_destroy(b, c->plan);
    return st;
}

enum status attention_choose(struct cuda_backend *b, const struct forward *f,
                             struct attention_way *way, struct err *e) {
    struct attention_choice *c = NULL;
    *way = { NULL, "" };
    if (f->a.exact && only(b) == ATTENTION_CUDNN)
        return refuse(&f->a, "train.exact has our own kernels alone", e);
    if (f->a.exact) way->why = "exact";
    if (f->a.exact) return OK;
    if (only(b) == ATTENTION_OWN) way->why = "attention.backend";
    if (only(b) == ATTENTION_OWN) return OK;
    if (!may_have_plan(b, &f->a) && only(b) == ATTENTION_CUDNN)
        return refuse(&f->a, "it needs sm_90 or sm_100, head_dim of at least 64, at least 256 "
                      "tokens, and neither a window nor masks of documents", e);
    if (!may_have_plan(b, &f->a)) return OK;
    TRY(choice_of(b, f, false, &c, e));
    *way = { c->plan, c->why };
    return OK;
}

/* cuDNN's limits on Hopper; lengths that are no multiple of 128 are left to our kernels. */
enum status attention_choose_fp8(struct cuda_backend *b, const struct attention *a,
                                 struct attention_way *way, struct err *e) {
    struct attention_choice *c = NULL;
    struct forward f = {};
    f.a = *a;
    *way = { NULL, "fp8 codes widened to bf16" };
    if (only(b) != ATTENTION_CUDNN) return OK;
    if (!may_have_plan(b, a) || a->length % 128)
        return refuse(a, "in FP8 it needs sm_90 or sm_100, head_dim of at least 64, a multiple of "
                      "128 tokens from 256 on, and neither a window nor masks of documents", e);
    TRY(choice_of(b, &f, true, &c, e));
    *way = { c->plan, c->why };
    return OK;
}
