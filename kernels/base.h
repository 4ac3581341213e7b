/* Status codes, the error value, and the arena: the bottom of the graph. Includes libc only.
 *
 * Operating errors are values; programmer errors are asserts, kept in release builds outside hot
 * loops. Nothing below runner/main.c ends the process. */
#ifndef FP8LAB_KERNELS_BASE_H
#define FP8LAB_KERNELS_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum status {
    OK = 0,
    ERR_ARG,         /* a caller broke a contract: shape, dtype, range */
    ERR_CONFIG,      /* the user's setting is not defined; the text lists what is */
    ERR_IO,          /* a file, pipe or socket failed; the text names it, with errno's words */
    ERR_FORMAT,      /* malformed bytes: truncated, wrong magic */
    ERR_MEMORY,      /* an allocation failed; the text names the bytes and their purpose */
    ERR_NUMERIC,     /* a non-finite value; the text names step and tensor */
    ERR_DEVICE,      /* driver, library or kernel launch */
    ERR_HARDWARE,    /* no device here, or none that this build, driver and libraries can use */
    ERR_UNSUPPORTED, /* this backend, device or build lacks it; the text names one that has it */
    ERR_INTERRUPTED, /* ended by a signal or time limit, in an orderly way */
    ERR_VERIFY,      /* well formed, but hashes or promises do not hold */
    ERR_PEER,        /* another rank failed, vanished or timed out */
    ERR_STATE        /* called in the wrong order, or a resource is held by another process */
};

/* Where an error occurred, and one sentence for the user. The caller owns it and passes it as the
 * last parameter; callees fill it once, at the place that knows most. */
struct err {
    enum status code;
    const char *file; /* static storage */
    int line;
    char text[1024];
};

#if defined(__GNUC__)
#define NODISCARD __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#else
#define NODISCARD
#define PRINTF_LIKE(f, a)
#endif
/* Marks the inline arithmetic that host and device must share to the bit. */
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

/* Fills *e (which may be NULL) and returns `code`, so that a failing function reads
 * `return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));`. A text that is too
 * long loses its middle. */
enum status err_set(struct err *e, enum status code, const char *file, int line, const char *format,
                    ...) PRINTF_LIKE(5, 6);
#define FAIL(e, code, ...) err_set((e), (code), __FILE__, __LINE__, __VA_ARGS__)

/* Returns from a function that owns nothing. A function that owns something goes to one label. */
#define TRY(call)                             \
    do {                                      \
        enum status try_status_ = (call);     \
        if (try_status_ != OK) return try_status_; \
    } while (0)

/* Puts "what: " before the text of an error on its way up; code and origin stay. */
void err_prefix(struct err *e, const char *format, ...) PRINTF_LIKE(2, 3);

/* "ERR_IO" and so on; never NULL. */
const char *status_name(enum status code);

/* ---- arena -------------------------------------------------------------------------------------
 * A named range of bytes that is planned first and allocated once. Plan: arena_reserve() hands out
 * offsets and counts; the owner then allocates `bytes` from a backend and adds its base address.
 * Reservations are rounded up to ARENA_ALIGN, so every tensor starts on a 256-byte boundary. */
enum { ARENA_ALIGN = 256 };

struct arena {
    const char *name; /* static storage: "weights", "activations", ... */
    int64_t bytes;    /* reserved so far */
    void *base;       /* NULL while planning; owned by its allocator */
};

/* Returns the offset of `bytes` fresh bytes. bytes >= 0. Never fails: it only counts. */
int64_t arena_reserve(struct arena *a, int64_t bytes);

/* base + offset, or NULL while the arena is only planned. */
void *arena_at(const struct arena *a, int64_t offset);

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

#ifdef __cplusplus
}
#endif
#endif
