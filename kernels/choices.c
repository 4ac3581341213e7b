#include "kernels/choices.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[] = "fp8lab choices 1";

/* ---- writing ---------------------------------------------------------------------------------*/

void choices_begin(FILE *out, const char *device, const char *libraries) {
    fprintf(out, "%s\ndevice %s\nlibraries %s\n", MAGIC, device, libraries);
}

void choices_put(FILE *out, const struct choice *c) {
    fprintf(out, "%s", c->kind);
    for (int i = 0; i < c->keys; i++) fprintf(out, " %" PRId64, c->key[i]);
    fputs(c->bytes ? " : " : " : -", out);
    for (int i = 0; i < c->bytes; i++) fprintf(out, "%02x", c->value[i]);
    putc('\n', out);
}

/* ---- reading ---------------------------------------------------------------------------------*/

/* Copies the next line that is no comment; *more false at the end of the text. A table is read as
 * it was written: a last line without its end was cut off. */
static enum status next_line(struct choices_reader *r, char line[CHOICE_LINE_MAX], bool *more,
                             struct err *e) {
    for (*more = false; *r->at;) {
        size_t n = strcspn(r->at, "\n");
        r->line++;
        if (n >= CHOICE_LINE_MAX || r->at[n] != '\n')
            return FAIL(e, ERR_CONFIG, "choice table, line %d: %s", r->line,
                        r->at[n] == '\n' ? "too long" : "cut off");
        memcpy(line, r->at, n);
        line[n] = '\0';
        r->at += n + 1;
        if (*line == '#') continue;
        *more = true;
        return OK;
    }
    return OK;
}

/* The next line must be `word` and a text. */
static enum status head_line(struct choices_reader *r, const char *word, char *out, size_t size,
                             struct err *e) {
    char line[CHOICE_LINE_MAX];
    bool more;
    TRY(next_line(r, line, &more, e));
    size_t n = strlen(word);
    if (!more || strncmp(line, word, n) != 0 || line[n] != ' ' || strlen(line + n + 1) >= size)
        return FAIL(e, ERR_CONFIG, "choice table, line %d: expected '%s ...'", r->line, word);
    snprintf(out, size, "%s", line + n + 1);
    return OK;
}

enum status choices_open(struct choices_reader *r, const char *text, struct err *e) {
    char line[CHOICE_LINE_MAX];
    bool more;
    memset(r, 0, sizeof *r);
    r->at = text;
    TRY(next_line(r, line, &more, e));
    if (!more || strcmp(line, MAGIC) != 0)
        return FAIL(e, ERR_CONFIG, "no choice table of this version: line 1 is not '%s'", MAGIC);
    TRY(head_line(r, "device", r->device, sizeof r->device, e));
    return head_line(r, "libraries", r->libraries, sizeof r->libraries, e);
}

enum status choices_expect(const struct choices_reader *r, const char *device,
                           const char *libraries, struct err *e) {
    if (!strcmp(r->device, device) && !strcmp(r->libraries, libraries)) return OK;
    return FAIL(e, ERR_CONFIG,
                "the choice table is of %s (%s), this is %s (%s): its algorithms would be others; "
                "--choices none measures again and gives up equal bits", r->device, r->libraries,
                device, libraries);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_value(const char *text, struct choice *out) {
    if (!strcmp(text, "-")) return true;
    size_t n = strlen(text);
    if (n == 0 || n % 2 || n / 2 > CHOICE_BYTES_MAX) return false;
    for (size_t i = 0; i < n; i += 2) {
        int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
        if (high < 0 || low < 0) return false;
        out->value[out->bytes++] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* "kind 1 2 3 : hex" */
static bool read_choice(char *line, struct choice *out) {
    size_t n = strcspn(line, " ");
    if (n == 0 || n >= sizeof out->kind || !line[n]) return false;
    memcpy(out->kind, line, n);
    char *at = line + n;
    while (strncmp(at, " : ", 3) != 0) {
        char *end;
        if (*at != ' ' || !strchr("-0123456789", at[1]) || out->keys == CHOICE_KEY_MAX)
            return false;
        errno = 0;
        out->key[out->keys++] = strtoll(at + 1, &end, 10);
        if (errno || end == at + 1) return false;
        at = end;
    }
    return out->keys > 0 && read_value(at + 3, out);
}

enum status choices_next(struct choices_reader *r, struct choice *out, bool *more, struct err *e) {
    char line[CHOICE_LINE_MAX];
    memset(out, 0, sizeof *out);
    TRY(next_line(r, line, more, e));
    if (*more && !read_choice(line, out))
        return FAIL(e, ERR_CONFIG, "choice table, line %d: expected 'kind integers : hex'",
                    r->line);
    return OK;
}

bool choices_find(const char *text, const char *kind, const int64_t *key, int keys,
                  struct choice *out) {
    char wanted[CHOICE_LINE_MAX], line[CHOICE_LINE_MAX];
    size_t n = (size_t)snprintf(wanted, sizeof wanted, "%s", kind);
    for (int i = 0; i < keys && n < sizeof wanted; i++)
        n += (size_t)snprintf(wanted + n, sizeof wanted - n, " %" PRId64, key[i]);
    if (n < sizeof wanted) n += (size_t)snprintf(wanted + n, sizeof wanted - n, " : ");
    if (n >= sizeof wanted) return false;
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        size_t length = strcspn(at, "\n");
        if (strncmp(at, wanted, n) != 0 || length >= sizeof line) continue;
        memcpy(line, at, length);
        line[length] = '\0';
        memset(out, 0, sizeof *out);
        return read_choice(line, out);
    }
    return false;
}

int64_t choices_count(const char *text) {
    struct choices_reader r;
    struct choice ignored;
    struct err e;
    bool more = true;
    int64_t count = 0;
    if (choices_open(&r, text, &e) != OK) return 0;
    while (choices_next(&r, &ignored, &more, &e) == OK && more) count++;
    return count;
}
