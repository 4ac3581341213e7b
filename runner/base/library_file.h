/* Shared libraries as files: where the loader finds one, its processor, its version. No library is
 * loaded into this process. */
#ifndef FP8LAB_RUNNER_BASE_LIBRARY_FILE_H
#define FP8LAB_RUNNER_BASE_LIBRARY_FILE_H

#include "runner/base/run_files.h"

enum { LIBRARY_PLACES_MAX = 96 };

/* The folders that are searched for libraries, in the loader's order: LD_LIBRARY_PATH, ../lib
 * beside the program, those in /etc/ld.so.conf.d, the system's and CUDA's. */
struct library_places { char path[LIBRARY_PLACES_MAX][PATH_CAP]; int count; };
void library_places(struct library_places *out);

/* The next file of that name, searched from place *from on; false if there is none. *from becomes
 * the place after it. */
bool library_find(const struct library_places *places, const char *name, int *from,
                  char path[PATH_CAP]);

/* "x86_64", "aarch64", or the ELF number of another machine as text. NULL: not a 64-bit ELF
 * file. */
const char *library_machine(const char *path, char text[16]);
/* The same for this program. */
const char *library_machine_here(void);

/* N of the library STEM.N ("libcublasLt.so.13") that the file at `path` needs; 0 if it needs none
 * or cannot be read. */
int library_needs(const char *path, const char *stem);

/* How a library reports its version. */
enum version_form {
    VERSION_NONE,     /* it has no such function */
    VERSION_SIZE,     /* size_t f(void): 91900 is 9.19.0 (cuDNN), 130100 is 13.1.0 (cuBLASLt) */
    VERSION_INT_OUT   /* int f(int *): 22809 is 2.28.9 (NCCL) */
};

/* Loads the library in a child process and calls `symbol`. On failure `version` is "" and `problem`
 * has the reason. With VERSION_NONE the version is the end of its real name
 * ("libcudnn.so.9.10.0"). */
void library_version(const char *path, const char *symbol, enum version_form form, char version[32],
                     char problem[256]);

#endif
