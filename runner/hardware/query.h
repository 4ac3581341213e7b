/* The hardware query: a small language over facts, in the notation of cluster schedulers.
 *
 *   query    := term | query "and" query | query "or" query | "not" query | "(" query ")"
 *   term     := fact operator value | fact         a fact alone must be a boolean
 *   operator := =  ==  !=  <  <=  >  >=  ~         "~" is a glob: * ? [a-z]
 *   value    := "text" | 'text' | word | 12 | 80GiB | 80G | 12.9.1 | true | false
 *
 * A size has a unit: KiB to TiB, for short K to T; KB to TB; B. A number below 2^20 without a unit
 * is rejected, because 80 probably means GiB. "not" binds tighter than "and", "and" tighter than
 * "or". Equality is exact: "NVIDIA GH200 480GB" contains "H200" and is another product. A fact that
 * the machine does not have makes its term neither true nor false; such a query does not match. */
#ifndef FP8LAB_RUNNER_HARDWARE_QUERY_H
#define FP8LAB_RUNNER_HARDWARE_QUERY_H

#include "kernels/base.h"

struct json_t;
struct query;

/* Parses `text`. ERR_CONFIG shows the text with a caret under the mistake; an unknown fact names
 * the nearest one. *out is owned by the caller: query_free(). */
NODISCARD enum status query_parse(const char *text, struct query **out, struct err *e);
void query_free(struct query *query);

/* Evaluates a query against a flat map of facts ("gpu.count": 8; null or missing: unknown).
 * *mismatch is NULL if it matches. Otherwise it is a new array, owned by the caller, with one
 * object per failed term: {"fact","wanted","found"} and sometimes "hint". */
NODISCARD enum status query_match(const struct query *query, const struct json_t *facts,
                                  struct json_t **mismatch, struct err *e);

/* The mismatch as text for a terminal: one line per term. Owned by the caller: free(). NULL: out of
 * memory. */
char *query_mismatch_text(const struct json_t *mismatch);

#endif
