/* Writes checkpoints while the trainer goes on: copies the state to host memory, which another
 * thread hashes and writes. checkpoint_save() of checkpoint.h is the same without a copy.
 *
 * Every rank makes the same calls in the same order; all but checkpoint_begun and
 * checkpoint_writing are collective. One write at a time. */
#ifndef FP8LAB_MODEL_CHECKPOINT_WRITER_H
#define FP8LAB_MODEL_CHECKPOINT_WRITER_H

#include "model/checkpoint_files.h"
#include "model/train.h"

struct checkpoint_writer;

/* Allocates pinned host memory for this rank's share of a checkpoint; ERR_MEMORY if it has more
 * than copy_max bytes. copy_max 0: no memory. If a rank has none, or too little (it also writes for
 * ranks that do not see the file), checkpoint_begin() writes before it returns. The trainer is
 * borrowed until destroy. */
NODISCARD enum status checkpoint_writer_create(struct trainer *t, int64_t copy_max,
                                               struct checkpoint_writer **out, struct err *e);
/* Waits for the thread. A write that was not finished leaves no checkpoint. NULL is fine. */
void checkpoint_writer_destroy(struct checkpoint_writer *w);

/* Copies the state after the step last collected, and begins to write it to a new directory in
 * `parent`. No step may be pending. ERR_STATE after a non-finite value, and while another write has
 * begun. After an error nothing has begun, and no partial checkpoint is left. */
NODISCARD enum status checkpoint_begin(struct checkpoint_writer *w, const char *parent,
                                       struct err *e);
bool checkpoint_begun(const struct checkpoint_writer *w);   /* and not finished; NULL: false */
bool checkpoint_writing(const struct checkpoint_writer *w); /* the thread of this rank is busy */

/* Waits for the thread, joins the ranks' parts, and gives the checkpoint its name. Replaces a
 * checkpoint of the same step. No step may be pending. After ERR_IO no partial checkpoint is left.
 * *write_us: how long this rank hashed and wrote. */
NODISCARD enum status checkpoint_finish(struct checkpoint_writer *w, struct checkpoint_info *info,
                                        int64_t *write_us, struct err *e);

/* After an error of begin or finish: OK if all ranks may train on without that checkpoint. Then the
 * error was a file's, or host memory, of this rank or of another. */
NODISCARD enum status checkpoint_survive(struct trainer *t, enum status st, struct err *e);

#endif
