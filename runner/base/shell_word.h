/* A word as a shell reads it: for commands that a user is told to type. */
#ifndef FP8LAB_RUNNER_BASE_SHELL_WORD_H
#define FP8LAB_RUNNER_BASE_SHELL_WORD_H

/* A copy of word, quoted where it has to be: 'a b', or $'a\012b' (bash, zsh, ksh) where it holds
 * control characters, which then do not reach a terminal. Owned by the caller; NULL: no memory. */
char *shell_word(const char *word);

#endif
