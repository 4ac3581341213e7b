/* TCP between the processes of a run: listening, connecting, lines of JSON, and the handshake. In
 * the handshake both ends prove that they know the job's secret. Every call returns by its
 * deadline, a time of clock.h. */
#ifndef FP8LAB_RUNNER_JOB_WIRE_H
#define FP8LAB_RUNNER_JOB_WIRE_H

#include "kernels/base.h"
#include "model/ground/sha256.h"

struct json_t;

enum {
    WIRE_LINE_MAX = 1 << 16, /* bytes of one line of a handshake */
    WIRE_LOST_MS = 20000     /* a peer is lost if it has not answered for this long, or has read
                              * nothing for this long while bytes wait for it */
};

/* A listening socket, for listener.h, at `address` ("127.0.0.1"; NULL: every address of this host,
 * over IPv6 and IPv4). port 0: any free port. *bound is the port that the socket has. */
NODISCARD enum status wire_listen(const char *address, int port, int *fd, int *bound,
                                  struct err *e);
/* Accepts a waiting connection; *fd is -1 if there is none. */
NODISCARD enum status wire_accept(int listening, int *fd, struct err *e);
/* Tries each address of a name once, until one accepts; they share the time that is left. *fd is
 * the caller's to close, -1 on any error. ERR_IO: the name has no address, or the socket cannot be
 * set up. ERR_PEER: no address accepts; the text is about the last one. */
NODISCARD enum status wire_connect(const char *address, int port, int64_t deadline_ms, int *fd,
                                   struct err *e);

/* Replaces WIRE_LOST_MS for a connection whose other end may block for longer. The kernel then also
 * reports a lost network only after `ms`, but wire_unanswered reports it after WIRE_LOST_MS. It
 * asks whether the other host's kernel has answered. A kernel answers for blocked processes too. */
NODISCARD enum status wire_set_lost_ms(int fd, int ms, struct err *e);
bool wire_unanswered(int fd);

/* The address of the other end, and of this end, which other hosts of that network can reach:
 * "10.0.0.7" or "fd00::7". */
NODISCARD enum status wire_peer(int fd, char address[64], struct err *e);
NODISCARD enum status wire_self(int fd, char address[64], struct err *e);

/* Sends or receives one line. An error: the line is not a JSON object, too long, or late. */
NODISCARD enum status wire_put(int fd, const struct json_t *line, int64_t deadline_ms,
                               struct err *e);
NODISCARD enum status wire_get(int fd, struct json_t **line, int64_t deadline_ms, struct err *e);

/* The two sides of the handshake. The connecting side sends `hello` (borrowed) with wire_call. The
 * listening side may have several connections at a time (listener.h): it sends a challenge, and
 * answers the line that comes back. *hello is then its caller's. ERR_VERIFY: the other end does not
 * know the secret; it gets no answer. */
NODISCARD enum status wire_call(int fd, const char *secret, const struct json_t *hello,
                                int64_t deadline_ms, struct err *e);
NODISCARD enum status wire_challenge(int fd, char challenge[SHA256_HEX], int64_t deadline_ms,
                                     struct err *e);
NODISCARD enum status wire_answer(int fd, const char *secret, const char *challenge,
                                  const struct json_t *line, int64_t deadline_ms,
                                  struct json_t **hello, struct err *e);

#endif
