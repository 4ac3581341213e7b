#include "runner/base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { NAME_MAX_COMPARED = 63, EDIT = 2, CASE_ONLY = 1 };

static int64_t min3(int64_t a, int64_t b, int64_t c) {
    int64_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

static bool same_letter(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static int64_t replace_cost(char a, char b) { return same_letter(a, b) ? 0 : EDIT; }

static int64_t compared_length(const char *s) {
    size_t n = strnlen(s, NAME_MAX_COMPARED);
    return (int64_t)n;
}

/* Optimal string alignment over three rolling rows; source: G. Navarro, "A guided tour to
 * approximate string matching", ACM Computing Surveys 33(1), 2001. */
int64_t name_distance_x2(const char *a, const char *b) {
    int64_t rows[3][NAME_MAX_COMPARED + 1];
    int64_t na = compared_length(a), nb = compared_length(b);
    for (int64_t j = 0; j <= nb; j++) rows[0][j] = j * EDIT;
    for (int64_t i = 1; i <= na; i++) {
        int64_t *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i * EDIT;
        for (int64_t j = 1; j <= nb; j++) {
            now[j] = min3(last[j] + EDIT, now[j - 1] + EDIT,
                          last[j - 1] + replace_cost(a[i - 1], b[j - 1]));
            bool swapped = i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                           same_letter(a[i - 2], b[j - 1]);
            if (swapped && before[j - 2] + EDIT < now[j]) now[j] = before[j - 2] + EDIT;
        }
    }
    int64_t edits = rows[na % 3][nb];
    return edits == 0 && strncmp(a, b, NAME_MAX_COMPARED) != 0 ? CASE_ONLY : edits;
}

const char *nearest_name(const char *given, const char *const *names, int64_t count) {
    const char *best = NULL;
    int64_t best_distance = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t distance = name_distance_x2(given, names[i]);
        if (best && distance >= best_distance) continue;
        int64_t a = compared_length(given), b = compared_length(names[i]);
        int64_t longer = a > b ? a : b;
        if (distance * 3 > longer * EDIT) continue;
        best = names[i];
        best_distance = distance;
    }
    return best;
}

const char *other_name_find(const struct other_name *list, const char *given) {
    for (; list->given; list++)
        if (strcmp(list->given, given) == 0) return list->ours;
    return NULL;
}
