/* Strings that remember where their bytes come from.
 *
 * A string is a list of pieces. Each piece names its origin: the template's own text, or a field of
 * a message. Joining, slicing and stripping keep the origins, so the rendered text says for every
 * byte who wrote it. Strings are immutable UTF-8; positions count code points, as in Python. */
#ifndef FP8LAB_RUNNER_CHAT_JINJA_TEXT_H
#define FP8LAB_RUNNER_CHAT_JINJA_TEXT_H

#include "runner/chat/chat_arena.h"

enum chat_field {
    CHAT_TEMPLATE,   /* the template's own text, and special tokens such as bos_token */
    CHAT_ROLE,       /* messages[i].role */
    CHAT_CONTENT,    /* messages[i].content */
    CHAT_REASONING,  /* messages[i].reasoning_content, .thinking or .reasoning */
    CHAT_TOOL_CALLS, /* messages[i].tool_calls */
    CHAT_OTHER,      /* another key of a message, or a tool call's text that was printed before */
    CHAT_TOOLS,      /* the list of tools */
    CHAT_VARIABLE    /* documents and the user's template arguments */
};

struct chat_origin {
    int32_t message; /* index into messages; -1: no message */
    uint8_t field;   /* enum chat_field */
    bool generated;  /* inside {% generation %} */
};

static const struct chat_origin CHAT_FROM_TEMPLATE = { -1, CHAT_TEMPLATE, false };

struct piece {
    const char *bytes; /* borrowed from an arena, the template or the conversation */
    int64_t n;
    struct chat_origin origin;
};

struct str {
    int64_t n; /* bytes */
    int64_t count;
    const struct piece *pieces;
    const char *flat; /* all bytes in one place, or NULL: see str_flat */
    bool safe;        /* came out of the filter `safe` */
};

/* The pieces of a text that grows. Zero-initialise. */
struct str_builder {
    struct piece *pieces;
    int64_t count, capacity, n;
};

/* A string of one piece; the bytes are borrowed. */
NODISCARD enum status str_from(struct chat_arena *a, const char *bytes, int64_t n,
                               struct chat_origin origin, struct str **out, struct err *e);
/* The same from printf. */
NODISCARD enum status str_format(struct chat_arena *a, struct chat_origin origin, struct str **out,
                                 struct err *e, const char *format, ...) PRINTF_LIKE(5, 6);

/* Appends. An empty piece stays only if it has a message's origin: it marks where an empty content
 * stands. */
NODISCARD enum status str_add_piece(struct chat_arena *a, struct str_builder *b, struct piece piece,
                                    struct err *e);
NODISCARD enum status str_add(struct chat_arena *a, struct str_builder *b, const struct str *s,
                              struct err *e);
NODISCARD enum status str_finish(struct chat_arena *a, const struct str_builder *b,
                                 struct str **out, struct err *e);

/* The n bytes of s in one place; made at the first call. Not NUL-terminated. */
NODISCARD enum status str_flat(struct chat_arena *a, struct str *s, const char **out,
                               struct err *e);
/* The steps (jinja_run.h) that reading all of s costs: its bytes, and its pieces. */
static inline int64_t str_cost(const struct str *s) { return s->n / 64 + s->count / 2; }
/* < 0, 0 or > 0 as x stands before, at or behind y in the order of code points. */
int str_order(const struct str *x, const struct str *y);
/* The origin of the first piece; for an empty list of pieces the template. */
struct chat_origin str_origin(const struct str *s);

/* Bytes begin .. end-1 of s. */
NODISCARD enum status str_cut(struct chat_arena *a, const struct str *s, int64_t begin, int64_t end,
                              struct str **out, struct err *e);

/* Python's str.strip family. `chars` NULL: white space. */
NODISCARD enum status str_strip(struct chat_arena *a, struct str *s, struct str *chars, bool left,
                                bool right, struct str **out, struct err *e);

/* The length of the white-space character at the beginning of s (Python's str.isspace); 0: none. */
int64_t str_space(const char *s, int64_t n);
/* The number of bytes of white space at the end of s. */
int64_t str_space_behind(const char *s, int64_t n);
/* The code point at s, and its length in bytes. s must be valid UTF-8; a NUL counts as one. */
uint32_t str_code(const char *s, int64_t n, int64_t *length);
/* The number of code points in n bytes. */
int64_t str_count(const char *s, int64_t n);
/* The byte at which code point `index` begins; n if there are fewer. */
int64_t str_offset(const char *s, int64_t n, int64_t index);
/* The first place of `what` in s[from, n), or -1. */
int64_t str_find(const char *s, int64_t n, int64_t from, const char *what, int64_t what_n);

#endif
