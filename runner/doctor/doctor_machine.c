/* Driver, GPUs, memory and limits, from facts alone: a fact file works like the machine itself. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/doctor/doctor.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/peaks.h"

enum { CC_LOWEST = 80, HOT_C = 85 };
static const double GIB = 0x1p30;

/* ---- reading facts ---- */

static const char *text_of(const struct doctor *d, const char *name) {
    return json_string_value(json_object_get(d->facts, name));
}

/* -1 if the fact is unknown. */
static double number_of(const struct doctor *d, const char *name) {
    const json_t *value = json_object_get(d->facts, name);
    return json_is_number(value) ? json_number_value(value) : -1;
}

static bool is_true(const struct doctor *d, const char *name) {
    return json_is_true(json_object_get(d->facts, name));
}

static bool is_false(const struct doctor *d, const char *name) {
    return json_is_false(json_object_get(d->facts, name));
}

int doctor_capability(const struct doctor *d) {
    int caps = 0;
    if (d->caps && sscanf(d->caps, "sm_%d", &caps) == 1) return caps;
    return facts_capability(d->facts);
}

static bool in_container(const struct doctor *d) {
    const char *runtime = text_of(d, "container.runtime");
    return runtime && strcmp(runtime, "none") != 0;
}

/* ---- driver ---- */

static void say_no_gpu(struct doctor *d) {
    if (number_of(d, "gpu.on_bus") > 0)
        doctor_say(d, FINDING_WRONG, "driver",
                   in_container(d) ? "start the container with --gpus all (docker), --device "
                                     "nvidia.com/gpu=all (podman) or --nv (apptainer)"
                                   : "install NVIDIA's driver R580 or newer; nvidia-smi must list "
                                     "the GPU",
                   "%.0f NVIDIA GPU on the bus, but no driver for it%s",
                   number_of(d, "gpu.on_bus"), in_container(d) ? " in this container" : "");
    else if (d->gpu && !d->caps)
        doctor_say(d, FINDING_WRONG, "gpu",
                   "use a machine with a GPU, or --backend cpu; --facts FILE or --caps ARCH plan "
                   "for another machine", "no NVIDIA GPU here, and --backend cuda needs one");
    else
        doctor_say(d, FINDING_NOTE, "gpu", NULL,
                   "no NVIDIA GPU: recipes run emulated on the CPU, to the same definition");
}

static void say_driver(struct doctor *d) {
    const char *driver = text_of(d, "gpu.driver"), *cuda = text_of(d, "cuda.driver");
    char fix[160];
    if (!cuda) {
        doctor_say(d, FINDING_WARNING, "driver", "nvidia-smi must work before fp8lab can",
                   "the driver does not report which CUDA it supports");
    } else if (atoi(cuda) < d->cuda) {
        snprintf(fix, sizeof fix, "update the driver to R%d or newer (CUDA %d); libraries in a "
                 "container cannot replace it", d->cuda >= 13 ? 580 : 525, d->cuda);
        doctor_say(d, FINDING_WRONG, "driver", fix, "driver %s supports CUDA %s, and CUDA %d.0 is "
                   "needed", driver ? driver : "?", cuda, d->cuda);
    } else {
        doctor_say(d, FINDING_FINE, "driver", NULL, "%s, CUDA %s", driver ? driver : "?", cuda);
    }
}

/* ---- GPUs ---- */

static void say_gpu(struct doctor *d) {
    const char *product = text_of(d, "gpu.product_name"), *cc = text_of(d, "gpu.cc");
    const char *links = text_of(d, "gpu.links");
    const struct peak *peak = product && cc ? peak_find(product, cc) : NULL;
    double memory = number_of(d, "gpu.memory");
    int capability = facts_capability(d->facts);
    char size[32] = "memory not known", note[FACTS_NOTE_CAP];
    if (memory > 0) snprintf(size, sizeof size, "%.1f GiB", memory / GIB);
    doctor_say(d, FINDING_FINE, "gpu", NULL, "%.0f x %s, compute capability %s, %s",
               number_of(d, "gpu.count"), product ? product : "?", cc ? cc : "?", size);
    if (links) doctor_say(d, FINDING_FINE, "links", NULL, "%s", links);
    if (!capability && !d->caps)
        doctor_say(d, FINDING_WARNING, "gpu", FACTS_ADD_CAPABILITY "; or give --caps ARCH",
                   "gpu.cc, its compute capability, is not known: how it runs each recipe is not "
                   "known either, the rest is examined");
    if (facts_strange_capability(d->facts, note))
        doctor_say(d, FINDING_WARNING, "gpu", "correct gpu.cc, or use a newer fp8lab; doctor on "
                   "that machine itself tries each way", "%s", note);
    if (capability && capability < CC_LOWEST)
        doctor_say(d, FINDING_WRONG, "gpu", "a GPU of compute capability 8.0 or newer; or "
                   "--backend cpu",
                   "compute capability %s is older than any machine code built here", cc);
    if (capability == 101 || capability == 110)
        doctor_say(d, FINDING_WRONG, "gpu", "another GPU, or --backend cpu",
                   "compute capability %s is Thor, for which no machine code can be built", cc);
    if (is_true(d, "gpu.mixed"))
        doctor_say(d, FINDING_WARNING, "gpu", "select GPUs of one product: CUDA_VISIBLE_DEVICES",
                   "the GPUs are not all of one product: results and speeds will differ");
    if (is_true(d, "gpu.mig"))
        doctor_say(d, FINDING_NOTE, "gpu", NULL,
                   "multi-instance mode is on: peaks are of the whole GPU, a run has a slice");
    if (!peak)
        doctor_say(d, FINDING_NOTE, "peak", NULL, "no data-sheet peak for %s in the table: MFU is "
                   "given against the measured GEMM only", product ? product : "this GPU");
    else
        doctor_say(d, FINDING_FINE, "peak", NULL, "dense %.5g TFLOP/s BF16, %.5g FP8, %.0f GB/s "
                   "(%s%s)", peak->bf16_tflops, peak->fp8_tflops, peak->memory_gb_s, peak->source,
                   peak->derived ? "; derived" : "");
}

/* ECC can be switched on data-centre chips only; others report nothing or have none. */
static void say_ecc(struct doctor *d) {
    int cc = facts_capability(d->facts);
    bool choice = cc == 80 || cc == 90 || cc == 100 || cc == 103;
    if (is_true(d, "gpu.ecc")) doctor_say(d, FINDING_FINE, "ecc", NULL, "on");
    else if (is_false(d, "gpu.ecc") && choice)
        doctor_say(d, FINDING_WARNING, "ecc", "nvidia-smi -e 1, then reboot",
                   "off: a flipped bit is not detected, and may change results");
    else doctor_say(d, FINDING_NOTE, "ecc", NULL, "this GPU has none, or does not report it");
}

static void say_clocks(struct doctor *d) {
    double watts = number_of(d, "gpu.power_limit_w"), heat = number_of(d, "gpu.temperature_c");
    double now = number_of(d, "gpu.clock_sm_mhz"), most = number_of(d, "gpu.clock_sm_max_mhz");
    double others = number_of(d, "gpu.processes");
    char power[32] = "power limit not known";
    if (watts > 0) snprintf(power, sizeof power, "%.0f W", watts);
    doctor_say(d, heat >= HOT_C ? FINDING_WARNING : FINDING_FINE, "clocks",
               heat >= HOT_C ? "cool the machine first: clocks drop before throttling is reported"
                             : NULL,
               "SM %.0f of %.0f MHz now, %s, %.0f C", now, most, power, heat);
    if (others > 0)
        doctor_say(d, FINDING_WARNING, "processes", "nvidia-smi lists them; measure after they "
                   "exit", "%.0f compute process%s on the GPUs: speeds are not the machine's own",
                   others, others == 1 ? "" : "es");
    else if (others == 0)
        doctor_say(d, FINDING_FINE, "processes", NULL, "no others on the GPUs");
}

/* ---- memory and limits ---- */

static void say_memory(struct doctor *d) {
    double total = number_of(d, "memory.total"), available = number_of(d, "memory.available");
    double page = number_of(d, "os.page_size");
    char left[48] = "";
    if (available >= 0) snprintf(left, sizeof left, ", %.1f GiB available", available / GIB);
    doctor_say(d, FINDING_FINE, "memory", NULL, "%.1f GiB%s%s", total / GIB, left,
               is_true(d, "memory.unified")
                   ? "; CPU and GPU share it, 8 GiB of it are left to the system" : "");
    if (is_true(d, "memory.unified") && available >= 0 && available < 16 * GIB)
        doctor_say(d, FINDING_WARNING, "memory", "close other programs: if shared memory runs "
                   "out, the host stops, not only the program",
                   "only %.1f GiB of the shared memory are available", available / GIB);
    if (page > 0) doctor_say(d, FINDING_FINE, "pages", NULL, "of %.0f KiB", page / 1024);
}

/* NCCL moves tensors between processes of a host through /dev/shm and locked memory. */
static void say_limits(struct doctor *d) {
    bool several = number_of(d, "gpu.count") > 1;
    double shm = number_of(d, "memory.shm"), locked = number_of(d, "limits.memlock");
    double stack = number_of(d, "limits.stack");
    if (shm >= 0 && shm < GIB)
        doctor_say(d, several ? FINDING_WARNING : FINDING_NOTE, "shm", "docker run --ipc=host, or "
                   "--shm-size=8g", "/dev/shm has %.0f MiB: too little for NCCL%s", shm / 0x1p20,
                   several ? "" : ", which only several GPUs need");
    else if (shm >= 0) doctor_say(d, FINDING_FINE, "shm", NULL, "%.1f GiB", shm / GIB);
    if (locked >= 0 && locked < 0x1p62)
        doctor_say(d, several ? FINDING_WARNING : FINDING_NOTE, "memlock",
                   "docker run --ulimit memlock=-1, or ulimit -l unlimited",
                   "locked memory is limited to %.0f MiB%s", locked / 0x1p20,
                   several ? "" : "; only several GPUs need more");
    if (stack >= 0 && stack < 8 * 0x1p20)
        doctor_say(d, FINDING_WARNING, "stack",
                   "docker run --ulimit stack=67108864, or ulimit -s 65536",
                   "the stack is limited to %.0f KiB", stack / 1024);
}

static void say_place(struct doctor *d) {
    const char *runtime = text_of(d, "container.runtime"), *image = text_of(d, "container.image");
    const char *arch = text_of(d, "cpu.arch"), *model = text_of(d, "cpu.model");
    const char *simd = text_of(d, "cpu.simd");
    doctor_say(d, FINDING_FINE, "cpu", NULL, "%s (%s, %s), %.0f usable", model ? model : "?",
               arch ? arch : "?", simd ? simd : "?", number_of(d, "cpu.cores"));
    if (runtime && !strcmp(runtime, "unknown")) runtime = "yes, of an unknown runtime";
    if (runtime)
        doctor_say(d, FINDING_FINE, "container", NULL, "%s%s%s", runtime, image ? ": " : "",
                   image ? image : "");
}

void doctor_machine(struct doctor *d) {
    say_place(d);
    if (number_of(d, "gpu.count") > 0) {
        say_driver(d);
        say_gpu(d);
        say_ecc(d);
        say_clocks(d);
    } else {
        say_no_gpu(d);
    }
    say_memory(d);
    say_limits(d);
}
