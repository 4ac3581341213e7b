/* Counts the allocations of a thread, and of the children it forks, and makes chosen ones fail:
 * malloc, calloc, realloc, aligned_alloc, posix_memalign and strdup, those of libraries included.
 * Outside a watch they behave normally. Allocations of libgomp, libarchive and libzstd never fail:
 * without memory these libraries exit or crash. */
#ifndef FP8LAB_TESTS_ALLOCATIONS_H
#define FP8LAB_TESTS_ALLOCATIONS_H

#include "kernels/base.h"

/* Counting, from 1 on; children forked meanwhile count on. */
void allocations_watch(void);
/* The same; the `fail_at`th fails, and those behind it too if `from_then_on`. */
void allocations_fail(int64_t fail_at, bool from_then_on);
/* Counting, and noting which to fail in turn: see fault_every_allocation. */
void allocations_collect(void);
/* The number of the ith (from 0) that was noted last; 0: there are no more. */
int64_t allocations_noted(int64_t i);
/* Ends it; the number of allocations that were asked for. */
int64_t allocations_end(void);

/* One thing that must survive every failure. */
struct fault_case {
    const char *name;
    /* If not NULL: what makes the world as the attempt wants to find it. */
    void (*before)(void *context);
    /* The call under test. What it opens when it succeeds, it closes. `context` is the caller's. */
    enum status (*attempt)(void *context, struct err *e);
    /* If not NULL: what must hold after each attempt that answered `st`. */
    enum status (*after)(void *context, enum status st, struct err *e);
    void *context;
};

/* Runs the attempt once with all the memory it wants, then once for each place that asked for
 * memory (places are told apart by their call stacks; the first two calls from each, one under the
 * sanitizer), that one request failing; for every third of them also with all later requests
 * failing. Each answer must be ERR_MEMORY, or an error whose text speaks of memory; OK is fine if
 * `after` finds nothing wrong. */
void fault_every_allocation(const struct fault_case *c);

#endif
