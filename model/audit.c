#include "model/audit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Bytes of a buffer: at most; and room for the casts. A part of a cast has about AUDIT_PART values,
 * or a whole row. */
enum { BUFFER_MAX = 32 << 20, CAST_ROOM = 1 << 20 };

/* ---- which GEMMs ---- */

/* GEMMs of a micro-batch: model/forward.c, head.c and backward.c. */
static int64_t calls_of(const struct transformer *t) {
    int64_t calls = t->config.layers * GEMM_SITE_COUNT;
    calls += t->chunk_count * (t->head.weight->frozen ? 2 : 3);
    for (int64_t l = t->lowest > 0 ? t->lowest : 0; l < t->config.layers; l++) {
        for (int s = 0; s < GEMM_SITE_COUNT; s++)
            calls += t->layer[l].linear[s].weight->frozen ? 1 : 2;
        enum recompute_kind again = transformer_recompute(t, l);
        calls += again == RECOMPUTE_BLOCK ? 3 : again == RECOMPUTE_FFN ? 1 : 0;
    }
    return calls;
}

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* The longest K of a GEMM: of fprop and dgrad a width, of wgrad the rows. */
static int64_t longest_k(const struct transformer *t) {
    int64_t k = max64(t->rows, t->head.weight->rows_padded);
    for (int s = 0; s < GEMM_SITE_COUNT; s++) {
        struct gemm_size size = gemm_site_size(&t->config, (enum gemm_site)s);
        k = max64(k, max64(size.inputs, size.outputs));
    }
    return k;
}

/* ---- life ---- */

static enum status make_batches(struct audit *a, struct err *e) {
    int count = a->options.every == 1 ? AUDIT_BATCHES : 1;
    size_t entries = (size_t)a->options.outputs + AUDIT_CASTS;
    for (int i = 0; i < count; i++) {
        struct audit_batch *batch = &a->batch[i];
        void *buffer = NULL;
        batch->entry = calloc(entries, sizeof *batch->entry);
        if (!batch->entry) return FAIL(e, ERR_MEMORY, "no host memory for an audit");
        TRY(a->inner->ops->memory_create_pinned(a->inner, "the operands of an audit", a->bytes,
                                                &buffer, e));
        batch->buffer = buffer;
    }
    return OK;
}

enum status audit_open(struct audit **out, struct backend *b, struct transformer *t,
                       const struct params *params, const struct audit_options *options,
                       uint64_t seed, struct err *e) {
    *out = NULL;
    struct audit *a = calloc(1, sizeof *a);
    if (!a) return FAIL(e, ERR_MEMORY, "no host memory for an audit");
    a->inner = b;
    a->transformer = t;
    a->params = params;
    a->options = *options;
    a->seed = seed;
    a->rank = b->ops->comm.rank(b);
    a->calls = calls_of(t);
    a->sites = (int)(a->calls < AUDIT_SITES ? a->calls : AUDIT_SITES);
    if (options->outputs < a->sites) a->sites = (int)options->outputs;
    a->every_cast = ceil_div(t->config.layers * GEMM_SITE_COUNT * 2, AUDIT_CASTS / 3);
    int64_t output = 2 * round_up(longest_k(t) * dtype_bytes(t->act), ARENA_ALIGN) + ARENA_ALIGN;
    int64_t bytes = options->outputs * output + CAST_ROOM;
    a->bytes = bytes < BUFFER_MAX ? bytes : BUFFER_MAX;
    atomic_init(&a->done, false);
    audit_take_operators(a);
    enum status st = make_batches(a, e);
    if (st != OK) {
        audit_close(a);
        return st;
    }
    *out = a;
    return OK;
}

static void join(struct audit *a);

void audit_close(struct audit *a) {
    if (!a) return;
    join(a);
    for (int i = 0; i < AUDIT_BATCHES; i++) {
        free(a->batch[i].entry);
        if (a->batch[i].buffer)
            a->inner->ops->memory_destroy(a->inner, a->batch[i].buffer);
    }
    free(a);
}

/* ---- a step ---- */

static struct audit_batch *batch_of(struct audit *a, int64_t step) {
    return &a->batch[a->options.every == 1 ? step % AUDIT_BATCHES : 0];
}

bool audit_due(const struct audit *a, int64_t step, int64_t accumulation, int64_t micro) {
    if (!a || step % a->options.every) return false;
    uint64_t key = rng_key(a->seed, RNG_AUDIT, (uint64_t)step, UINT32_MAX); /* of no rank */
    return micro == rng_below(rng_bits(key, 0), (uint32_t)accumulation);
}

enum status audit_begin(struct audit *a, int64_t step, struct err *e) {
    struct audit_batch *batch = batch_of(a, step);
    if (a->compared == batch) join(a);
    if (a->failed) return audit_poll(a, e);
    batch->used = 0;
    batch->count = batch->casts = 0;
    batch->record = (struct audit_record){ .step = step };
    a->now = batch;
    a->call = a->finish = 0;
    a->drawn = 0;
    a->key = rng_key(a->seed, RNG_AUDIT, (uint64_t)step, (uint64_t)a->rank);
    /* The next audit takes the calls behind these, so that all come round. */
    a->start = (int64_t)((uint64_t)(step / a->options.every) % (uint64_t)a->calls);
    a->backend.watch = a->inner->watch;
    a->transformer->b = &a->backend;
    a->transformer->slots->keeps = true;
    return OK;
}

void audit_end(struct audit *a) {
    a->transformer->b = a->inner;
    a->transformer->slots->keeps = false;
    a->now = NULL;
}

/* ---- comparing ---- */

static void describe(struct audit *a, const struct audit_batch *batch,
                     const struct audit_entry *entry, const struct recomputed *r) {
    struct audit_fault *f = &a->fault;
    *f = (struct audit_fault){ .step = batch->record.step, .row = entry->row + r->row,
                               .col = entry->col + r->col, .what = r->what, .dtype = r->dtype,
                               .found = r->found, .expected = r->expected };
    memcpy(f->name, entry->name, sizeof f->name);
    if (entry->cast) {
        f->operand[0] = (struct audit_operand){ "x", &entry->part.x };
        f->operand[1] = (struct audit_operand){ "codes", &entry->part.codes };
    } else {
        f->operand[0] = (struct audit_operand){ "a", &entry->a };
        f->operand[1] = (struct audit_operand){ "b", &entry->b };
        f->operand[2] = (struct audit_operand){ "bias", entry->args.bias };
        f->operand[3] = (struct audit_operand){ "residual", entry->args.residual };
        if (entry->args.beta != 0.0f) f->operand[4] = (struct audit_operand){ "out", &entry->out };
    }
    f->way = entry->cast ? NULL : &entry->way;
    int digits = (int)dtype_bytes(r->dtype) * 2;
    snprintf(a->text, sizeof a->text, "step %lld: %s: %s at row %lld, column %lld is 0x%0*x "
             "(%.9g), but the same operands give 0x%0*x (%.9g) on the host: the device, its memory "
             "or a kernel computed wrongly", (long long)f->step, f->name, f->what,
             (long long)f->row, (long long)f->col, digits, r->found,
             (double)recomputed_value(r->dtype, r->found), digits, r->expected,
             (double)recomputed_value(r->dtype, r->expected));
}

static void *compare(void *context) {
    struct audit *a = context;
    struct audit_batch *batch = a->compared;
    for (int i = 0; i < batch->count; i++) {
        struct audit_entry *entry = &batch->entry[i];
        struct recomputed r;
        if (entry->cast) recompute_cast(&entry->part, &r);
        else recompute_product(&entry->way, &entry->args, 0, 0, entry->found, &r);
        if (!r.equal) {
            describe(a, batch, entry, &r);
            a->failed = true;
            break;
        }
        if (entry->cast) batch->record.codes += tensor_count(&entry->part.x);
        else batch->record.products++;
    }
    atomic_store(&a->done, true);
    return NULL;
}

/* Waits for the thread, and keeps its record. */
static void join(struct audit *a) {
    if (!a->running) return;
    pthread_join(a->thread, NULL);
    a->running = false;
    if (a->unread == AUDIT_RECORDS) { /* nobody reads them */
        a->read = (a->read + 1) % AUDIT_RECORDS;
        a->unread--;
    }
    a->record[(a->read + a->unread++) % AUDIT_RECORDS] = a->compared->record;
    a->compared = NULL;
}

enum status audit_compare(struct audit *a, int64_t step, struct err *e) {
    sigset_t all, before;
    join(a);
    if (a->failed) return audit_poll(a, e);
    a->compared = batch_of(a, step);
    atomic_store(&a->done, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    a->running = pthread_create(&a->thread, NULL, compare, a) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (a->running) return OK;
    return FAIL(e, ERR_MEMORY, "start a thread that compares an audited step");
}

enum status audit_poll(struct audit *a, struct err *e) {
    if (!a) return OK;
    if (a->running && atomic_load(&a->done)) join(a);
    if (a->running || !a->failed) return OK;
    return FAIL(e, ERR_VERIFY, "%s", a->text);
}

bool audit_next(struct audit *a, struct audit_record *out) {
    if (!a->unread) return false;
    *out = a->record[a->read];
    a->read = (a->read + 1) % AUDIT_RECORDS;
    a->unread--;
    return true;
}

enum status audit_settle(struct audit *a, struct err *e) {
    if (a) join(a);
    return audit_poll(a, e);
}
