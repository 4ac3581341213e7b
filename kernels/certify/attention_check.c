#include "kernels/certify/attention_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/certify/attention_rows.h"

/* Of the small shapes. With a mask some tiles of keys are behind all queries of a later tile.
 * cuDNN serves from 256 tokens on (attention_rule.h), in FP8 multiples of 128 alone. */
enum { ODD_LENGTH = 130, MASKED_LENGTH = 330, CUDNN_LENGTH = 384, ODD_WINDOW = 33 };
enum { SAMPLES = 4, SAMPLES_MASKED = 8 };
enum { LARGE_AMAX = 1 << 20 };

/* The kernel that served the last attention of this direction; "own" if the backend keeps none. */
static void name_kernel(struct backend *b, const char *direction, char out[16]) {
    struct decision d;
    snprintf(out, 16, "own");
    for (int64_t i = 0; b->ops->decision(b, i, &d); i++)
        if (!strcmp(d.section, "attention") && !strcmp(d.direction, direction))
            snprintf(out, 16, "%s", d.way);
}

/* Without cuDNN a run that asks for it is refused. */
static void name_way(struct certificate *out, const char *kernel) {
    bool cudnn = !strcmp(kernel, "cudnn") && out->way.kernel != ATTENTION_CUDNN;
    bool other = cudnn || !strcmp(kernel, "wgmma");
    snprintf(out->how, sizeof out->how, "%s", kernel);
    snprintf(out->forbid, sizeof out->forbid, "%s", other ? kernel : "");
}

static const struct attention_rows *rows_of(const struct attention_trial *t) {
    return attention_is_fp8(t->way) ? &ATTENTION_FP8 : &ATTENTION_BF16;
}

/* A sample, and what its check needs to know. */
struct sample {
    enum attention_sample what;
    const char *kernel;
    int64_t s, token, head;
};

static bool check_one(struct attention_trial *t, const struct sample *x, struct certificate *out) {
    return rows_of(t)->check(t, x->what, x->kernel, x->s, x->token, x->head, out);
}

/* Adds what explains a wrong sample to the certificate. */
static void explain(struct certificate *out, const char *fault, const char *sentence) {
    char found[sizeof out->found];
    memcpy(found, out->found, sizeof found);
    certify_fail(out, fault, "%.150s; %s", found, sentence);
}

static bool all_are(const uint16_t *x, int64_t n, uint16_t bits) {
    for (int64_t i = 0; i < n; i++)
        if (x[i] != bits) return false;
    return true;
}

/* Whether the wrong sample is what was there before, or zero. */
static bool explain_bytes(const struct attention_trial *t, const struct sample *x,
                          struct certificate *out) {
    const uint16_t *at = x->what == SAMPLE_OUTPUT ? attention_o_at(t, x->token, x->head)
                         : attention_gradient_at(t, x->token, x->head +
                                                 (x->what == SAMPLE_KEY ? t->heads : 0));
    const char *name = x->what == SAMPLE_OUTPUT ? "zeroed output" : "zeroed gradient";
    if (all_are(at, t->dim, 0xFFFF)) explain(out, "stale output", "it holds what was there before");
    else if (all_are(at, t->dim, 0)) explain(out, name, "the whole row is 0");
    else return false;
    return true;
}

/* Checks a sample. If it is wrong, and right without a part of the mask or of the scales, that is
 * the fault. */
static bool check(struct attention_trial *t, const struct sample *x, struct certificate *out) {
    const struct attention_rows *rows = rows_of(t);
    const char *without = "";
    if (check_one(t, x, out)) return true;
    if (explain_bytes(t, x, out)) return false;
    for (int m = MASK_NO_WINDOW; m < MASK_MISTAKES; m++) {
        struct certificate other = { .bound = 0 };
        char sentence[96];
        if (!attention_mask_can(&t->mask, (enum mask_mistake)m)) continue;
        t->mistake = (enum mask_mistake)m;
        bool right = check_one(t, x, &other);
        t->mistake = MASK_RIGHT;
        if (!right) continue;
        attention_mask_sentence(&t->mask, (enum mask_mistake)m, sentence);
        explain(out, attention_mask_fault((enum mask_mistake)m), sentence);
        return false;
    }
    for (int i = 0; rows->mistake && (without = rows->mistake(t, i)); i++) {
        struct certificate other = { .bound = 0 };
        char sentence[96];
        if (!check_one(t, x, &other)) continue;
        snprintf(sentence, sizeof sentence, "this is right without %s", without);
        explain(out, "ignored scale", sentence);
        break;
    }
    if (rows->mistake) (void)rows->mistake(t, -1);
    return false;
}

/* Tokens whose outputs and gradients are computed again. With a mask: the one that the last query
 * does not see, both sides of a document's border, and a long document's first. */
static int sample_tokens(const struct attention_trial *t, int64_t out[SAMPLES_MASKED]) {
    const int64_t L = t->length;
    const int64_t tokens[SAMPLES_MASKED] = { 0, L - 1, L / 2, t->large + 1, t->large, 64, 63,
                                             L - L / 4 };
    for (int i = 0; i < SAMPLES_MASKED; i++) out[i] = tokens[i] < L ? tokens[i] : 0;
    return attention_is_masked(t) ? SAMPLES_MASKED : SAMPLES;
}

static void check_samples(struct attention_trial *t, int64_t s, char kernel[2][16],
                          struct certificate *out) {
    int64_t token[SAMPLES_MASKED];
    int count = sample_tokens(t, token), keys = attention_is_masked(t) ? count : 2;
    bool good = true;
    name_way(out, kernel[0]);
    for (int i = 0; i < count && good; i++)
        good = check(t, &(struct sample){ SAMPLE_OUTPUT, kernel[0], s, token[i],
                                          i * t->heads / count }, out);
    if (!good) return;
    name_way(out, kernel[1]);
    for (int i = 0; i < count && good; i++)
        good = check(t, &(struct sample){ SAMPLE_QUERY, kernel[1], s, token[i],
                                          i * t->heads / count }, out);
    for (int i = 0; i < keys && good && t->length > 1; i++)
        good = check(t, &(struct sample){ SAMPLE_KEY, kernel[1], s, token[(i + 3) % count],
                                          i % 2 * (t->groups - 1) }, out);
    if (good) name_way(out, kernel[0]);
}

/* Whether the first sequence of a part still has these bytes. It is read in pieces into memory that
 * stays: new memory would take longer than the copy. */
static enum status has_bytes(const struct attention_trial *t, enum attention_part part,
                             const void *want, int64_t bytes, bool *same, struct err *e) {
    enum { PIECE = 4 << 20 };
    char *piece = malloc(PIECE);
    enum status st = piece ? OK : FAIL(e, ERR_MEMORY, "no memory for the certificate of attention");
    *same = true;
    for (int64_t at = 0; at < bytes && st == OK && *same; at += PIECE) {
        int64_t n = bytes - at < PIECE ? bytes - at : PIECE;
        st = t->b->ops->download(t->b, LANE_COMPUTE, piece, (const char *)t->memory[part] + at, n,
                                 e);
        *same = st == OK && memcmp((const char *)want + at, piece, (size_t)n) == 0;
    }
    free(piece);
    return st;
}

/* The same again over other bytes: outputs and gradients have the same bits. An amax that is larger
 * than the run's stays. */
static enum status try_again(struct attention_trial *t, struct certificate *out, struct err *e) {
    const struct { enum attention_part part; const void *first; int64_t width; const char *name; }
        results[] = { { PART_OUT, t->o, t->out_width, "outputs" },
                      { PART_D_QKV, t->d_qkv, t->width, "gradients" } };
    TRY(attention_trial_run(t, true, 0x42, LARGE_AMAX, e));
    for (int i = 0; i < 2 && out->outcome == CERTIFY_PASSED; i++) {
        bool same;
        TRY(has_bytes(t, results[i].part, results[i].first, 2 * t->length * results[i].width, &same,
                      e));
        if (!same)
            certify_fail(out, "stale output", "the same %s differ when they are written over other "
                         "bytes", results[i].name);
    }
    if (attention_is_fp8(t->way)) TRY(attention_trial_fetch_amax(t, e));
    for (int i = 0; i < ATTENTION_AMAXES && attention_is_fp8(t->way); i++)
        if (t->amax[i] != (float)LARGE_AMAX)
            certify_fail(out, "wrong amax", "the amax of %s was %d and is %g: it is not kept",
                         i == AMAX_P ? "the probabilities" : "the scores' gradient", LARGE_AMAX,
                         (double)t->amax[i]);
    return OK;
}

/* all: every pair of the sequence is computed again. */
static void check_amax(struct attention_trial *t, bool all, struct certificate *out) {
    if (out->outcome == CERTIFY_PASSED && rows_of(t)->check_amax)
        (void)rows_of(t)->check_amax(t, all, out);
}

/* The run's shape, the first sequence and the last, over different garbage. */
static enum status try_own(struct attention_trial *t, char kernel[2][16], struct certificate *out,
                           struct err *e) {
    TRY(attention_trial_run(t, true, 0xFF, 0.0f, e));
    TRY(attention_trial_fetch(t, 0, true, e));
    name_kernel(t->b, "forward", kernel[0]);
    name_kernel(t->b, "backward", kernel[1]);
    check_samples(t, 0, kernel, out);
    check_amax(t, false, out);
    if (out->outcome == CERTIFY_PASSED) TRY(try_again(t, out, e));
    if (out->outcome != CERTIFY_PASSED || t->batch == 1) return OK;
    TRY(attention_trial_fetch(t, t->batch - 1, attention_is_masked(t), e));
    if (attention_is_masked(t)) check_samples(t, t->batch - 1, kernel, out);
    if (attention_is_masked(t)) return OK;
    for (int64_t head = 0; head < t->heads; head += t->heads > 1 ? t->heads - 1 : 1)
        if (!check(t, &(struct sample){ SAMPLE_OUTPUT, kernel[0], t->batch - 1, t->length - 1,
                                        head }, out))
            return OK;
    return OK;
}

/* A NaN in a value: the outputs that see it are NaN in its column. */
static enum status try_nan(struct attention_trial *t, struct certificate *out, struct err *e) {
    int64_t at = t->length / 2;
    TRY(attention_trial_put_nan(t, at, e));
    TRY(attention_trial_run(t, false, 0x42, 0.0f, e));
    TRY(attention_trial_fetch_one(t, 0, PART_OUT, e));
    for (int64_t token = at; token < t->length; token++) {
        float x = bf16_decode(t->o[token * t->out_width]);
        if (attention_low(t, 0, token) > at) break; /* as all later ones */
        out->outputs++;
        if (isnan(x)) continue;
        certify_fail(out, "NaN swallowed", "token %lld sees a value that is NaN, and its output "
                     "is %g", (long long)token, (double)x);
        return OK;
    }
    return OK;
}

/* A small shape of one sequence under a mask. */
static enum status try_small(struct backend *b, const struct certify_way *way,
                             int64_t length, struct certificate *out, struct err *e) {
    struct attention_trial t;
    char kernel[2][16];
    enum status st = attention_trial_open(&t, b, way, 1, length, e);
    if (st == OK) st = attention_trial_run(&t, true, 0xFF, 0.0f, e);
    if (st == ERR_UNSUPPORTED && way->kernel == ATTENTION_CUDNN) { /* older: not all lengths */
        attention_trial_free(&t);
        return OK;
    }
    if (st == OK) st = attention_trial_fetch(&t, 0, true, e);
    if (st == OK) {
        name_kernel(b, "forward", kernel[0]);
        name_kernel(b, "backward", kernel[1]);
        check_samples(&t, 0, kernel, out);
        check_amax(&t, true, out);
    }
    if (st == OK && out->outcome == CERTIFY_PASSED) st = try_nan(&t, out, e);
    attention_trial_free(&t);
    return st;
}

/* Small shapes without a mask: one that our kernels serve, and those that cuDNN does. `cudnn`: it
 * served the run's own shape; of FP8 one direction of a small shape may be its, too. */
static enum status try_unmasked(struct backend *b, const struct certify_way *way, bool cudnn,
                                struct certificate *out, struct err *e) {
    const bool codes = attention_is_fp8(way), only_cudnn = way->kernel == ATTENTION_CUDNN;
    const struct { int64_t length; bool tried; } small[] = {
        { ODD_LENGTH, !only_cudnn },
        { CUDNN_LENGTH, cudnn || (codes && way->kernel != ATTENTION_OWN) },
        { MASKED_LENGTH, cudnn && !codes }, /* no multiple of 128 */
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (!small[i].tried) continue;
        TRY(try_small(b, way, small[i].length, out, e));
        if (out->outcome != CERTIFY_PASSED) break;
    }
    return OK;
}

/* Small shapes with the parts of the mask that the run has: windows of one key and of no multiple
 * of a tile, short documents, both. */
static enum status try_edges(struct backend *b, const struct certify_way *way, bool cudnn,
                             struct certificate *out, struct err *e) {
    const struct { int64_t window; bool documents; } masks[] = {
        { 1, false }, { ODD_WINDOW, false }, { 0, true }, { ODD_WINDOW, true },
    };
    struct certify_way small = *way;
    if (!way->window && !way->documents) return try_unmasked(b, way, cudnn, out, e);
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        if ((masks[i].window && !way->window) || (masks[i].documents && !way->documents)) continue;
        small.window = masks[i].window;
        small.documents = masks[i].documents;
        TRY(try_small(b, &small, MASKED_LENGTH, out, e));
        if (out->outcome != CERTIFY_PASSED) break;
    }
    return OK;
}

enum status certify_attention(struct backend *b, const struct certify_way *way,
                              struct certificate *out, struct err *e) {
    struct attention_trial t;
    char kernel[2][16] = { "own", "own" }, own[16];
    if (way->head_dim > HEAD_DIM_MAX)
        return FAIL(e, ERR_UNSUPPORTED, "attention with heads of %lld elements; certificates know "
                    "at most %d", (long long)way->head_dim, HEAD_DIM_MAX);
    snprintf(out->reason, sizeof out->reason, "%s",
             attention_is_fp8(way) ? ATTENTION_FP8.reason : ATTENTION_BF16.reason);
    enum status st = attention_trial_open(&t, b, way, way->batch, way->length, e);
    if (st == OK) st = try_own(&t, kernel, out, e);
    attention_trial_free(&t);
    if (st != OK || out->outcome != CERTIFY_PASSED) return st;
    memcpy(own, kernel[0], sizeof own);
    st = try_edges(b, way, !strcmp(kernel[0], "cudnn"), out, e);
    if (out->outcome == CERTIFY_PASSED) name_way(out, own);
    return st;
}
