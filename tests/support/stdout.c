/* Unbuffers stdout. A test killed by a signal then leaves cmocka's lines in its log, and they name
 * the test. */
#include <stdio.h>

__attribute__((constructor)) static void print_line_by_line(void) {
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
}
