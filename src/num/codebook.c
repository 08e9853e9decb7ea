#include "num/codebook.h"

#include <stddef.h>

uint8_t oz_codebook_code(const struct oz_codebook *book, float x)
{
    int32_t low = 0; /* the number of bounds below x, by bisection */
    int32_t high = book->count - 1;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (x > book->bounds[middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return book->order != NULL ? book->order[low] : (uint8_t)low;
}
