/* What TensorBoard's plugins read: events, encoded into a buffer (message.h). Field numbers are
 * those of TensorFlow's event.proto, summary.proto and tensor.proto, and of TensorBoard's
 * plugins/hparams/plugin_data.proto. An event has one summary of any number of values. */
#ifndef FP8LAB_RUNNER_TENSORBOARD_EVENT_VALUES_H
#define FP8LAB_RUNNER_TENSORBOARD_EVENT_VALUES_H

#include <jansson.h>

#include "runner/base/canonical.h"

/* ---- events of their own; `m` is emptied first. wall_s: seconds since 1970 ------------------ */

/* Must be the first of a file. */
void event_version(struct text *m, double wall_s);
/* Readers drop what earlier files of the run have from `step` on. */
void event_begin(struct text *m, double wall_s, int64_t step);

/* The hyperparameters: the scalars of the configuration by their path, "train.optimizer.lr"; short
 * lists as JSON. Their metrics are the last values of the run's scalars. */
void event_hparams(struct text *m, double wall_s, const json_t *config);
enum event_end { EVENT_SUCCEEDED = 1, EVENT_FAILED = 2 };
/* The run has ended. Readers keep the first of these, so a run that may go on has none. */
void event_hparams_end(struct text *m, double wall_s, enum event_end how);

/* ---- an event with values: open, any number of values, close --------------------------------- */

size_t event_open(struct text *m, double wall_s, int64_t step); /* empties m first */
void event_close(struct text *m, size_t opened);

void event_scalar(struct text *m, const char *tag, double value); /* stored as f32 */
void event_text(struct text *m, const char *tag, const struct text *markdown);
/* buckets: {left, right, count} each, ascending. */
void event_histogram(struct text *m, const char *tag, const double (*buckets)[3], int64_t count);

#endif
