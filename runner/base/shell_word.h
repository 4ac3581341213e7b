/* Quoting a word for a shell, in commands that a user is told to type. */
#ifndef FP8LAB_RUNNER_BASE_SHELL_WORD_H
#define FP8LAB_RUNNER_BASE_SHELL_WORD_H

/* A copy of word, quoted if necessary: 'a b', or $'a\012b' (bash, zsh, ksh) if it has control
 * characters, so that these never reach a terminal. Owned by the caller; NULL: out of memory. */
char *shell_word(const char *word);

#endif
