/* media/rgb.h: pictures as the models give them, to bytes. */
#ifndef OZ_MEDIA_RGB_H
#define OZ_MEDIA_RGB_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* planes [3, count] in 0..1 to rgb [count, 3]: half to even, as the reference rounds; what lies outside
 * is clipped. */
static inline void oz_rgb_from_planes(const float *planes, size_t count, uint8_t *rgb)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t c = 0; c < 3; c++) {
            float scaled = planes[c * count + i] * 255.0F;
            rgb[3 * i + c] = (uint8_t)lrintf(fminf(fmaxf(scaled, 0.0F), 255.0F));
        }
    }
}

#endif
