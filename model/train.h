/* The trainer: a model, a recipe and an optimizer over a backend; one call is one step.
 *
 * All memory is planned and allocated in trainer_create; trainer_step and trainer_eval allocate
 * nothing. Observation changes no bit: evaluation, traces and checkpoints read the state and never
 * write it. Not thread-safe: one thread drives a trainer.
 *
 *   data_open -> trainer_create -> [checkpoint_load] -> { trainer_step [trainer_read_fp8]
 *   [trainer_trace] [trainer_eval] [checkpoint_save] }* -> trainer_destroy -> data_close
 *
 * trainer_step is trainer_queue and trainer_collect in one. Apart, they let the host prepare a step
 * while the device is busy with the one before, whose result is then read a step late. */
#ifndef FP8LAB_MODEL_TRAIN_H
#define FP8LAB_MODEL_TRAIN_H

#include "kernels/backend.h"
#include "model/bucket.h"
#include "model/config.h"
#include "model/data.h"
#include "model/optim.h"
#include "model/recipe.h"

/* What backward computes again instead of keeping. The bits are the same for all three. */
enum recompute_kind {
    RECOMPUTE_NONE,
    RECOMPUTE_FFN,  /* from the FFN's normalisation to its activation */
    RECOMPUTE_BLOCK /* everything but each block's input */
};

/* Which steps are traced: the first `first`, then every `every`th, or those that are evaluated if
 * `every` is 0. The caller decides by trace_due and says so to trainer_step. */
struct trace_options { int64_t first, every; };

static inline bool trace_due(const struct trace_options *o, int64_t step, bool evaluated) {
    if (step <= o->first) return true;
    return o->every > 0 ? step % o->every == 0 : evaluated;
}

struct train_options {
    int64_t steps;
    int64_t global_batch, micro_batch; /* sequences; global = micro * ranks * accumulation steps */
    uint64_t seed;
    enum dtype grad_dtype; /* DTYPE_F32 or DTYPE_BF16: main gradients, also the accumulator */
    enum recompute_kind recompute;
    int64_t head_chunk; /* rows of logits at a time, a multiple of 16; 0: model_head_chunk */
    enum shard_kind shard; /* what each rank holds a share of; nothing with one rank */
    struct optimizer_options optimizer;
    struct schedule_options schedule;
    struct trace_options trace;
};

/* ---- plan ---- */

/* One line of the memory table; the lines of one arena are neighbours. Strings are static. */
struct plan_row {
    const char *arena, *item; /* "activations", "qkv" */
    int64_t bytes, count;     /* all tensors of this item together; how many there are */
};

struct plan {
    struct plan_row *row; /* owned */
    int64_t row_count;
    int64_t bytes;     /* all arenas on the device */
    int64_t pinned_bytes; /* those on the host: train.optimizer.offload */
    int64_t gpu_bytes; /* beside them, at the peak: see plan_add_gpu */
    int64_t shard_max; /* elements of the largest shard whose gradients a rank adds up */
};

/* What trainer_create would allocate on the device of rank 0 of `world`, which holds the most;
 * without a backend. Free with plan_free. */
NODISCARD enum status trainer_plan(struct plan *out, const struct model_config *model,
                                   const struct recipe *recipe, const struct train_options *options,
                                   int world, struct err *e);
/* Adds rows for what a GPU takes beside the arenas, as nvidia-smi sees it: context, scratch, and
 * what is taken for a while when algorithms are timed before step 0 (less with a choice table). */
struct plan_gpu {
    int cc;               /* compute capability, 90 for 9.0 */
    int64_t memory_bytes; /* of the device; 0: not known */
};
NODISCARD enum status plan_add_gpu(struct plan *p, const struct model_config *model,
                                   const struct recipe *recipe, const struct train_options *options,
                                   int world, const struct plan_gpu *gpu, struct err *e);
void plan_free(struct plan *p);

/* ---- life ---- */

struct trainer; /* opaque */

/* Checks the three option structs (their contents are copied), allocates, initialises the
 * weights from the seed. The backend and the data are borrowed until trainer_destroy; comm.init
 * has been called. `data` may be NULL where nothing is trained or evaluated (a checkpoint is
 * only converted). */
NODISCARD enum status trainer_create(struct trainer **out, struct backend *backend,
                                     const struct model_config *model, const struct recipe *recipe,
                                     const struct train_options *options, const struct data *data,
                                     struct err *e);
void trainer_destroy(struct trainer *t); /* NULL is fine */

/* Steps done and collected so far; a loaded checkpoint sets it. */
int64_t trainer_step_count(const struct trainer *t);
/* Steps queued and not collected yet. */
int trainer_pending(const struct trainer *t);

/* ---- a step ---- */

struct step_result {
    int64_t step;  /* 1-based */
    float loss;    /* mean nats a token over the global batch */
    float grad_norm, lr;
    int64_t tokens;   /* in this step, all ranks */
    int64_t time_us;  /* device time since the end of the step before, or since this one's
                         beginning where something else came between them */
    int64_t comm_us;  /* of it in collectives, waiting for other ranks included; this rank's */
    int64_t exposed_us; /* of that with arithmetic standing still */
    bool traced;
    bool stop;        /* some rank had been asked to stop when it queued this step */
    char tensor[128]; /* "" or the first non-finite tensor: "layers.3.ffn_in.dy", "loss", ... */
};

/* Queues one optimizer step: forward and backward of every micro-batch, gradient norm, clipping,
 * update. At most two are pending (ERR_STATE). With trace, fingerprints for trainer_trace are taken
 * on the way. After an error nothing more is queued, evaluated or saved (ERR_STATE); the steps
 * queued before it can still be collected. */
NODISCARD enum status trainer_queue(struct trainer *t, bool trace, struct err *e);
/* This rank was asked to stop. Steps queued from now on say so in the results of all ranks, which
 * can then stop after the same step. */
void trainer_ask_stop(struct trainer *t);
/* Whether trainer_collect would return at once; false if nothing is pending. */
NODISCARD enum status trainer_ready(struct trainer *t, bool *ready, struct err *e);
/* Waits for the oldest pending step and fills *result. A non-finite tensor is ERR_NUMERIC naming
 * step and tensor; *result is filled, and neither this step nor the one queued behind it, which is
 * dropped, touched a parameter, unless it is the update that made a weight infinite: then that
 * weight is named. From then on the trainer refuses to step, evaluate or be saved (ERR_STATE). */
NODISCARD enum status trainer_collect(struct trainer *t, struct step_result *result,
                                      struct err *e);
/* Both: a step, done on return. Nothing may be pending. */
NODISCARD enum status trainer_step(struct trainer *t, bool trace, struct step_result *result,
                                   struct err *e);

struct eval_result {
    float loss;     /* mean nats a token */
    int64_t tokens; /* evaluated: fewer than asked for when the held-out part is short */
};

/* Loss over the first `batches` micro-batches of the held-out sequences, which the ranks share: the
 * same ones for any number of ranks. In the training buffers; nothing may be pending (ERR_STATE),
 * here as in checkpoint_save. */
NODISCARD enum status trainer_eval(struct trainer *t, int64_t batches, struct eval_result *result,
                                   struct err *e);

/* ---- observation ---- */

/* The i-th GEMM site that the device made BF16 of because the recipe asked for that (fallback),
 * "layers.0.ffn_in"; false after the last. */
bool trainer_fell_back(const struct trainer *t, int64_t i, char name[64]);

/* Names of the amax slots: weights, then forward, then backward operands in execution order:
 * "layers.0.qkv.weight", "layers.0.qkv.x", "head.dy". Borrowed until trainer_destroy. */
const char *const *trainer_slots(const struct trainer *t, int64_t *count);

/* One slot's figures in the step last collected, of all ranks together: each gets the same.
 *
 * With several ranks amax is the largest of theirs. Where the scale is current, a rank quantised
 * its own x with its own amax, and `scale` is that of the rank which had the largest: those of the
 * others were no smaller. A delayed scale, and a weight's, is the same on all. Counts and elements
 * are summed over ranks, and so a weight that each rank quantises whole is counted once a rank:
 * shares, count / elements, can be compared between numbers of ranks. (Where a record,
 * READBACK_BYTES, has no room for the counts of all, as for 1100 slots on 64 ranks, they are this
 * rank's own.)
 *
 * A weight of which a rank updates a share (train.shard), without param_gather, is quantised when
 * the next step gathers it: its counts are of the codes that the step's forward read, made by the
 * update before, while amax and scale are of those to come. */
struct fp8_slot {
    uint32_t amax_bits; /* f32 bits of the largest |x| of the last micro-batch (of all with
                           roll = "step"); for weights, of the codes that the step's update made */
    float scale;        /* multiplier of the tensor, or of the block that holds amax; 1: not FP8 */
    int64_t saturated, underflow; /* elements, over the step */
    int64_t elements;             /* that were quantised; 0 for a slot that is not FP8 */
};

/* Fills out[count]; before the first step, what is known from creation or a checkpoint. */
void trainer_read_fp8(const struct trainer *t, struct fp8_slot *out);

/* Names of the traced tensors in execution order: weights as the step found them
 * ("layers.0.qkv.weight"), block outputs of the last micro-batch ("out:embed", "out:layers.0"),
 * then gradients in the order that backward makes them ("grad:head.weight", ...). */
const char *const *trainer_trace_tensors(const struct trainer *t, int64_t *count);

/* Fills out[count] with the fingerprints of the step last collected, which was told to trace. */
NODISCARD enum status trainer_trace(const struct trainer *t, uint64_t *out, struct err *e);

/* Rank 0's `bytes` (at most PIECE_BYTES of model/pieces.h) become those of all ranks. Every rank
 * calls it: what only rank 0 knows and all act on. */
NODISCARD enum status trainer_tell(struct trainer *t, void *host, int64_t bytes, struct err *e);

/* SHA-256 in hex of the weights as they are: for each tensor in table order its name, dtype,
 * shape and unpadded bytes. Equal hashes mean equal weights. Every rank calls it and gets it. */
NODISCARD enum status trainer_weights_sha256(struct trainer *t, char hex[65], struct err *e);

/* Device memory allocated by trainer_create, bytes. */
int64_t trainer_memory_bytes(const struct trainer *t);

#endif
