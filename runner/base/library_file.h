/* Shared libraries as files: where the loader would find one, which processor it is for, which
 * version it is. Nothing is loaded into this process. */
#ifndef FP8LAB_RUNNER_BASE_LIBRARY_FILE_H
#define FP8LAB_RUNNER_BASE_LIBRARY_FILE_H

#include "runner/base/run_files.h"

enum { LIBRARY_PLACES_MAX = 96 };

/* The folders in which libraries are looked for, in the loader's order: LD_LIBRARY_PATH, ../lib
 * beside the program, /etc/ld.so.conf.d, the system's own and CUDA's. */
struct library_places { char path[LIBRARY_PLACES_MAX][PATH_CAP]; int count; };
void library_places(struct library_places *out);

/* The next file of that name at or after place *from; false where there is none. *from becomes the
 * place behind it. */
bool library_find(const struct library_places *places, const char *name, int *from,
                  char path[PATH_CAP]);

/* "x86_64", "aarch64", another machine's number as text, or NULL: not an ELF file of 64 bits. */
const char *library_machine(const char *path, char text[16]);
/* What this program itself was built for. */
const char *library_machine_here(void);

/* N of the library STEM.N ("libcublasLt.so.13") that the file at `path` names as needed; 0 where it
 * names none, or cannot be read. */
int library_needs(const char *path, const char *stem);

/* How a library answers when it is asked for its version. */
enum version_form {
    VERSION_NONE,     /* it cannot be asked */
    VERSION_SIZE,     /* size_t f(void): 91900 is 9.19.0 (cuDNN), 130100 is 13.1.0 (cuBLASLt) */
    VERSION_INT_OUT   /* int f(int *): 22809 is 2.28.9 (NCCL) */
};

/* Opens it in a child process and asks; "" where that fails, and `problem` says why. What its real
 * name ends in ("libcudnn.so.9.10.0") is the answer where it cannot be asked. */
void library_version(const char *path, const char *symbol, enum version_form form, char version[32],
                     char problem[256]);

#endif
