/* The loss of a guess: what a model reaches that knows how often each token occurs, and nothing
 * else. A run whose losses are no lower has learned nothing that a recipe could spoil. */
#ifndef FP8LAB_RUNNER_RECORD_GUESS_LOSS_H
#define FP8LAB_RUNNER_RECORD_GUESS_LOSS_H

#include "kernels/base.h"

struct run_options;
struct data;

/* *nats: the mean over the held-out tokens with loss that an evaluation of the run reads, of
 * -ln((count + 1) / (counted + vocab)). The counts are of the targets with loss in the run's first
 * training sequences. Of either split about a million tokens are read at most. 0: the run evaluates
 * nothing, or no target has loss. The errors of data_batch, ERR_MEMORY. */
NODISCARD enum status guess_loss(const struct run_options *run, const struct data *data,
                                 double *nats, struct err *e);

#endif
