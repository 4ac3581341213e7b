/* How the workers of a run find one another: all meet at rank 0, which knows the addresses then,
 * and each pair gets a connection of its own. Both ends of each prove that they know the secret. */
#ifndef FP8LAB_RUNNER_JOB_RENDEZVOUS_H
#define FP8LAB_RUNNER_JOB_RENDEZVOUS_H

#include "runner/base/host_name.h"
#include "runner/job/secret.h"

enum { RENDEZVOUS_RANKS_MAX = 64 };

/* Where and how to meet: what a runner hands to a worker. Plain bytes, so that it can stand in
 * memory that the two share. */
struct rendezvous {
    char address[64]; /* of rank 0; "" for rank 0 itself */
    int port;
    char secret[SHA256_HEX];
    int timeout_s;
    char host[HOST_NAME_CAP]; /* this process's, for messages */
    /* For rank 0: where each rank was started, "" where that is not known. */
    char expected[RENDEZVOUS_RANKS_MAX][HOST_NAME_CAP];
};

/* The others as a process sees them. */
struct mesh {
    int rank, world;
    int link[RENDEZVOUS_RANKS_MAX]; /* owned; -1 at `rank` */
    char host_text[RENDEZVOUS_RANKS_MAX][HOST_NAME_CAP];
    const char *host[RENDEZVOUS_RANKS_MAX]; /* into host_text */
};

/* Connects this rank with all others. `listening` is rank 0's socket at the rendezvous's port, owned
 * by the caller; -1 for the other ranks. ERR_PEER where ranks are missing when the time is over:
 * rank 0 names them, the others say whom they were waiting for. ERR_VERIFY: another job. *out is
 * closed with mesh_close whatever the status. */
NODISCARD enum status rendezvous_join(const struct rendezvous *rendezvous, int rank, int world,
                                      int listening, struct mesh *out, struct err *e);
void mesh_close(struct mesh *mesh); /* safe on a zeroed struct */

#endif
