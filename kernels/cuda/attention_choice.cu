/* The choice table of attention, unless attention_backend has fixed it. cuDNN and our own kernels
 * have different bits, so device, head and length decide, never a time. Where our own kernel serves
 * BF16's forward in any case, cuDNN is not opened: that takes some tenths of a second. Where a plan
 * of cuDNN serves, both are timed once all the same: a decision shows what the rule costs.
 *
 * Only the kernels are timed. Our kernels also take the maximum of their output; cuDNN needs
 * another pass for it, which the times exclude. One choice must hold for every use of a shape: a
 * forward that is recomputed for its backward must have the same bits. BF16's backward is always
 * our own. FP8 has a choice for each direction, by attention_rule.h. */
#include "kernels/cuda/attention_choice.cuh"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/trial.cuh"

enum {
    TABLE_MAX = 64,    /* shapes; a model has one for its steps and one for evaluations */
    OWN_LENGTH = 8192, /* from here on our kernel on wgmma is faster for heads of 128: LOG.md */
};

struct attention_choice {
    struct attention_size shape;
    struct cudnn_spec spec;
    bool by_cudnn;
    bool timed; /* by this process; false: loaded, offered, or without memory for a trial */
    struct cudnn_plan_name name; /* if by_cudnn */
    struct cudnn_plan *plan;     /* of that name, built on first use; owned */
    char why[64];
};

struct attention_table {
    struct trial trial;
    enum attention_backend only; /* ATTENTION_AUTO: the rule decides */
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
    return b->attention ? b->attention->only : ATTENTION_AUTO;
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

static bool is_fp8(const struct attention_choice *c) { return c->spec.pass != CUDNN_BF16_FORWARD; }

/* Whether the run wants cuDNN in any case: of forwards, since backwards may be our own. */
static bool demands_cudnn(const struct cuda_backend *b, const struct attention_choice *c) {
    return only(b) == ATTENTION_CUDNN && c->spec.pass != CUDNN_FP8_BACKWARD;
}

/* ---- as text: the sixth integer is cudnn_spec_key ---- */

enum { KEY_INTEGERS = 6 };

static void key_integers(const struct attention_choice *c, int64_t out[KEY_INTEGERS]) {
    const struct attention_size *s = &c->shape;
    const int64_t list[KEY_INTEGERS] = { s->batch,    s->length,   s->heads,
                                         s->kv_heads, s->head_dim, cudnn_spec_key(&c->spec) };
    memcpy(out, list, sizeof list);
}

int64_t attention_choices(const struct cuda_backend *b) {
    return b->attention ? b->attention->count : 0;
}

/* Times are left out: they differ in every run, and the text is hashed. */
void attention_choices_write(const struct cuda_backend *b, bool timed, FILE *out) {
    if (attention_choices(b))
        fputs("# attention batch length heads kv_heads head_dim pass : place and engine of "
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
    struct cudnn_spec spec;
    int32_t value[2] = { 0, 0 };
    TRY(table_of(b, &t, e));
    if (c->keys != KEY_INTEGERS || (c->bytes && c->bytes != (int)sizeof value))
        return FAIL(e, ERR_CONFIG, "choice table: an attention entry has %d integers and %d bytes",
                    c->keys, c->bytes);
    if (!cudnn_spec_of_key(c->key[5], &spec))
        return FAIL(e, ERR_CONFIG, "the choice table names pass %lld of attention, which this "
                    "version does not have: measure again without this table",
                    (long long)c->key[5]);
    if (c->bytes && !cudnn_version(b))
        return FAIL(e, ERR_CONFIG,
                    "the choice table names a cuDNN plan, but cuDNN was not found");
    if (t->count == TABLE_MAX)
        return FAIL(e, ERR_CONFIG, "the choice table has more than %d attention shapes", TABLE_MAX);
    memcpy(value, c->value, (size_t)c->bytes);
    struct attention_choice *to = &t->choice[t->count++];
    memset(to, 0, sizeof *to);
    to->shape = { c->key[0], c->key[1], c->key[2], c->key[3], c->key[4] };
    to->spec = spec;
    to->by_cudnn = c->bytes > 0;
    to->name = { value[0], value[1] };
    snprintf(to->why, sizeof to->why, "by the choice table");
    return OK;
}

/* ---- the rule ---- */

/* BF16 where our kernel on wgmma is the faster one. */
static bool is_long(const struct cuda_backend *b, const struct attention_size *s) {
    return b->caps == 90 && s->head_dim == 128 && s->length >= OWN_LENGTH;
}

/* Where cuDNN has a plan. */
static bool own_serves(const struct cuda_backend *b, const struct attention_choice *c) {
    if (is_fp8(c)) return attention_fp8_rule(only(b), c->spec.pass, true) != SERVED_BY_CUDNN;
    return is_long(b, &c->shape);
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
    c->by_cudnn = !own_serves(b, c);
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
    c->plan = c->by_cudnn ? cudnn_plan_create(b, a, &c->spec, &c->name, NULL) : NULL;
    if (c->plan || !c->by_cudnn) return OK;
    return FAIL(e, ERR_DEVICE,
                "attention: this cuDNN does not offer plan %d with engine %d, which the choice "
                "table or rank 0 names", c->name.place, c->name.engine);
}

/* Ranks measure different times, so all use rank 0's choice. */
static enum status agree(struct cuda_backend *b, struct attention_choice *c, struct err *e) {
    const struct attention_size *s = &c->shape;
    const int64_t about[4] = { s->batch, s->length, s->heads << 32 | s->kv_heads,
                               cudnn_spec_key(&c->spec) << 32 | s->head_dim };
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
    if (demands_cudnn(b, c) && !kept.bytes) return false;
    if (!demands_cudnn(b, c) && own_serves(b, c) != !kept.bytes) {
        c->plan = kept.bytes ? NULL : cudnn_plan_create(b, a, &c->spec, NULL, NULL);
        return !kept.bytes && !c->plan; /* our own kernel, since cuDNN has no plan */
    }
    memcpy(value, kept.value, sizeof value);
    c->by_cudnn = kept.bytes > 0;
    c->name = { value[0], value[1] };
    if (c->by_cudnn) c->plan = cudnn_plan_create(b, a, &c->spec, &c->name, NULL);
    return c->plan || !c->by_cudnn;
}

/* Takes the offered choice if there is one. Only rank 0 looks: offers of ranks may differ. */
static enum status take_offer(struct cuda_backend *b, const struct attention *a,
                              struct attention_choice *c, bool *taken, struct err *e) {
    const struct attention_size *s = &c->shape;
    const int64_t about[4] = { s->batch, s->length, s->heads << 32 | s->kv_heads,
                               cudnn_spec_key(&c->spec) << 32 | s->head_dim };
    *taken = offered(b, a, c);
    int32_t agreed[4] = { *taken, c->by_cudnn, c->name.place, c->name.engine };
    TRY(cuda_agree(b, "looking for attention's kept choice", about, agreed, sizeof agreed, e));
    *taken = agreed[0] != 0;
    c->by_cudnn = *taken && agreed[1] != 0;
    c->name = { agreed[2], agreed[3] };
    if (*taken) snprintf(c->why, sizeof c->why, "%s by an earlier run",
                         is_fp8(c) ? "chosen" : "timed");
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

/* FP8: the rule, from what cuDNN has. */
static enum status apply_rule(struct cuda_backend *b, const struct attention *a,
                              struct attention_choice *c, const struct cudnn_found *found,
                              struct err *e) {
    enum attention_server by = attention_fp8_rule(only(b), c->spec.pass, c->plan != NULL);
    if (by == SERVED_BY_NONE) return refuse(a, "cuDNN has no deterministic plan for them", e);
    c->by_cudnn = by == SERVED_BY_CUDNN;
    if (c->by_cudnn) {
        c->name = c->plan->name;
        snprintf(c->why, sizeof c->why, "%s",
                 demands_cudnn(b, c) ? "attention.backend" : "its plan is deterministic");
    } else {
        snprintf(c->why, sizeof c->why, "cuDNN lists %d plans, %d of them deterministic",
                 found->listed, found->deterministic);
    }
    return OK;
}

static enum status choose(struct cuda_backend *b, const struct forward *f,
                          struct attention_choice *c, struct err *e) {
    const choosing_time time(b);
    struct cudnn_found found;
    bool taken;
    TRY(take_offer(b, &f->a, c, &taken, e));
    if (taken) return settle(b, &f->a, c, e);
    cudnn_plan_destroy(b, c->plan); /* of an offer that a leading rank does not have */
    c->plan = cudnn_plan_create(b, &f->a, &c->spec, NULL, &found);
    c->timed = !c->plan; /* there is nothing to time */
    if (is_fp8(c)) TRY(apply_rule(b, &f->a, c, &found, e));
    else if (only(b) == ATTENTION_CUDNN) TRY(fix(c, &f->a, e));
    else if (c->plan) TRY(measure(b, f, c, e));
    else snprintf(c->why, sizeof c->why, "cuDNN has no plan for it");
    TRY(agree(b, c, e));
    return settle(b, &f->a, c, e);
}

/* Independent of the installed cuDNN: all ranks of a group get the same result. Our graph for cuDNN
 * has no first key. */
static bool may_have_plan(const struct cuda_backend *b, const struct attention *a) {
    return (b->caps == 90 || b->caps == 100) && a->head_dim >= 64 &&
           a->length >= CUDNN_LENGTH_MIN && a->batch > 0 && !a->first_key &&
           !cuda_is_forbidden(b, "attention", "cudnn");
}

static struct attention_size size_of(const struct attention *a) {
    const struct attention_size s = { a->batch, a->length, a->heads, a->kv_heads, a->head_dim };
    return s;
}

/* The shape's place in the table; the end if it has none. */
static int find(const struct attention_table *t, const struct attention_size *shape,
                const struct cudnn_spec *spec) {
    int i = 0;
    while (i < t->count && (cudnn_spec_key(&t->choice[i].spec) != cudnn_spec_key(spec) ||
                            memcmp(&t->choice[i].shape, shape, sizeof *shape) != 0)) i++;
    return i;
}

/* Whether our own kernel serves BF16 without a look at cuDNN. A table that was loaded may say
 * otherwise. */
static bool needs_no_choice(const struct cuda_backend *b, const struct attention *a) {
    const struct attention_size shape = size_of(a);
    const struct cudnn_spec bf16 = {};
    const struct attention_table *t = b->attention;
    return is_long(b, &shape) && only(b) == ATTENTION_AUTO &&
           !cuda_is_forbidden(b, "attention", "wgmma") &&
           (!t || find(t, &shape, &bf16) == t->count);
}

/* The shape's entry, made on its first use. */
static enum status choice_of(struct cuda_backend *b, const struct forward *f,
                             const struct cudnn_spec *spec, struct attention_choice **out,
                             struct err *e) {
    const struct attention *a = &f->a;
    const struct attention_size shape = size_of(a);
    struct attention_table *t;
    TRY(table_of(b, &t, e));
    int i = find(t, &shape, spec);
    if (i == TABLE_MAX)
        return FAIL(e, ERR_UNSUPPORTED, "more than %d attention shapes in one run", TABLE_MAX);
    struct attention_choice *c = *out = &t->choice[i];
    bool fresh = i == t->count;
    if (!fresh && !c->by_cudnn && demands_cudnn(b, c))
        return refuse(a, "the choice table names our own kernel", e);
    if (!fresh && (c->plan || !c->by_cudnn)) return OK;
    if (b->capture)
        return FAIL(e, ERR_STATE, "attention of %lld x %lld, %d heads of %d, was not seen in the "
                    "warm-up pass", (long long)a->batch, (long long)a->length, a->heads,
                    a->head_dim);
    if (!fresh) return settle(b, a, c, e);
    memset(c, 0, sizeof *c);
    c->shape = shape;
    c->spec = *spec;
    enum status st = choose(b, f, c, e);
    if (st == OK) t->count++;
    else cudnn_plan_destroy(b, c->plan);
    return st;
}

enum status attention_choose(struct cuda_backend *b, const struct forward *f,
                             struct attention_way *way, struct err *e) {
    const struct cudnn_spec bf16 = {};
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
    if (needs_no_choice(b, &f->a)) {
        way->why = "faster at this length";
        return OK;
    }
    TRY(choice_of(b, f, &bf16, &c, e));
    *way = { c->plan, c->why };
    return OK;
}

enum status attention_choose_fp8(struct cuda_backend *b, const struct attention *a,
                                 const struct cudnn_spec *spec, bool packed,
                                 struct attention_way *way, struct err *e) {
    const struct attention_size shape = size_of(a);
    struct attention_choice *c = NULL;
    struct forward f = {};
    f.a = *a;
    if (b->exact && only(b) == ATTENTION_CUDNN)
        return refuse(a, "train.exact has our own kernels alone", e);
    *way = { NULL, b->exact ? "exact" : "attention.backend" };
    if (b->exact || only(b) == ATTENTION_OWN) return OK;
    if (packed && !cuda_is_forbidden(b, "attention", "cudnn") &&
        cudnn_fp8_may_serve(b->caps, &shape, spec->pass, a->first_key != NULL)) {
        TRY(choice_of(b, &f, spec, &c, e));
        *way = { c->plan, c->why };
        return OK;
    }
    if (attention_fp8_rule(only(b), spec->pass, false) == SERVED_BY_NONE)
        return refuse(a, "in FP8 it needs sm_90 or sm_100, head_dim of at least 64, a multiple of "
                      "128 tokens from 256 on, and neither a window nor masks of documents", e);
    way->why = "cuDNN does not serve it";
    return OK;
}
