/* The hardware query: a small language over facts, written as cluster users write it.
 *
 *   query := term | query "and" query | query "or" query | "not" query | "(" query ")"
 *   term  := fact operator value | fact              (a fact alone must be a true-or-false one)
 *   operator:  =  ==  !=  <  <=  >  >=  ~            ("~" is a glob: * ? [a-z])
 *   value := "text" | 'text' | word | 12 | 80GiB | 80G | 12.9.1 | true | false
 *
 * A size has a unit: KiB to TiB, for short K to T; KB to TB; B. A bare number below 2^20 is
 * refused, since 80 was meant as GiB. "not" binds tighter than "and", "and" tighter than "or".
 * Equality is exact: "NVIDIA GH200 480GB" contains "H200" and is not one. A fact that this machine
 * does not have makes its term neither true nor false, and such a query does not match. */
#ifndef FP8LAB_RUNNER_HARDWARE_QUERY_H
#define FP8LAB_RUNNER_HARDWARE_QUERY_H

#include "kernels/base.h"

struct json_t;
struct query;

/* Parses `text`. ERR_CONFIG shows the text with a caret under the mistake; an unknown fact names
 * the nearest one. *out is owned by the caller: query_free(). */
NODISCARD enum status query_parse(const char *text, struct query **out, struct err *e);
void query_free(struct query *query);

/* Evaluates against a flat map of facts ("gpu.count": 8; null or missing = not known here).
 * Where it matches, *mismatch is NULL; otherwise a new array, owned by the caller, with one object
 * per term that stood in the way: {"fact","wanted","found"} and, where it helps, "hint". */
NODISCARD enum status query_match(const struct query *query, const struct json_t *facts,
                                  struct json_t **mismatch, struct err *e);

/* The explanation as text: one line per term, for a terminal. Owned by the caller: free(). NULL
 * only where memory ran out. */
char *query_mismatch_text(const struct json_t *mismatch);

#endif
