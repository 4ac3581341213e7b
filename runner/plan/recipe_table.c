#include "runner/plan/recipe_table.h"

#include <stdio.h>

#include "kernels/device.h"

const char *recipe_way_name(enum recipe_way way) {
    static const char *const NAMES[] = { "native", "emulated", "refused" };
    return NAMES[way];
}

static struct recipe_row row(enum recipe_way way, const char *because) {
    return (struct recipe_row){ way, because };
}

/* One scale a tensor: every GPU with FP8 tensor cores. */
static struct recipe_row tensor_scales(int cc) {
    if (cc >= 89) return row(WAY_NATIVE, "");
    return row(WAY_EMULATED, "this chip has no FP8 tensor cores");
}

/* One scale a row, or 1x128 by 128x128: cuBLASLt has these for Hopper only. Our own kernel has them
 * where FP8 is multiplied by mma.sync (kernels/cuda/native.h). */
static struct recipe_row hopper_scales(int cc) {
    if (cc == 89 || cc == 90 || cc == 120 || cc == 121) return row(WAY_NATIVE, "");
    if (cc < 89) return row(WAY_EMULATED, "this chip has no FP8 tensor cores");
    return row(WAY_EMULATED, "cuBLASLt has GEMMs with these scales for Hopper only");
}

/* One scale for 32 or 16 elements: Blackwell. */
static struct recipe_row small_blocks(int cc, bool fp4) {
    if (cc >= 100) return row(WAY_NATIVE, "");
    if (fp4) return row(WAY_EMULATED, "this chip has no FP4 tensor cores");
    return cc < 89 ? tensor_scales(cc) : row(WAY_EMULATED, "this chip has no 1x32 scales");
}

/* Of a device alone. */
static struct recipe_row on_device(enum recipe_kind kind, int capability) {
    if (capability == 0 && kind == RECIPE_F32) return row(WAY_EMULATED, "it runs in C, in f32");
    if (capability == 0 && kind == RECIPE_BF16) return row(WAY_EMULATED, "a CPU multiplies in f32");
    if (capability == 0) return row(WAY_EMULATED, "a CPU multiplies in f32; codes are exact");
    if (capability < 80)
        return row(WAY_REFUSED, "no machine code below compute capability 8.0 (use a newer GPU, or "
                   "run with --backend cpu)");
    if (capability == 101 || capability == 110) /* Jetson Thor: no ARCHS of the Makefile has it */
        return row(WAY_REFUSED, "there is no machine code for Thor (run with --backend cpu)");
    if (kind == RECIPE_F32) return row(WAY_REFUSED, "for tests, on the CPU backend only");
    switch (recipe_info(kind)->scale_x) {
    case SCALE_NONE: return row(WAY_NATIVE, "");
    case SCALE_TENSOR: return tensor_scales(capability);
    case SCALE_ROW:
    case SCALE_1X128:
    case SCALE_128X128: return hopper_scales(capability);
    default: break; /* blocks of 32 and of 16 */
    }
    return small_blocks(capability, scale_is_nvfp4(recipe_info(kind)->scale_x));
}

/* As cublasLtGetVersion() has it: 130400 for 13.4.0. 0: not known. */
static int64_t library_number(const char *version) {
    int major, minor, patch = 0;
    if (!version || sscanf(version, "%3d.%2d.%2d", &major, &minor, &patch) < 2) return 0;
    return major * INT64_C(10000) + minor * 100 + patch;
}

/* Why a version of the library lacks these scales where a newer one has them; NULL: it does not. */
static const char *fault_of(int capability, enum scale_kind kind, int64_t library) {
    bool hopper = kind == SCALE_ROW || kind == SCALE_1X128 || kind == SCALE_128X128;
    if (hopper && capability == 90 && library && library < 120900)
        return "cuBLASLt < 12.9 has neither row nor block scales";
    return device_library_fault(capability, kind, library);
}

struct recipe_row recipe_on(enum recipe_kind kind, int capability, const char *cublaslt) {
    struct recipe_row r = on_device(kind, capability);
    if (r.way != WAY_NATIVE) return r;
    const char *fault = fault_of(capability, recipe_info(kind)->scale_x, library_number(cublaslt));
    return fault ? row(WAY_EMULATED, fault) : r;
}

bool recipe_meets_fault(enum recipe_kind kind, int capability, const char *cublaslt) {
    return recipe_on(kind, capability, cublaslt).way != on_device(kind, capability).way;
}
