/* How each device runs each recipe. Native: the FP8 matmul has FP8 operands. Emulated: the same
 * numerics, with codes widened before a BF16 matmul (or in C on a CPU). Refused: not at all. Some
 * versions of cuBLASLt do not multiply what others do; there a recipe is emulated, too. The modes
 * behind the table are in kernels/cuda/CHOICES.md; `doctor` compares the table with what a device
 * did. */
#ifndef FP8LAB_RUNNER_PLAN_RECIPE_TABLE_H
#define FP8LAB_RUNNER_PLAN_RECIPE_TABLE_H

#include "model/recipe.h"

enum recipe_way { WAY_NATIVE, WAY_EMULATED, WAY_REFUSED };

struct recipe_row { enum recipe_way way; const char *because; /* "" for native; static */ };

/* capability: 90 for 9.0; 0: the CPU backend. cublaslt: its version, as the fact cublaslt.version
 * has it ("13.4.0"). NULL: not known, counts as a sound version. */
struct recipe_row recipe_on(enum recipe_kind kind, int capability, const char *cublaslt);

/* Whether the recipe is emulated because of a fault of this version of cuBLASLt alone. */
bool recipe_meets_fault(enum recipe_kind kind, int capability, const char *cublaslt);

/* "native", "emulated", "refused". */
const char *recipe_way_name(enum recipe_way way);

#endif
