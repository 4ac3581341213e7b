/* A number of bytes as people read it. */
#ifndef FP8LAB_RUNNER_BASE_BYTES_TEXT_H
#define FP8LAB_RUNNER_BASE_BYTES_TEXT_H

enum { BYTES_TEXT_CAP = 32 };

/* "512 bytes", "14.1 MiB", "512 MiB", "1.0 GiB". Returns `out`. */
const char *bytes_text(double bytes, char out[BYTES_TEXT_CAP]);
/* The same as a hardware query has it: "512B", "14.1MiB", "80GiB". */
const char *bytes_query_text(double bytes, char out[BYTES_TEXT_CAP]);

#endif
