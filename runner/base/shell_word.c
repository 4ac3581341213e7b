#include "runner/base/shell_word.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/plain_text.h"

static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyz" "ABCDEFGHIJKLMNOPQRSTUVWXYZ" "0123456789"
                            "_@%+=:,./-";

/* Whether a terminal shows every character as it is. */
static bool all_plain(const char *word) {
    uint32_t code;
    bool plain = true;
    while (*word && plain) word += plain_character(word, &code, &plain);
    return plain;
}

char *shell_word(const char *word) {
    size_t n = strlen(word);
    if (n && word[strspn(word, PLAIN)] == '\0') return strdup(word);
    char *out = malloc(4 * n + 4), *at = out; /* at most 4 bytes each: \012 or '\'' */
    if (!out) return NULL;
    bool escapes = !all_plain(word), plain = true;
    at += sprintf(at, escapes ? "$'" : "'");
    size_t left = 0; /* remaining bytes of the current character */
    for (const char *c = word; *c; c++, left--) {
        uint32_t code;
        if (left == 0) left = plain_character(c, &code, &plain);
        if (!plain) at += sprintf(at, "\\%03o", (unsigned)(unsigned char)*c);
        else if (escapes && (*c == '\'' || *c == '\\')) at += sprintf(at, "\\%c", *c);
        else if (*c == '\'') at += sprintf(at, "'\\''");
        else *at++ = *c;
    }
    strcpy(at, "'");
    return out;
}
