/* Counts the allocations of a thread, and of the children it forks, and makes chosen ones fail.
 * These are malloc, calloc, realloc, aligned_alloc, posix_memalign and strdup, also in libraries.
 * Outside a watch they behave normally. Allocations of libgomp, libarchive and libzstd never fail:
 * without memory these libraries exit or crash. */
#ifndef FP8LAB_TESTS_ALLOCATIONS_H
#define FP8LAB_TESTS_ALLOCATIONS_H

#include "kernels/base.h"

/* Starts counting, from 1. Children forked during the watch continue the count. */
void allocations_watch(void);
/* The same; allocation number `fail_at` fails, and with `from_then_on` all later ones too. */
void allocations_fail(int64_t fail_at, bool from_then_on);
/* The same without failures; notes the allocations to fail in turn: see fault_every_allocation. */
void allocations_collect(void);
/* The number of noted allocation i (from 0) of the last watch; 0: there are no more. */
int64_t allocations_noted(int64_t i);
/* Ends the watch; returns the number of requested allocations. */
int64_t allocations_end(void);

/* A call that must survive every failed allocation. */
struct fault_case {
    const char *name;
    /* If not NULL: called before each attempt, to prepare its files and state. */
    void (*before)(void *context);
    /* The call under test. After success it closes everything that it opened. `context` belongs to
     * the caller. */
    enum status (*attempt)(void *context, struct err *e);
    /* If not NULL: checks the state after each attempt, which returned `st`. */
    enum status (*after)(void *context, enum status st, struct err *e);
    void *context;
};

/* Runs the attempt once without failures. Then runs it again for each place that requested memory,
 * and lets that request fail. A place is a call stack; its first request counts, of all cases its
 * first two (tests/support/cases.h). Under a sanitizer every third request fails, unless all cases
 * run. For every third one, another attempt lets all later requests fail too. Each
 * attempt must return ERR_MEMORY or an error whose text mentions memory; OK is allowed if `after`
 * passes. */
void fault_every_allocation(const struct fault_case *c);

#endif
