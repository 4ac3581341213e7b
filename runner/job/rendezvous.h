/* Connects the workers of a run with each other: all connect to rank 0, which then sends everyone's
 * address, and each pair opens a connection. Both ends prove that they know the secret. */
#ifndef FP8LAB_RUNNER_JOB_RENDEZVOUS_H
#define FP8LAB_RUNNER_JOB_RENDEZVOUS_H

#include "runner/base/host_name.h"
#include "runner/job/secret.h"

enum { RENDEZVOUS_RANKS_MAX = 64 };

/* What a worker needs to connect; its runner writes it. Plain bytes, since it is in shared
 * memory. */
struct rendezvous {
    char address[64]; /* of rank 0; "" for rank 0 itself */
    int port;
    char secret[SHA256_HEX];
    int timeout_s;
    char host[HOST_NAME_CAP]; /* this process's, for messages */
    /* For rank 0: the host on which each rank was started; "": unknown. */
    char expected[RENDEZVOUS_RANKS_MAX][HOST_NAME_CAP];
};

/* The connections of one rank. */
struct mesh {
    int rank, world;
    int link[RENDEZVOUS_RANKS_MAX]; /* owned; -1 at `rank` */
    char host_text[RENDEZVOUS_RANKS_MAX][HOST_NAME_CAP];
    const char *host[RENDEZVOUS_RANKS_MAX]; /* into host_text */
};

/* Connects this rank with all others. `listening` is rank 0's socket at rendezvous->port, owned by
 * the caller; -1 for the other ranks. ERR_PEER: ranks are missing after timeout_s; rank 0's text
 * names them, another rank's text names the rank that it waited for. ERR_VERIFY: another job. Close
 * *out with mesh_close whatever the status. */
NODISCARD enum status rendezvous_join(const struct rendezvous *rendezvous, int rank, int world,
                                      int listening, struct mesh *out, struct err *e);
void mesh_close(struct mesh *mesh); /* safe on a zeroed struct */

#endif
