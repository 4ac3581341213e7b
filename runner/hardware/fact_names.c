#include "runner/hardware/fact_names.h"

#include <ctype.h>
#include <string.h>

#include "runner/base/nearest.h"

/* gpu.* describe every GPU where all are alike; see gpu.mixed. */
const struct fact_name FACT_NAMES[] = {
    { "gpu.on_bus", FACT_COUNT, "NVIDIA GPUs on the PCI bus, with or without a driver" },
    { "gpu.count", FACT_COUNT, "NVIDIA GPUs that CUDA_VISIBLE_DEVICES leaves visible" },
    { "gpu.product_name", FACT_STRING, "the driver's exact product string" },
    { "gpu.family", FACT_STRING, "turing, ampere, ada, hopper, blackwell" },
    { "gpu.cc", FACT_VERSION, "CUDA compute capability" },
    { "gpu.memory", FACT_BYTES, "memory a GPU can use; system memory where it is unified" },
    { "gpu.nvlink", FACT_BOOL, "at least one NVLink of GPU 0 is up" },
    { "gpu.links", FACT_STRING, "between two: nvlink xN, board, pix, pxb, phb, node, sys or ?" },
    { "gpu.mixed", FACT_BOOL, "the GPUs are not all of one product" },
    { "gpu.driver", FACT_VERSION, "NVIDIA driver" },
    { "gpu.ecc", FACT_BOOL, "ECC is on" },
    { "gpu.mig", FACT_BOOL, "multi-instance mode is on" },
    { "gpu.power_limit_w", FACT_NUMBER, "enforced power limit, watts" },
    { "gpu.clock_sm_max_mhz", FACT_NUMBER, "highest SM clock, MHz" },
    { "gpu.clock_mem_max_mhz", FACT_NUMBER, "highest memory clock, MHz" },
    { "gpu.clock_sm_mhz", FACT_NUMBER, "SM clock at the time of the query, MHz" },
    { "gpu.temperature_c", FACT_NUMBER, "temperature at the time of the query, degrees Celsius" },
    { "gpu.processes", FACT_COUNT, "compute processes on the GPUs at the time of the query" },
    { "gpu.gemm_bf16_tflops", FACT_NUMBER, "a large BF16 GEMM here, measured before a run" },
    { "gpu.gemm_fp8_tflops", FACT_NUMBER, "the same in FP8, one scale per tensor" },
    { "cuda.driver", FACT_VERSION, "newest CUDA the driver supports" },
    { "cuda.runtime", FACT_VERSION, "CUDA runtime in the cuda backend" },
    { "cublaslt.version", FACT_VERSION, "cuBLASLt the cuda backend loaded" },
    { "nccl.version", FACT_VERSION, "NCCL, if it was found" },
    { "cudnn.version", FACT_VERSION, "cuDNN, if it was found" },
    { "cpu.arch", FACT_STRING, "x86_64 or aarch64" },
    { "cpu.model", FACT_STRING, "the CPU's name" },
    { "cpu.cores", FACT_COUNT, "CPUs this process may run on" },
    { "cpu.simd", FACT_STRING, "avx512, avx2, sse2 or neon" },
    { "memory.total", FACT_BYTES, "system memory, or the container's limit if lower" },
    { "memory.available", FACT_BYTES, "the part free for new programs at the time of the query" },
    { "memory.unified", FACT_BOOL, "CPU and GPU share one memory (GB10)" },
    { "memory.shm", FACT_BYTES, "size of /dev/shm, which NCCL uses between processes" },
    { "limits.memlock", FACT_BYTES, "memory that may be locked; 8589934592 GiB: no limit" },
    { "limits.stack", FACT_BYTES, "the stack of a process; the same value: no limit" },
    { "os.page_size", FACT_BYTES, "a page of memory" },
    { "os.id", FACT_STRING, "debian, ubuntu, ..." },
    { "os.version", FACT_VERSION, "of the distribution" },
    { "os.kernel", FACT_VERSION, "Linux release" },
    { "os.libc", FACT_VERSION, "glibc" },
    { "container.runtime", FACT_STRING,
      "none, docker, podman, apptainer, enroot, kubernetes, unknown" },
    { "container.image", FACT_STRING, "the image's name, if the runtime reports it" },
};
const int64_t FACT_NAME_COUNT = sizeof FACT_NAMES / sizeof *FACT_NAMES;

const struct fact_name *fact_find(const char *name) {
    for (int64_t i = 0; i < FACT_NAME_COUNT; i++)
        if (!strcmp(FACT_NAMES[i].name, name)) return &FACT_NAMES[i];
    return NULL;
}

const char *const *fact_words(const struct fact_name *fact) {
    static const char *const FAMILIES[] = { "volta", "turing", "ampere", "ada", "hopper",
                                            "blackwell", NULL };
    static const char *const PROCESSORS[] = { "x86_64", "aarch64", NULL };
    if (!strcmp(fact->name, "gpu.family")) return FAMILIES;
    return !strcmp(fact->name, "cpu.arch") ? PROCESSORS : NULL;
}

double fact_most(const struct fact_name *fact) {
    static const struct { const char *name; double most; } MOST[] = {
        { "gpu.on_bus", 1024 },       { "gpu.count", 1024 },
        { "cpu.cores", 0x1p16 },      { "gpu.processes", 0x1p22 }, /* Linux has no more PIDs */
        { "gpu.memory", 0x1p50 },     { "memory.total", 0x1p50 },
        { "memory.available", 0x1p50 },
    };
    for (size_t i = 0; i < sizeof MOST / sizeof *MOST; i++)
        if (!strcmp(fact->name, MOST[i].name)) return MOST[i].most;
    /* Other sizes can stand for "no limit". */
    return fact->kind == FACT_NUMBER ? 1e6 : 0x1p63;
}

/* What nvidia-smi, Slurm, PyTorch and CUDA's headers call them. */
static const struct other_name OTHERS[] = {
    { "gpu.name", "gpu.product_name" },     { "gpu.model", "gpu.product_name" },
    { "gpu.product", "gpu.product_name" },  { "gpu.type", "gpu.product_name" },
    { "gpu.arch", "gpu.family" },           { "gpu.architecture", "gpu.family" },
    { "gpu.generation", "gpu.family" },     { "gpu.compute_capability", "gpu.cc" },
    { "gpu.compute_cap", "gpu.cc" },        { "gpu.capability", "gpu.cc" },
    { "gpu.sm", "gpu.cc" },                 { "gpu.vram", "gpu.memory" },
    { "gpu.memory_total", "gpu.memory" },   { "gpu.memory.total", "gpu.memory" },
    { "gpu.num", "gpu.count" },             { "gpus", "gpu.count" },
    { "cuda", "cuda.driver" },              { "cuda.version", "cuda.driver" },
    { "cpu.name", "cpu.model" },            { "cpu.count", "cpu.cores" },
    { "memory", "memory.total" },           { "ram", "memory.total" },
    { NULL, NULL },
};

const char *fact_meant(const char *name) {
    const char *ours = other_name_find(OTHERS, name);
    if (ours) return ours;

    const char *names[sizeof FACT_NAMES / sizeof *FACT_NAMES];
    for (int64_t i = 0; i < FACT_NAME_COUNT; i++) names[i] = FACT_NAMES[i].name;
    return nearest_name(name, names, FACT_NAME_COUNT);
}

bool fact_is_version(const char *text) {
    bool digit = false;
    for (; *text; text++) {
        if (isdigit((unsigned char)*text)) digit = true;
        else if (*text == '.' && digit) digit = false;
        else return false;
    }
    return digit;
}
