/* The Unicode data, written by unicode_tables.py. */
#ifndef FP8LAB_RUNNER_INGEST_UNICODE_TABLES_H
#define FP8LAB_RUNNER_INGEST_UNICODE_TABLES_H

#include <stdint.h>

/* The class of every code point from 0 on, as runs: a letter, and a count unless it is 1.
 * U: Lu, Lt · l: Ll · o: Lm, Lo · N, M, P, S: numbers, marks, punctuation, symbols · s: White_Space
 * d: a number of Unicode 17 that Unicode 16 has not assigned · x: all else. */
extern const char UNICODE_CLASSES[];

/* A canonical decomposition into `first` and `second` (0: into one code point), in the order of
 * `code`. `composes`: NFC also goes the other way. Without the Hangul syllables. */
struct unicode_pair { uint32_t code, first, second, composes; };
extern const struct unicode_pair UNICODE_PAIRS[];
extern const int UNICODE_PAIR_COUNT;

/* Code points from..to with one canonical combining class that is not 0. */
struct unicode_marks { uint32_t from, to, combining; };
extern const struct unicode_marks UNICODE_MARKS[];
extern const int UNICODE_MARKS_COUNT;

#endif
