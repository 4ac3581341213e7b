#include "runner/base/plain_text.h"

char *plain_text(char *text) {
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if ((*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7f) *c = '?';
        if (*c == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f) *c = c[1] = '?'; /* U+0080 to U+009F */
    }
    return text;
}
