/* When the device reaches a collective, it writes one word of mapped host memory: the count so far,
 * and the number of this one's name. The write is posted: the device does not wait for it. */
#include "kernels/cuda/comm_place.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAMES_MAX = 1024, /* distinct names of a run; all later ones share the last */
    NAME_BITS = 16    /* of the word: the name's number; the rest is the count */
};
static_assert(NAMES_MAX <= 1 << NAME_BITS, "a name's number fits into its bits");

struct comm_place {
    char name[NAMES_MAX][sizeof ((struct comm_at *)0)->what];
    uint32_t names;
    unsigned long long *count; /* device: collectives reached so far */
    volatile uint64_t *board;  /* host, mapped */
};

__global__ static void arrive_kernel(uint64_t *began, unsigned long long *count,
                                     volatile uint64_t *board, uint32_t name) {
    *began = clock_ns();
    *board = (uint64_t)++*count << NAME_BITS | name;
}

enum status comm_place_open(struct comm_place **out, struct err *e) {
    struct comm_place *p = (struct comm_place *)calloc(1, sizeof *p);
    *out = p;
    if (!p) return FAIL(e, ERR_MEMORY, "no memory for the record of collectives");
    CUDA_TRY(e, cudaHostAlloc((void **)&p->board, sizeof *p->board, cudaHostAllocMapped));
    *p->board = 0;
    CUDA_TRY(e, cudaMalloc((void **)&p->count, sizeof *p->count));
    CUDA_TRY(e, cudaMemset(p->count, 0, sizeof *p->count));
    CUDA_TRY(e, cudaDeviceSynchronize()); /* no lane waits for the stream of this write */
    return OK;
}

void comm_place_close(struct comm_place *p) {
    if (!p) return;
    cudaFree(p->count);
    if (p->board) cudaFreeHost((void *)p->board);
    free(p);
}

/* The number of a name. Names never move: another thread may be reading them. */
static uint32_t number_of(struct comm_place *p, const char *name) {
    uint32_t i = 0;
    while (i < p->names && strcmp(p->name[i], name)) i++;
    if (i < p->names) return i;
    if (i == NAMES_MAX) return NAMES_MAX - 1;
    bool last = i == NAMES_MAX - 1;
    snprintf(p->name[i], sizeof p->name[i], "%s", last ? "a collective" : name);
    p->names++;
    return i;
}

enum status comm_place_arrive(struct comm_place *p, const char *name, const struct tensor *x,
                              uint64_t *began, cudaStream_t stream, struct err *e) {
    char what[sizeof p->name[0]];
    snprintf(what, sizeof what, "%s of %lld %s", name, (long long)tensor_count(x),
             dtype_name(x->dtype));
    arrive_kernel<<<1, 1, 0, stream>>>(began, p->count, p->board, number_of(p, what));
    return cuda_launched("a collective's place", e);
}

void comm_place_read(const struct comm_place *p, struct comm_note *note) {
    uint64_t word = *p->board;
    struct comm_at at = { (int64_t)(word >> NAME_BITS), "" };
    if (at.count == comm_note_read(note).at.count) return;
    memcpy(at.what, p->name[word & ((1u << NAME_BITS) - 1)], sizeof at.what);
    comm_note_move(note, &at);
}
