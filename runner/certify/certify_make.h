/* Makes the certificates that a list of ways lacks, by children that open the device
 * (certify_child.h). A child that crashes or hangs costs one way: it is found by trying way by way,
 * and that way is then tried without the kernel that it may have crashed in. */
#ifndef FP8LAB_RUNNER_CERTIFY_CERTIFY_MAKE_H
#define FP8LAB_RUNNER_CERTIFY_CERTIFY_MAKE_H

#include "runner/certify/certify_child.h"

struct json_t;

/* The backend of a device, also where the user said "auto". */
#define CERTIFY_BACKEND "cuda"
/* Whether this choice of a backend means a device. false without a plugin: who opens it says so. */
bool certify_applies(const char *backend);

struct making {
    /* The caller sets these. Of the request: backend, caps, device, choices, offers, tick, context;
     * seconds, of each child, 0 for the usual ones. */
    struct certify_request request;
    const struct ways *ways; /* to certify */
    void (*answered)(void *context, const struct json_t *answer); /* of each child; may be NULL */
    void *context;
    /* The caller makes these arrays, and releases them. */
    const struct json_t *base; /* names not to use whatever the certificates say; NULL: none */
    struct json_t *list;  /* in: kept certificates; out: the new ones too */
    struct json_t *fresh; /* out: the new ones that later commands may use */
    struct json_t *untried; /* out: object of {way: why it has no certificate} */
    /* Results. */
    double seconds;   /* that children took */
    bool impossible;  /* no child could open the device, or it broke whatever was tried */
    int unexplained;  /* crashes that no other way avoids */
    struct err why;   /* then: the reason */
};

/* Errors of the device are no errors here: they are in `untried` and `why`. ERR_MEMORY;
 * ERR_INTERRUPTED: the tick ended it. */
NODISCARD enum status certify_make(struct making *m, struct err *e);
/* How many ways have no certificate. */
int64_t certify_missing(const struct making *m);

/* The names of ways that the certificates of these ways forbid; new array, NULL: no memory. */
struct json_t *certify_forbids(const struct ways *ways, const struct json_t *list);

/* The certificate of the failure that forbids this name; borrowed, NULL: there is none. */
const struct json_t *certify_failure(const struct json_t *list, const char *name);
/* A sentence about a name that is forbidden, and why. */
void certify_forbidden_text(const struct json_t *list, const char *name, char *out, size_t size);
/* ERR_HARDWARE if this certificate is of a way that failed and has no other. */
NODISCARD enum status certify_check(const struct json_t *one, struct err *e);

#endif
