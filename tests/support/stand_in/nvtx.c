/* NVTX's library for tests: appends each push ("+TEXT") and pop ("-") to the file that
 * NSYS_RANGES_FILE names, a name that workers keep. -DWITHOUT_POP: a library that lacks a
 * function. */
#include <stdio.h>
#include <stdlib.h>

static int say(char sign, const char *text) {
    const char *path = getenv("NSYS_RANGES_FILE");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f) return -1;
    fprintf(f, "%c%s\n", sign, text);
    return fclose(f);
}

int nvtxRangePushA(const char *text) { return say('+', text); }
#ifndef WITHOUT_POP
int nvtxRangePop(void) { return say('-', ""); }
#endif
