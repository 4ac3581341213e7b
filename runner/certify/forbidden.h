/* The names of ways that failed and are not used: "gemm e4m3 row x e4m3 row", "attention cudnn". */
#ifndef FP8LAB_RUNNER_CERTIFY_FORBIDDEN_H
#define FP8LAB_RUNNER_CERTIFY_FORBIDDEN_H

#include "kernels/backend.h"

struct json_t;

enum { FORBIDDEN_NAME_CAP = FORBIDDEN_WAY_CAP + 16 }; /* a section, a space, a way */

/* The names of an array as `--forbid` takes them, "a; b"; "" for none. The caller frees it; NULL:
 * no memory. */
char *forbidden_text(const struct json_t *names);
/* The array of such a text, new; NULL: no memory. ways may be NULL. */
struct json_t *forbidden_names(const char *ways);
bool forbidden_has(const struct json_t *names, const char *name);
/* Adds what is not there yet. *failed: no memory. */
void forbidden_add(struct json_t *names, const char *name, bool *failed);
/* Tells a backend which ways not to use, before its first operator. ways: such a text, or NULL.
 * ERR_ARG for a name without a section; ERR_UNSUPPORTED for a way that has no other. */
NODISCARD enum status forbidden_apply(struct backend *b, const char *ways, struct err *e);

#endif
