/* The Lua state that evaluates an experiment: its libraries and its limits.
 *
 * It exists only in the child that script.c forks. Text chunks only; base, string, table, math and
 * utf8, pruned; no io, os, debug, load, dofile, collectgarbage. The collector never runs, so that
 * weak tables and finalizers cannot make a result depend on timing; a limit bounds the memory of
 * the short-lived child instead. Functions that may raise a Lua error are marked [raises]; they are
 * called only under script_protect(). */
#ifndef FP8LAB_RUNNER_SCRIPT_SCRIPT_STATE_H
#define FP8LAB_RUNNER_SCRIPT_SCRIPT_STATE_H

#include <lua.h>

#include "runner/base/diagnostics.h"
#include "model/ground/sha256.h"

struct script_limits {
    int64_t instructions; /* of the Lua machine */
    int64_t memory_bytes; /* of the Lua heap */
    int cpu_s, wall_s;    /* of the child process */
    int64_t address_bytes; /* RLIMIT_AS of the child; not applied under a sanitizer */
};
extern const struct script_limits SCRIPT_LIMITS;

enum script_limit { LIMIT_NONE, LIMIT_INSTRUCTIONS, LIMIT_MEMORY };

/* A source file that was loaded. */
struct script_file {
    const char *name; /* its place in a bundle: "main.lua", "lib/models/llama3.lua" */
    const char *path; /* as messages name it */
    const char *text;
    size_t bytes;
    char sha256[SHA256_HEX];
};

/* The last line that began, in memory shared with the parent. It gives the line of a script that is
 * killed inside a C function, where no hook runs. */
struct script_trail {
    int line;
    char file[512];
};

enum { SCRIPT_FILES_MAX = 256, SCRIPT_ROOTS_MAX = 8 };

/* A folder that require may read. */
struct script_root {
    const char *path;   /* as messages name it */
    const char *prefix; /* of a loaded file's name in the bundle: "" or "lib/" */
    int fd;
};

struct script {
    lua_State *L;
    struct pool pool;
    struct diagnostics diagnostics;
    const struct script_limits *limits;
    struct script_trail *trail; /* borrowed, shared with the parent */
    const char *trail_source;   /* the chunk that trail->file names; compared, never read */
    int64_t instructions, memory_bytes, memory_reserve;
    enum script_limit stopped;
    struct value *result; /* the tree of index 1, for function_name.h; NULL: not made yet */
    bool rendering;    /* a function of the script renders conversations; no output, no new files */
    uint64_t random;   /* state of math.random */
    struct text log;   /* the script's output */
    struct script_file files[SCRIPT_FILES_MAX];
    int64_t file_count;
    struct script_root roots[SCRIPT_ROOTS_MAX];
    int64_t root_count;
};

/* Opens the state and its libraries. ERR_MEMORY, ERR_CONFIG. The state is never closed: the child
 * leaves by _exit(). */
NODISCARD enum status script_open(struct script *s, struct err *e);

/* Calls body(s, argument) with Lua errors caught: ERR_CONFIG with "file:line: text", its traceback
 * in the log. pcall cannot escape the limits: once exceeded, every instruction raises the error
 * again. */
NODISCARD enum status script_protect(struct script *s, void (*body)(struct script *, void *),
                                     void *argument, struct err *e);

/* The script of a running C function. */
struct script *script_of(lua_State *L);

/* Adds a source folder to require's path; `fd` is owned by the script from now on. */
void script_add_root(struct script *s, const char *path, const char *prefix, int fd);

/* Loads, records and compiles one source: leaves the chunk on the stack. [raises] */
void script_load(struct script *s, const char *name, const char *path, int fd);
/* Opens require's folders beside the script, and `lib` if it is not NULL; runs the script, whose
 * results are on the stack then: at least one. [raises] */
void script_run(struct script *s, const char *path, const char *lib);
const struct script_file *script_find_file(const struct script *s, const char *path);

/* ---- libraries: each leaves the stack as it was. [raises] ------------------------------------ */
void script_open_base(lua_State *L);    /* base, string, table, math, utf8, pruned */
void script_open_stable(lua_State *L);  /* pairs, table.sort, math.random: equal everywhere */
void script_open_require(lua_State *L);
void script_open_api(lua_State *L);     /* experiment, suite, fp8, adamw, ...  */
void script_close_globals(lua_State *L); /* afterwards an unknown global is an error */

/* Appends to the log; a NUL becomes "\0". */
void script_log(struct script *s, const char *text, size_t bytes);

/* Pushes tostring(value), without addresses. [-0, +1, raises] */
const char *script_tostring(lua_State *L, int index);

/* ---- values ---------------------------------------------------------------------------------- */
/* The value at `index` as a tree with places; kind NULL if no constructor made it. Errors in it
 * (cycles, keys of other types) become diagnostics. [raises only for memory] */
struct value *script_tree(struct script *s, int index, struct place place);

/* The current line of the innermost Lua function. */
struct place script_here(lua_State *L);

#endif
