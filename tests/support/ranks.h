/* A group of ranks as forked, connected processes of a test. Each has its own backend: the CPU's
 * with one thread, or the CUDA backend on the GPU with the rank's number. */
#ifndef FP8LAB_TESTS_SUPPORT_RANKS_H
#define FP8LAB_TESTS_SUPPORT_RANKS_H

#include "kernels/backend.h"

struct rank_test {
    struct backend *backend; /* initialised with `group` */
    struct comm_group group;
    struct comm_note note;
    void *user;
};

/* The body of one rank. It returns the exit code, 0 for success. Messages go to stderr. */
typedef int (*rank_body)(struct rank_test *t);

enum { RANK_KILLED = -1, RANK_LATE = -2 }; /* by a signal; still running after the time */

/* Runs `body` in `world` processes and fills code[world]. Returns after at most `seconds`. The
 * caller must not have opened a GPU, because such a process cannot be forked. */
void ranks_run(const char *backend, int world, rank_body body, void *user, int seconds, int *code);

/* A copy of `what` in memory that the caller shares with its ranks. munmap frees it. */
void *ranks_share(const void *what, size_t size);

/* For bodies: fails the rank with the place and the text of the error. */
#define RANK_MUST(call)                                                                  \
    do {                                                                                 \
        struct err must_ = { 0 };                                                        \
        if ((call) != OK) {                                                              \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, t->group.rank,  \
                    must_.text);                                                         \
            return 1;                                                                    \
        }                                                                                \
    } while (0)
#define RANK_CHECK(condition)                                                            \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, t->group.rank,  \
                    #condition);                                                         \
            return 1;                                                                    \
        }                                                                                \
    } while (0)

#endif
