/* The fields of a trainer, for the files of model/ and for tests that damage it on purpose. */
#ifndef FP8LAB_MODEL_TRAINER_H
#define FP8LAB_MODEL_TRAINER_H

#include "model/audit.h"
#include "model/data_ahead.h"
#include "model/exchange.h"
#include "model/pieces.h"
#include "model/train.h"
#include "model/transformer.h"

/* One-element tensors that change with each step, each on a 16-byte boundary. */
struct scalars {
    struct tensor lr, bias1, bias2, step; /* uploaded before a step; step i32 */
    struct tensor clip, eval_loss;        /* computed on the device */
    struct tensor eval_right;             /* the same, with `accuracy` */
    /* The head of a step's record. */
    struct tensor loss, norm, flag, comm, comm_begin;
    void *uploaded; /* address of the first group */
};

/* The head of a step's record; slots and fingerprints follow (record_of). */
struct record_head {
    float loss, norm;
    int32_t flag[2]; /* {step, tensor} of the first non-finite value, or {-1, -1} */
    /* {time in collectives, the part of it in which LANE_COMPUTE was idle} since the group was
     * created: after the step; and before it, if other work ran since the previous step. */
    uint64_t comm_ns[2], comm_begin_ns[2];
};

/* Scalars are uploaded together, each on a 16-byte boundary: struct scalars, then a learning rate
 * for each further factor (struct params, lr_scale). */
enum { SCALAR_STRIDE = 16, UPLOADED_SCALARS = 4 };

/* Steps queued and not collected: the device runs one while the host prepares the next. */
enum { IN_FLIGHT_MAX = 2 };
/* Bits that ranks tell each other with each step. */
enum { ASKS_STOP = 1, ASKS_SAVE = 2, ASKS_BUSY = 4 };
struct in_flight {
    float lr;
    int64_t counted; /* tokens with loss, of all ranks */
    bool traced, measured, audited;
    bool histograms; /* it counts them */
    bool marked; /* no step was pending before it: its beginning has a timer mark */
};

struct trainer {
    struct backend *backend; /* borrowed */
    const struct data *data; /* borrowed, may be NULL */
    struct data_ahead *ahead; /* owned; NULL without data */
    struct model_config model;
    struct recipe recipe; /* sites owned */
    struct train_options options;
    struct memory memory;
    struct params params;
    struct slots slots;
    struct transformer transformer;
    struct exchange exchange;
    struct pieces pieces;
    struct scalars scalars;
    struct audit *audit; /* owned; NULL: no step is audited */
    struct tensor squares; /* [parameters] f32: sums of squared gradients */
    struct tensor prints;  /* [traced tensors] u64 */
    struct tensor histograms; /* [traced tensors, HISTOGRAM_COUNTS] u64; no data: not planned */
    void *record;          /* device: copied to the host after each step */
    unsigned char *seen;   /* host: the record of the step last collected; owned */
    int64_t record_bytes;
    int rank, world;
    int64_t accumulation;      /* micro-batches of a step on this rank */
    int64_t step, cursor;      /* steps collected; training sequences drawn for them by all ranks */
    int64_t updates_before;    /* that the moments saw before step 0, in other runs */
    int pending;               /* steps queued after those */
    int64_t remakes;           /* updates to come that make frozen weights with delayed scales
                                  again, until no scale can change */
    struct in_flight in_flight[IN_FLIGHT_MAX]; /* of step s at s % IN_FLIGHT_MAX */
    bool counts_all;           /* every target of the training data counts */
    int64_t scaled_by;         /* transformer.grad_scale is 1 / this, 0 if this is 0 */
    struct ahead_batch host;   /* [R] each, owned */
    int32_t *staging;          /* host [R], owned: what is made from host.starts */
    const char **traced;       /* names, owned array; the strings belong to traced_text */
    char *traced_text;
    int traced_count;
    const char *failure; /* static: why the trainer rejects further steps; NULL: no failure */
    bool has_trace; /* the step last collected was traced */
    bool has_errors; /* the step last collected measured the errors of casts */
    bool has_histograms; /* it counted them */
    bool wants_histograms; /* the next queued step counts them */
    uint64_t asks; /* ASKS_*: what this rank was asked to do */
    uint64_t comm_ns[2]; /* as of the step last collected */
    struct trainer_times spent; /* by trainer_create */
};

static inline int scalars_uploaded(const struct trainer *t) {
    return UPLOADED_SCALARS + t->params.lr_scales - 1;
}

/* The first flag index of each group, in the order of the search for non-finite values. Slots come
 * first. */
static inline int32_t flag_loss(const struct trainer *t) { return t->slots.count; }
static inline int32_t flag_squares(const struct trainer *t) { return t->slots.count + 1; }
static inline int32_t flag_norm(const struct trainer *t) {
    return t->slots.count + 1 + t->params.count;
}

/* The thread that reads data draws this rank's batches from `cursor` of all ranks on. */
static inline void trainer_draw_from(struct trainer *t, int64_t cursor) {
    data_ahead_begin(t->ahead, cursor + t->rank * t->options.micro_batch);
}

/* Sets the gradients' factor for a step with `counted` tokens with loss. Queued. */
NODISCARD enum status trainer_scale_gradients(struct trainer *t, int64_t counted, struct err *e);

/* Runs a step and an evaluation on token 0, twice. The caller does this before step 0 if the
 * backend asks for it (backend.h, `warms_up`), so that everything done on first use (algorithm
 * choice, compilation, graph capture, allocation) is done. Changes no parameter. Changes FP8 state
 * and codes; the caller must reset them. Done on return. */
NODISCARD enum status trainer_warm_up(struct trainer *t, struct err *e);

/* Gradient norm, clipping, AdamW, new codes. Queued. */
NODISCARD enum status trainer_update(struct trainer *t, struct err *e);

/* Makes weight codes and amax from the current values and scales. ERR_NUMERIC names a weight that
 * is not finite. Done on return. */
NODISCARD enum status trainer_requantise(struct trainer *t, struct err *e);

/* Uploads sequences [micro_batch, T] for an evaluation, each of one document. targets NULL: no
 * token has loss. ERR_ARG for an id that the model lacks. ERR_STATE while a step is pending or
 * after a failure. Queued. */
NODISCARD enum status trainer_upload_sequences(struct trainer *t, const int32_t *tokens,
                                               const int32_t *targets, struct err *e);

/* ERR_STATE while a step is pending. */
NODISCARD enum status trainer_check_idle(const struct trainer *t, struct err *e);
/* Reads the head of the record in `seen`. Fills `tensor` with the name that its flag holds and sets
 * `failure`, or fills it with "". */
void record_check(struct trainer *t, struct record_head *head, char tensor[128]);
/* Waits for queued work, downloads the record as it is now, and checks it as record_check does. */
NODISCARD enum status trainer_read_record(struct trainer *t, struct record_head *head,
                                          char tensor[128], struct err *e);

/* A tensor of the record, in the host's copy. */
static inline const void *record_of(const struct trainer *t, const struct tensor *x) {
    return t->seen + ((const char *)x->data - (const char *)t->record);
}

/* The rows of one rank in that copy: see struct slots, `gathered`. */
static inline const uint64_t *gathered_from(const struct trainer *t, int rank) {
    const uint64_t *gathered = record_of(t, &t->slots.gathered);
    return gathered + 2 * t->slots.gathered_rows * rank;
}

/* What a step records of each traced tensor. */
enum { OBSERVE_PRINTS = 1, OBSERVE_HISTOGRAMS = 2 };
/* Before the step, after forward, after backward; `what`: OBSERVE_*, 0: nothing. Queued. */
NODISCARD enum status observe_weights(struct trainer *t, unsigned what, struct err *e);
NODISCARD enum status observe_outputs(struct trainer *t, unsigned what, struct err *e);
NODISCARD enum status observe_gradients(struct trainer *t, unsigned what, struct err *e);
/* Makes the table of traced names. */
NODISCARD enum status trace_init(struct trainer *t, struct err *e);

#endif
