/* Suggested commands: a shell must read back every word unchanged. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/base/shell_word.h"

static void words_survive_a_shell(void **state) {
    (void)state;
    static const char *const WORDS[] = {
        "runs/20261121T024823Z-tiny-0badcafe.tar.zst", "train.steps=20", "", "a b", "it's", "$HOME",
        "`id`", "a;b", "*", "~", "new\nline", "both ' and \n", "back\\slash", "back\\slash\n",
        "\033[31mred", "\xff\xc3\xa9", "\xc2\x9b""31m", "a\xe2\x80\xae'\\b",
        "gpu.count>=8", "\"", "!x",
    };
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        char command[256], back[64] = "";
        char *word = shell_word(WORDS[i]);
        assert_non_null(word);
        char seen[256];
        snprintf(seen, sizeof seen, "%s", word);
        assert_string_equal(plain_text(seen), word);
        snprintf(command, sizeof command, "bash -c 'IFS= read -r -d \"\" c; eval \"printf %%s $c\"'"
                 " << 'END_OF_COMMAND'\n%s\nEND_OF_COMMAND\n", word);
        FILE *shell = popen(command, "r");
        assert_non_null(shell);
        size_t n = fread(back, 1, sizeof back - 1, shell);
        assert_int_equal(pclose(shell), 0);
        assert_int_equal(n, strlen(WORDS[i]));
        assert_string_equal(back, WORDS[i]);
        free(word);
    }
}

static void plain_words_stay_plain(void **state) {
    (void)state;
    char *word = shell_word("--set=train.steps=20");
    assert_string_equal(word, "--set=train.steps=20");
    free(word);
}

static void text_that_is_no_utf8_still_has_json(void **state) {
    (void)state;
    static const struct { const char *text, *json; } CASES[] = {
        { "", "" },
        { "plain", "plain" },
        { "\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9" },
        { "r\xffuns", "r\xef\xbf\xbduns" },
        { "\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd" },
        { "cut \xc3", "cut \xef\xbf\xbd" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        json_t *string = json_from_text(CASES[i].text);
        assert_string_equal(json_string_value(string), CASES[i].json);
        json_decref(string);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_survive_a_shell),
        cmocka_unit_test(plain_words_stay_plain),
        cmocka_unit_test(text_that_is_no_utf8_still_has_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
