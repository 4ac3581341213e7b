/* Text from a stranger's bundle, before a terminal sees it. */
#ifndef FP8LAB_RUNNER_BASE_PLAIN_TEXT_H
#define FP8LAB_RUNNER_BASE_PLAIN_TEXT_H

/* Replaces, in place, every control character but newline and tab by '?': escape sequences could
 * retitle, recolour or rewrite a terminal. C1 controls in UTF-8 count too. Returns text. */
char *plain_text(char *text);

#endif
