/* cuDNN's C backend as attention needs it: its functions, found at run time, and the operation graphs
 * of causal attention over them. Private to attention_cudnn.cu. */
#ifndef FP8LAB_KERNELS_CUDA_CUDNN_GRAPH_CUH
#define FP8LAB_KERNELS_CUDA_CUDNN_GRAPH_CUH

#include <cudnn_graph.h>

#include "kernels/cuda/cuda_common.cuh"

typedef cudnnBackendDescriptor_t cudnn_node;

struct cudnn_functions {
    decltype(&cudnnCreate) create;
    decltype(&cudnnDestroy) destroy;
    decltype(&cudnnSetStream) set_stream;
    decltype(&cudnnGetVersion) version;
    decltype(&cudnnBackendCreateDescriptor) make;
    decltype(&cudnnBackendDestroyDescriptor) drop;
    decltype(&cudnnBackendFinalize) finalize;
    decltype(&cudnnBackendSetAttribute) set;
    decltype(&cudnnBackendGetAttribute) get;
    decltype(&cudnnBackendExecute) execute;
};

/* Descriptors that others were made of, which they must outlive. */
enum { CUDNN_NODES_MAX = 160 };
struct cudnn_nodes {
    cudnn_node node[CUDNN_NODES_MAX];
    int count;
};

/* The part of attention that one graph computes: `batch` sequences, and of each `kv_heads` key/value
 * heads with the query heads that share them. Strides are those of the whole tensors, which have
 * all_heads and all_kv_heads. */
struct attention_part {
    int64_t batch, length;
    int heads, kv_heads, all_heads, all_kv_heads, head_dim;
};

/* Identities of what a call passes in. */
enum cudnn_id {
    ID_Q = 1, ID_K, ID_V, ID_O, ID_STATS, ID_DO, ID_DQ, ID_DK, ID_DV, ID_DELTA, ID_SCALE,
    ID_MINUS_INFINITY, ID_ONE, ID_VIRTUAL
};

/* A descriptor among `owned`; NULL, with *status set, once something has failed. */
cudnn_node cudnn_make(const struct cudnn_functions *f, struct cudnn_nodes *owned,
                      cudnnBackendDescriptorType_t type, cudnnStatus_t *status);

/* The finalised operation graph of the part, or NULL and *status. */
cudnn_node cudnn_attention_graph(const struct cudnn_functions *f, cudnnHandle_t handle,
                                 const struct attention_part *part, bool backward,
                                 struct cudnn_nodes *owned, cudnnStatus_t *status);

#endif
