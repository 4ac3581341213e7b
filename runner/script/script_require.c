/* require: loads Lua source only from the script's own folder and experiments/lib. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/script/lua_scan.h"
#include "runner/script/script_state.h"

enum { SOURCE_MAX = 1 << 20, MODULE_NAME_MAX = 200 };

void script_add_root(struct script *s, const char *path, const char *prefix, int fd) {
    if (s->root_count == SCRIPT_ROOTS_MAX) {
        close(fd);
        return;
    }
    s->roots[s->root_count++] = (struct script_root){ .path = path, .prefix = prefix, .fd = fd };
}

const struct script_file *script_find_file(const struct script *s, const char *path) {
    for (int64_t i = 0; i < s->file_count; i++)
        if (strcmp(s->files[i].path, path) == 0) return &s->files[i];
    return NULL;
}

/* Reads all of a regular file of at most SOURCE_MAX bytes into the pool; closes fd. [raises] */
static void read_source(struct script *s, struct script_file *f, int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > SOURCE_MAX) {
        close(fd);
        luaL_error(s->L, "%s: not a regular file of at most 1 MiB", f->path);
    }
    char *text = pool_alloc(&s->pool, (size_t)st.st_size + 1);
    ssize_t n;
    while (f->bytes < (size_t)st.st_size &&
           (n = read(fd, text + f->bytes, (size_t)st.st_size - f->bytes)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        f->bytes += (size_t)n;
    }
    close(fd);
    f->text = text;
}

static int line_of(const char *text, size_t at) {
    int line = 1;
    for (size_t i = 0; i < at; i++) line += text[i] == '\n';
    return line;
}

/* `a ^ b` calls the C library's pow, whose last bit differs between machines. Powers of two are
 * exact in all of them, so 2^n stays. */
static void refuse_pow(struct script *s, const struct script_file *f) {
    struct lua_lexer lexer;
    struct lua_token before = { .type = LUA_TOKEN_END }, t;
    lua_lexer_start(&lexer, f->text, f->bytes);
    while ((t = lua_lexer_next(&lexer)).type != LUA_TOKEN_END) {
        bool fraction = false;
        if (lua_token_is(&t, "^")) {
            struct lua_lexer rest = lexer;
            struct lua_token power = lua_lexer_next(&rest);
            if (lua_token_is(&power, "-")) power = lua_lexer_next(&rest);
            fraction = power.type == LUA_TOKEN_NUMBER && memchr(power.at, '.', power.bytes);
        }
        if (lua_token_is(&t, "^") && (!lua_token_is(&before, "2") || fraction))
            luaL_error(s->L, "%s:%d: ^ is the C library's pow, whose last bit differs between "
                       "machines; write math.pow(a, b), x * x, or 2^n", f->path, t.line);
        before = t;
    }
}

/* Whether f must be recorded. Two different files with the same name in the bundle are an error.
 * [raises] */
static bool is_new_file(struct script *s, const struct script_file *f) {
    for (int64_t i = 0; i < s->file_count; i++) {
        if (strcmp(s->files[i].name, f->name) != 0) continue;
        if (strcmp(s->files[i].sha256, f->sha256) == 0) return false;
        luaL_error(s->L, "%s and %s would both be %s in the bundle; rename one", f->path,
                   s->files[i].path, f->name);
    }
    return true;
}

void script_load(struct script *s, const char *name, const char *path, int fd) {
    if (s->file_count == SCRIPT_FILES_MAX) {
        close(fd);
        luaL_error(s->L, "require: more than %d files", SCRIPT_FILES_MAX);
    }
    struct script_file *f = &s->files[s->file_count];
    *f = (struct script_file){ .name = name, .path = path };
    read_source(s, f, fd);
    if (f->bytes && *f->text == LUA_SIGNATURE[0])
        luaL_error(s->L, "%s: compiled Lua is not accepted, only source text", path);
    size_t valid = utf8_valid_prefix(f->text, f->bytes);
    if (valid != f->bytes)
        luaL_error(s->L, "%s:%d: the source is not UTF-8 text", path, line_of(f->text, valid));
    struct err e;
    if (sha256_bytes(f->text, f->bytes, f->sha256, &e) != OK) luaL_error(s->L, "%s", e.text);
    if (is_new_file(s, f)) s->file_count++;
    const char *text = f->text;
    size_t bytes = f->bytes;
    static const char MARK[] = "\xef\xbb\xbf"; /* byte order mark, which some editors write first */
    if (!strncmp(text, MARK, sizeof MARK - 1)) text += sizeof MARK - 1;
    if (*text == '#') text += strcspn(text, "\n"); /* the shell's first line */
    const char *chunk = pool_format(&s->pool, "@%s", path);
    refuse_pow(s, f);
    if (luaL_loadbufferx(s->L, text, bytes - (size_t)(text - f->text), chunk, "t") != LUA_OK)
        lua_error(s->L);
}

/* ---- the main chunk -------------------------------------------------------------------------- */
static void open_root(struct script *s, const char *directory, const char *below,
                      const char *prefix) {
    const char *path = *below ? strcmp(directory, ".") == 0
                                    ? below
                                    : pool_format(&s->pool, "%s/%s", directory, below)
                              : directory;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) script_add_root(s, pool_copy(&s->pool, path), prefix, fd);
}

void script_run(struct script *s, const char *path, const char *lib) {
    char directory[PATH_CAP];
    path_parent(directory, path);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) luaL_error(s->L, "%s: %s", path, strerror(errno));
    open_root(s, directory, "", "");
    open_root(s, directory, "lib", "lib/");
    if (lib) open_root(s, lib, "", "lib/");
    script_load(s, "main.lua", path, fd);
    lua_call(s->L, 0, LUA_MULTRET);
    if (lua_gettop(s->L) == 0) lua_pushnil(s->L);
}

/* ---- require --------------------------------------------------------------------------------- */
/* "models.llama3" -> "models/llama3.lua". Names are letters, digits, '_' and '-' between single
 * dots, so that no name can leave its folder. */
static const char *module_file(lua_State *L, const char *module) {
    size_t n = strlen(module);
    bool plain = n > 0 && n <= MODULE_NAME_MAX && module[0] != '.' && module[n - 1] != '.';
    for (size_t i = 0; i < n && plain; i++) {
        char c = module[i];
        plain = isalnum((unsigned char)c) || c == '_' || c == '-' ||
                (c == '.' && module[i + 1] != '.');
    }
    if (!plain)
        luaL_error(L, "require \"%s\": a module name has letters, digits, '_' and '-' between "
                   "dots, as in \"models.llama3\"", module);
    char *file = pool_format(&script_of(L)->pool, "%s.lua", module);
    for (char *at = file; at < file + n; at++)
        if (*at == '.') *at = '/';
    return file;
}

/* Opens the module in the first root that has it and leaves its chunk on the stack. */
static void find_module(lua_State *L, const char *module) {
    struct script *s = script_of(L);
    const char *file = module_file(L, module);
    luaL_Buffer tried;
    luaL_buffinit(L, &tried);
    for (int64_t i = 0; i < s->root_count; i++) {
        const struct script_root *root = &s->roots[i];
        int fd = open_beneath(root->fd, file, O_RDONLY | O_NONBLOCK, 0, 0);
        const char *path = strcmp(root->path, ".") == 0
                               ? file
                               : pool_format(&s->pool, "%s/%s", root->path, file);
        if (fd >= 0) {
            luaL_pushresult(&tried);
            lua_pop(L, 1);
            script_load(s, pool_format(&s->pool, "%s%s", root->prefix, file), path, fd);
            return;
        }
        if (errno == ELOOP || errno == ENOTDIR)
            luaL_error(L, "require \"%s\": %s is not a file in a folder; symbolic links are not "
                       "followed", module, path);
        luaL_addstring(&tried, "\n  ");
        luaL_addstring(&tried, path);
    }
    luaL_pushresult(&tried);
    luaL_error(L, "require \"%s\": no such file; looked for%s", module, lua_tostring(L, -1));
}

/* Upvalue 1: the results by module name; false while a module is being loaded. */
static int base_require(lua_State *L) {
    size_t bytes;
    const char *module = luaL_checklstring(L, 1, &bytes);
    lua_settop(L, 1);
    luaL_argcheck(L, strlen(module) == bytes, 1, "a module name has no NUL byte");
    if (lua_getfield(L, lua_upvalueindex(1), module) != LUA_TNIL) {
        if (lua_isboolean(L, -1) && !lua_toboolean(L, -1))
            return luaL_error(L, "require \"%s\": the module requires itself", module);
        return 1;
    }
    lua_pop(L, 1);
    if (script_of(L)->rendering)
        return luaL_error(L, "require \"%s\": a function that renders loads no file, so that the "
                          "tokens' key names all of them; write the require above it", module);
    find_module(L, module);
    lua_pushboolean(L, 0);
    lua_setfield(L, lua_upvalueindex(1), module);
    lua_call(L, 0, 1);
    if (lua_isnil(L, -1) || (lua_isboolean(L, -1) && !lua_toboolean(L, -1)))
        return luaL_error(L, "require \"%s\": the module returns nothing; end it with return",
                          module);
    lua_pushvalue(L, -1);
    lua_setfield(L, lua_upvalueindex(1), module);
    return 1;
}

void script_open_require(lua_State *L) {
    lua_newtable(L);
    lua_pushcclosure(L, base_require, 1);
    lua_setglobal(L, "require");
}
