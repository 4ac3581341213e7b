#include "runner/run/slot_order.h"

int64_t slot_order_next(const bool *waits, int64_t count, int64_t repeat, int64_t slot,
                        int64_t slots) {
    int64_t rows = count / repeat;
    for (int64_t r = slot; r < repeat; r += slots)
        for (int64_t i = r * rows; i < (r + 1) * rows; i++)
            if (waits[i]) return i;
    for (int64_t i = 0; i < count; i++)
        if (waits[i]) return i;
    return -1;
}
