#include "runner/job/rendezvous.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/job/host_list.h"
#include "runner/job/listener.h"
#include "runner/job/wire.h"

enum {
    RETRY_MS = 100,
    EXTRA_MS = 5000 /* the other ranks time out after rank 0, which knows the missing ranks */
};

/* Where a rank accepts connections from higher ranks. Address "": on rank 0's host, at the address
 * at which the connecting rank reached rank 0. */
struct endpoint { char address[64]; int port; };

struct joining {
    const struct rendezvous *rendezvous;
    struct mesh *mesh;
    int64_t deadline_ms;
    char self[SHA256_HEX];                         /* a random id of this process */
    char caller[RENDEZVOUS_RANKS_MAX][SHA256_HEX]; /* the ids of connected ranks */
    struct endpoint endpoint[RENDEZVOUS_RANKS_MAX];
};

static void mesh_init(struct mesh *m, int rank, int world) {
    memset(m, 0, sizeof *m);
    m->rank = rank;
    m->world = world;
    for (int i = 0; i < RENDEZVOUS_RANKS_MAX; i++) {
        m->link[i] = -1;
        m->host[i] = m->host_text[i];
    }
}

void mesh_close(struct mesh *m) {
    for (int i = 0; i < m->world; i++)
        if (i != m->rank && m->link[i] >= 0) close(m->link[i]);
    m->world = 0;
}

/* ---- one connection ---------------------------------------------------------------------------*/

static enum status send_hello(struct joining *j, int fd, int port, struct err *e) {
    json_t *hello = json_pack("{s:i,s:i,s:i,s:s,s:o}", "rank", j->mesh->rank, "world",
                              j->mesh->world, "port", port, "caller", j->self, "host",
                              json_from_text(j->rendezvous->host));
    if (!hello) return FAIL(e, ERR_MEMORY, "a message to another rank");
    enum status st = wire_call(fd, j->rendezvous->secret, hello, j->deadline_ms, e);
    json_decref(hello);
    return st;
}

static bool is_loopback(const char *address) {
    return !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

/* Where a connected rank accepts connections: at the address that it came from. A rank on this host
 * may come from an address that other hosts cannot use, such as loopback; its address stays "". */
static enum status endpoint_of(int fd, char address[64], struct err *e) {
    char self[64];
    TRY(wire_peer(fd, address, e));
    TRY(wire_self(fd, self, e));
    if (!strcmp(address, self) || is_loopback(address)) *address = '\0';
    return OK;
}

/* Adds an authenticated connection to the mesh. A second connection of the same process replaces
 * the first, whose answer did not arrive. */
static enum status admit(struct joining *j, int fd, const json_t *hello, struct err *e) {
    struct mesh *m = j->mesh;
    int64_t rank = json_int(hello, "rank"), world = json_int(hello, "world");
    const char *host = json_text(hello, "host", ""), *caller = json_text(hello, "caller", "");
    if (world != m->world || rank <= m->rank || rank >= m->world)
        return FAIL(e, ERR_STATE, "a process on %s connected as rank %" PRId64 " of %" PRId64
                    "; this is rank %d of %d", host, rank, world, m->rank, m->world);
    if (m->link[rank] >= 0 && strcmp(caller, j->caller[rank]) != 0)
        return FAIL(e, ERR_STATE, "two processes connected as rank %" PRId64 ": on %s and on %s",
                    rank, m->host[rank], host);
    TRY(endpoint_of(fd, j->endpoint[rank].address, e));
    if (m->link[rank] >= 0) close(m->link[rank]);
    snprintf(m->host_text[rank], HOST_NAME_CAP, "%s", host);
    snprintf(j->caller[rank], SHA256_HEX, "%s", caller);
    j->endpoint[rank].port = (int)json_int(hello, "port");
    m->link[rank] = fd;
    return OK;
}

/* The next rank above `rank` that has not connected, or `world`. */
static int next_missing(const struct mesh *m, int rank) {
    do rank++;
    while (rank < m->world && m->link[rank] >= 0);
    return rank;
}

/* The host of a rank, as rank 0 sent it or as the runner expects it. */
static const char *host_of(const struct joining *j, int rank) {
    return *j->mesh->host[rank] ? j->mesh->host[rank] : j->rendezvous->expected[rank];
}

/* Names the higher ranks that have not connected, and their hosts. */
static enum status fail_missing(const struct joining *j, struct err *e) {
    const struct mesh *m = j->mesh;
    struct host_list missing = { 0 };
    for (int i = next_missing(m, m->rank); i < m->world; i = next_missing(m, i))
        host_list_add(&missing, i, host_of(j, i));
    return FAIL(e, ERR_PEER, "rendezvous: rank %s did not connect to rank %d of %d on %s within "
                "%d s", host_list_end(&missing), m->rank, m->world, j->rendezvous->host,
                j->rendezvous->timeout_s);
}

/* Accepts every rank above this one. The listener closes connections of other jobs, and those that
 * take too long; a rank of this job then connects again. */
static enum status accept_ranks(struct joining *j, int listening, struct err *e) {
    struct mesh *m = j->mesh;
    struct listener listener;
    enum status st = OK;
    listener_open(listening, j->rendezvous->secret, &listener);
    while (st == OK && next_missing(m, m->rank) < m->world) {
        int fd;
        json_t *hello;
        st = listener_next(&listener, j->deadline_ms, -1, &fd, &hello, e);
        if (st == OK) st = fd < 0 ? fail_missing(j, e) : admit(j, fd, hello, e);
        if (st != OK && fd >= 0) close(fd);
        json_decref(hello);
    }
    listener_close(&listener);
    return st;
}

/* Connects once. *retry: the other end does not listen yet, or it may have timed out, since this
 * process was blocked or had to wait. It times out after half of LISTENER_AUTH_MS where many
 * connect; a third is safely below. A connection that is closed sooner was rejected. */
static enum status try_rank(struct joining *j, int rank, const struct endpoint *endpoint, int port,
                            bool *retry, struct err *e) {
    int fd;
    int64_t begin = clock_ms();
    enum status st = wire_connect(endpoint->address, endpoint->port, j->deadline_ms, &fd, e);
    *retry = true;
    if (st != OK) return st;
    st = send_hello(j, fd, port, e);
    *retry = st == ERR_PEER && clock_ms() - begin >= LISTENER_AUTH_MS / 3;
    if (st == OK) j->mesh->link[rank] = fd;
    else close(fd);
    return st;
}

/* Connects to a lower rank, which may need several attempts. */
static enum status connect_rank(struct joining *j, int rank, const struct endpoint *endpoint,
                                int port, struct err *e) {
    struct mesh *m = j->mesh;
    const struct timespec nap = { 0, RETRY_MS * 1000000L };
    bool retry;
    enum status st = try_rank(j, rank, endpoint, port, &retry, e);
    while (st != OK && retry && clock_ms() + RETRY_MS < j->deadline_ms) {
        (void)nanosleep(&nap, NULL);
        st = try_rank(j, rank, endpoint, port, &retry, e);
    }
    if (st != OK)
        err_prefix(e, "rendezvous: rank %d of %d on %s connects to rank %d on %s", m->rank,
                   m->world, j->rendezvous->host, rank,
                   *m->host[rank] ? m->host[rank] : endpoint->address);
    return st;
}

/* ---- addresses --------------------------------------------------------------------------------*/

static enum status send_endpoints(struct joining *j, struct err *e) {
    struct mesh *m = j->mesh;
    json_t *list = json_array();
    bool failed = false;
    for (int i = 0; i < m->world; i++)
        json_append(list, json_pack("{s:s,s:i,s:o}", "address", j->endpoint[i].address, "port",
                                    j->endpoint[i].port, "host", json_from_text(m->host[i])),
                    &failed);
    json_t *line = json_pack("{s:o}", "ranks", json_whole(list, failed));
    if (!line) return FAIL(e, ERR_MEMORY, "the addresses of %d ranks", m->world);
    enum status st = OK;
    for (int i = 1; i < m->world && st == OK; i++)
        st = wire_put(m->link[i], line, j->deadline_ms, e);
    json_decref(line);
    return st;
}

static enum status receive_endpoints(struct joining *j, struct err *e) {
    struct mesh *m = j->mesh;
    json_t *line = NULL;
    enum status st = wire_get(m->link[0], &line, j->deadline_ms, e);
    if (st != OK) {
        err_prefix(e, "rendezvous: rank %d of %d waits for rank 0, which waits for all ranks",
                   m->rank, m->world);
        return st;
    }
    const json_t *list = json_object_get(line, "ranks");
    for (int i = 0; i < m->world; i++) {
        const json_t *row = json_array_get(list, (size_t)i);
        const char *address = json_text(row, "address", "");
        snprintf(j->endpoint[i].address, sizeof j->endpoint[i].address, "%s",
                 *address ? address : j->rendezvous->address);
        snprintf(m->host_text[i], HOST_NAME_CAP, "%s", json_text(row, "host", ""));
        j->endpoint[i].port = (int)json_int(row, "port");
    }
    json_decref(line);
    return OK;
}

/* ---- joining ----------------------------------------------------------------------------------*/

static enum status join_as_rank0(struct joining *j, int listening, struct err *e) {
    snprintf(j->mesh->host_text[0], HOST_NAME_CAP, "%s", j->rendezvous->host);
    TRY(accept_ranks(j, listening, e));
    return send_endpoints(j, e);
}

static enum status join_at_rank0(struct joining *j, struct err *e) {
    struct endpoint first = { .port = j->rendezvous->port };
    int listening, port;
    memcpy(first.address, j->rendezvous->address, sizeof first.address);
    TRY(wire_listen(NULL, 0, &listening, &port, e));
    enum status st = connect_rank(j, 0, &first, port, e);
    if (st == OK) st = receive_endpoints(j, e);
    for (int i = 1; i < j->mesh->rank && st == OK; i++)
        st = connect_rank(j, i, &j->endpoint[i], 0, e);
    if (st == OK) st = accept_ranks(j, listening, e);
    close(listening);
    return st;
}

enum status rendezvous_join(const struct rendezvous *rendezvous, int rank, int world, int listening,
                            struct mesh *out, struct err *e) {
    mesh_init(out, rank, 0); /* nothing to close yet */
    if (world < 1 || world > RENDEZVOUS_RANKS_MAX || rank < 0 || rank >= world)
        return FAIL(e, ERR_ARG, "rank %d of %d; at most %d ranks", rank, world,
                    RENDEZVOUS_RANKS_MAX);
    mesh_init(out, rank, world);
    struct joining j = { .rendezvous = rendezvous, .mesh = out };
    TRY(secret_make(j.self, e));
    j.deadline_ms = clock_ms() + (int64_t)rendezvous->timeout_s * 1000 + (rank ? EXTRA_MS : 0);
    return rank == 0 ? join_as_rank0(&j, listening, e) : join_at_rank0(&j, e);
}
