/* Which recipe suits a model on a machine: one row per recipe, ranked. README.md has the rule. */
#ifndef FP8LAB_RUNNER_ADVISE_ADVICE_H
#define FP8LAB_RUNNER_ADVISE_ADVICE_H

#include "runner/advise/attention_way.h"
#include "runner/advise/certified.h"
#include "runner/advise/evidence.h"
#include "runner/advise/floor.h"
#include "runner/advise/forecast.h"
#include "runner/plan/recipe_table.h"

struct json_t;

/* The groups of the rule, best first. */
enum advice_group {
    ADVICE_TIMED,   /* it runs, and its time is forecast */
    ADVICE_UNTIMED, /* it runs; no time is known */
    ADVICE_LOSS,    /* runs here show that its loss does not hold */
    ADVICE_CANNOT   /* it lacks memory, or the device or the script refuses it */
};

struct advice_row {
    enum recipe_kind kind;
    const struct json_t *config; /* borrowed: the resolved run; NULL: the script refuses it */
    const char *run;             /* its name, borrowed; NULL as well */
    struct recipe_row way;
    enum attention_way attention;
    bool fell_back;              /* recipe.fallback: all its GEMMs are in BF16 on this device */
    char refused[256];           /* why `check` refuses it; "": it does not */
    int64_t bytes, memory;       /* a rank needs; there is (0: not known) */
    const char *where;           /* the fact of `memory`: static */
    bool fits;
    char less_memory[320];       /* as in plan/fit.h */
    int64_t tokens;              /* of a step, all ranks */
    int ranks;
    const struct peak *peak;     /* the GPU's data sheet; NULL: not known, or the CPU */
    double floor_us;             /* a step's least time by `peak`; 0: not known */
    double comm_bytes;           /* of a rank's collectives in a step */
    double link_us;              /* of them, in the forecast. 0: the forecast leaves them out */
    struct forecast forecast;
    bool unmeasurable; /* no file of steps can help; forecast.missing says why */
    double speed; /* tokens/s to those of BF16; 0: one of the two is not known */
    struct certified certified;
    struct loss_evidence loss;
    enum advice_group group;
    char reason[256]; /* why it stands where it stands; "" for the first */
};

struct advice {
    struct advice_row row[RECIPE_KIND_COUNT]; /* ranked by advice_rank */
    int64_t count;
    bool timed; /* some row has a forecast */
};

/* FP8 is preferred to BF16 if BF16's step is this much longer. Recipes nearer to each other count
 * as equally fast: forecasts are that uncertain. The second is for rough ones. */
#define ADVICE_MARGIN 0.10
#define ADVICE_MARGIN_ROUGH 0.25
/* A forecast is rough if more of its step is assumed. It is rough, too, if it leaves out the bytes
 * between ranks, and these would take more of it at NVLink's rate (link.h). */
#define ADVICE_ASSUMED_MAX 0.10
#define ADVICE_LINK_MAX 0.10
/* Whether the forecast leaves such bytes out. */
bool advice_leaves_out_link(const struct advice_row *row);
bool advice_is_rough(const struct advice_row *row);
/* Why the device refuses or emulates the recipe; "": it does neither. */
const char *advice_because(const struct advice_row *row);

/* Adds the row of a resolved run: its memory, how the device runs it, its certificates, and its
 * forecast. What `check --facts` refuses has its reason only. `config` and `run` are borrowed.
 * certificates: of the machine of `facts`. */
NODISCARD enum status advice_add(struct advice *a, const struct json_t *config, const char *run,
                                 const struct json_t *facts, const struct json_t *certificates,
                                 const struct measured *m, struct err *e);
/* Adds a recipe with which the script does not resolve, and its error. */
void advice_add_refused(struct advice *a, enum recipe_kind kind, const char *why);
/* Sorts the rows by the rule and gives each its group, speed and reason. The forecast of an
 * emulated row becomes at least BF16's. */
void advice_rank(struct advice *a);
/* The row to use; NULL: no recipe can run here. */
const struct advice_row *advice_best(const struct advice *a);

#endif
