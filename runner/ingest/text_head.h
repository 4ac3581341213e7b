/* Whether a file is text, by the control characters in its first bytes: the one judgement of all
 * verbs that read text. A tokenizer makes tokens of any bytes, and no error follows. */
#ifndef FP8LAB_RUNNER_INGEST_TEXT_HEAD_H
#define FP8LAB_RUNNER_INGEST_TEXT_HEAD_H

#include "kernels/base.h"

enum { TEXT_HEAD = 1 << 16, TEXT_HEAD_CAP = 768 };

/* Counts of the first TEXT_HEAD bytes of a file. Zero-initialise it. */
struct text_head {
    int64_t bytes;
    int64_t controls; /* see text_is_control() */
    int64_t zeros[2]; /* at even places, at odd places */
    bool unpacked;    /* the bytes are those of a packed file's content; for messages */
};

/* Below 32, but not tab to return and escape. Text has almost none. */
bool text_is_control(int byte);

/* Adds the next n bytes of the file; those behind the first TEXT_HEAD are ignored. */
void text_head_add(struct text_head *h, const void *text, size_t n);

/* The bytes have many control characters, both in number and as a share. */
bool text_head_is_other(const struct text_head *h);

/* Not other, but a few of the bytes are zero, or few bytes have a share of control characters that
 * is not a text's. */
bool text_head_is_odd(const struct text_head *h);

/* "NAME is not text: 37.7 % of its bytes are control characters", for a head that is other. */
void text_head_words(char out[TEXT_HEAD_CAP], const struct text_head *h, const char *name);

/* What a tokenizer may not get: ERR_FORMAT with what to do. `lines`: the file is JSON lines for
 * any tokenizer. */
NODISCARD enum status text_head_check(const struct text_head *h, const char *name, bool lines,
                                      struct err *e);

/* Drops a byte-order mark of UTF-8 from the first n bytes of a file; returns how many remain.
 * Editors write it before a text, and it is none of its characters. */
size_t text_without_mark(void *text, size_t n);

/* Files whose bytes are read anyway, for one warning about all of them. Zero-initialise it. */
struct text_doubts {
    int64_t files; /* all that were added */
    struct text_doubt {
        int64_t count;
        struct text_head head; /* of the first; with its name */
        char name[260];
    } other, odd;
};

void text_doubts_add(struct text_doubts *d, const struct text_head *h, const char *name);

/* The first file that is other, and how many more; if there is none, the same of odd files. "" if
 * all are text. */
void text_doubts_warning(char out[TEXT_HEAD_CAP], const struct text_doubts *d);

#endif
