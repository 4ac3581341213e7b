/* The trainer: a model, a recipe and an optimizer over a backend; one call is one step.
 *
 * All memory is planned and allocated in trainer_create; trainer_step and trainer_eval allocate
 * nothing. Observation changes no bit: evaluation, traces and checkpoints read the state and never
 * write it. Not thread-safe: one thread drives a trainer.
 *
 *   data_open -> trainer_create -> [checkpoint_load] -> { trainer_step [trainer_read_fp8]
 *   [trainer_trace] [trainer_eval] [checkpoint_save] }* -> trainer_destroy -> data_close
 *
 * trainer_step is trainer_queue followed by trainer_collect. Called separately, they let the host
 * prepare a step while the device runs the step before; results then arrive one step late. */
#ifndef FP8LAB_MODEL_TRAIN_H
#define FP8LAB_MODEL_TRAIN_H

#include "kernels/backend.h"
#include "model/bucket.h"
#include "model/config.h"
#include "model/data.h"
#include "model/optim.h"
#include "model/recipe.h"
#include "model/selection.h"

/* What backward recomputes instead of reading from memory. All three give the same bits. */
enum recompute_kind {
    RECOMPUTE_NONE,
    RECOMPUTE_FFN,  /* from the FFN's normalisation to its activation */
    RECOMPUTE_BLOCK /* everything but each block's input */
};

/* Which steps are traced: the first `first` steps, then every `every`th step. With `every` 0, steps
 * that are evaluated. The caller asks trace_due and passes the answer to trainer_step. */
struct trace_options { int64_t first, every; };

static inline bool trace_due(const struct trace_options *o, int64_t step, bool evaluated) {
    if (step <= o->first) return true;
    return o->every > 0 ? step % o->every == 0 : evaluated;
}

/* Every so many steps some results of the backend are computed again on the host and compared to
 * the bit (model/audit.h). Changes no bit of the run. */
enum { AUDIT_BY_BACKEND = -1, AUDIT_EVERY = 100, AUDIT_OUTPUTS = 64, AUDIT_OUTPUTS_MAX = 1024,
       AUDIT_OPERANDS = 5 };
struct audit_options {
    int64_t every;   /* steps; 0: never; AUDIT_BY_BACKEND: AUDIT_EVERY on a GPU, never on a CPU */
    int64_t outputs; /* of GEMMs, in such a step and on each rank; up to AUDIT_OUTPUTS_MAX */
};

struct train_options {
    int64_t steps;
    int64_t global_batch, micro_batch; /* sequences; global = micro * ranks * accumulation steps */
    uint64_t seed;
    enum dtype grad_dtype; /* DTYPE_F32 or DTYPE_BF16: main gradients, also the accumulator */
    bool grad_codes; /* ranks send their gradients as 8-bit codes (kernels/comm_codes.h) */
    enum recompute_kind recompute;
    int64_t recompute_layers; /* of the first layers only; 0: of all */
    bool makes_codes; /* codes of weights are made before each use and not kept; forward_only
                         keeps them. Changes no bit of the run */
    int64_t head_chunk; /* rows of logits at a time: whole HEAD_CHUNK_ALIGN; 0: the default */
    enum shard_kind shard; /* what ranks share out; no effect with one rank */
    struct document_options documents; /* as the data were opened with */
    bool accuracy; /* evaluations also count the right tokens: 4 bytes a row of a micro-batch */
    bool histograms; /* steps may count histograms: 1 KiB of memory a traced tensor */
    bool forward_only; /* one rank that evaluates and never steps: nothing that only a step needs
                          is planned, and the optimizer's options are not read */
    int64_t forward_step; /* with forward_only: the weights are of this step, so forward_bf16_after
                             may have passed */
    bool resumes; /* a checkpoint is loaded before the first step: it says which batch is next, and
                     none is drawn before. Otherwise trainer_create begins to draw the first ones */
    bool untransposed; /* the backend multiplies MXFP8's twins so (twins_untransposed). For
                          trainer_plan; trainer_create asks the backend itself */
    struct optimizer_options optimizer;
    struct schedule_options schedule;
    struct selection selection; /* frozen parameters, factors of the learning rate */
    struct trace_options trace;
    int64_t fp8_error; /* every so many steps the error of each FP8 cast is measured; 0: never.
                          Changes no bit of the run */
    struct audit_options audit;
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
    int64_t gpu_bytes; /* beside the arenas, at the peak: see plan_add_gpu */
    int64_t shard_max; /* elements of the largest gradient shard that a rank reduces */
    int64_t trained;   /* elements of parameters that are not frozen */
};

/* What trainer_create would allocate on rank 0 of `world` ranks, the rank with the most memory.
 * Needs no backend. Free with plan_free. */
NODISCARD enum status trainer_plan(struct plan *out, const struct model_config *model,
                                   const struct recipe *recipe, const struct train_options *options,
                                   int world, struct err *e);
/* Adds rows for the device memory beside the arenas (kernels/device.h) of a GPU of compute
 * capability `cc`, 90 for 9.0. */
NODISCARD enum status plan_add_gpu(struct plan *p, const struct model_config *model,
                                   const struct recipe *recipe, const struct train_options *options,
                                   int world, int cc, struct err *e);
void plan_free(struct plan *p);

/* ---- life ---- */

struct trainer; /* opaque */

/* Checks and copies the three option structs, allocates, and initialises the weights from the seed.
 * The backend and the data are borrowed until trainer_destroy. Call comm.init before. `data` may be
 * NULL if the trainer only converts a checkpoint. */
NODISCARD enum status trainer_create(struct trainer **out, struct backend *backend,
                                     const struct model_config *model, const struct recipe *recipe,
                                     const struct train_options *options, const struct data *data,
                                     struct err *e);
void trainer_destroy(struct trainer *t); /* NULL is fine */

/* Steps collected so far; loading a checkpoint sets it. */
int64_t trainer_step_count(const struct trainer *t);
/* Steps queued and not yet collected. */
int trainer_pending(const struct trainer *t);

/* ---- a step ---- */

struct step_result {
    int64_t step;  /* 1-based */
    float loss;    /* mean nats over the tokens with loss of the global batch; NaN: it has none */
    float grad_norm, lr; /* of the gradients of trained parameters; before train.lr_scale */
    int64_t tokens;   /* in this step, all ranks, padding included */
    int64_t loss_tokens; /* of these, the ones with loss. With 0 the gradient is 0: the update has
                            only momentum and weight decay */
    int64_t time_us;  /* device time since the end of the previous step; since the beginning of
                         this step if other work ran between the two */
    int64_t comm_us;  /* the part of it in collectives on this rank, waiting included */
    int64_t exposed_us; /* the part of comm_us in which LANE_COMPUTE was idle; on a CPU all */
    bool traced;
    bool measured; /* trainer_read_fp8 has the errors of its casts */
    bool stop, save;  /* some rank was asked to stop, or to save, before it queued this step */
    bool busy;        /* some rank was writing a checkpoint when it queued this step */
    char tensor[128]; /* "" or the first non-finite tensor: "layers.3.ffn_in.dy", "loss", ... */
};

/* Queues one optimizer step: forward and backward of every micro-batch, gradient norm, clipping,
 * update. At most two steps may be pending (ERR_STATE; with forward_only none). `trace` records
 * fingerprints for trainer_trace. After an error the trainer rejects queue, evaluate and save
 * (ERR_STATE); steps queued before the error can still be collected. */
NODISCARD enum status trainer_queue(struct trainer *t, bool trace, struct err *e);
/* Marks this rank as asked to stop. The results of steps queued afterwards report it on all ranks,
 * so all can stop after the same step. */
void trainer_ask_stop(struct trainer *t);
/* The same for a checkpoint; only the result of the next queued step reports it. */
void trainer_ask_save(struct trainer *t);
/* Tells all ranks, by the result of the next queued step, that this rank is writing a
 * checkpoint. */
void trainer_say_busy(struct trainer *t);
/* The next queued step also counts histograms (train_options.histograms). Every rank asks for the
 * same steps. */
void trainer_ask_histograms(struct trainer *t);
/* *ready: trainer_collect would return without waiting. False if no step is pending. */
NODISCARD enum status trainer_ready(struct trainer *t, bool *ready, struct err *e);
/* Waits for the oldest pending step and fills *result. A non-finite tensor is ERR_NUMERIC naming
 * step and tensor, with *result filled. The step and the step queued behind it then changed no
 * parameter, and the latter is dropped. Exception: the update itself made a weight infinite; the
 * error names that weight. The trainer then rejects steps, evaluations and saves (ERR_STATE). */
NODISCARD enum status trainer_collect(struct trainer *t, struct step_result *result,
                                      struct err *e);
/* trainer_queue and trainer_collect: done on return. No step may be pending. */
NODISCARD enum status trainer_step(struct trainer *t, bool trace, struct step_result *result,
                                   struct err *e);

struct eval_result {
    float loss;     /* mean nats over the tokens with loss */
    int64_t tokens; /* evaluated, padding included; less than asked if the held-out part is short */
    int64_t loss_tokens; /* of these, the ones with loss */
    double accuracy; /* of those, the share to which the model gives the largest logit, ties
                        included; NaN unless train_options.accuracy asks for it */
};

/* The loss over the first `batches` micro-batches of held-out sequences. Ranks divide them; the set
 * does not depend on the number of ranks. Uses the training buffers. ERR_STATE if a step is pending
 * (checkpoint_save too). ERR_CONFIG if no token of it has loss. */
NODISCARD enum status trainer_eval(struct trainer *t, int64_t batches, struct eval_result *result,
                                   struct err *e);

/* The same over one of the data's further sets (model/data.h). */
NODISCARD enum status trainer_eval_set(struct trainer *t, int64_t set, int64_t batches,
                                       struct eval_result *result, struct err *e);

/* trainer_eval by parts: each of several processes has a trainer of one rank, and evaluates some of
 * the micro-batches. Fills loss[i], and with train_options.accuracy right[i], for i = first,
 * first + stride, ... below `batches` and below the number of micro-batches that there are. */
struct eval_part {
    int64_t first, stride;
    float *loss, *right; /* [batches] sums over tokens */
};
NODISCARD enum status trainer_eval_part(struct trainer *t, int64_t batches,
                                        const struct eval_part *part, struct err *e);
/* The result of all parts. It adds in the order of trainer_eval with one rank, which has the same
 * bits. right NULL: without accuracy. Needs no trainer. */
struct eval_whole {
    const struct data *data;
    int64_t seq_len, micro_batch, batches;
};
NODISCARD enum status eval_join(const struct eval_whole *w, const float *loss, const float *right,
                                struct eval_result *result, struct err *e);

/* The losses of given sequences, in nats, by the pass of trainer_eval: tokens, targets and losses
 * [micro_batch, T], each rank's own. A target of -1 has the loss 0. A sequence is one document.
 * Needs no data and changes no state of training. ERR_ARG for an id that the model lacks. Done on
 * return. */
NODISCARD enum status trainer_losses(struct trainer *t, const int32_t *tokens,
                                     const int32_t *targets, float *losses, struct err *e);

/* ---- observation ---- */

/* What trainer_create spent its time on: memory; initial weights; the trial step, in which the
 * backend chooses algorithms; capturing its graph. */
struct trainer_times { int64_t memory_us, weights_us, trial_us, graph_us; };
struct trainer_times trainer_times(const struct trainer *t);

/* The i-th GEMM site that fell back to BF16 (recipe option fallback), as "layers.0.ffn_in". False
 * after the last. */
bool trainer_fell_back(const struct trainer *t, int64_t i, char name[64]);

/* What one audited step compared on this rank; all were equal unless there is a fault. */
struct audit_record {
    int64_t step;
    int64_t products;   /* outputs of GEMMs compared */
    int64_t codes;      /* codes of casts compared, with their factors */
    int64_t unknown;    /* outputs that nobody can compute again: the backend does not say in which
                           way it adds, or one does not fit the buffer */
};
/* The oldest record not yet read; false if there is none. A comparison takes some steps. */
bool trainer_audited(struct trainer *t, struct audit_record *out);
/* Waits for the comparison that runs. ERR_VERIFY if any found a difference; checkpoint_begin and
 * trainer_collect return the same error. */
NODISCARD enum status trainer_audit_settle(struct trainer *t, struct err *e);

/* The difference that an audit found. */
struct audit_fault {
    int64_t step, row, col;
    const char *what;       /* "product", "code", "factor", "value above its amax" */
    char name[96];          /* "layers.3.qkv wgrad", "layers.3.qkv.x codes" */
    enum dtype dtype;       /* of both values */
    uint32_t found, expected; /* their bits */
    /* What the value was computed from, in host memory, until trainer_destroy: of a product a and b
     * [1, K], bias, residual and out before it [1, 1]; of a cast x and codes. x NULL: none. */
    struct audit_operand { const char *name; const struct tensor *x; } operand[AUDIT_OPERANDS];
    const struct mma_way *way; /* NULL: a cast */
};
/* NULL: none was found. */
const struct audit_fault *trainer_audit_fault(const struct trainer *t);

/* Names of the amax slots: weights, then forward, then backward operands in execution order:
 * "layers.0.qkv.weight", "layers.0.qkv.x", "head.dy". Borrowed until trainer_destroy. */
const char *const *trainer_slots(const struct trainer *t, int64_t *count);

/* The figures of one slot in the step last collected. Every rank gets the same.
 *
 * With several ranks, amax is the maximum over ranks. With current scaling each rank quantised x
 * with its own amax; `scale` is the scale of the rank with the largest amax, the smallest of all
 * scales. Delayed scales, and scales of weights, are equal on all ranks. Counts and elements are
 * sums over ranks. A weight that every rank quantises whole is counted once per rank, so
 * count / elements is comparable between numbers of ranks. If the record (READBACK_BYTES) has no
 * room for the counts of all ranks, as with 1100 slots on 64 ranks, counts are this rank's own.
 *
 * A weight that is sharded (train.shard) without param_gather is quantised when the next step
 * gathers it, and one whose codes are not kept (makes_codes) when the next step reads it. Its
 * counts belong to the codes that this step's forward read; its amax and scale belong to the next
 * codes. */
struct fp8_slot {
    uint32_t amax_bits; /* f32 bits of the largest |x| of the last micro-batch (of all micro-batches
                           with roll = "step"); weights: of the codes that the update made */
    float scale;        /* multiplier of the tensor, or of the block that holds amax; 1: not FP8 */
    int64_t saturated, underflow; /* elements, over the step */
    int64_t elements;             /* quantised elements; 0 for a slot that is not FP8 */
    /* Of the step's first micro-batch, all ranks. NaN: not FP8, or the step did not measure. */
    double snr_db; /* 10 log10 of the sum of x^2 over the sum of squared errors of its codes. NaN
                      also for a tensor of zeros; infinite if the codes are exact */
    double rms;    /* root mean square of the values */
};

/* Fills out[count]; before the first step, with the state from creation or a checkpoint. */
void trainer_read_fp8(const struct trainer *t, struct fp8_slot *out);

/* Names of the traced tensors in execution order:
 *   weights before the step                    "layers.0.qkv.weight"
 *   block outputs of the last micro-batch      "out:embed", "out:layers.0"
 *   gradients in backward order                "grad:head.weight" */
const char *const *trainer_trace_tensors(const struct trainer *t, int64_t *count);

/* Fills out[count] with the fingerprints of the step last collected. ERR_STATE if not traced. */
NODISCARD enum status trainer_trace(const struct trainer *t, uint64_t *out, struct err *e);

/* The histograms of the traced tensors (names: trainer_trace_tensors) in the step last collected:
 * out[count][HISTOGRAM_COUNTS], the buckets of kernels/histogram.h. Weights are those before the
 * step, outputs those of this rank's last micro-batch. A frozen parameter's gradient has none: all
 * counts are 0. ERR_STATE if a step is pending, or the last one did not count. Done on return. */
NODISCARD enum status trainer_histograms(const struct trainer *t, int64_t *out, struct err *e);

/* Broadcasts rank 0's `bytes` bytes (at most PIECE_BYTES of model/pieces.h). Every rank calls
 * it. */
NODISCARD enum status trainer_broadcast(struct trainer *t, void *host, int64_t bytes,
                                        struct err *e);

/* SHA-256 in hex of the current weights: for each tensor in table order its name, dtype, shape and
 * unpadded bytes. Equal hashes mean equal weights. Every rank calls it and gets the hash. */
NODISCARD enum status trainer_weights_sha256(struct trainer *t, char hex[65], struct err *e);

/* Device memory allocated by trainer_create, bytes. */
int64_t trainer_memory_bytes(const struct trainer *t);

#endif
