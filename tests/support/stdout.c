/* A test that a signal ends leaves what it has printed: cmocka's lines say which test that was, and
 * would lie in a buffer where its output goes to a file. */
#include <stdio.h>

__attribute__((constructor)) static void print_line_by_line(void) {
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
}
