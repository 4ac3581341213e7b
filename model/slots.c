#include "model/slots.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


enum { FACTOR_STRIDE = 4 }; /* in f32: a GEMM requires its scale on a 16-byte boundary */

enum status slots_init(struct slots *s, int capacity, struct err *e) {
    memset(s, 0, sizeof *s);
    s->slot = calloc((size_t)capacity, sizeof *s->slot);
    s->name = calloc((size_t)capacity, sizeof *s->name);
    s->run = calloc((size_t)capacity, sizeof *s->run);
    s->cleared = calloc((size_t)capacity, sizeof *s->cleared);
    s->capacity = capacity;
    if (s->slot && s->name && s->run && s->cleared) return OK;
    return FAIL(e, ERR_MEMORY, "no host memory for %d amax slots", capacity);
}

int slots_add(struct slots *s, enum slot_region region, const struct operand_spec *spec,
              const struct recipe_options *options, int64_t elements, const char *format, ...) {
    assert(s->count < s->capacity);
    struct slot *slot = &s->slot[s->count];
    assert(s->count == 0 || slot[-1].region <= region);
    va_list args;
    va_start(args, format);
    vsnprintf(slot->name, sizeof slot->name, format, args);
    va_end(args);
    slot->region = region;
    slot->code = DTYPE_F32;
    if (spec && spec->kind != SCALE_NONE) {
        slot->code = spec->code;
        slot->rule = spec->rule;
        slot->elements = elements;
        if (spec->source == SCALE_SOURCE_KNOWN) slot->delayed = options;
    }
    s->name[s->count] = slot->name;
    for (unsigned r = region + 1; r <= SLOT_REGION_COUNT; r++) s->first[r] = s->count + 1;
    return s->count++;
}

static bool same_delayed(const struct recipe_options *a, const struct recipe_options *b) {
    return a->margin == b->margin && a->history == b->history && a->algo == b->algo &&
           a->roll == b->roll;
}

static bool rolls_per_step(const struct slot *s) {
    return s->delayed && s->delayed->roll == ROLL_STEP;
}

static enum status add_run(struct slots *s, struct memory *m, int first, int count, struct err *e) {
    struct slot_run *run = &s->run[s->run_count++];
    run->first = first;
    run->count = count;
    run->region = s->slot[first].region;
    run->options = s->slot[first].delayed;
    run->code_max = malloc((size_t)count * sizeof *run->code_max);
    if (!run->code_max) return FAIL(e, ERR_MEMORY, "no host memory for %d amax slots", count);
    for (int i = 0; i < count; i++) run->code_max[i] = dtype_max(s->slot[first + i].code);
    run->history = tensor_2d(NULL, DTYPE_F32, run->options->history, count);
    memory_reserve(m, MEMORY_STATE, "amax history", tensor_count(&run->history) * 4,
                   &run->history.data);
    return OK;
}

static enum status find_runs(struct slots *s, struct memory *m, struct err *e) {
    for (int i = 0, next; i < s->count; i = next) {
        const struct slot *a = &s->slot[i];
        for (next = i + 1; a->delayed && next < s->count; next++) {
            const struct slot *b = &s->slot[next];
            if (b->region != a->region || !b->delayed) break;
            if (!same_delayed(a->delayed, b->delayed)) break;
        }
        if (a->delayed) TRY(add_run(s, m, i, next - i, e));
    }
    for (int i = s->first[SLOT_FORWARD], next; i < s->count; i = next) {
        bool kept = rolls_per_step(&s->slot[i]);
        for (next = i + 1; next < s->count && rolls_per_step(&s->slot[next]) == kept; next++) { }
        if (!kept) s->cleared[s->cleared_count++] = (struct span){ i, next - i };
    }
    return OK;
}

enum status slots_layout(struct slots *s, struct memory *m, int record, struct err *e) {
    TRY(find_runs(s, m, e));
    struct { struct tensor *t; enum dtype dtype; } array[] = {
        { &s->amax, DTYPE_U32 }, { &s->seen_amax, DTYPE_U32 }, { &s->multiplier, DTYPE_F32 },
        { &s->seen_multiplier, DTYPE_F32 },
    };
    for (size_t i = 0; i < sizeof array / sizeof *array; i++) {
        *array[i].t = tensor_1d(NULL, array[i].dtype, s->count);
        int64_t n = s->count + (array[i].t == &s->amax); /* the loss follows it */
        memory_append(m, record, 4 * n, &array[i].t->data);
    }
    s->errors = tensor_2d(NULL, DTYPE_F32, s->count, 2);
    memory_append(m, record, 8 * (int64_t)s->count, &s->errors.data);
    s->amax_eval = tensor_1d(NULL, DTYPE_U32, s->count);
    memory_reserve(m, MEMORY_STATE, "amax", 4 * (int64_t)s->count, &s->amax_eval.data);
    memory_reserve(m, MEMORY_STATE, "scales", 4 * FACTOR_STRIDE * (int64_t)s->count, &s->factor);
    return OK;
}

enum { GATHERED_ROW = 16 }; /* bytes */

void slots_layout_gathered(struct slots *s, struct memory *m, int record, int world, int64_t room) {
    int64_t counts = GATHERED_ROW * (int64_t)s->count;
    s->gathers_counts = (GATHERED_ROW + counts) * world <= room;
    s->gathered_rows = s->gathers_counts ? 1 + s->count : 1;
    s->stats = tensor_2d(NULL, DTYPE_U64, s->count, 2);
    s->gathered = tensor_2d(NULL, DTYPE_U64, s->gathered_rows * world, 2);
    s->gathered_own = tensor_2d(NULL, DTYPE_U64, s->gathered_rows, 2);
    memory_append(m, record, GATHERED_ROW * s->gathered.dim[0], &s->gathered.data);
    if (!s->gathers_counts) memory_append(m, record, counts, &s->stats.data);
}

/* Elements first .. first+count-1 of a device array over the slots. */
static struct tensor span_of(const struct tensor *x, int64_t first, int64_t count) {
    struct tensor t = *x;
    t.data = (char *)x->data + first * x->stride[0] * dtype_bytes(x->dtype);
    t.dim[0] = count;
    return t;
}

enum status slots_start(struct slots *s, struct backend *b, struct err *e) {
    struct tensor factor = tensor_1d(s->factor, DTYPE_F32, s->count);
    factor.stride[0] = FACTOR_STRIDE;
    s->loss = tensor_1d((char *)s->amax.data + 4 * (int64_t)s->count, DTYPE_F32, 1);
    s->gathered_own.data =
        (char *)s->gathered.data + GATHERED_ROW * s->gathered_rows * b->ops->comm.rank(b);
    if (s->gathers_counts) s->stats.data = (char *)s->gathered_own.data + GATHERED_ROW;
    for (int i = 0; i < s->count; i++) {
        struct slot *slot = &s->slot[i];
        slot->amax = span_of(&s->amax, i, 1);
        slot->amax_eval = span_of(&s->amax_eval, i, 1);
        slot->multiplier = span_of(&s->multiplier, i, 1);
        slot->stats = tensor_1d((char *)s->stats.data + 16 * (int64_t)i, DTYPE_U64, 2);
        slot->error = tensor_1d((char *)s->errors.data + 8 * (int64_t)i, DTYPE_F32, 2);
        slot->factor = span_of(&factor, i, 1).data;
    }
    for (int r = 0; r < s->run_count; r++) {
        struct slot_run *run = &s->run[r];
        run->multiplier = span_of(&s->multiplier, run->first, run->count);
        run->factor = span_of(&factor, run->first, run->count);
        run->amax = span_of(&s->amax, run->first, run->count);
    }
    return slots_reset(s, b, e);
}

enum status slots_reset(struct slots *s, struct backend *b, struct err *e) {
    const struct tensor *cleared[] = { &s->amax, &s->amax_eval, &s->seen_amax,
                                       &s->seen_multiplier, &s->stats };
    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++)
        TRY(b->ops->zero(b, LANE_COMPUTE, cleared[i], e));
    for (int r = 0; r < s->run_count; r++)
        TRY(b->ops->zero(b, LANE_COMPUTE, &s->run[r].history, e));
    TRY(b->ops->fill(b, LANE_COMPUTE, &s->multiplier, 1.0f, e));
    struct tensor all = tensor_1d(s->factor, DTYPE_F32, FACTOR_STRIDE * (int64_t)s->count);
    return b->ops->fill(b, LANE_COMPUTE, &all, 1.0f, e);
}

enum status slots_restore_factors(struct slots *s, struct backend *b, struct err *e) {
    for (int r = 0; r < s->run_count; r++) {
        const struct slot_run *run = &s->run[r];
        for (int i = 0; i < run->count; i++) {
            const struct slot *slot = &s->slot[run->first + i];
            float multiplier, factor;
            TRY(b->ops->download(b, LANE_COMPUTE, &multiplier, slot->multiplier.data, 4, e));
            factor = 1.0f / multiplier;
            TRY(b->ops->upload(b, LANE_COMPUTE, slot->factor, &factor, 4, e));
        }
    }
    return OK;
}

void slots_destroy(struct slots *s) {
    for (int r = 0; r < s->run_count; r++) free(s->run[r].code_max);
    free(s->slot);
    free(s->name);
    free(s->run);
    free(s->cleared);
    memset(s, 0, sizeof *s);
}

static enum status update_run(struct slot_run *run, struct backend *b, struct err *e) {
    struct delayed_args args = { .history = &run->history, .multiplier = &run->multiplier,
                                 .factor = &run->factor, .amax = &run->amax,
                                 .code_max = run->code_max, .margin = run->options->margin,
                                 .most_recent = run->options->algo == AMAX_MOST_RECENT };
    return b->ops->delayed_update(b, LANE_COMPUTE, &args, e);
}

static enum status update_runs(struct slots *s, struct backend *b, enum roll_kind roll,
                               struct err *e) {
    for (int r = 0; r < s->run_count; r++) {
        struct slot_run *run = &s->run[r];
        if (run->region == SLOT_WEIGHT || run->options->roll != roll) continue;
        TRY(update_run(run, b, e));
    }
    return OK;
}

static enum status zero_span(const struct tensor *x, int64_t first, int64_t count,
                             struct backend *b, struct err *e) {
    if (count == 0) return OK;
    struct tensor t = span_of(x, first, count);
    return b->ops->zero(b, LANE_COMPUTE, &t, e);
}

enum status slots_share(struct slots *s, struct backend *b, const struct tensor *loss,
                        struct err *e) {
    if (b->ops->comm.world(b) == 1) return OK;
    /* 0 + 0 * loss is +0 for a finite loss, else NaN. The maximum of the losses themselves would be
     * wrong: rounding may leave a loss below 0. The maximum compares unsigned bits, in which
     * negative numbers are above infinity and NaN. */
    TRY(b->ops->zero(b, LANE_COMPUTE, &s->loss, e));
    TRY(b->ops->sum(b, LANE_COMPUTE, &s->loss, loss, 0.0f, 1.0f, e));
    struct tensor all = span_of(&s->amax, 0, (int64_t)s->count + 1);
    return b->ops->comm.all_reduce(b, LANE_COMPUTE, &all, REDUCE_MAX, e);
}

enum status slots_share_weights(struct slots *s, struct backend *b, struct err *e) {
    struct tensor weights = span_of(&s->amax, 0, s->first[SLOT_FORWARD]);
    return b->ops->comm.all_reduce(b, LANE_COMPUTE, &weights, REDUCE_MAX, e);
}

bool slots_have_codes(const struct slots *s) {
    for (int i = 0; i < s->count; i++)
        if (dtype_is_fp8(s->slot[i].code)) return true;
    return false;
}

enum status slots_begin_errors(struct slots *s, struct backend *b, struct err *e) {
    return b->ops->zero(b, LANE_COMPUTE, &s->errors, e);
}

enum status slots_share_errors(struct slots *s, struct backend *b, struct err *e) {
    struct tensor all = tensor_1d(s->errors.data, DTYPE_F32, 2 * (int64_t)s->count);
    return b->ops->comm.all_reduce(b, LANE_COMPUTE, &all, REDUCE_SUM, e);
}

enum status slots_gather_counts(struct slots *s, struct backend *b, uint64_t asks,
                                struct err *e) {
    TRY(b->ops->upload(b, LANE_COMPUTE, s->gathered_own.data, &asks, sizeof asks, e));
    return b->ops->comm.all_gather(b, LANE_COMPUTE, &s->gathered, &s->gathered_own, e);
}

/* Zeroes x[first .. end-1], without the settled slots unless `all` asks for them. */
static enum status zero_slots(const struct slots *s, const struct tensor *x, int64_t first,
                              int64_t end, bool all, struct backend *b, struct err *e) {
    for (int64_t i = first, next; i < end; i = next) {
        bool kept = !all && s->slot[i].settled;
        for (next = i + 1; next < end && (!all && s->slot[next].settled) == kept; next++) { }
        if (!kept) TRY(zero_span(x, i, next - i, b, e));
    }
    return OK;
}

enum status slots_clear_counts(struct slots *s, struct backend *b, struct span slots, bool all,
                               struct err *e) {
    return zero_slots(s, &s->stats, slots.first, slots.first + slots.count, all, b, e);
}

enum status slots_begin_micro(struct slots *s, struct backend *b, bool first, struct err *e) {
    for (int i = 0; i < s->cleared_count; i++)
        TRY(zero_span(&s->amax, s->cleared[i].first, s->cleared[i].count, b, e));
    int forward = s->first[SLOT_FORWARD];
    return first ? zero_span(&s->stats, forward, s->count - forward, b, e) : OK;
}

enum status slots_end_micro(struct slots *s, struct backend *b, struct err *e) {
    /* Copies amax as f32. A NaN may become the canonical NaN, which has the same meaning. */
    struct tensor from = s->amax, to = s->seen_amax;
    from.dtype = to.dtype = DTYPE_F32;
    TRY(b->ops->copy(b, LANE_COMPUTE, &to, &from, e));
    TRY(b->ops->copy(b, LANE_COMPUTE, &s->seen_multiplier, &s->multiplier, e));
    return update_runs(s, b, ROLL_MICROBATCH, e);
}

enum status slots_end_step(struct slots *s, struct backend *b, struct err *e) {
    return update_runs(s, b, ROLL_STEP, e);
}

static bool has_settled(const struct slots *s, const struct slot_run *run) {
    for (int i = 0; i < run->count; i++)
        if (s->slot[run->first + i].settled) return true;
    return false;
}

/* Whether the history of each settled slot holds its amax, or nothing. host [rows * count + count]:
 * room. */
static enum status is_uniform(const struct slots *s, const struct slot_run *run, struct backend *b,
                              float *host, bool *uniform, struct err *e) {
    int64_t n = tensor_count(&run->history);
    float *amax = host + n;
    *uniform = true;
    TRY(b->ops->download(b, LANE_COMPUTE, host, run->history.data, 4 * n, e));
    TRY(b->ops->download(b, LANE_COMPUTE, amax, run->amax.data, 4 * (int64_t)run->count, e));
    for (int64_t i = 0; i < n; i++) {
        int64_t slot = i % run->count;
        bool same = host[i] == 0 || host[i] == amax[slot];
        if (s->slot[run->first + slot].settled && !same) *uniform = false;
    }
    return OK;
}

enum status slots_remakes(const struct slots *s, struct backend *b, int64_t *updates,
                          struct err *e) {
    *updates = 0;
    for (int r = 0; r < s->run_count; r++) {
        const struct slot_run *run = &s->run[r];
        bool uniform;
        if (run->region != SLOT_WEIGHT || !has_settled(s, run)) continue;
        size_t bytes = (size_t)(tensor_count(&run->history) + run->count) * sizeof(float);
        float *host = malloc(bytes);
        if (!host) return FAIL(e, ERR_MEMORY, "%zu bytes for amax histories", bytes);
        enum status st = is_uniform(s, run, b, host, &uniform, e);
        free(host);
        TRY(st);
        int64_t wanted = uniform ? 1 : run->options->history;
        if (wanted > *updates) *updates = wanted;
    }
    return OK;
}

enum status slots_clear_weights(struct slots *s, struct backend *b, bool all, struct err *e) {
    return zero_slots(s, &s->amax, 0, s->first[SLOT_FORWARD], all, b, e);
}

static enum status copy_amax(const struct tensor *out, const struct tensor *x, struct backend *b,
                             struct err *e) {
    struct tensor to = *out, from = *x;
    to.dtype = from.dtype = DTYPE_F32; /* a NaN becomes the canonical NaN */
    return b->ops->copy(b, LANE_COMPUTE, &to, &from, e);
}

/* The update of a history clears the amax, which no step finds again for a settled slot. */
enum status slots_roll_weights(struct slots *s, struct backend *b, struct err *e) {
    for (int r = 0; r < s->run_count; r++) {
        struct slot_run *run = &s->run[r];
        if (run->region != SLOT_WEIGHT) continue;
        struct tensor kept = span_of(&s->amax_eval, run->first, run->count);
        bool settled = has_settled(s, run);
        if (settled) TRY(copy_amax(&kept, &run->amax, b, e));
        TRY(update_run(run, b, e));
        if (settled) TRY(copy_amax(&run->amax, &kept, b, e));
    }
    return OK;
}
