/* Each recipe on this device: the table's entry, the device's own decision, and whether its figures
 * agree with the reference.
 *
 * On a CPU they must equal the constants below to the bit; the constants hold on every machine. A
 * GPU sums in another order. Its product may differ by the precision of tensor cores (NMSE 1e-3
 * with fast accumulation: tests/gpu/test_matmul.c). Its first loss may differ by 1e-3, later ones
 * by 2 %, since training amplifies differences. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/doctor/doctor.h"
#include "runner/doctor/probe.h"
#include "runner/doctor/recipe_check.h"
#include "runner/plan/recipe_table.h"

enum { CHECK_SECONDS = 120 };
static const double NMSE_MAX = 1e-3, FIRST_MAX = 1e-3, LOSS_MAX = 2e-2;

/* Results of recipe_check_run on the CPU backend, on any CPU. */
static const struct { const char *gemm, *loss, *weights; } GOLDEN[] = {
    [RECIPE_BF16] = { "8ad26070a1e2b47a", "4060aa1a",
      "f9614879101e9eaf567fff246f8fe81cf28697630f39c5bb2c944c98b517e9e2" },
    [RECIPE_DELAYED] = { "0c93e66bfef345bb", "4060ecef",
      "ef9c82e51cddd4406c0a9059e3b50d92486cce61ce86e678ced9d0e2f7a4f905" },
    [RECIPE_TENSORWISE] = { "0c93e66bfef345bb", "4061de6e",
      "1a5114d0896145eec404166b06a77623a7d67508e3160241ab727f8534194faf" },
    [RECIPE_ROWWISE] = { "5f805c76ea75beb7", "40608504",
      "d49ccc9d856fce021151be8dc1b26386a6f08868455c824a5f6385905de6453c" },
    [RECIPE_BLOCKWISE] = { "5018ee59a0e9e5f5", "4060baa6",
      "87801f62921ccf893a18d7af2c8cfcffbc1863ef48357aeec4049070326c7729" },
    [RECIPE_MXFP8] = { "5f805c76ea75beb7", "4060c62c",
      "24487998d09c4073bddaec7793d49daca9d7f615e1c145b49688e2784062cbc4" },
    [RECIPE_NVFP4] = { "973dc546fd697d34", "40629df4",
      "1ce4c666c15fe315d4fc5b963d486d2c191cb0f16749487d0e83444027537dad" },
};
_Static_assert(sizeof GOLDEN / sizeof *GOLDEN == RECIPE_KIND_COUNT, "a kind has no golden row");

/* ---- comparisons ------------------------------------------------------------------------------*/

static const json_t *check_of(const json_t *answer, const char *recipe) {
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(answer, "checks"), i, row)
        if (!strcmp(json_text(row, "recipe", ""), recipe)) return row;
    return NULL;
}

static const char *last_bits(const json_t *check) {
    const json_t *bits = json_object_get(check, "loss_bits");
    const char *text = json_string_value(json_array_get(bits, RECIPE_CHECK_STEPS - 1));
    return text ? text : "";
}

/* Whether the CPU's figures equal the constants; `why` names the first that does not. */
static bool equal_golden(const json_t *check, enum recipe_kind golden, char why[256]) {
    const char *gemm = json_text(check, "gemm_print", "");
    const char *weights = json_text(check, "weights_sha256", "");
    why[0] = '\0';
    if (strcmp(gemm, GOLDEN[golden].gemm) != 0)
        snprintf(why, 256, "the product's fingerprint is %s, not %s", gemm, GOLDEN[golden].gemm);
    else if (strcmp(last_bits(check), GOLDEN[golden].loss) != 0)
        snprintf(why, 256, "the tenth loss has the bits %s, not %s", last_bits(check),
                 GOLDEN[golden].loss);
    else if (strcmp(weights, GOLDEN[golden].weights) != 0)
        snprintf(why, 256, "the weights hash to %.16s, not %.16s", weights, GOLDEN[golden].weights);
    return !*why;
}

/* Whether a device's figures are near the CPU's. */
static bool near_reference(const json_t *check, const json_t *reference, double *worst,
                           char why[256]) {
    const json_t *here = json_object_get(check, "losses");
    const json_t *there = json_object_get(reference, "losses");
    double gemm = json_number_value(json_object_get(check, "gemm_nmse"));
    why[0] = '\0';
    *worst = 0;
    if (!(gemm <= NMSE_MAX)) {
        snprintf(why, 256, "the NMSE of its product is %.2g; at most %.0e is allowed", gemm,
                 NMSE_MAX);
        return false;
    }
    for (size_t i = 0; i < RECIPE_CHECK_STEPS; i++) {
        double a = json_number_value(json_array_get(here, i));
        double b = json_number_value(json_array_get(there, i));
        double off = a > 0 && b > 0 ? fabs(a / b - 1) : 1, most = i == 0 ? FIRST_MAX : LOSS_MAX;
        if (off > *worst) *worst = off;
        if (off <= most || *why) continue;
        snprintf(why, 256, "its loss of step %zu is %.5f, the reference's %.5f", i + 1, a, b);
    }
    return !*why;
}

/* ---- one recipe -------------------------------------------------------------------------------*/

/* NULL if the backend keeps no record (a CPU). "native" means every GEMM of the model in all three
 * directions. */
static const char *way_of(const json_t *check) {
    int64_t native = json_integer_value(json_object_get(check, "native"));
    int64_t emulated = json_integer_value(json_object_get(check, "emulated"));
    if (native + emulated == 0) return NULL;
    if (native + emulated != RECIPE_CHECK_GEMMS) return "in BF16";
    return native == RECIPE_CHECK_GEMMS ? "native" : "emulated";
}

static void record(struct doctor *d, const char *recipe, const struct recipe_row *expected,
                   const json_t *check, const char *verdict) {
    json_append(d->recipes,
                json_pack("{s:s,s:s,s:s?,s:s?,s:O?}", "recipe", recipe, "way",
                          recipe_way_name(expected->way), "because",
                          *expected->because ? expected->because : NULL, "verdict", verdict,
                          "check", check), &d->no_memory);
}

/* Compares the table's entry with what the device did, and its figures with the reference. */
static void judge(struct doctor *d, enum recipe_kind kind, int capability, const json_t *check,
                  const json_t *reference) {
    const char *name = RECIPE_KIND_NAMES[kind];
    struct recipe_row expected = recipe_on(kind, capability, doctor_cublaslt(d));
    bool faulty = recipe_meets_fault(kind, capability, doctor_cublaslt(d));
    enum finding_level well = faulty || expected.way == WAY_REFUSED ? FINDING_NOTE : FINDING_FINE;
    const char *update = faulty ? CUBLASLT_FIX : NULL;
    const char *way = recipe_way_name(expected.way), *did = check ? way_of(check) : NULL;
    const char *fix = "please report it, with fp8lab doctor --json";
    char why[256] = "", text[320];
    double worst = 0;
    snprintf(text, sizeof text, "%s%s%s", way, *expected.because ? ": " : "", expected.because);
    if (!check) {
        doctor_say(d, well, name, update, "%s", text);
    } else if (strcmp(json_text(check, "status", ""), status_name(OK)) != 0) {
        doctor_say(d, FINDING_WRONG, name, fix, "%s; a run failed: %s", text,
                   json_text(check, "problem", "?"));
    } else if (did && strcmp(did, way) != 0) {
        doctor_say(d, FINDING_WRONG, name, fix, "the table says %s, the device used %s", way,
                   did);
    } else if (reference ? !near_reference(check, reference, &worst, why)
                         : !equal_golden(check, kind, why)) {
        doctor_say(d, FINDING_WRONG, name, reference ? "do not trust results of this machine; "
                   "compare clocks, ECC and driver with one that works" : fix, "%s; %s", text,
                   why);
    } else if (reference) {
        doctor_say(d, well, name, update, "%s; product and ten steps agree with the reference "
                   "(losses within %.1e)", text, worst);
    } else {
        doctor_say(d, FINDING_FINE, name, NULL, "%s; product and ten steps equal the reference bit "
                   "for bit", text);
    }
    record(d, name, &expected, check, check ? (*why ? why : "agrees") : NULL);
}

/* ---- all --------------------------------------------------------------------------------------*/

/* The capability for the table's column; 0: the CPU's. */
static int column_of(const struct doctor *d) { return d->gpu ? doctor_capability(d) : 0; }

static enum status run_checks(struct doctor *d, const char *backend, json_t **out) {
    const struct probe_options o = { .backend = backend, .checks = true,
                                     .caps = strcmp(backend, "cpu") ? d->caps : NULL,
                                     .ceilings = strcmp(backend, "cpu") != 0 };
    struct err e;
    enum status st = probe_ask(&o, CHECK_SECONDS, out, &e);
    if (st != OK)
        doctor_say(d, FINDING_WRONG, strcmp(backend, "cpu") ? "gpu" : "cpu",
                   strcmp(backend, "cpu")
                       ? "the message says what is missing; fp8lab bench gemm --backend cuda "
                         "repeats it"
                       : "the message says what is missing; fp8lab bench gemm --backend cpu "
                         "repeats it",
                   "recipes could not be tested: %s", e.text);
    return st;
}

/* Reports the opened device and its ceilings. */
static void say_device(struct doctor *d, const json_t *answer) {
    const json_t *c = json_object_get(answer, "ceilings"), *row;
    double bf16 = json_number_value(json_object_get(c, "bf16_tflops"));
    double fp8 = json_number_value(json_object_get(c, "fp8_tflops"));
    size_t i;
    json_array_foreach(json_object_get(answer, "libraries"), i, row)
        if (!strcmp(json_text(row, "name", ""), "cuda.runtime"))
            doctor_say(d, FINDING_FINE, "cuda", NULL, "runtime %s in the plugin, on %s (%s)",
                       json_text(row, "version", "?"), json_text(answer, "device", "?"),
                       json_text(answer, "architecture", "?"));
    if (bf16 > 0)
        doctor_say(d, FINDING_FINE, "ceilings", NULL, "a large GEMM reaches %.0f TFLOP/s in BF16, "
                   "%.0f in FP8", bf16, fp8);
}

enum status doctor_recipes(struct doctor *d, bool train, struct err *e) {
    json_t *reference = NULL, *device = NULL;
    bool here = train && d->here;
    if (here && run_checks(d, "cpu", &reference) == OK)
        for (int k = RECIPE_CHECK_FIRST; k <= RECIPE_CHECK_LAST && d->gpu; k++) {
            const char *name = RECIPE_KIND_NAMES[k];
            char why[256];
            if (!equal_golden(check_of(reference, name), (enum recipe_kind)k, why))
                doctor_say(d, FINDING_WRONG, "reference", "build with gcc and no extra flags; the "
                           "golden tests of make test name the operator",
                           "%s on the CPU backend: %s", name, why);
        }
    if (here && d->gpu && run_checks(d, "cuda", &device) == OK) {
        say_device(d, device);
        if (probe_put_facts(device, d->facts, e) != OK) d->no_memory = true;
    }
    /* An absent GPU, or one with an unknown capability, has no column. */
    bool known = !d->gpu || column_of(d) > 0;
    for (int k = RECIPE_CHECK_FIRST; known && k <= RECIPE_CHECK_LAST; k++) {
        const char *name = RECIPE_KIND_NAMES[k];
        const json_t *cpu = check_of(reference, name), *gpu = check_of(device, name);
        judge(d, (enum recipe_kind)k, column_of(d), d->gpu ? gpu : cpu,
              d->gpu && gpu ? cpu : NULL);
    }
    json_decref(reference);
    json_decref(device);
    return d->no_memory ? FAIL(e, ERR_MEMORY, "the findings of doctor") : OK;
}
