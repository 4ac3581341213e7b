/* The two threads of a rank that use NCCL, as the trainer and the heartbeat do: one queues
 * collectives, the other polls and then aborts. With the argument "hang" the abort finds the first
 * thread in a collective that does not return. With "race" a third thread polls beside the abort,
 * which nccl.cuh forbids: the thread sanitizer must report this. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <atomic>

#include "kernels/cuda/nccl.cuh"

enum { POLLS = 200, QUEUED_BEFORE = 100, HANGS = 13 /* nccl_stand_in.c */ };

struct rank {
    struct nccl *nccl;
    bool hang;
    std::atomic<int> queued, polled;
    std::atomic<bool> aborted;
};

static void *queue_collectives(void *context) {
    struct rank *r = (struct rank *)context;
    struct err e = {};
    char bytes[64];
    uint32_t most = 0;
    enum status st = OK;
    while (st == OK) {
        st = nccl_all_gather(r->nccl, bytes, bytes, sizeof bytes, NULL, &e);
        if (st == OK) st = nccl_broadcast(r->nccl, bytes, sizeof bytes, 0, NULL, &e);
        if (st == OK) st = nccl_max_u32(r->nccl, &most, 1, NULL, &e);
        if (st == OK) st = nccl_swap(r->nccl, bytes, 8, bytes, 8, 8, NULL, &e);
        if (++r->queued == QUEUED_BEFORE && r->hang)
            st = nccl_broadcast(r->nccl, bytes, HANGS, 0, NULL, &e);
    }
    if (st != ERR_PEER) printf("FAILED: queueing ended with %s: %s\n", status_name(st), e.text);
    return st == ERR_PEER ? r : NULL;
}

static void *poll_on(void *context) {
    struct rank *r = (struct rank *)context;
    struct err e = {};
    while (!r->aborted) (void)(nccl_poll(r->nccl, &e) == OK && ++r->polled);
    return NULL;
}

int main(int argc, char **argv) {
    struct rank r = {};
    struct comm_group group = {};
    struct links *links = NULL;
    struct err e = {};
    pthread_t queue, poll;
    void *ended = NULL;
    bool race = argc > 1 && strcmp(argv[1], "race") == 0;
    r.hang = argc > 1 && strcmp(argv[1], "hang") == 0;
    group.world = 1;
    if (links_create(&links, &group, &e) != OK || nccl_open(&r.nccl, links, 0, 1, &e) != OK) {
        printf("FAILED: %s\n", e.text);
        return 1;
    }
    pthread_create(&queue, NULL, queue_collectives, &r);
    if (race) pthread_create(&poll, NULL, poll_on, &r);
    for (int i = 0; i < POLLS || r.queued < QUEUED_BEFORE || (race && r.polled < POLLS); i++)
        if (!race && nccl_poll(r.nccl, &e) != OK) printf("FAILED: a poll: %s\n", e.text);
    nccl_abort(r.nccl);
    r.aborted = true;
    pthread_join(queue, &ended);
    if (race) pthread_join(poll, NULL);
    if (nccl_poll(r.nccl, &e) != ERR_PEER) printf("FAILED: a poll after the abort succeeds\n");
    nccl_close(r.nccl);
    links_destroy(links);
    printf("%d collectives beside polls and an abort\n", r.queued.load());
    return ended ? 0 : 1;
}
