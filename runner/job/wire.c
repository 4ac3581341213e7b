#include "runner/job/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/clock.h"
#include "runner/job/secret.h"

enum { BACKLOG = 1024, KEEP_IDLE_S = 5, KEEP_EVERY_S = 5, KEEP_COUNT = 3 };

/* Waits for an event on fd; false: the deadline came first. */
static bool wait_for(int fd, short events, int64_t deadline_ms) {
    for (;;) {
        int64_t left = deadline_ms - clock_ms();
        struct pollfd p = { .fd = fd, .events = events };
        if (left <= 0) return false;
        int n = poll(&p, 1, (int)(left < 60000 ? left : 60000));
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
}

/* The kernel detects a lost network within WIRE_LOST_MS: by the user time-out (tcp(7)) while bytes
 * wait for an answer, otherwise by keep-alive. The user time-out also ends the connection to a peer
 * that reads nothing, once its buffers are full: see wire_set_lost_ms. */
static enum status prepare(int fd, struct err *e) {
    const struct { int level, name, value; } OPTIONS[] = {
        { IPPROTO_TCP, TCP_NODELAY, 1 },
        { SOL_SOCKET, SO_KEEPALIVE, 1 },
        { IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S },
        { IPPROTO_TCP, TCP_KEEPINTVL, KEEP_EVERY_S },
        { IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT },
        { IPPROTO_TCP, TCP_USER_TIMEOUT, WIRE_LOST_MS },
    };
    for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++)
        if (setsockopt(fd, OPTIONS[i].level, OPTIONS[i].name, &OPTIONS[i].value,
                       sizeof OPTIONS[i].value) != 0)
            return FAIL(e, ERR_IO, "socket option %d: %s", OPTIONS[i].name, strerror(errno));
    return OK;
}

enum status wire_set_lost_ms(int fd, int ms, struct err *e) {
    if (setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms) == 0) return OK;
    return FAIL(e, ERR_IO, "socket option %d: %s", TCP_USER_TIMEOUT, strerror(errno));
}

/* If the other end has no room, no bytes wait for an answer. The kernel then sends probes at
 * growing intervals, and each answer resets their count. */
bool wire_unanswered(int fd) {
    struct tcp_info info = { 0 };
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
    return info.tcpi_last_ack_recv >= WIRE_LOST_MS && info.tcpi_last_data_recv >= WIRE_LOST_MS &&
           (info.tcpi_unacked > 0 || info.tcpi_probes >= KEEP_COUNT);
}

/* ---- listening, connecting --------------------------------------------------------------------*/

/* Resolves `address`; free *out with freeaddrinfo. */
static enum status look_up(const char *address, int port, int flags, struct addrinfo **out,
                           struct err *e) {
    char service[16];
    const struct addrinfo want = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                                   .ai_flags = flags };
    snprintf(service, sizeof service, "%d", port);
    int rc = getaddrinfo(address, service, &want, out);
    if (rc == 0) return OK;
    return FAIL(e, ERR_IO, "look up the address of %s: %s", address,
                rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
}

/* A listening socket; -1 with errno. */
static int listen_at(int family, const struct sockaddr *at, socklen_t size) {
    int s = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, off = 0;
    if (s >= 0 && setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        (family != AF_INET6 || setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0) &&
        bind(s, at, size) == 0 && listen(s, BACKLOG) == 0)
        return s;
    int why = errno;
    if (s >= 0) close(s);
    errno = why;
    return -1;
}

/* Listens at every address of this host. An IPv6 socket accepts IPv4 connections, too (ipv6(7));
 * a host may have no IPv6. */
static int listen_everywhere(int port) {
    const struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    const struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int s = listen_at(AF_INET6, (const struct sockaddr *)&six, sizeof six);
    return s >= 0 ? s : listen_at(AF_INET, (const struct sockaddr *)&four, sizeof four);
}

enum status wire_listen(const char *address, int port, int *fd, int *bound, struct err *e) {
    struct addrinfo *at = NULL;
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    *fd = -1;
    if (address) TRY(look_up(address, port, AI_PASSIVE, &at, e));
    int s = at ? listen_at(at->ai_family, at->ai_addr, at->ai_addrlen) : listen_everywhere(port);
    bool good = s >= 0 && getsockname(s, (struct sockaddr *)&name, &size) == 0;
    int why = errno;
    if (at) freeaddrinfo(at);
    if (!good) {
        if (s >= 0) close(s);
        return FAIL(e, ERR_IO, "listen at %s, port %d: %s", address ? address : "all addresses",
                    port, strerror(why));
    }
    *bound = ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                              : ((struct sockaddr_in *)&name)->sin_port);
    *fd = s;
    return OK;
}

enum status wire_accept(int listening, int *fd, struct err *e) {
    *fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (*fd >= 0) {
        enum status st = prepare(*fd, e);
        if (st != OK) close(*fd);
        return st;
    }
    bool transient = errno == EINTR || errno == EAGAIN || errno == ECONNABORTED;
    return transient ? OK : FAIL(e, ERR_IO, "accept a connection: %s", strerror(errno));
}

/* One attempt; -1 with errno. */
static int try_connect(const struct addrinfo *at, int64_t deadline_ms) {
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), why = 0;
    socklen_t size = sizeof why;
    if (fd < 0) return -1;
    if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
        why = errno;
        if (why == EINPROGRESS) {
            if (!wait_for(fd, POLLOUT, deadline_ms)) why = ETIMEDOUT;
            else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) != 0) why = errno;
        }
    }
    if (!why) return fd;
    close(fd);
    errno = why;
    return -1;
}

/* Each address gets an equal share of the time that is left. */
static int try_each(const struct addrinfo *list, int64_t deadline_ms) {
    int fd = -1, left = 0;
    for (const struct addrinfo *at = list; at; at = at->ai_next) left++;
    for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
        int64_t now = clock_ms();
        fd = try_connect(at, now + (deadline_ms - now) / left--);
    }
    return fd;
}

enum status wire_connect(const char *address, int port, int64_t deadline_ms, int *fd,
                              struct err *e) {
    struct addrinfo *list = NULL;
    *fd = -1;
    TRY(look_up(address, port, 0, &list, e));
    int s = try_each(list, deadline_ms), why = errno;
    freeaddrinfo(list);
    if (s < 0)
        return FAIL(e, ERR_PEER, "connect to %s, port %d: %s", address, port, strerror(why));
    enum status st = prepare(s, e);
    if (st == OK) *fd = s;
    else close(s);
    return st;
}

/* An IPv6 socket shows an IPv4 address as "::ffff:10.0.0.7". Hosts without IPv6 need it without the
 * prefix. */
static enum status address_text(const struct sockaddr_storage *name, socklen_t size, char out[64],
                                struct err *e) {
    static const char MAPPED[] = "::ffff:";
    char text[64];
    int rc = getnameinfo((const struct sockaddr *)name, size, text, sizeof text, NULL, 0,
                         NI_NUMERICHOST);
    if (rc != 0) return FAIL(e, ERR_PEER, "read the address of a connection: %s", gai_strerror(rc));
    bool mapped = !strncmp(text, MAPPED, strlen(MAPPED)) && strchr(text, '.');
    snprintf(out, 64, "%s", mapped ? text + strlen(MAPPED) : text);
    return OK;
}

typedef int (*name_reader)(int fd, struct sockaddr *name, socklen_t *size);

static enum status end_address(int fd, name_reader read_name, char address[64], struct err *e) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    if (read_name(fd, (struct sockaddr *)&name, &size) == 0)
        return address_text(&name, size, address, e);
    return FAIL(e, ERR_PEER, "read the address of a connection: %s", strerror(errno));
}

enum status wire_peer(int fd, char address[64], struct err *e) {
    return end_address(fd, getpeername, address, e);
}

enum status wire_self(int fd, char address[64], struct err *e) {
    return end_address(fd, getsockname, address, e);
}

/* ---- lines ------------------------------------------------------------------------------------*/

enum status wire_put(int fd, const json_t *line, int64_t deadline_ms, struct err *e) {
    char *text = json_dump_text(line, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) return FAIL(e, ERR_MEMORY, "a message to a peer");
    size_t n = strlen(text), done = 0;
    text[n++] = '\n'; /* replaces the terminating NUL */
    enum status st = OK;
    while (done < n && st == OK) {
        ssize_t sent = send(fd, text + done, n - done, MSG_NOSIGNAL);
        if (sent > 0) done += (size_t)sent;
        else if (errno != EAGAIN && errno != EINTR)
            st = FAIL(e, ERR_PEER, "connection to a peer: %s", strerror(errno));
        else if (!wait_for(fd, POLLOUT, deadline_ms))
            st = FAIL(e, ERR_PEER, "a peer did not read a message in time");
    }
    free(text);
    return st;
}

enum status wire_get(int fd, json_t **line, int64_t deadline_ms, struct err *e) {
    char *text = malloc(WIRE_LINE_MAX);
    size_t n = 0;
    json_error_t why;
    *line = NULL;
    if (!text) return FAIL(e, ERR_MEMORY, "a message of a peer");
    enum status st = OK;
    /* Byte by byte: the bytes after the line are for the next reader. */
    while (st == OK && (n == 0 || text[n - 1] != '\n')) {
        ssize_t got = n < WIRE_LINE_MAX ? recv(fd, text + n, 1, 0) : 1;
        if (n == WIRE_LINE_MAX) st = FAIL(e, ERR_FORMAT, "a peer's line is too long");
        else if (got > 0) n++;
        else if (got == 0) st = FAIL(e, ERR_PEER, "a peer closed its connection");
        else if (errno != EAGAIN && errno != EINTR)
            st = FAIL(e, ERR_PEER, "connection to a peer: %s", strerror(errno));
        else if (!wait_for(fd, POLLIN, deadline_ms))
            st = FAIL(e, ERR_PEER, "a peer sent nothing in time");
    }
    if (st == OK && json_parse(line, text, n, JSON_REJECT_DUPLICATES, &why) != OK)
        st = FAIL(e, ERR_FORMAT, "a peer's line is not JSON: %s", why.text);
    free(text);
    return st;
}

/* ---- handshake --------------------------------------------------------------------------------*/

/* The signature of one end: over the direction, both challenges and the hello message. */
static enum status sign(const char *secret, const char *direction, const char *theirs,
                        const char *mine, const json_t *hello, char out[SHA256_HEX],
                        struct err *e) {
    char *said = json_dump_text(hello, JSON_COMPACT | JSON_SORT_KEYS), *text = NULL;
    int n = said ? asprintf(&text, "%s %s %s %s", direction, theirs, mine, said) : -1;
    enum status st = n < 0 ? FAIL(e, ERR_MEMORY, "a signature")
                           : secret_sign(secret, text, out, e);
    free(said);
    if (n >= 0) free(text);
    return st;
}

/* Sends and releases `line`; NULL: its allocation failed. */
static enum status put_new(int fd, json_t *line, int64_t deadline_ms, struct err *e) {
    if (!line) return FAIL(e, ERR_MEMORY, "a handshake");
    enum status st = wire_put(fd, line, deadline_ms, e);
    json_decref(line);
    return st;
}

/* The challenge or signature in a line. */
static enum status hex_of(const json_t *line, const char *key, char out[SHA256_HEX],
                          struct err *e) {
    const char *text = json_string_value(json_object_get(line, key));
    if (!text || !sha256_is_hex(text))
        return FAIL(e, ERR_VERIFY, "the other end of a connection is not a process of this job: "
                    "it sent no %s", key);
    memcpy(out, text, SHA256_HEX);
    return OK;
}

static enum status check(const char wanted[SHA256_HEX], const char found[SHA256_HEX],
                         struct err *e) {
    if (secret_equal(wanted, found)) return OK;
    return FAIL(e, ERR_VERIFY, "the other end of a connection does not know this job's secret");
}

enum status wire_call(int fd, const char *secret, const json_t *hello, int64_t deadline_ms,
                      struct err *e) {
    char theirs[SHA256_HEX], mine[SHA256_HEX], wanted[SHA256_HEX], found[SHA256_HEX];
    json_t *line = NULL;
    TRY(wire_get(fd, &line, deadline_ms, e));
    enum status st = hex_of(line, "challenge", theirs, e);
    json_decref(line);
    TRY(st);
    TRY(secret_make(mine, e));
    TRY(sign(secret, "call", theirs, mine, hello, wanted, e));
    TRY(put_new(fd, json_pack("{s:s,s:s,s:O}", "challenge", mine, "signature", wanted, "hello",
                              (json_t *)hello), deadline_ms, e));
    line = NULL;
    st = wire_get(fd, &line, deadline_ms, e);
    if (st != OK && st != ERR_MEMORY) /* the other end rejects a wrong secret without a reason */
        err_prefix(e, "the other end did not prove that it knows this job's secret");
    TRY(st);
    st = hex_of(line, "signature", found, e);
    json_decref(line);
    TRY(st);
    TRY(sign(secret, "answer", theirs, mine, hello, wanted, e));
    return check(wanted, found, e);
}

enum status wire_challenge(int fd, char challenge[SHA256_HEX], int64_t deadline_ms,
                           struct err *e) {
    TRY(secret_make(challenge, e));
    return put_new(fd, json_pack("{s:s}", "challenge", challenge), deadline_ms, e);
}

enum status wire_answer(int fd, const char *secret, const char *challenge, const json_t *line,
                        int64_t deadline_ms, json_t **hello, struct err *e) {
    char theirs[SHA256_HEX], wanted[SHA256_HEX], found[SHA256_HEX];
    *hello = NULL;
    const json_t *said = json_object_get(line, "hello");
    enum status st = hex_of(line, "challenge", theirs, e);
    if (st == OK) st = hex_of(line, "signature", found, e);
    if (st == OK && !json_is_object(said)) st = FAIL(e, ERR_FORMAT, "a handshake without a hello");
    if (st == OK) st = sign(secret, "call", challenge, theirs, said, wanted, e);
    if (st == OK) st = check(wanted, found, e);
    if (st == OK) st = sign(secret, "answer", challenge, theirs, said, wanted, e);
    if (st == OK) st = put_new(fd, json_pack("{s:s}", "signature", wanted), deadline_ms, e);
    if (st == OK) *hello = json_incref((json_t *)said);
    return st;
}
