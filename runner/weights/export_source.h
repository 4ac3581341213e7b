/* The weights of one of our checkpoints as a source of f32 values: its masters, or its weights. */
#ifndef FP8LAB_RUNNER_WEIGHTS_EXPORT_SOURCE_H
#define FP8LAB_RUNNER_WEIGHTS_EXPORT_SOURCE_H

#include "model/import.h"
#include "runner/weights/tensor_files.h"

struct export_source {
    const char *checkpoint; /* borrowed: its folder */
    struct tensor_files weights, masters;
    bool has_masters;
};

/* With `masters`, values are the master weights if the checkpoint has them. *out is valid for
 * export_source_close() in any case. */
NODISCARD enum status export_source_open(const char *checkpoint, bool masters,
                                         struct export_source *out, struct err *e);
void export_source_close(struct export_source *s);

/* As weight_source.read of model/import.h; `user` is a struct export_source. */
NODISCARD enum status export_source_read(void *user, const struct param *p, int64_t first,
                                         int64_t count, float *out, struct err *e);

#endif
