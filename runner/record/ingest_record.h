/* data/experiment/ingest.json of a run whose text became tokens: where its shards are, and what
 * they were made of. Tokenizer and template lie beside it. */
#ifndef FP8LAB_RUNNER_RECORD_INGEST_RECORD_H
#define FP8LAB_RUNNER_RECORD_INGEST_RECORD_H

#include "runner/cache/cache.h"
#include "runner/record/run_dir.h"

/* The folder of the record, in a run directory or an unpacked bundle. */
#define INGEST_FOLDER "data/experiment"

/* Writes the record, and copies tokenizer and template into the folder of the record. */
NODISCARD enum status ingest_record_write(const struct run_dir *dir, const struct cache_entry *x,
                                          struct err *e);

/* ERR_CONFIG names the first file of text, also of a set of eval.also, that has other content in
 * the record `now` than in the record `then`. OK if there is none, or they are of other files. */
NODISCARD enum status ingest_sources_check(const json_t *then, const json_t *now, struct err *e);

/* The configuration that is trained: `resolved` itself, or for text with a tokenizer that of the
 * shards that the run's record names. New reference. ERR_CONFIG: the run has no such record. */
NODISCARD enum status ingest_record_apply(const char *run_path, json_t *resolved, json_t **out,
                                          struct err *e);

#endif
