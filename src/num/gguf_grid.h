/* num/gguf_grid.h: grids that codes of GGUF's IQ types are rows of. Internal to src/num. */
#ifndef OZ_NUM_GGUF_GRID_H
#define OZ_NUM_GGUF_GRID_H

#include <stdint.h>

/* Eight elements of two bits: 0, 1, 2 are 8, 25, 43 (iq2), or -1, 0, 1 (iq1). */
extern const uint16_t oz_gguf_grid_iq2_xxs[256];
extern const uint16_t oz_gguf_grid_iq2_xs[512];
extern const uint16_t oz_gguf_grid_iq2_s[1024];
extern const uint16_t oz_gguf_grid_iq1[2048];
/* Four elements of three bits: n is 4 + 8 n but 62 for 7 (iq3_xxs), or 1 + 2 n (iq3_s). */
extern const uint16_t oz_gguf_grid_iq3_xxs[256];
extern const uint16_t oz_gguf_grid_iq3_s[512];

#endif
