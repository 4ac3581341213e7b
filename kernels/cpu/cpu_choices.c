/* The reference has no alternatives to choose from: its choice table is empty. */
#include <stdlib.h>

#include "kernels/choices.h"
#include "kernels/cpu/cpu.h"

enum status cpu_choices_save(struct backend *b, char **text, struct err *e) {
    *text = calloc(1, 1);
    return *text ? OK : FAIL(e, ERR_MEMORY, "no memory for an empty choice table");
}

enum status cpu_choices_load(struct backend *b, const char *text, struct err *e) {
    struct choices_reader r;
    if (!*text) return OK;
    TRY(choices_open(&r, text, e));
    return FAIL(e, ERR_CONFIG,
                "the choice table is for %s (%s), and the cpu backend makes no choices: its "
                "bits differ; use --choices none to run without the table", r.device, r.libraries);
}

double cpu_choosing_seconds(struct backend *b) { return 0; }

enum status cpu_attention_backend(struct backend *b, enum attention_backend which,
                                  struct err *e) {
    if (which != ATTENTION_CUDNN) return OK;
    return FAIL(e, ERR_UNSUPPORTED, "attention.backend = \"cudnn\": the cpu backend has one way to "
                "compute attention, its own; leave the key out, or run on a GPU");
}

/* A twin of either order is packed once for each product, in the same time. */
bool cpu_twins_untransposed(struct backend *b, enum scale_kind kind) { return false; }

bool cpu_library(struct backend *b, int64_t i, struct library *out) { return false; }

bool cpu_decision(struct backend *b, int64_t i, struct decision *out) { return false; }

bool cpu_in_progress(struct backend *b, char *out, size_t size) { return false; }

enum status cpu_assume_architecture(struct backend *b, const char *architecture, struct err *e) {
    return FAIL(e, ERR_UNSUPPORTED, "caps %s: the cpu backend cannot take a GPU's features",
                architecture);
}

enum status cpu_forbid(struct backend *b, const char *section, const char *way, struct err *e) {
    return FAIL(e, ERR_UNSUPPORTED, "%s %s: the cpu backend has no other way to compute it",
                section, way);
}
enum status cpu_set_exact(struct backend *b, bool exact, struct err *e) { return OK; }
