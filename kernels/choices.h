/* The choice table as text: which algorithm a backend took for which shape, on which device, with
 * which libraries. It is an input of a run: the same table gives the same bits again.
 *
 *   fp8lab choices 1
 *   device NVIDIA H200
 *   libraries cublaslt 130100, cudnn 91900
 *   gemm 11008 16384 2048 ... : 0b00000042...
 *   attention 8 2048 16 4 128 0 : -
 *
 * A choice is: its kind, integers (the shape), and the chosen bytes in hex, "-" for none. Only the
 * backend that wrote a choice can interpret it. Lines that begin with '#' are comments. */
#ifndef FP8LAB_KERNELS_CHOICES_H
#define FP8LAB_KERNELS_CHOICES_H

#include <stdio.h>

#include "kernels/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CHOICE_KEY_MAX = 32, CHOICE_BYTES_MAX = 128, CHOICE_LINE_MAX = 1024 };

struct choice {
    char kind[16];
    int64_t key[CHOICE_KEY_MAX];
    int keys;
    unsigned char value[CHOICE_BYTES_MAX];
    int bytes; /* of value; 0: none */
};

/* Write the head of a table, and one choice. Failures: see ferror() of the stream. */
void choices_begin(FILE *out, const char *device, const char *libraries);
void choices_put(FILE *out, const struct choice *choice);

struct choices_reader {
    const char *at; /* the next line */
    int line;       /* its number */
    char device[160], libraries[160];
};

/* Reads the head of `text`, which is borrowed. ERR_CONFIG: this is no table, or of another
 * version. */
NODISCARD enum status choices_open(struct choices_reader *r, const char *text, struct err *e);
/* ERR_CONFIG, naming both, unless the table is of this device with these libraries. */
NODISCARD enum status choices_expect(const struct choices_reader *r, const char *device,
                                     const char *libraries, struct err *e);
/* The next choice; *more false after the last. ERR_CONFIG names the line. */
NODISCARD enum status choices_next(struct choices_reader *r, struct choice *out, bool *more,
                                   struct err *e);

/* The choice of this kind and key in the table `text`; false: the table has none. Other lines are
 * not checked. */
bool choices_find(const char *text, const char *kind, const int64_t *key, int keys,
                  struct choice *out);

/* The choices of the table `text` up to the first that is malformed; 0 for a text that is no table,
 * such as "". */
int64_t choices_count(const char *text);

#ifdef __cplusplus
}
#endif
#endif
