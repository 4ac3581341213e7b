#include "runner/base/shell_word.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyz" "ABCDEFGHIJKLMNOPQRSTUVWXYZ" "0123456789"
                            "_@%+=:,./-";

static bool is_control(char c) { return (unsigned char)c < 0x20 || c == 0x7f; }

static bool has_control(const char *word) {
    while (*word && !is_control(*word)) word++;
    return *word != '\0';
}

char *shell_word(const char *word) {
    size_t n = strlen(word);
    if (n && word[strspn(word, PLAIN)] == '\0') return strdup(word);
    char *out = malloc(4 * n + 4), *at = out; /* at most 4 bytes each: \012 or '\'' */
    if (!out) return NULL;
    bool escapes = has_control(word);
    at += sprintf(at, escapes ? "$'" : "'");
    for (const char *c = word; *c; c++) {
        if (is_control(*c)) at += sprintf(at, "\\%03o", (unsigned)(unsigned char)*c);
        else if (escapes && (*c == '\'' || *c == '\\')) at += sprintf(at, "\\%c", *c);
        else if (*c == '\'') at += sprintf(at, "'\\''");
        else *at++ = *c;
    }
    strcpy(at, "'");
    return out;
}
