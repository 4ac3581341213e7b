/* The check of a recipe on a device: one FP8 GEMM and ten training steps of a small fixed model.
 * The CPU backend defines its figures to the bit. */
#ifndef FP8LAB_RUNNER_DOCTOR_RECIPE_CHECK_H
#define FP8LAB_RUNNER_DOCTOR_RECIPE_CHECK_H

#include "kernels/backend.h"
#include "model/recipe.h"

struct json_t;

enum { RECIPE_CHECK_STEPS = 10, RECIPE_CHECK_GEMMS = 24 /* of the model, in 3 directions */ };
enum { RECIPE_CHECK_FIRST = RECIPE_BF16, RECIPE_CHECK_LAST = RECIPE_KIND_COUNT - 1 };

struct recipe_check {
    enum recipe_kind kind;
    enum status status; /* OK, or the error that makes the members below invalid */
    char problem[512];
    int64_t native, emulated; /* number of the model's GEMMs by decision, all directions; 0: the
                                 backend records none */
    double gemm_nmse;         /* NMSE of the product from the CPU's; 0 on the CPU */
    uint64_t gemm_print;      /* fingerprint of the product */
    float loss[RECIPE_CHECK_STEPS];
    char weights_sha256[65]; /* after the last step */
};

/* Checks `kind` on a new backend of this name that acts as `caps` (NULL: itself). Errors are in
 * status. */
void recipe_check_run(enum recipe_kind kind, const char *backend, int64_t device, const char *caps,
                      struct recipe_check *out);

/* The result as JSON: {recipe, status, problem, native, emulated, gemm_nmse, gemm_print, losses,
 * loss_bits, weights_sha256}. NULL without memory. */
struct json_t *recipe_check_json(const struct recipe_check *c);

#endif
