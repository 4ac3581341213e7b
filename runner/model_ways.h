/* The ways in which a verb may compute with a model on a device, before it opens the device. */
#ifndef FP8LAB_RUNNER_MODEL_WAYS_H
#define FP8LAB_RUNNER_MODEL_WAYS_H

#include "runner/infer/open_model.h"

/* Certifies the forward of a model that was found, in the sizes that its options have now. Sets
 * q->forbidden, which is *owned, for the caller to free. */
NODISCARD enum status model_ways_certify(const struct cli *cli, struct model_request *q,
                                         const struct open_model *m, char **owned, struct err *e);
/* What earlier certificates of this device forbid, for forbidden_apply(); the caller frees it. */
NODISCARD enum status model_ways_kept(const struct cli *cli, const char *backend, int64_t device,
                                      char **forbidden, struct err *e);

#endif
