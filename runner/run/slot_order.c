#include "runner/run/slot_order.h"

int64_t slot_order_next(const bool *waits, int64_t count, int64_t repeat, int64_t slot,
                        int64_t slots) {
    int64_t rows = count / repeat;
    for (int64_t r = slot; r < repeat; r += slots)
        for (int64_t k = 0; k < rows; k++)
            if (waits[r * rows + (slot + k) % rows]) return r * rows + (slot + k) % rows;
    for (int64_t i = 0; i < count; i++)
        if (waits[i]) return i;
    return -1;
}
