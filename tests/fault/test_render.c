/* Every allocation of rendering by a function of a script that can fail, failing: in the caller, in
 * the server that evaluates the script, and in the process of a conversation. */
#include <stdlib.h>
#include <string.h>

#include "runner/script/render.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

struct scene {
    char folder[PATH_CAP], path[PATH_CAP];
    struct conversation talk;
};

static enum status attempt(void *context, struct err *e) {
    struct scene *s = context;
    struct chat_renderer r;
    struct chat_text t;
    TRY(render_open(s->path, NULL, "data.render", NULL, 1, &r, e));
    json_t *described = r.describe(r.context);
    enum status st = described ? chat_render_text(&r, &s->talk, &t, e)
                               : FAIL(e, ERR_MEMORY, "no memory for a description");
    json_decref(described);
    if (st == OK) {
        bool whole = !strcmp(t.text, "user: question") && t.losses == 1 && t.controls == 1;
        if (!whole) st = FAIL(e, ERR_VERIFY, "another text: %s", t.text);
        chat_text_free(&t);
    }
    r.close(r.context);
    return st;
}

static void rendering_survives(void **state) {
    static const char TALK[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"question\"}],"
                               "\"tools\":[{\"a\":[1,2.5,true,null]}]}";
    struct scene s;
    (void)state;
    scratch_directory(s.folder);
    put_file(s.folder, "part.lua", "return function(m) return m.role .. ': ' end\n");
    put_file(s.folder, "x.lua", "local part = require 'part'\nreturn { data = { render = "
             "function(c)\n  local m = c.messages[1]\n  return { { text = part(m), special = true "
             "}, { text = m.content, loss = true } }\nend } }\n");
    MUST(path_join(s.path, s.folder, "x.lua", E));
    MUST(conversation_parse(TALK, sizeof TALK - 1, &s.talk, E));
    fault_every_allocation(&(struct fault_case){ .name = "a function that renders",
                                                 .attempt = attempt, .context = &s });
    conversation_free(&s.talk);
    MUST(tree_remove(s.folder, E));
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(rendering_survives) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
