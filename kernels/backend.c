#include "kernels/backend.h"

#include <assert.h>
#include <string.h>

typedef void (*slot)(void);

#define SLOT(name) { #name, offsetof(struct backend_ops, name) }
static const struct { const char *name; size_t at; } SLOTS[] = {
    SLOT(comm.init), SLOT(comm.rank), SLOT(comm.world), SLOT(comm.all_reduce),
    SLOT(comm.reduce_scatter), SLOT(comm.reduce_scatter_codes), SLOT(comm.all_gather),
    SLOT(comm.broadcast), SLOT(comm.busy), SLOT(comm.poll), SLOT(comm.abort),
    SLOT(close), SLOT(info), SLOT(memory_create),
    SLOT(memory_create_pinned), SLOT(memory_destroy), SLOT(upload), SLOT(download),
    SLOT(readback), SLOT(readback_ready), SLOT(readback_fetch),
    SLOT(signal), SLOT(wait), SLOT(sync), SLOT(graph_replay), SLOT(graph_begin), SLOT(graph_end),
    SLOT(graph_drop), SLOT(timer_mark), SLOT(timer_read), SLOT(matmul_native),
    SLOT(product_way), SLOT(twins_untransposed),
#define OPERATOR(name, parameters, arguments, cost) SLOT(name),
#include "kernels/operators.inc"
    SLOT(choices_save), SLOT(choices_load), SLOT(choices_offer), SLOT(choices_timed),
    SLOT(choosing_seconds), SLOT(attention_backend),
    SLOT(library), SLOT(decision), SLOT(in_progress), SLOT(assume_architecture),
    SLOT(forbid),
    SLOT(set_exact),
};
#undef SLOT
/* In both structs the function pointers come last, or are all there is. */
static_assert(sizeof SLOTS / sizeof *SLOTS ==
                  (sizeof(struct backend_ops) - offsetof(struct backend_ops, close)) /
                          sizeof(slot) + sizeof(struct comm_ops) / sizeof(slot),
              "one row for each slot of the table");

const char *backend_missing(const struct backend_ops *ops) {
    for (size_t i = 0; i < sizeof SLOTS / sizeof *SLOTS; i++) {
        slot found;
        memcpy(&found, (const char *)ops + SLOTS[i].at, sizeof found);
        if (!found) return SLOTS[i].name;
    }
    return NULL;
}
