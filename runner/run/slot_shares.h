/* What each row of `run --side-by-side` has of this machine: GPUs of its own, or threads. A *slot*
 * is one of the places in which rows run at the same time. */
#ifndef FP8LAB_RUNNER_RUN_SLOT_SHARES_H
#define FP8LAB_RUNNER_RUN_SLOT_SHARES_H

#include "kernels/base.h"

struct json_t;
struct nvml_report;

enum { SLOTS_MAX = 64, SLOT_NAME_CAP = 64 };

struct slot_share {
    char *visible;   /* CUDA_VISIBLE_DEVICES of its process; owned. NULL: no GPU is used */
    int64_t *gpu;    /* [gpus] the driver's indices; owned */
    int64_t gpus;
    int64_t threads; /* of the cpu backend; 0: as without slots */
    char name[SLOT_NAME_CAP]; /* before its messages: "gpu 3", "gpus 2,3", "slot 1" */
};

struct slot_shares {
    int64_t count; /* 0: rows run one after another */
    struct slot_share share[SLOTS_MAX];
};

/* Divides the GPUs of `report`, which are those that this process sees: `each` for a slot. Entries
 * of `visible`, CUDA_VISIBLE_DEVICES of this process or NULL, are given on as they are; without
 * them a GPU is named by its UUID, since CUDA may count the GPUs in another order than the driver.
 * ERR_HARDWARE: there are too few. ERR_CONFIG: `visible` names one twice. */
NODISCARD enum status slot_shares_gpus(const struct nvml_report *report, const char *visible,
                                       int64_t slots, int64_t each, struct slot_shares *out,
                                       struct err *e);

/* Divides the processors among slots of `ranks` processes each; asked: --threads, which is for each
 * process; 0: not given. ERR_HARDWARE: a slot would have none. */
NODISCARD enum status slot_shares_threads(int64_t processors, int64_t asked, int64_t slots,
                                          int64_t ranks, struct slot_shares *out, struct err *e);

/* The facts as a slot sees them: its number of GPUs, and its part of the host's memory. */
NODISCARD enum status slot_shares_facts(const struct slot_shares *s, const struct json_t *facts,
                                        struct json_t **out, struct err *e);

void slot_shares_free(struct slot_shares *s); /* safe on a zeroed struct */

#endif
