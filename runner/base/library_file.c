#include "runner/base/library_file.h"

#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ASK_SECONDS = 20 };

/* ---- where ------------------------------------------------------------------------------------*/

static void add_place(struct library_places *p, const char *path, size_t n) {
    if (n == 0 || n >= PATH_CAP || p->count == LIBRARY_PLACES_MAX) return;
    snprintf(p->path[p->count], PATH_CAP, "%.*s", (int)n, path);
    for (int i = 0; i < p->count; i++)
        if (!strcmp(p->path[i], p->path[p->count])) return;
    p->count++;
}

static void add_list(struct library_places *p, const char *list) {
    while (list && *list) {
        size_t n = strcspn(list, ":");
        add_place(p, list, n);
        list += n + (list[n] == ':');
    }
}

/* Only lines that begin with a slash: every distribution's "include" leads to this same folder. */
static void add_configured(struct library_places *p) {
    glob_t found;
    if (glob("/etc/ld.so.conf.d/*.conf", 0, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *f = fopen(found.gl_pathv[i], "re");
        char line[PATH_CAP];
        while (f && fgets(line, sizeof line, f))
            if (*line == '/') add_place(p, line, strcspn(line, " \t\r\n"));
        if (f) fclose(f);
    }
    globfree(&found);
}

void library_places(struct library_places *out) {
    static const char *const SYSTEM[] = {
#if defined(__aarch64__)
        "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
        "/usr/local/cuda/targets/sbsa-linux/lib",
#else
        "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
        "/usr/local/cuda/targets/x86_64-linux/lib",
#endif
        "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/cuda/lib64",
        "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib",
    };
    char self[PATH_CAP], folder[PATH_CAP], path[PATH_CAP];
    *out = (struct library_places){ .count = 0 };
    add_list(out, getenv("LD_LIBRARY_PATH"));
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) {
        self[n] = '\0';
        path_parent(folder, self);
        add_place(out, folder, strlen(folder));
        if (path_join(path, folder, "../lib", NULL) == OK) add_place(out, path, strlen(path));
        if (path_join(path, folder, "../lib/fp8lab", NULL) == OK)
            add_place(out, path, strlen(path));
    }
    add_configured(out);
    for (size_t i = 0; i < sizeof SYSTEM / sizeof *SYSTEM; i++)
        add_place(out, SYSTEM[i], strlen(SYSTEM[i]));
}

bool library_find(const struct library_places *places, const char *name, int *from,
                  char path[PATH_CAP]) {
    while (*from < places->count) {
        const char *place = places->path[(*from)++];
        if (path_join(path, place, name, NULL) == OK && access(path, F_OK) == 0) return true;
    }
    return false;
}

/* ---- for which processor ----------------------------------------------------------------------*/

const char *library_machine(const char *path, char text[16]) {
    Elf64_Ehdr head;
    FILE *f = fopen(path, "re");
    if (!f) return NULL;
    bool whole = fread(&head, sizeof head, 1, f) == 1;
    fclose(f);
    if (!whole || memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64)
        return NULL;
    if (head.e_machine == EM_X86_64) return "x86_64";
    if (head.e_machine == EM_AARCH64) return "aarch64";
    snprintf(text, 16, "machine %d", head.e_machine);
    return text;
}

const char *library_machine_here(void) {
#if defined(__aarch64__)
    return "aarch64";
#else
    return "x86_64";
#endif
}

/* ---- what it needs ----------------------------------------------------------------------------*/

/* The names are in the file as text, so its sections are not parsed. */
int library_needs(const char *path, const char *stem) {
    FILE *f = fopen(path, "re");
    size_t n = strlen(stem);
    int c, number = 0;
    for (size_t at = 0; f && !number && (c = getc(f)) != EOF;) {
        at = c == stem[at] ? at + 1 : c == stem[0];
        if (at < n) continue;
        at = 0;
        while ((c = getc(f)) >= '0' && c <= '9' && number < 1000) number = number * 10 + c - '0';
    }
    if (f) fclose(f);
    return number;
}

/* ---- which version ----------------------------------------------------------------------------*/

/* The digits and dots after ".so." in the real name of the file: "9.19.0", or only "9". */
static void version_of_name(const char *path, char version[32]) {
    char *real = realpath(path, NULL);
    const char *at = real ? strstr(real, ".so.") : NULL;
    version[0] = '\0';
    if (at && isdigit((unsigned char)at[4]) && strchr(at + 4, '.'))
        snprintf(version, 32, "%s", at + 4);
    free(real);
}

/* In the child: writes "=VERSION" or "!REASON" into the pipe. */
static void ask(const char *path, const char *symbol, enum version_form form, FILE *out) {
    union { void *address; size_t (*size)(void); int (*number)(int *); } call;
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    call.address = so ? dlsym(so, symbol) : NULL;
    if (!call.address) {
        const char *why = dlerror();
        fprintf(out, "!%s", why ? why : "it has no version");
        return;
    }
    long long v = 0;
    int number = 0;
    if (form == VERSION_SIZE) v = (long long)call.size();
    else if (call.number(&number) == 0) v = number;
    fprintf(out, "=%lld.%lld.%lld", v / 10000, v / 100 % 100, v % 100);
}

void library_version(const char *path, const char *symbol, enum version_form form, char version[32],
                     char problem[256]) {
    char text[256] = "";
    int ends[2], status = 0;
    problem[0] = '\0';
    version_of_name(path, version);
    if (form == VERSION_NONE || pipe(ends) != 0) return;
    pid_t pid = fork();
    if (pid == 0) {
        FILE *out = fdopen(ends[1], "w");
        (void)alarm(ASK_SECONDS); /* ends the child if the library hangs while it loads */
        if (out) ask(path, symbol, form, out);
        if (out) fclose(out);
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = pid > 0 ? read(ends[0], text, sizeof text - 1) : 0;
    close(ends[0]);
    if (pid > 0) (void)waitpid(pid, &status, 0);
    text[n > 0 ? n : 0] = '\0';
    if (*text == '=') snprintf(version, 32, "%.31s", text + 1);
    else snprintf(problem, 256, "%.255s", *text == '!' ? text + 1 : "loading it ended its process");
}
