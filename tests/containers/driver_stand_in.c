/* The functions of a driver that the CUDA runtime calls before it reports an old driver. */
#include <stdlib.h>
static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}
int cuInit(unsigned flags) { return flags ? 1 : number("FAKE_INIT", 0); }
int cuDriverGetVersion(int *version) {
    *version = number("FAKE_VERSION", 13000);
    return 0;
}
static int unknown(void) { return 801; } /* CUDA_ERROR_NOT_SUPPORTED */
static int same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}
int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags,
                        int *result) {
    *out = (void *)unknown;
    if (same(name, "cuInit")) *out = (void *)cuInit;
    if (same(name, "cuDriverGetVersion")) *out = (void *)cuDriverGetVersion;
    if (same(name, "cuGetProcAddress")) *out = (void *)cuGetProcAddress_v2;
    if (result) *result = 0;
    return version < 0 && flags;
}
int cuGetExportTable(const void **table, const void *id) { return !id || !table || 1; }
