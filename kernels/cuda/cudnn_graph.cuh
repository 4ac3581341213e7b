/* The part of cuDNN's C backend that attention needs: functions found at run time, and the
 * operation graph of causal attention's forward. Private to attention_cudnn.cu. */
#ifndef FP8LAB_KERNELS_CUDA_CUDNN_GRAPH_CUH
#define FP8LAB_KERNELS_CUDA_CUDNN_GRAPH_CUH

#include <cudnn_graph.h>

#include "kernels/cuda/attention.cuh"

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

/* Descriptors that other descriptors refer to; they must outlive these. */
enum { CUDNN_NODES_MAX = 160 };
struct cudnn_nodes {
    cudnn_node node[CUDNN_NODES_MAX];
    int count;
};

/* Identities of a call's tensors. */
enum cudnn_id {
    ID_Q = 1, ID_K, ID_V, ID_O, ID_STATS, ID_SCALE, ID_MINUS_INFINITY,
    /* of FP8: the factor of qkv once for each operand, then p's factor, multiplier and amax; the
     * scale and the amax of O */
    ID_FACTOR_Q, ID_FACTOR_K, ID_FACTOR_V, ID_FACTOR_P, ID_MULTIPLIER_P, ID_AMAX_P,
    ID_MULTIPLIER_O, ID_AMAX_O,
    ID_VIRTUAL
};

/* A new descriptor, added to `owned`; NULL, with *status set, once anything has failed. */
cudnn_node cudnn_make(const struct cudnn_functions *f, struct cudnn_nodes *owned,
                      cudnnBackendDescriptorType_t type, cudnnStatus_t *status);

/* The finalised operation graph, or NULL and *status. fp8: of codes, whose width is in bytes. */
cudnn_node cudnn_attention_graph(const struct cudnn_functions *f, cudnnHandle_t handle,
                                 const struct attention *a, bool fp8, struct cudnn_nodes *owned,
                                 cudnnStatus_t *status);

#endif
