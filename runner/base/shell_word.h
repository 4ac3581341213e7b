/* Quoting a word for a shell, in commands that a user is told to type. */
#ifndef FP8LAB_RUNNER_BASE_SHELL_WORD_H
#define FP8LAB_RUNNER_BASE_SHELL_WORD_H

/* A copy of word, quoted if necessary: 'a b'. A word with control characters becomes $'a\012b'
 * (bash, zsh, ksh), so control characters never reach a terminal. Owned by the caller; NULL: out of
 * memory. */
char *shell_word(const char *word);

#endif
