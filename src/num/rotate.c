#include "num/rotate.h"

bool oz_rotate_known(int32_t group)
{
    for (int32_t g = 4; g <= 4096; g *= 4) {
        if (g == group) {
            return true;
        }
    }
    return false;
}

/* One factor of the product: fours that are `stride` apart. */
static void turn(float *x, int32_t group, int32_t stride)
{
    for (int32_t i = 0; i < group; i++) {
        if (i / stride % 4 != 0) {
            continue;
        }
        float a = x[i];
        float b = x[i + stride];
        float c = x[i + 2 * stride];
        float d = x[i + 3 * stride];
        float sum = (a + b) + (c + d);
        x[i] = sum - 2 * d;
        x[i + stride] = sum - 2 * c;
        x[i + 2 * stride] = sum - 2 * b;
        x[i + 3 * stride] = sum - 2 * a;
    }
}

void oz_rotate_row(float *row, int64_t cols, int32_t group)
{
    float scale = 1; /* 1 / sqrt(group), a power of two */
    for (int32_t stride = 1; stride < group; stride *= 4) {
        scale /= 2;
    }
    for (int64_t c = 0; c + group <= cols; c += group) {
        for (int32_t stride = 1; stride < group; stride *= 4) {
            turn(row + c, group, stride);
        }
        for (int32_t i = 0; i < group; i++) {
            row[c + i] *= scale;
        }
    }
}
