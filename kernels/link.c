#include "kernels/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { WAKE_MS = 200 };

static const char HEADER_MAGIC[8] = "fp8lab>", BYE_MAGIC[8] = "fp8lab.";

/* What opens each collective on each link, or, with BYE_MAGIC, ends the link. */
struct header {
    char magic[8];
    int64_t number;    /* of collectives that these two ranks opened, from 0 */
    int64_t detail[4];
    char what[48];
};

struct links {
    const struct comm_group *group;
    struct comm_note *note, own; /* the group's, or own */
    struct header *mine, *theirs; /* [world] */
    struct link_transfer *transfer; /* [world], for links_agree */
    struct pollfd *fds;           /* [world] */
    int64_t *number;              /* [world] */
    atomic_bool aborted;
};

static const char *host_of(const struct links *l, int peer) {
    const char *const *host = l->group->host;
    return host && host[peer] ? host[peer] : "an unknown host";
}

/* ---- life -------------------------------------------------------------------------------------*/

static enum status check_group(const struct comm_group *g, struct err *e) {
    if (g->world < 1 || g->world > COMM_RANKS_MAX || g->rank < 0 || g->rank >= g->world)
        return FAIL(e, ERR_ARG, "a group in which this is rank %d of %d (at most %d)", g->rank,
                    g->world, COMM_RANKS_MAX);
    for (int i = 0; i < g->world; i++) {
        if (i == g->rank) continue;
        if (!g->link || g->link[i] < 0)
            return FAIL(e, ERR_ARG, "a group without a link to rank %d", i);
        int flags = fcntl(g->link[i], F_GETFL);
        if (flags < 0 || fcntl(g->link[i], F_SETFL, flags | O_NONBLOCK) != 0)
            return FAIL(e, ERR_IO, "the link to rank %d: %s", i, strerror(errno));
    }
    return OK;
}

static void links_free(struct links *l) {
    free(l->mine);
    free(l->theirs);
    free(l->transfer);
    free(l->fds);
    free(l->number);
    free(l);
}

enum status links_create(struct links **out, const struct comm_group *group, struct err *e) {
    *out = NULL;
    TRY(check_group(group, e));
    struct links *l = calloc(1, sizeof *l);
    if (!l) return FAIL(e, ERR_MEMORY, "the links of a group");
    size_t n = (size_t)group->world;
    l->group = group;
    l->note = group->note ? group->note : &l->own;
    atomic_init(&l->aborted, false);
    l->mine = calloc(n, sizeof *l->mine);
    l->theirs = calloc(n, sizeof *l->theirs);
    l->transfer = calloc(n, sizeof *l->transfer);
    l->fds = calloc(n, sizeof *l->fds);
    l->number = calloc(n, sizeof *l->number);
    if (!l->mine || !l->theirs || !l->transfer || !l->fds || !l->number) {
        links_free(l);
        return FAIL(e, ERR_MEMORY, "the links of %d ranks", group->world);
    }
    *out = l;
    return OK;
}

void links_destroy(struct links *l) {
    if (!l) return;
    struct header bye = { .what = "goodbye" };
    memcpy(bye.magic, BYE_MAGIC, sizeof bye.magic);
    for (int i = 0; i < l->group->world && !atomic_load(&l->aborted); i++)
        if (i != l->group->rank) /* a peer that does not take it in is gone or going */
            (void)!send(l->group->link[i], &bye, sizeof bye, MSG_NOSIGNAL | MSG_DONTWAIT);
    links_free(l);
}

/* Records the links that are already down, then shuts all links down. The order matters: a link
 * that this rank shut down looks like a broken one. POLLRDHUP also reports a closed link that
 * still has unread bytes. */
static void give_up(struct links *l, uint64_t lost) {
    if (atomic_exchange(&l->aborted, true)) return;
    for (int i = 0; i < l->group->world; i++) {
        struct pollfd link = { .fd = l->group->link[i], .events = POLLRDHUP };
        if (i != l->group->rank && poll(&link, 1, 0) == 1) lost |= (uint64_t)1 << i;
    }
    __atomic_store_n(&l->note->lost, lost, __ATOMIC_RELAXED);
    __atomic_store_n(&l->note->aborted, true, __ATOMIC_RELEASE);
    for (int i = 0; i < l->group->world; i++)
        if (i != l->group->rank) (void)shutdown(l->group->link[i], SHUT_RDWR);
}

void links_abort(struct links *l) { give_up(l, 0); }

/* ---- exchange ---------------------------------------------------------------------------------*/

static enum status broken(struct links *l, int peer, const char *what, const char *why,
                          struct err *e) {
    bool aborted = atomic_load(&l->aborted);
    give_up(l, (uint64_t)1 << peer);
    if (aborted) return FAIL(e, ERR_PEER, "%s: the group was aborted", what);
    return FAIL(e, ERR_PEER, "%s: rank %d on %s: %s", what, peer, host_of(l, peer), why);
}

/* One attempt to move bytes. */
static enum status move(struct links *l, struct link_transfer *t, const char *what,
                        struct err *e) {
    int fd = l->group->link[t->peer];
    if (t->sent < t->out_bytes) {
        ssize_t n = send(fd, (const char *)t->out + t->sent, (size_t)(t->out_bytes - t->sent),
                         MSG_NOSIGNAL);
        if (n > 0) t->sent += n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            return broken(l, t->peer, what, strerror(errno), e);
    }
    if (t->got < t->in_bytes) {
        ssize_t n = recv(fd, (char *)t->in + t->got, (size_t)(t->in_bytes - t->got), 0);
        if (n > 0) t->got += n;
        else if (n == 0) return broken(l, t->peer, what, "its link is closed", e);
        else if (errno != EAGAIN && errno != EINTR)
            return broken(l, t->peer, what, strerror(errno), e);
    }
    return OK;
}

enum status links_exchange(struct links *l, struct link_transfer *transfer, int count,
                           const char *what, struct err *e) {
    for (int i = 0; i < count; i++) transfer[i].sent = transfer[i].got = 0;
    for (;;) {
        int waiting = 0;
        uint64_t waits_for = 0;
        for (int i = 0; i < count; i++) {
            struct link_transfer *t = &transfer[i];
            TRY(move(l, t, what, e));
            short events = (short)((t->sent < t->out_bytes ? POLLOUT : 0) |
                                   (t->got < t->in_bytes ? POLLIN : 0));
            if (!events) continue;
            waits_for |= (uint64_t)1 << t->peer;
            l->fds[waiting++] = (struct pollfd){ .fd = l->group->link[t->peer],
                                                 .events = events };
        }
        __atomic_store_n(&l->note->waits_for, waits_for, __ATOMIC_RELAXED);
        if (!waiting) return OK;
        if (atomic_load(&l->aborted)) return broken(l, transfer[0].peer, what, "", e);
        (void)poll(l->fds, (nfds_t)waiting, WAKE_MS);
    }
}

/* ---- agreement --------------------------------------------------------------------------------*/

static enum status compare(struct links *l, int peer, struct err *e) {
    const struct header *mine = &l->mine[peer], *theirs = &l->theirs[peer];
    if (!memcmp(theirs->magic, BYE_MAGIC, sizeof theirs->magic))
        return broken(l, peer, mine->what, "has left the group", e);
    bool same = !memcmp(mine, theirs, sizeof *mine);
    if (same) return OK;
    links_abort(l);
    return FAIL(e, ERR_STATE,
                "ranks are in different collectives: this is rank %d in %s, number %lld (%lld %lld "
                "%lld %lld); rank %d on %s is in %.47s, number %lld (%lld %lld %lld %lld)",
                l->group->rank, mine->what, (long long)mine->number, (long long)mine->detail[0],
                (long long)mine->detail[1], (long long)mine->detail[2],
                (long long)mine->detail[3], peer, host_of(l, peer), theirs->what,
                (long long)theirs->number, (long long)theirs->detail[0],
                (long long)theirs->detail[1], (long long)theirs->detail[2],
                (long long)theirs->detail[3]);
}

enum status links_agree(struct links *l, const int *peer, int count, const char *what,
                        const int64_t detail[4], struct err *e) {
    int n = 0;
    for (int i = 0; i < (peer ? count : l->group->world); i++) {
        int p = peer ? peer[i] : i;
        if (p == l->group->rank) continue;
        struct header *mine = &l->mine[p];
        memset(mine, 0, sizeof *mine);
        memcpy(mine->magic, HEADER_MAGIC, sizeof mine->magic);
        mine->number = l->number[p]++;
        memcpy(mine->detail, detail, sizeof mine->detail);
        snprintf(mine->what, sizeof mine->what, "%s", what);
        l->transfer[n++] = (struct link_transfer){
            .peer = p, .out = mine, .in = &l->theirs[p],
            .out_bytes = sizeof *mine, .in_bytes = sizeof *mine,
        };
    }
    TRY(links_exchange(l, l->transfer, n, what, e));
    for (int i = 0; i < n; i++) TRY(compare(l, l->transfer[i].peer, e));
    return OK;
}

/* ---- liveness ---------------------------------------------------------------------------------*/

enum status links_poll(struct links *l, struct err *e) {
    if (atomic_load(&l->aborted)) return FAIL(e, ERR_PEER, "the group was aborted");
    for (int i = 0; i < l->group->world; i++) {
        char byte;
        if (i == l->group->rank) continue;
        ssize_t n = recv(l->group->link[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) continue;
        return FAIL(e, ERR_PEER, "rank %d on %s: %s", i, host_of(l, i),
                    n == 0 ? "its link is closed" : strerror(errno));
    }
    return OK;
}
