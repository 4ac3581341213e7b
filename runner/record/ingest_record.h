/* data/experiment/ingest.json of a run whose text became tokens: where its shards are, and what
 * they were made of. The tokenizer's file lies beside it. */
#ifndef FP8LAB_RUNNER_RECORD_INGEST_RECORD_H
#define FP8LAB_RUNNER_RECORD_INGEST_RECORD_H

#include "runner/record/run_dir.h"

/* Writes the record (borrowed; cache/cache.h), and copies the tokenizer's file into the run. */
NODISCARD enum status ingest_record_write(const struct run_dir *dir, const json_t *record,
                                          const char *tokenizer, struct err *e);

/* The tokenizer's file in the run directory or unpacked bundle at `path`; "" for bytes. */
NODISCARD enum status ingest_record_tokenizer(const char *path, const json_t *record,
                                              char out[PATH_CAP], struct err *e);

/* The configuration that is trained: `resolved` itself, or for text with a tokenizer that of the
 * shards that the run's record names. New reference. ERR_CONFIG: the run has no such record. */
NODISCARD enum status ingest_record_apply(const char *run_path, json_t *resolved, json_t **out,
                                          struct err *e);

#endif
