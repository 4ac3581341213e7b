/* A function of a script as the renderer of its conversations. It runs in children of the sandbox
 * (render_child.h); each conversation has the script's limits. */
#ifndef FP8LAB_RUNNER_SCRIPT_RENDER_H
#define FP8LAB_RUNNER_SCRIPT_RENDER_H

#include "runner/chat/renderer.h"

struct script_limits;

/* Opens the functions of the script at `path` by their names (function_name.h); `lib` is a further
 * folder for require, or NULL. Both are borrowed. ERR_CONFIG: the script cannot be evaluated, or
 * has no such function. */
struct chat_render_source script_render(const char *path, const char *lib);

/* The same with other limits; NULL: SCRIPT_LIMITS. Threads wait if there are fewer servers. */
NODISCARD enum status render_open(const char *path, const char *lib, const char *function,
                                  const struct script_limits *limits, int servers,
                                  struct chat_renderer *out, struct err *e);

#endif
