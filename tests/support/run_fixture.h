/* Made-up run directories for tests of bundles: small, complete, and equal every time. */
#ifndef FP8LAB_TESTS_RUN_FIXTURE_H
#define FP8LAB_TESTS_RUN_FIXTURE_H

#include "runner/base/run_files.h"

/* In a cmocka test with a `struct err e`: the call must succeed. */
#define CHECK(call)                                          \
    do {                                                     \
        if ((call) != OK) fail_msg("%s: %s", #call, e.text); \
    } while (0)

struct run_fixture {
    const char *id, *status; /* "20261121T024823Z-tiny-0badcafe", "done" */
    int64_t steps, seed;
    const char *recipe;      /* "bf16", "fp8.delayed": FP8 ones have amax and scale streams */
    int64_t margin;          /* of fp8.delayed */
    bool no_fp8;             /* no GEMM is FP8, whatever the recipe: no streams of FP8 */
    const char *options;     /* further keys of the recipe, as JSON (",\"pow2\":true"); or NULL */
    const char *model;       /* the model, as JSON; NULL: the configuration has none */
    const char *attention;   /* the table, as JSON; NULL: absent */
    const char *train;       /* further keys of train, as JSON (",\"shard\":1"); NULL: none */
    int64_t tensors;         /* traced; 0: no trace */
    int64_t checkpoint_bytes; /* of a (sparse) model.safetensors; 0: none */
    int64_t flip_step;       /* 0, or the step from which one bit of ... */
    int64_t flip_tensor;     /* ... this tensor's fingerprint differs */
    double loss_shift;       /* added to every loss */
    double loss_late;        /* added to the losses after step 10 */
    const int64_t *spikes;   /* steps, up to a 0, whose training loss is 2 nats above; or NULL */
    int64_t lossless_step;   /* 0, or the step of whose tokens none has loss */
    const char *error;       /* of a failed run; NULL: "ERR_NUMERIC" */
    const char *choices;     /* the hash of its choice table; NULL: it has none */
    const char *code;        /* the hash of its build; NULL: "bb" */
    const char *backend;     /* NULL: "cpu" */
    int64_t world;           /* ranks in decisions.json; 0: absent */
    int64_t planned;         /* train.steps; 0: as many as were made */
    int64_t eval_every;      /* 0: 10 */
    int64_t eval_tokens;     /* of each evaluation; 0: 4096; below 0: absent */
    double eval_last;        /* the loss of the last evaluation; 0: follows the others */
    bool smoke;
    const char *argv; /* words behind "tiny.lua", as JSON: ",\"--smoke\""; NULL: none */
    double guess_loss;       /* of its record; 0: absent */
    int64_t power_mw;        /* of each of two GPUs; 0: no driver's figures */
    int64_t step_tokens;     /* 0: 2048 */
    double speed;            /* divides the time of a step; 0: 1 */
    int64_t flip_amax_step;  /* 0, or the step at which a bit of layers.0.qkv.w's amax differs */
    const char *histograms;  /* its lines of histograms; NULL: none */
    const char *data;        /* the table of its configuration, as JSON; NULL: absent */
    const char *data_hash;   /* of inputs; NULL: "cc", "": absent */
    const char *init;        /* the table of its configuration, as JSON; NULL: absent */
    const char *weights;     /* the hash of its initial weights; NULL: absent */
    const char *init_record; /* init.json; NULL: none */
    const char *started;     /* "2026-11-21T02:48:23Z" if NULL */
    const char *attempts;    /* of run.json, as JSON; NULL: [] */
    const char *telemetry;   /* its lines; NULL: as power_mw says */
    const char *facts;       /* further ones, as JSON (",\"gpu.ecc\":true"); NULL: none */
    const char *decisions;   /* further ones, as JSON; NULL: none */
    const char *checkpoint;  /* the table, as JSON; NULL: absent */
    const char *config;      /* further tables of its configuration, as JSON
                              * (",\"sample\":{\"every\":2}"); NULL: none */
    const char *sets;        /* of eval.also, as JSON: names in bytewise order, with hashes
                              * ("{\"code\":\"aa\"}"); NULL: none */
    const double *set_shift; /* added to the losses of each of these sets; NULL: nothing */
    int64_t set_tokens;      /* with loss, of the last set, which has 31072 more; 0: 100000 */
    int64_t set_every;       /* the sets are evaluated each so many steps; 0: as eval_every */
    double jitter;           /* the share by which every second step takes longer */
};

/* id, done, 20 steps, seed 1, fp8.delayed, 6 tensors, a checkpoint of 4 KiB. */
struct run_fixture run_fixture_default(void);

/* Writes parent/<id>/ and puts its path into dir. Asserts success. */
void run_fixture_write(const char *parent, const struct run_fixture *f, char dir[PATH_CAP]);

/* The tar in a bundle file, decompressed. *out is owned by the caller (free). */
void bundle_as_tar(const char *path, char **out, size_t *n);

/* A fresh directory below build/ or /tmp for one test; remove it with tree_remove. */
void scratch_directory(char dir[PATH_CAP]);

/* printf into a file below dir; parents are made. */
void put_file(const char *dir, const char *name, const char *format, ...) PRINTF_LIKE(3, 4);

#endif
