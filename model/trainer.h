/* The inside of a trainer, for the files of this room (and tests that break it on purpose). */
#ifndef FP8LAB_MODEL_TRAINER_H
#define FP8LAB_MODEL_TRAINER_H

#include "model/exchange.h"
#include "model/pieces.h"
#include "model/train.h"
#include "model/transformer.h"

/* One-element tensors that change from step to step; each on a 16-byte boundary. */
struct scalars {
    struct tensor lr, bias1, bias2, step; /* uploaded before a step; step i32 */
    struct tensor clip, eval_loss;        /* computed on the device */
    /* The head of a step's record. */
    struct tensor loss, norm, flag, comm, comm_begin;
    void *uploaded; /* address of the first group */
};

/* How a step's record begins; slots and fingerprints follow (record_of). */
struct record_head {
    float loss, norm;
    int32_t flag[2]; /* {step, tensor} of the first value that was not finite, or {-1, -1} */
    /* In collectives since the group was made, and what of it compute stood still for: after the
     * step, and before it where something else came in between. */
    uint64_t comm_ns[2], comm_begin_ns[2];
};

/* Scalars are uploaded together, each on a 16-byte boundary. */
enum { SCALAR_STRIDE = 16, UPLOADED_SCALARS = 4 };

/* Steps queued and not collected yet: the device works on one while the host prepares the next. */
enum { IN_FLIGHT_MAX = 2 };
struct in_flight {
    float lr;
    bool traced;
    bool marked; /* nothing ran right before it: its own beginning was noted */
};

struct trainer {
    struct backend *backend; /* borrowed */
    const struct data *data; /* borrowed, may be NULL */
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
    struct tensor squares; /* [parameters] f32: sums of squared gradients */
    struct tensor prints;  /* [traced tensors] u64 */
    void *record;          /* device: one copy of it leaves after each step */
    unsigned char *seen;   /* host: the record of the step last collected, owned */
    int64_t record_bytes;
    int rank, world;
    int64_t accumulation;      /* micro-batches of a step on this rank */
    int64_t step, cursor;      /* steps collected; training sequences drawn for them, all ranks */
    int pending;               /* steps queued after those */
    struct in_flight in_flight[IN_FLIGHT_MAX]; /* of step s at s % IN_FLIGHT_MAX */
    int32_t *tokens, *targets; /* host [R], owned */
    const char **traced;       /* names, owned array; the strings belong to traced_text */
    char *traced_text;
    int traced_count;
    const char *failure; /* static: why nothing runs on from here; NULL while all is well */
    bool has_trace; /* the step last collected was traced */
    bool asks_stop; /* this rank was asked to stop */
    uint64_t comm_ns[2]; /* as of the step last collected */
};

/* First index of each group in the order in which non-finite tensors are looked for; slots come
 * first. */
static inline int32_t flag_loss(const struct trainer *t) { return t->slots.count; }
static inline int32_t flag_squares(const struct trainer *t) { return t->slots.count + 1; }
static inline int32_t flag_norm(const struct trainer *t) {
    return t->slots.count + 1 + t->params.count;
}

/* Runs a step and an evaluation on made-up tokens, twice, where the backend asks for it
 * (backend.h, `rehearses`): so that what it chooses, compiles, captures and allocates on first use
 * is done before step 0. Leaves no parameter changed, but FP8 state and codes, which the caller
 * makes anew. Done on return. */
NODISCARD enum status trainer_rehearse(struct trainer *t, struct err *e);

/* Gradient norm, clipping, AdamW, new codes. Queued. */
NODISCARD enum status trainer_update(struct trainer *t, struct err *e);

/* Weight codes and amax from the values and scales as they are; ERR_NUMERIC names a weight that
 * is not finite. Done on return. */
NODISCARD enum status trainer_requantise(struct trainer *t, struct err *e);

/* ERR_STATE while a step is pending. */
NODISCARD enum status trainer_settled(const struct trainer *t, struct err *e);
/* Reads the head of the record in `seen`. Fills `tensor` with the name that its flag holds and sets
 * `failure`, or fills it with "". */
void record_check(struct trainer *t, struct record_head *head, char tensor[128]);
/* Waits for queued work, downloads the record as it is now, and checks it as record_check does. */
NODISCARD enum status trainer_look(struct trainer *t, struct record_head *head, char tensor[128],
                                   struct err *e);

/* A tensor of the record in the copy on the host. */
static inline const void *record_of(const struct trainer *t, const struct tensor *x) {
    return t->seen + ((const char *)x->data - (const char *)t->record);
}

/* What a rank told of the step in that copy: see struct slots. */
static inline const uint64_t *told_by(const struct trainer *t, int rank) {
    const uint64_t *told = record_of(t, &t->slots.told);
    return told + 2 * t->slots.told_rows * rank;
}

/* Fingerprints for a traced step, each group at its own time. Queued. */
NODISCARD enum status trace_weights(struct trainer *t, struct err *e);
NODISCARD enum status trace_outputs(struct trainer *t, struct err *e);
NODISCARD enum status trace_gradients(struct trainer *t, struct err *e);
/* Makes the table of traced names. */
NODISCARD enum status trace_init(struct trainer *t, struct err *e);

#endif
