/* The part of cuDNN's C backend that attention needs: functions found at run time, and the
 * operation graphs of causal attention. Private to attention_cudnn.cu. */
#ifndef FP8LAB_KERNELS_CUDA_CUDNN_GRAPH_CUH
#define FP8LAB_KERNELS_CUDA_CUDNN_GRAPH_CUH

#include <cudnn_graph.h>

#include "kernels/cuda/attention_cudnn.cuh"

typedef cudnnBackendDescriptor_t cudnn_node;

struct cudnn_functions {
    decltype(&cudnnCreate) create;
    decltype(&cudnnDestroy) destroy;
    decltype(&cudnnSetStream) set_stream;
    decltype(&cudnnGetVersion) version;
    decltype(&cudnnGetLastErrorString) last_error;
    decltype(&cudnnBackendCreateDescriptor) make;
    decltype(&cudnnBackendDestroyDescriptor) drop;
    decltype(&cudnnBackendFinalize) finalize;
    decltype(&cudnnBackendSetAttribute) set;
    decltype(&cudnnBackendGetAttribute) get;
    decltype(&cudnnBackendExecute) execute;
};

/* Descriptors that other descriptors refer to; they must outlive these. */
enum { CUDNN_NODES_MAX = 240 };
struct cudnn_nodes {
    cudnn_node node[CUDNN_NODES_MAX];
    int count;
};

/* Identities of a call's tensors. */
enum cudnn_id {
    ID_Q = 1, ID_K, ID_V, ID_O, ID_STATS, ID_SCALE, ID_MINUS_INFINITY,
    /* of FP8: the factor of qkv once for each operand; p's factor and multiplier */
    ID_FACTOR_Q, ID_FACTOR_K, ID_FACTOR_V, ID_FACTOR_P, ID_MULTIPLIER_P,
    /* of its forward: what the output is multiplied by, maxima */
    ID_AMAX_P, ID_MULTIPLIER_O, ID_AMAX_O,
    /* of its backward */
    ID_D_O, ID_FACTOR_D_O, ID_FACTOR_O, ID_FACTOR_DS, ID_MULTIPLIER_DS, ID_AMAX_DS,
    ID_D_Q, ID_D_K, ID_D_V, ID_MULTIPLIER_D_Q, ID_MULTIPLIER_D_K, ID_MULTIPLIER_D_V,
    ID_AMAX_D_Q, ID_AMAX_D_K, ID_AMAX_D_V,
    ID_VIRTUAL
};

/* A new descriptor, added to `owned`; NULL, with *status set, once anything has failed. */
cudnn_node cudnn_make(const struct cudnn_functions *f, struct cudnn_nodes *owned,
                      cudnnBackendDescriptorType_t type, cudnnStatus_t *status);

/* The finalised operation graph, or NULL and *status. Of codes a->width is in bytes. handle: NULL
 * for a graph without a device (tests/dist/cudnn_plans.cu). */
cudnn_node cudnn_attention_graph(const struct cudnn_functions *f, cudnnHandle_t handle,
                                 const struct attention *a, const struct cudnn_spec *spec,
                                 struct cudnn_nodes *owned, cudnnStatus_t *status);

/* The deterministic algorithm of FP8's backward on sm_10x, which no heuristic lists: the engine and
 * the knobs that cudnn-frontend 1.23 names (sdpa_fp8_bwd.h, override_heuristics_query). The engine
 * has no note that tells it from the other algorithm. NULL and *status if the library lacks it.
 * device: NULL, or a description of one (tests). */
cudnn_node cudnn_backward_config(const struct cudnn_functions *f, cudnn_node graph,
                                 cudnn_node device, struct cudnn_nodes *owned,
                                 cudnnStatus_t *status);

#endif
