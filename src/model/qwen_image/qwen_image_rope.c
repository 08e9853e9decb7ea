#include <math.h>

#include "model/qwen_image/qwen_image.h"

#define THETA 10000.0F

/* Cosine and sine of position * omega_j for one axis, j < dim / 2. The reference computes the
 * frequencies and the angle in f32. */
static void axis(int32_t dim, int32_t position, float *cosine, float *sine)
{
    for (int32_t j = 0; j < dim / 2; j++) {
        float omega = 1.0F / powf(THETA, (float)(2 * j) / (float)dim);
        float angle = (float)position * omega;
        cosine[j] = (float)cos((double)angle);
        sine[j] = (float)sin((double)angle);
    }
}

/* One token's row: frame pairs, row pairs, column pairs. */
static void token(const struct oz_qwen_image_config *c, const int32_t position[3], float *cosine,
                  float *sine)
{
    for (int i = 0; i < 3; i++) {
        axis(c->rope_dims[i], position[i], cosine, sine);
        cosine += c->rope_dims[i] / 2;
        sine += c->rope_dims[i] / 2;
    }
}

void oz_qwen_image_rope(const struct oz_qwen_image_config *c, const struct oz_grid *grids,
                        int32_t grid_count, int64_t text_rows, float *image_cos, float *image_sin,
                        float *text_cos, float *text_sin)
{
    int32_t pairs = c->head_dim / 2;
    int32_t text_start = 0;
    for (int32_t i = 0; i < grid_count; i++) {
        const struct oz_grid *g = &grids[i];
        for (int32_t f = 0; f < g->frames; f++) {
            for (int32_t y = 0; y < g->height; y++) {
                for (int32_t x = 0; x < g->width; x++) {
                    const int32_t position[3] = {i + f, y - (g->height - g->height / 2),
                                                 x - (g->width - g->width / 2)};
                    token(c, position, image_cos, image_sin);
                    image_cos += pairs;
                    image_sin += pairs;
                }
            }
        }
        int32_t half = g->height > g->width ? g->height / 2 : g->width / 2;
        text_start = half > text_start ? half : text_start;
    }
    for (int64_t k = 0; k < text_rows; k++) {
        int32_t p = text_start + (int32_t)k;
        token(c, (const int32_t[3]){p, p, p}, text_cos + k * pairs, text_sin + k * pairs);
    }
}
