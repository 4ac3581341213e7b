#include "runner/plan/dry_backend.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/comm_codes.h"
#include "kernels/tensor.h"

static struct dry_backend *dry_of(struct backend *b) { return (struct dry_backend *)b; }

static enum status dry_info(struct backend *b, struct device_info *info, struct err *e) {
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "none: operators are only counted");
    return OK;
}

/* ---- memory: addresses alone ------------------------------------------------------------------*/

static enum status dry_memory_create(struct backend *b, const char *what, int64_t bytes,
                                     void **out, struct err *e) {
    struct dry_backend *d = dry_of(b);
    if (bytes < 0) return FAIL(e, ERR_ARG, "memory for %s: %lld bytes", what, (long long)bytes);
    *out = (void *)d->next;
    d->next += (uintptr_t)round_up(bytes + 1, ARENA_ALIGN);
    return OK;
}
static void dry_memory_destroy(struct backend *b, void *memory) {}

static enum status dry_upload(struct backend *b, int lane, void *data, const void *host,
                              int64_t bytes, struct err *e) {
    return OK;
}
/* All bits one: as the record of a search for values that are not finite, "nothing found". */
static enum status dry_download(struct backend *b, int lane, void *host, const void *data,
                                int64_t bytes, struct err *e) {
    memset(host, 0xff, (size_t)bytes);
    return OK;
}
static enum status dry_readback(struct backend *b, int lane, int slot, const void *data,
                                int64_t bytes, struct err *e) {
    return OK;
}
static enum status dry_readback_ready(struct backend *b, int slot, bool *ready, struct err *e) {
    *ready = true;
    return OK;
}
static enum status dry_readback_fetch(struct backend *b, int slot, void *host, struct err *e) {
    return FAIL(e, ERR_STATE, "a backend without arithmetic has no results");
}

/* ---- order, graphs, time ----------------------------------------------------------------------*/

static enum status dry_event(struct backend *b, int lane, int event, struct err *e) { return OK; }
static enum status dry_sync(struct backend *b, struct err *e) { return OK; }
static enum status dry_graph_replay(struct backend *b, enum graph_key key, bool *replayed,
                                    struct err *e) {
    *replayed = false;
    return OK;
}
static enum status dry_graph_mark(struct backend *b, enum graph_key key, struct err *e) {
    return OK;
}
static void dry_graph_drop(struct backend *b) {}
static enum status dry_timer_mark(struct backend *b, int lane, int mark, struct err *e) {
    return OK;
}
static enum status dry_timer_read(struct backend *b, int from, int to, double *us,
                                  struct err *e) {
    *us = 0;
    return OK;
}

/* ---- ranks: this is rank 0 of a group that always agrees --------------------------------------*/

static enum status dry_init(struct backend *b, const struct comm_group *group, struct err *e) {
    return OK;
}
static int dry_rank(const struct backend *b) { return 0; }
static int dry_world(const struct backend *b) { return ((const struct dry_backend *)b)->world; }

static enum status moved(struct backend *b, const struct tensor *x) {
    struct dry_backend *d = dry_of(b);
    if (d->world > 1) d->comm_bytes += (double)(tensor_count(x) * dtype_bytes(x->dtype));
    return OK;
}
static enum status dry_all_reduce(struct backend *b, int lane, const struct tensor *x,
                                  enum reduce_op op, struct err *e) {
    return moved(b, x);
}
static enum status dry_reduce_scatter(struct backend *b, int lane, const struct tensor *out,
                                      const struct tensor *x, struct err *e) {
    return moved(b, x);
}
static enum status dry_reduce_scatter_codes(struct backend *b, int lane, const struct tensor *out,
                                            const struct tensor *x, struct err *e) {
    struct dry_backend *d = dry_of(b);
    if (d->world > 1) d->comm_bytes += (double)(d->world * comm_codes_bytes(tensor_count(out)));
    return OK;
}
static enum status dry_all_gather(struct backend *b, int lane, const struct tensor *out,
                                  const struct tensor *x, struct err *e) {
    return moved(b, out);
}
static enum status dry_broadcast(struct backend *b, int lane, const struct tensor *x, int root,
                                 struct err *e) {
    return moved(b, x);
}
static enum status dry_busy(struct backend *b, int lane, const struct tensor *out,
                            struct err *e) {
    return OK;
}
static enum status dry_poll(struct backend *b, struct err *e) { return OK; }
static void dry_abort(struct backend *b) {}

/* ---- the operators ----------------------------------------------------------------------------*/

#define OPERATOR(op, parameters, arguments, cost) \
    static enum status dry_##op OPERATOR_PARAMETERS parameters { return OK; }
#include "kernels/operators.inc"

static enum status dry_matmul_native(struct backend *b, const struct matmul_args *args,
                                     bool *native, struct err *e) {
    *native = dry_of(b)->native;
    return OK;
}

static enum status dry_product_way(struct backend *b, const struct matmul_args *args,
                                   struct mma_way *way, bool *known, struct err *e) {
    *known = false;
    return OK;
}

static bool dry_twins_untransposed(struct backend *b, enum scale_kind kind) { return false; }

/* ---- choices: none ----------------------------------------------------------------------------*/

static enum status dry_choices_save(struct backend *b, char **text, struct err *e) {
    *text = calloc(1, 1);
    return *text ? OK : FAIL(e, ERR_MEMORY, "an empty table of choices");
}
static enum status dry_choices_load(struct backend *b, const char *text, struct err *e) {
    return OK;
}
static double dry_choosing_seconds(struct backend *b) { return 0; }
static enum status dry_attention_backend(struct backend *b, enum attention_backend which,
                                         struct err *e) {
    return OK;
}
static bool dry_library(struct backend *b, int64_t i, struct library *out) { return false; }
static bool dry_decision(struct backend *b, int64_t i, struct decision *out) { return false; }
static bool dry_in_progress(struct backend *b, char *out, size_t size) { return false; }
static enum status dry_assume(struct backend *b, const char *architecture, struct err *e) {
    return OK;
}
static enum status dry_forbid(struct backend *b, const char *section, const char *way,
                              struct err *e) {
    return OK;
}
static enum status dry_set_exact(struct backend *b, bool exact, struct err *e) { return OK; }
static void dry_close(struct backend *b) {}

static const struct backend_ops DRY_OPS = {
    .size = sizeof(struct backend_ops), .kernels_sha256 = "", .name = "dry", .forgets = true,
    .comm = { .init = dry_init, .rank = dry_rank, .world = dry_world,
              .all_reduce = dry_all_reduce, .reduce_scatter = dry_reduce_scatter,
              .reduce_scatter_codes = dry_reduce_scatter_codes, .all_gather = dry_all_gather,
              .broadcast = dry_broadcast, .busy = dry_busy,
              .poll = dry_poll, .abort = dry_abort },
    .close = dry_close, .info = dry_info,
    .memory_create = dry_memory_create, .memory_create_pinned = dry_memory_create,
    .memory_destroy = dry_memory_destroy, .upload = dry_upload, .download = dry_download,
    .readback = dry_readback, .readback_ready = dry_readback_ready,
    .readback_fetch = dry_readback_fetch,
    .signal = dry_event, .wait = dry_event, .sync = dry_sync,
    .graph_replay = dry_graph_replay, .graph_begin = dry_graph_mark,
    .graph_end = dry_graph_mark, .graph_drop = dry_graph_drop,
    .timer_mark = dry_timer_mark, .timer_read = dry_timer_read,
#define OPERATOR(op, parameters, arguments, cost) .op = dry_##op,
#include "kernels/operators.inc"
    .matmul_native = dry_matmul_native, .product_way = dry_product_way,
    .twins_untransposed = dry_twins_untransposed,
    .choices_save = dry_choices_save, .choices_load = dry_choices_load,
    .choices_offer = dry_choices_load, .choices_timed = dry_choices_save,
    .choosing_seconds = dry_choosing_seconds,
    .attention_backend = dry_attention_backend,
    .library = dry_library, .decision = dry_decision, .in_progress = dry_in_progress,
    .assume_architecture = dry_assume, .forbid = dry_forbid, .set_exact = dry_set_exact,
};

void dry_backend_open(struct dry_backend *out, int world, bool native) {
    enum { FIRST_ADDRESS = 1 << 20 };
    *out = (struct dry_backend){ .base.ops = &DRY_OPS, .world = world, .native = native,
                                 .next = FIRST_ADDRESS };
}
