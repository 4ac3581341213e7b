/* libnccl.so.2 without a GPU, for tests of the threads that call it (cuda_threads.sh). Collectives
 * do nothing and succeed, but a broadcast of HANGS bytes returns only after an abort. Abort and
 * destroy free the communicator. Each function uses the communicator without synchronisation, so
 * the thread sanitizer reports a call beside or after its release. */
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { HANGS = 13 };
static atomic_bool released; /* of this library, as NCCL has its own threads */

struct ncclComm { int rank, calls, polls; };

ncclResult_t ncclGetVersion(int *version) {
    *version = 22000;
    return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    *id = (ncclUniqueId){ .internal = "stand-in" };
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int world, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    *comm = calloc(1, sizeof **comm);
    if (*comm) (*comm)->rank = rank;
    return *comm ? ncclSuccess : ncclSystemError;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    free(comm);
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    free(comm);
    released = true;
    return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    comm->polls++;
    *state = ncclSuccess;
    return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t result) { return "an error of the stand-in"; }
const char *ncclGetLastError(ncclComm_t comm) { return ""; }
ncclResult_t ncclGroupStart(void) { return ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return ncclSuccess; }

static ncclResult_t queue(ncclComm_t comm) {
    comm->calls++;
    return ncclSuccess;
}
ncclResult_t ncclSend(const void *x, size_t n, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream) {
    return queue(comm);
}
ncclResult_t ncclRecv(void *x, size_t n, ncclDataType_t type, int from, ncclComm_t comm,
                      cudaStream_t stream) {
    return queue(comm);
}
ncclResult_t ncclAllGather(const void *x, void *out, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return queue(comm);
}
ncclResult_t ncclBroadcast(const void *x, void *out, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    while (n == HANGS && !released) continue;
    return n == HANGS ? ncclRemoteError : queue(comm);
}
ncclResult_t ncclAllReduce(const void *x, void *out, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return queue(comm);
}
