/* A plugin that stands in for the CUDA backend: the CPU's arithmetic, with the mistake that the
 * file "mistake" beside the program (of device N > 0 "mistakeN", if it exists) numbers (enum
 * wrong_kind), or with one of these:
 *   crash           WRONG_CRASH
 *   crash KERNEL    attention kills the process unless KERNEL is forbidden: wgmma, cudnn
 *   crash all       ... unless both are
 *   crash bf16      a product in BF16 kills it
 *   device          a product of E4M3 with one scale per tensor is ERR_DEVICE unless forbidden
 *   memory WORDS    memory for "certify: WORDS..." is ERR_MEMORY; device WORDS, absent WORDS: other
 *                   errors. A run needs no such memory.
 *   fused kept      swiglu_fwd writes a wrong code into its sink; fused dropped: if the sink does
 *                   not keep the value
 *   hang            a certificate never ends
 *   closed          the backend does not open
 *   plain           it is right, and its table may be wrapped (bench) */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/wrong_backend.h"

enum { LARGE = 1 << 22 };

static char mistake[2][64]; /* the file's first word, and the rest of its line */
static struct backend_ops real;
static bool cudnn_forbidden, wgmma_forbidden, gemm_forbidden;

static bool has(const char *word, const char *rest) {
    return !strcmp(mistake[0], word) && (!rest || !strcmp(mistake[1], rest));
}

static enum status forbid(struct backend *b, const char *section, const char *way, struct err *e) {
    cudnn_forbidden |= !strcmp(way, "cudnn");
    wgmma_forbidden |= !strcmp(way, "wgmma");
    gemm_forbidden |= !strcmp(way, "e4m3 tensor x e4m3 tensor");
    return real.forbid(b, section, way, e);
}

static enum status attention(struct backend *b, int lane, const struct attention_fwd_args *args,
                             struct err *e) {
    if ((!cudnn_forbidden && (has("crash", "cudnn") || has("crash", "all"))) ||
        (!wgmma_forbidden && (has("crash", "wgmma") || has("crash", "all"))))
        (void)raise(SIGKILL);
    return real.attention_fwd(b, lane, args, e);
}

static enum status matmul(struct backend *b, int lane, const struct matmul_args *args,
                          struct err *e) {
    bool bf16 = args->a->dtype == DTYPE_BF16;
    bool tensor = args->a->dtype == DTYPE_E4M3 && args->a->scale.kind == SCALE_TENSOR;
    if (args->out->dim[0] * args->out->dim[1] >= LARGE) return OK; /* the ceiling, on one thread */
    if (bf16 && has("crash", "bf16")) (void)raise(SIGKILL);
    if (tensor && !gemm_forbidden && has("device", ""))
        return FAIL(e, ERR_DEVICE, "matmul: an illegal memory access was encountered");
    return real.matmul(b, lane, args, e);
}

static enum status swiglu(struct backend *b, int lane, const struct sink *h,
                          const struct tensor *gate_up, struct err *e) {
    TRY(real.swiglu_fwd(b, lane, h, gate_up, e));
    bool wrong = has("fused", "kept") || (has("fused", "dropped") && !h->keep_value);
    if (wrong && h->codes && h->codes->data) *(unsigned char *)h->codes->data ^= 1;
    return OK;
}

static enum status memory_create(struct backend *b, const char *what, int64_t bytes, void **out,
                                 struct err *e) {
    static const struct { const char *word; enum status status; } ERRORS[] = {
        { "memory", ERR_MEMORY }, { "device", ERR_DEVICE }, { "absent", ERR_UNSUPPORTED },
    };
    bool certify = !strncmp(what, "certify: ", 9);
    while (certify && has("hang", NULL)) pause();
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (certify && has(ERRORS[i].word, NULL) && *mistake[1] && strstr(what, mistake[1]))
            return FAIL(e, ERRORS[i].status, "memory for %s: the stand-in refuses it", what);
    return real.memory_create(b, what, bytes, out, e);
}

static enum status forbid_nothing(struct backend *b, const char *section, const char *way,
                                  struct err *e) {
    fprintf(stderr, "stand-in: without %s %s\n", section, way);
    return OK;
}

static void read_mistake(int device) {
    char path[4096] = "";
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
    char *slash = n > 0 ? strrchr(path, '/') : path;
    snprintf(slash, 32, device ? "/mistake%d" : "/mistake", device);
    if (device && access(path, R_OK) != 0) snprintf(slash, 32, "/mistake");
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%63s %63[^\n]", mistake[0], mistake[1]) < 1) *mistake[0] = '\0';
    if (file) fclose(file);
}

enum status cuda_backend_open(struct backend **out, int device, struct err *e) {
    read_mistake(device);
    cudnn_forbidden = wgmma_forbidden = gemm_forbidden = false;
    if (has("closed", NULL)) return FAIL(e, ERR_DEVICE, "device %d does not open", device);
    int kind = has("crash", "") ? WRONG_CRASH : atoi(mistake[0]);
    TRY(cpu_backend_open(out, 1, e));
    if (has("plain", NULL)) {
        real = *(*out)->ops;
        real.name = "cuda";
        real.forbid = forbid_nothing;
        (*out)->ops = &real;
        return OK;
    }
    TRY(wrong_backend_open(*out, (enum wrong_kind)kind, "sm_121", "cuda", e));
    struct backend_ops *ops = (struct backend_ops *)(uintptr_t)(*out)->ops;
    real = *ops;
    ops->forbid = forbid;
    ops->attention_fwd = attention;
    ops->matmul = matmul;
    ops->memory_create = memory_create;
    ops->swiglu_fwd = swiglu;
    return OK;
}
