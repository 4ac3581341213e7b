/* The child process that opens the device and certifies (`fp8lab probe --certify`), and its answer.
 * The runner starts it, so a way that crashes or hangs the device costs nothing but its answer. */
#ifndef FP8LAB_RUNNER_CERTIFY_CERTIFY_CHILD_H
#define FP8LAB_RUNNER_CERTIFY_CERTIFY_CHILD_H

#include "runner/certify/ways.h"

struct certify_request {
    const char *backend;  /* "cuda", "cpu" */
    const char *caps;     /* act as this architecture; NULL: its own */
    const char *ways;     /* file of ways_write(). The child alone takes others: */
    const char *config;   /* file of a resolved configuration; both NULL: the standard ways */
    const char *forbidden; /* ways not to use, as forbidden_text() has them; may be NULL */
    int64_t ranks;        /* of the configuration */
    int64_t device;
    /* Only ways from `first` on, `count` of them (0: all): to leave out one that crashed. */
    int64_t first, count;
    const char *choices;  /* the run's own table: a file or a checkpoint; NULL: none */
    const char *offers;   /* folder of a run with kept choices (choice_cache_take); or NULL */
    int64_t seconds;      /* to wait */
    bool (*tick)(void *context); /* as self_ask has it; may be NULL */
    void *context;
};

/* The child's part: "fp8lab.certificates/1": device, architecture, libraries "name version, ...",
 * seconds, certificates [{way, section, outcome, how, fault, found, outputs, error, bound, reason,
 * order, agreed [names], forbid, without [names], device, architecture, ms, choosing_ms: in which
 * the device chose algorithms}], untried [{way, broken, why}], choices: what it timed, as
 * choices_timed has it, "" if a way failed.
 *
 * After a way that fails and has another, a second certificate for the same way says how the other
 * one did. without: the forbidden ways that this one might have used otherwise. untried: errors
 * that say nothing about a way, such as a lack of memory; after `broken` the child ended. */
NODISCARD enum status certify_answer(const struct certify_request *r, struct json_t **out,
                                     struct err *e);
/* The parent's part. *crashed: the child was killed, or gave no answer in time.
 * ERR_INTERRUPTED: the tick ended it. */
NODISCARD enum status certify_ask(const struct certify_request *r, struct json_t **out,
                                  bool *crashed, struct err *e);

#endif
