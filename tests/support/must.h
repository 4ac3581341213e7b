/* For cmocka tests: a call that must succeed, and one that must fail with a code and words. */
#ifndef FP8LAB_TESTS_MUST_H
#define FP8LAB_TESTS_MUST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/base.h"

#define MUST(call)                                                                    \
    do {                                                                              \
        struct err e_ = { .text = "" };                                               \
        struct err *E = &e_;                                                          \
        if ((call) != OK) fail_msg("%s:%d: %s: %s", __FILE__, __LINE__, #call, e_.text); \
    } while (0)

/* `words` must be part of the error's text. E is the struct err * to pass in either macro. */
#define MUST_FAIL(wanted, words, call)                                                \
    do {                                                                              \
        struct err e_ = { .text = "" };                                               \
        struct err *E = &e_;                                                          \
        enum status st_ = (call);                                                     \
        if (st_ != (wanted) || !strstr(e_.text, words))                               \
            fail_msg("%s:%d: %s gave %s \"%s\"; wanted %s with \"%s\"", __FILE__, __LINE__, #call, \
                     status_name(st_), e_.text, status_name(wanted), words);          \
    } while (0)

#endif
