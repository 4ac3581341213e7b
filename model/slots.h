/* Amax slots and FP8 state: one slot per GEMM operand (and per parameter), in the order weights
 * | forward | backward, each in execution order.
 *
 * Delayed scaling's history, multiplier and factor live here. A *run* is a maximal series of
 * neighbouring slots under the same delayed options, updated by one operator; a recipe that
 * treats all layers alike has one run in each region.
 *
 * Timing. Within a micro-batch nobody reads a forward scale between the end of forward and the
 * next forward, nor a weight's between its quantisation and the next one. So updating forward
 * and backward slots together when backward is done, and weight slots right before they are
 * requantised, gives the scales of TransformerEngine's rule, and the scales that a GEMM or a
 * recomputation reads are still those that the codes were made with. Codes are made from BF16
 * values, TransformerEngine's partly from f32: kernels/README.md, "Recipes". */
#ifndef FP8LAB_MODEL_SLOTS_H
#define FP8LAB_MODEL_SLOTS_H

#include "model/bucket.h"
#include "model/memory.h"
#include "model/recipe.h"

struct operand_spec;

enum slot_region { SLOT_WEIGHT, SLOT_FORWARD, SLOT_BACKWARD, SLOT_REGION_COUNT };

struct slot {
    char name[80];
    enum slot_region region;
    const struct recipe_options *delayed; /* its options if its scale is delayed, else NULL */
    enum dtype code;                      /* FP8 format; the act dtype where it is not FP8 */
    struct quant_rule rule;
    int64_t elements; /* that this rank quantises at a time; 0 where it is not FP8 */
    int64_t divided;  /* elements of all ranks' parts of a weight of which each quantises its own;
                         else 0 */
    struct tensor amax, amax_eval; /* [1] u32 */
    struct tensor stats;           /* [2] u64 */
    struct tensor multiplier;      /* [1] f32 */
    void *factor;                  /* one f32, 16-byte aligned: the scale of its codes */
};

struct slot_run {
    int first, count;
    enum slot_region region;
    const struct recipe_options *options;
    float *code_max;       /* [count], owned */
    struct tensor history; /* [H, count] f32 */
    struct tensor multiplier, factor, amax; /* [count] */
};

struct slots {
    struct slot *slot; /* owned */
    const char **name; /* owned array of slot[i].name */
    struct slot_run *run; /* owned */
    struct span *cleared; /* owned: spans zeroed before each micro-batch */
    int count, capacity, run_count, cleared_count;
    int first[SLOT_REGION_COUNT + 1]; /* first slot of each region */
    /* Device arrays over all slots; `seen_*` hold the last micro-batch's for trainer_read_fp8. All
     * but amax_eval belong to a step's record. */
    struct tensor amax, amax_eval, multiplier, stats, seen_amax, seen_multiplier;
    struct tensor loss; /* [1] f32 behind amax: 0 or NaN, see slots_share */
    /* What each rank tells all after a step (slots_tell): [ranks * told_rows, 2] u64, in the
     * record. A rank's first row is {asks to stop, 0}; behind it, if tells_counts, are its counts.
     * told_own are this rank's rows, and its `stats` then a part of them. */
    struct tensor told, told_own;
    int64_t told_rows;
    bool tells_counts;
    void *factor;
};

/* Adds a slot; regions must be added in order. Returns its index. spec NULL: not FP8. Never moves
 * slots once slots_init was told enough capacity. */
NODISCARD enum status slots_init(struct slots *s, int capacity, struct err *e);
int slots_add(struct slots *s, enum slot_region region, const struct operand_spec *spec,
              const struct recipe_options *options, int64_t elements, const char *format, ...)
    PRINTF_LIKE(6, 7);

/* Finds the runs and plans the arrays, those of the record within the shared region `record`. Call
 * when all slots are added. */
NODISCARD enum status slots_layout(struct slots *s, struct memory *m, int record, struct err *e);
/* Plans the counts and what ranks tell one another of them, at most `room` more bytes of the record
 * if that can be: where it cannot, they do not. */
void slots_layout_told(struct slots *s, struct memory *m, int record, int world, int64_t room);
/* After allocation: views into the arrays, and the state of a new run (multiplier and factor 1). */
NODISCARD enum status slots_start(struct slots *s, struct backend *b, struct err *e);
/* Back to a new run's state: no amax, count or history, multiplier and factor 1. */
NODISCARD enum status slots_reset(struct slots *s, struct backend *b, struct err *e);
/* After multipliers were read from a checkpoint: factors are their reciprocals. Done on return. */
NODISCARD enum status slots_restore_factors(struct slots *s, struct backend *b, struct err *e);
void slots_destroy(struct slots *s);

/* Zeroes what current scaling and the records need fresh before a micro-batch; at the first one
 * of a step also the counts of forward and backward slots. */
NODISCARD enum status slots_begin_micro(struct slots *s, struct backend *b, bool first,
                                        struct err *e);
/* With several ranks, after backward: every amax becomes the largest of all ranks, and s->loss is
 * NaN if any rank's `loss` is not finite, else 0. Delayed scaling so has the same scales
 * everywhere, and every rank finds the same tensor when one is not finite. A current scale is older
 * than this and rests on the rank's own amax, as TransformerEngine's does. */
NODISCARD enum status slots_share(struct slots *s, struct backend *b, const struct tensor *loss,
                                  struct err *e);
/* The same for weights, of which each rank has seen its shard. */
NODISCARD enum status slots_share_weights(struct slots *s, struct backend *b, struct err *e);
/* After backward: keeps the figures for the record, then rolls what rolls per micro-batch. */
NODISCARD enum status slots_end_micro(struct slots *s, struct backend *b, struct err *e);
/* After the last micro-batch: rolls what rolls per step. */
NODISCARD enum status slots_end_step(struct slots *s, struct backend *b, struct err *e);
/* After a step: every rank's counts, and whether it asks to stop, come to all. Counts are summed
 * where they are read, since no collective adds integers. */
NODISCARD enum status slots_tell(struct slots *s, struct backend *b, bool stop, struct err *e);
/* Zeroes the counts of some slots. */
NODISCARD enum status slots_clear_counts(struct slots *s, struct backend *b, struct span slots,
                                         struct err *e);
/* Before an update quantises weights: rolls their slots. */
NODISCARD enum status slots_roll_weights(struct slots *s, struct backend *b, struct err *e);
/* Zeroes the amax of weights, before they are quantised. */
NODISCARD enum status slots_clear_weights(struct slots *s, struct backend *b, struct err *e);

#endif
