/* TCP between the processes of a run: listening, connecting, lines of JSON, and the handshake in
 * which both ends prove that they know the job's secret. Every call ends by its deadline,
 * a time of clock.h. */
#ifndef FP8LAB_RUNNER_JOB_WIRE_H
#define FP8LAB_RUNNER_JOB_WIRE_H

#include "kernels/base.h"
#include "model/sha256.h"

struct json_t;

enum {
    WIRE_LINE_MAX = 1 << 16, /* bytes of one line of a handshake */
    WIRE_LOST_MS = 20000     /* a peer that the network hides for so long is gone; and so is one
                              * that has read nothing for so long, if bytes wait for it */
};

/* A listening socket, for listener.h, at `address` ("127.0.0.1"; NULL: every address of this host,
 * over IPv6 and IPv4), port 0: any; *bound is the port that it has. */
NODISCARD enum status wire_listen(const char *address, int port, int *fd, int *bound,
                                  struct err *e);
/* Takes a connection that waits there; *fd -1 where none does. */
NODISCARD enum status wire_accept(int listening, int *fd, struct err *e);
/* Tries each of the addresses that a name has, once, until one takes the call; they share the time
 * that is left. *fd is the caller's to close, -1 on any error. ERR_IO: the name has no address, or
 * the socket cannot be set up; ERR_PEER: nobody takes the call, and why the last one did not. */
NODISCARD enum status wire_connect_once(const char *address, int port, int64_t deadline_ms, int *fd,
                                        struct err *e);
/* Tries until the deadline, since the other end may not listen yet. The error says what the last
 * attempt met. */
NODISCARD enum status wire_connect(const char *address, int port, int64_t deadline_ms, int *fd,
                                   struct err *e);

/* Another time than WIRE_LOST_MS for this connection: where the other end may stand still for
 * longer and be well. The kernel then gives a network that is lost as long, too; who wants to know
 * sooner asks wire_unanswered: whether the other end's kernel, which answers for a process that
 * stands still as well, has left what was sent unanswered for WIRE_LOST_MS. */
NODISCARD enum status wire_be_patient(int fd, int ms, struct err *e);
bool wire_unanswered(int fd);

/* "10.0.0.7" or "fd00::7": the address of the other end, and of this one, which others of the same
 * network can reach. */
NODISCARD enum status wire_peer(int fd, char address[64], struct err *e);
NODISCARD enum status wire_self(int fd, char address[64], struct err *e);

/* One line each way. A line that is no JSON object, is too long or late is an error. */
NODISCARD enum status wire_put(int fd, const struct json_t *line, int64_t deadline_ms,
                               struct err *e);
NODISCARD enum status wire_get(int fd, struct json_t **line, int64_t deadline_ms, struct err *e);

/* The two sides of the handshake. The caller says `hello` (borrowed). The called, who may have
 * several at a time (listener.h), sends a challenge, and answers the line that comes for it; *hello is
 * its caller's. ERR_VERIFY: the other end does not know the secret, and neither is told why. */
NODISCARD enum status wire_call(int fd, const char *secret, const struct json_t *hello,
                                int64_t deadline_ms, struct err *e);
NODISCARD enum status wire_challenge(int fd, char challenge[SHA256_HEX], int64_t deadline_ms,
                                     struct err *e);
NODISCARD enum status wire_answer(int fd, const char *secret, const char *challenge,
                                  const struct json_t *line, int64_t deadline_ms,
                                  struct json_t **hello, struct err *e);

#endif
