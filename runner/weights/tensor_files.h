/* The tensors of safetensors files, found by name: one file, or the shards of a folder's index. The
 * files are untrusted. Nothing is read but headers until a tensor is asked for. */
#ifndef FP8LAB_RUNNER_WEIGHTS_TENSOR_FILES_H
#define FP8LAB_RUNNER_WEIGHTS_TENSOR_FILES_H

#include "model/ground/input_file.h"
#include "model/ground/sha256.h"

/* OTHER: a type that no weight has. */
enum weight_type { WEIGHT_F32, WEIGHT_F16, WEIGHT_BF16, WEIGHT_E4M3, WEIGHT_OTHER };
enum { TENSOR_DIMS = 4 };

struct tensor_entry {
    char *name;   /* owned */
    char type_name[16]; /* as in the file */
    enum weight_type type;
    int rank; /* dimensions; shape has at most TENSOR_DIMS of them, larger ranks are OTHER */
    int64_t shape[TENSOR_DIMS], bytes;
    int64_t file, at;         /* index of its file; first byte in it */
    char sha256[SHA256_HEX];  /* of its bytes, once tensor_files_hash() was called; else "" */
};

struct tensor_files {
    struct input_file *file; /* owned */
    int64_t file_count;
    struct tensor_entry *entry; /* owned, in bytewise order of names */
    int64_t count;
};

/* Opens a .safetensors file, or a folder with model.safetensors or its index. ERR_CONFIG if there
 * are none (with the conversion for torch.save, .distcp and GGUF), ERR_FORMAT for a damaged one.
 * *out is valid for tensor_files_close() in any case. */
NODISCARD enum status tensor_files_open(const char *path, struct tensor_files *out, struct err *e);
void tensor_files_close(struct tensor_files *t);
/* After the entries were added: sorts them. ERR_FORMAT for a name that occurs twice. */
NODISCARD enum status tensor_files_finish(struct tensor_files *t, struct err *e);

/* The tensor of that name, or NULL. */
struct tensor_entry *tensor_find(const struct tensor_files *t, const char *name);

/* Elements first .. first+count-1 of a tensor of no OTHER type, as f32. Exact; E4M3's factors are
 * not applied. */
NODISCARD enum status tensor_read(const struct tensor_files *t, const struct tensor_entry *x,
                                  int64_t first, int64_t count, float *out, struct err *e);

/* Fills the entry's digest. Reads all its bytes, a piece at a time. */
NODISCARD enum status tensor_hash(const struct tensor_files *t, struct tensor_entry *x,
                                  struct err *e);

/* Whether two tensors have one type and the same bytes. Reads them until they differ. */
NODISCARD enum status tensor_same(const struct tensor_files *t, const struct tensor_entry *a,
                                  const struct tensor_entry *b, bool *same, struct err *e);

/* The first element that is not finite, of the first tensor that has one. */
struct bad_element {
    const struct tensor_entry *tensor; /* borrowed; NULL: all are finite */
    int64_t index;
    float value;
};
/* Reads all tensors, a piece at a time. Those of OTHER type are skipped. */
NODISCARD enum status tensor_files_find_bad(const struct tensor_files *t, struct bad_element *out,
                                            struct err *e);

/* "F16 [96, 64]" */
void tensor_text(const struct tensor_entry *x, char out[96]);

#endif
