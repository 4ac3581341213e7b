/* Whether the ways in which a recipe would compute are certified on a machine. */
#ifndef FP8LAB_RUNNER_ADVISE_CERTIFIED_H
#define FP8LAB_RUNNER_ADVISE_CERTIFIED_H

#include "runner/certify/forbidden.h"
#include "runner/certify/ways.h"

enum certified_finding {
    CERTIFIED_UNNEEDED, /* the CPU defines each operator */
    CERTIFIED_UNTRIED,  /* some way, in this shape, has no certificate of this machine */
    CERTIFIED_ALL,
    CERTIFIED_FAILED    /* a way failed: a run uses another one, or `ends` */
};

struct certified {
    enum certified_finding finding;
    int64_t ways, tried; /* of this model; those with a certificate that passed or failed */
    char way[WAY_TEXT_CAP], fault[32]; /* of the first that failed; "" */
    bool ends;         /* `way` has no other one: a run ends */
    int64_t products, widened; /* GEMMs of FP8 operands; those that a run emulates, since one of
                                  their kind failed */
    char widens[FORBIDDEN_NAME_CAP + 64]; /* "gemm e4m3 row x e4m3 row failed its certificate:
                                             stale output": the first; "" */
};

/* list: the certificates of the machine, as certify_cache_read gives them. */
NODISCARD enum status certified_judge(const struct ways *ways, const struct json_t *list,
                                      struct certified *out, struct err *e);
/* The same for the ways of a configuration, with twins as ways_twins has them. One whose ways
 * cannot be listed is not tried. */
NODISCARD enum status certified_find(const struct json_t *config, int ranks, unsigned twins,
                                     const struct json_t *list, struct certified *out,
                                     struct err *e);
const char *certified_name(enum certified_finding finding); /* "not tried" */

#endif
