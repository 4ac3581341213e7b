/* Amax slots and FP8 state: one slot per GEMM operand (and per parameter), in the order weights |
 * forward | backward, each in execution order.
 *
 * The history, multiplier and factor of delayed scaling live here. A *run* is a maximal series of
 * neighbouring slots with the same delayed options; one operator updates it. A recipe that treats
 * all layers alike has one run in each region.
 *
 * Timing. Forward scales are not read between the end of forward and the next forward. The scale of
 * a weight is not read between its quantisation and the next one. So forward and backward slots are
 * updated together after backward, and weight slots right before weights are quantised again. This
 * gives the scales of TransformerEngine's rule, and a GEMM or a recomputation always reads the
 * scale with which its codes were made. Codes are made from BF16 values; TransformerEngine's partly
 * from f32 (kernels/RECIPES.md). */
#ifndef FP8LAB_MODEL_SLOTS_H
#define FP8LAB_MODEL_SLOTS_H

#include "model/bucket.h"
#include "model/memory.h"
#include "model/recipe.h"

enum slot_region { SLOT_WEIGHT, SLOT_FORWARD, SLOT_BACKWARD, SLOT_REGION_COUNT };

struct slot {
    char name[80];
    enum slot_region region;
    const struct recipe_options *delayed; /* its options if the scale is delayed, else NULL */
    bool settled;                         /* of a settled parameter (struct param) */
    enum dtype code;                      /* FP8 format; act dtype if not FP8 */
    struct quant_rule rule;
    int64_t elements; /* that this rank quantises in one call; 0 if not FP8 */
    int64_t divided;  /* a weight that ranks quantise in parts: elements of all parts; else 0 */
    struct tensor amax, amax_eval; /* [1] u32 */
    struct tensor stats;           /* [2] u64 */
    struct tensor error;           /* [2] f32: quant_error of its codes in a step that measures */
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
    /* Device arrays over all slots. seen_amax and seen_multiplier keep the values of the last
     * micro-batch for trainer_read_fp8. All but amax_eval belong to a step's record. */
    struct tensor amax, amax_eval, multiplier, stats, seen_amax, seen_multiplier;
    struct tensor errors; /* [count, 2] f32, in the record */
    bool measures; /* sinks of training add to the errors; such work is in no graph */
    bool keeps; /* sinks of activations keep their values, which an audit reads; likewise */
    struct tensor loss; /* [1] f32 behind amax: 0 or NaN, see slots_share */
    /* Gathered from all ranks after a step (slots_gather_counts): [ranks * gathered_rows, 2] u64,
     * in the record. The first row of a rank is {asks to stop, 0}. With gathers_counts its counts
     * follow. gathered_own are this rank's rows; with gathers_counts `stats` is a part of them. */
    struct tensor gathered, gathered_own;
    int64_t gathered_rows;
    bool gathers_counts;
    void *factor;
};

/* slots_add adds a slot and returns its index. Add the regions in order. spec NULL: not FP8. Slots
 * never move if the capacity given to slots_init suffices. */
NODISCARD enum status slots_init(struct slots *s, int capacity, struct err *e);
int slots_add(struct slots *s, enum slot_region region, const struct operand_spec *spec,
              const struct recipe_options *options, int64_t elements, const char *format, ...)
    PRINTF_LIKE(6, 7);

/* Finds the runs and plans the arrays; arrays of the record lie in the shared region `record`. Call
 * after the last slots_add. */
NODISCARD enum status slots_layout(struct slots *s, struct memory *m, int record, struct err *e);
/* Plans the counts, and the rows in which ranks gather counts if these take at most `room` more
 * bytes of the record. Otherwise ranks do not gather counts (gathers_counts false). */
void slots_layout_gathered(struct slots *s, struct memory *m, int record, int world, int64_t room);
/* After allocation: makes the views and the state of a new run (multiplier and factor 1). */
NODISCARD enum status slots_start(struct slots *s, struct backend *b, struct err *e);
/* Restores the state of a new run: no amax, count or history; multiplier and factor 1. */
NODISCARD enum status slots_reset(struct slots *s, struct backend *b, struct err *e);
/* After a checkpoint filled the multipliers: sets factors to their reciprocals. Done on return. */
NODISCARD enum status slots_restore_factors(struct slots *s, struct backend *b, struct err *e);
void slots_destroy(struct slots *s);

/* Before a micro-batch: zeroes the amax of forward and backward slots as needed; before the first
 * one of a step also their counts. */
NODISCARD enum status slots_begin_micro(struct slots *s, struct backend *b, bool first,
                                        struct err *e);
/* With several ranks, after backward: every amax becomes the maximum over ranks; s->loss becomes
 * NaN if any rank's `loss` is not finite, else 0. So delayed scales are equal on all ranks, and
 * every rank names the same non-finite tensor. Current scales were made before, from the rank's own
 * amax, as in TransformerEngine. */
NODISCARD enum status slots_share(struct slots *s, struct backend *b, const struct tensor *loss,
                                  struct err *e);
/* The same for weights; each rank has seen only its shard. */
NODISCARD enum status slots_share_weights(struct slots *s, struct backend *b, struct err *e);
/* After backward: copies the figures for the record, then updates histories with roll =
 * "microbatch". */
NODISCARD enum status slots_end_micro(struct slots *s, struct backend *b, struct err *e);
/* After the last micro-batch: updates histories with roll = "step". */
NODISCARD enum status slots_end_step(struct slots *s, struct backend *b, struct err *e);
/* Whether any slot is of FP8 codes. */
bool slots_have_codes(const struct slots *s);
/* Before a step that measures errors: zeroes them. After it: adds the ranks' errors. */
NODISCARD enum status slots_begin_errors(struct slots *s, struct backend *b, struct err *e);
NODISCARD enum status slots_share_errors(struct slots *s, struct backend *b, struct err *e);
/* After a step: all-gathers the ranks' counts and requests. The reader adds the counts,
 * because no collective adds integers. */
NODISCARD enum status slots_gather_counts(struct slots *s, struct backend *b, uint64_t asks,
                                          struct err *e);
/* Zeroes the counts of some slots; all: also of those that are settled. */
NODISCARD enum status slots_clear_counts(struct slots *s, struct backend *b, struct span slots,
                                         bool all, struct err *e);
/* Before an update quantises weights: updates their histories. */
NODISCARD enum status slots_roll_weights(struct slots *s, struct backend *b, struct err *e);
/* How many updates from now on may still change a scale of a settled slot, whose amax is known: 1
 * if its history holds that amax alone, as in a new run; otherwise what the history has room for; 0
 * if no such scale is delayed. */
NODISCARD enum status slots_remakes(const struct slots *s, struct backend *b, int64_t *updates,
                                    struct err *e);
/* Zeroes the amax of weights, before they are quantised; `all` as above. */
NODISCARD enum status slots_clear_weights(struct slots *s, struct backend *b, bool all,
                                          struct err *e);

#endif
