/* Operators over pictures: patches of convolutions, resampling, tokens. */
#include "cuda/device/rows.cuh"

#define FOR_ITEMS(i, total)                                                       \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (total); \
         i += (int64_t)gridDim.x * blockDim.x)

/* ---- convolution ---- */

/* Value (tap, channel) of an output pixel's patch. */
static __device__ inline float patch_value(const struct oz_cuda_im2col &a, int64_t pixel,
                                           int64_t tap, int64_t channel)
{
    int64_t x = pixel % a.out_width * a.stride - a.pad_left + tap % a.kw;
    int64_t y = pixel / a.out_width % a.out_height * a.stride - a.pad_top + tap / a.kw % a.kh;
    int64_t t = pixel / a.out_width / a.out_height * a.stride_t + tap / a.kw / a.kh - (a.kt - 1);
    if (x < 0 || x >= a.width || y < 0 || y >= a.height) {
        return 0.0F;
    }
    if (t < 0) {
        return a.past.data == NULL
                   ? 0.0F
                   : oz_get(a.past, ((t + a.kt - 1) * a.height + y) * a.width + x, channel);
    }
    return oz_get(a.x, (t * a.height + y) * a.width + x, channel);
}

__global__ void im2col(const __grid_constant__ struct oz_cuda_im2col a)
{
    int64_t depth = (int64_t)a.kt * a.kh * a.kw * a.x.cols;
    FOR_ITEMS(i, a.rows * a.pad_cols)
    {
        int64_t col = i % a.pad_cols;
        float value = col < depth
                          ? patch_value(a, a.row0 + i / a.pad_cols, col / a.x.cols, col % a.x.cols)
                          : 0.0F;
        if (a.dtype == OZ_DTYPE_F32) {
            ((float *)a.dst)[i] = value;
        } else {
            ((uint16_t *)a.dst)[i] = oz_f32_to_bf16(value);
        }
    }
}

/* The same for bf16 patches of whole eights of channels: 16 bytes a thread. */
__global__ void im2col_8(const __grid_constant__ struct oz_cuda_im2col a)
{
    unsigned per_row = (unsigned)a.pad_cols / 8;
    unsigned per_tap = (unsigned)a.x.cols / 8;
    unsigned taps = (unsigned)(a.kt * a.kh * a.kw);
    unsigned total = (unsigned)a.rows * per_row;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < total;
         i += gridDim.x * blockDim.x) {
        unsigned row = i / per_row;
        unsigned place = i % per_row;
        unsigned tap = place / per_tap;
        unsigned pixel = (unsigned)a.row0 + row;
        int kx = (int)(tap % (unsigned)a.kw);
        int ky = (int)(tap / (unsigned)a.kw % (unsigned)a.kh);
        int x = (int)(pixel % (unsigned)a.out_width) * a.stride - a.pad_left + kx;
        int y = (int)(pixel / (unsigned)a.out_width) * a.stride - a.pad_top + ky;
        uint4 word = {0, 0, 0, 0};
        if (tap < taps && x >= 0 && x < a.width && y >= 0 && y < a.height) {
            int64_t at = ((int64_t)y * a.width + x) * a.x.stride + (place % per_tap) * 8;
            if (a.x.spec.dtype == OZ_DTYPE_BF16) {
                word = *(const uint4 *)((const uint16_t *)a.x.data + at);
            } else {
                const float4 *from = (const float4 *)((const float *)a.x.data + at);
                float4 low = from[0];
                float4 high = from[1];
                word.x = oz_f32_to_bf16(low.x) | (uint32_t)oz_f32_to_bf16(low.y) << 16;
                word.y = oz_f32_to_bf16(low.z) | (uint32_t)oz_f32_to_bf16(low.w) << 16;
                word.z = oz_f32_to_bf16(high.x) | (uint32_t)oz_f32_to_bf16(high.y) << 16;
                word.w = oz_f32_to_bf16(high.z) | (uint32_t)oz_f32_to_bf16(high.w) << 16;
            }
        }
        ((uint4 *)a.dst)[i] = word;
    }
}

/* One frame, aligned, and small enough for 32-bit indices. */
static bool takes_eights(const struct oz_cuda_im2col *a)
{
    return a->dtype == OZ_DTYPE_BF16 && a->frames == 1 && a->kt == 1 && a->x.cols % 8 == 0 &&
           a->x.stride % 8 == 0 && (uintptr_t)a->x.data % 16 == 0 &&
           (a->x.spec.dtype == OZ_DTYPE_BF16 || a->x.spec.dtype == OZ_DTYPE_F32) &&
           (a->row0 + a->rows) < INT32_MAX && a->rows * a->pad_cols < INT32_MAX;
}

int oz_launch_im2col(oz_cuda_stream stream, const struct oz_cuda_im2col *a)
{
    if (a->rows == 0 || a->pad_cols == 0) {
        return 0;
    }
    if (takes_eights(a)) {
        im2col_8<<<oz_blocks_for(a->rows * a->pad_cols / 8), 256, 0, stream>>>(*a);
        return (int)cudaGetLastError();
    }
    im2col<<<oz_blocks_for(a->rows * a->pad_cols), 256, 0, stream>>>(*a);
    return (int)cudaGetLastError();
}

/* ---- resample ---- */

struct sampling {
    struct oz_act x, out;
    enum oz_resample kind;
    int64_t frames, height, width, ft, fy, fx, out_height, out_width, padding;
};

/* Channel c of the output is element (c, dt, dy, dx) of the repeated input channels. */
static __device__ inline float dup_up(const struct sampling &a, int64_t t, int64_t y, int64_t x,
                                      int64_t c)
{
    int64_t repeats = a.out.cols * a.ft * a.fy * a.fx / a.x.cols;
    int64_t place = ((c * a.ft + t % a.ft) * a.fy + y % a.fy) * a.fx + x % a.fx;
    return oz_get(a.x, ((t / a.ft) * a.height + y / a.fy) * a.width + x / a.fx, place / repeats);
}

/* Mean of a group of consecutive elements (c, dt, dy, dx) of the cell. */
static __device__ inline float avg_down(const struct sampling &a, int64_t t, int64_t y, int64_t x,
                                        int64_t c)
{
    int64_t cell = a.ft * a.fy * a.fx;
    int64_t group = a.x.cols * cell / a.out.cols;
    double sum = 0;
    for (int64_t i = c * group; i < (c + 1) * group; i++) {
        int64_t dx = i % a.fx;
        int64_t dy = i / a.fx % a.fy;
        int64_t frame = t * a.ft + i / a.fx / a.fy % a.ft - a.padding;
        if (frame >= 0) {
            sum += (double)oz_get(a.x, (frame * a.height + y * a.fy + dy) * a.width + x * a.fx + dx,
                                  i / cell);
        }
    }
    return (float)(sum / (double)group);
}

__global__ void resample(const __grid_constant__ struct sampling a)
{
    FOR_ITEMS(i, a.out.rows * a.out.cols)
    {
        int64_t r = i / a.out.cols;
        int64_t c = i % a.out.cols;
        int64_t x = r % a.out_width;
        int64_t y = r / a.out_width % a.out_height;
        int64_t t = r / a.out_width / a.out_height;
        float value;
        switch (a.kind) {
        case OZ_RESAMPLE_DUP_UP: value = dup_up(a, t, y, x, c); break;
        case OZ_RESAMPLE_AVG_DOWN: value = avg_down(a, t, y, x, c); break;
        default:
            value = oz_get(a.x, ((t / a.ft) * a.height + y / a.fy) * a.width + x / a.fx, c);
            break;
        }
        oz_put(a.out, r, c, value);
    }
}

int oz_launch_resample(oz_cuda_stream stream, const struct oz_resample_args *a)
{
    bool down = a->kind == OZ_RESAMPLE_AVG_DOWN;
    struct sampling s = {};
    s.x = *a->x;
    s.out = *a->out;
    s.kind = a->kind;
    s.frames = a->frames;
    s.height = a->height;
    s.width = a->width;
    s.ft = a->factor_t;
    s.fy = a->factor_y;
    s.fx = a->factor_x;
    s.out_height = down ? s.height / s.fy : s.height * s.fy;
    s.out_width = down ? s.width / s.fx : s.width * s.fx;
    s.padding = down ? (s.ft - s.frames % s.ft) % s.ft : 0;
    if (s.out.rows == 0 || s.out.cols == 0) {
        return 0;
    }
    if (oz_narrow_takes_enlarge(a)) {
        return oz_narrow_enlarge(stream, a);
    }
    resample<<<oz_blocks_for(s.out.rows * s.out.cols), 256, 0, stream>>>(s);
    return (int)cudaGetLastError();
}

/* ---- tokens ---- */

struct tokens {
    struct oz_act tokens, out;
    const float *picture, *scale, *shift;
    enum oz_patch_order order;
    int64_t channels, frames, height, width, patch;
    bool channel_last;
};

/* Token row and feature of element i of the picture [channels, frames, height, width]. */
static __device__ inline void locate(const struct tokens &s, int64_t i, int64_t *c, int64_t *pixel,
                                     int64_t *row, int64_t *feature)
{
    int64_t p = s.patch;
    int64_t x = i % s.width;
    int64_t y = i / s.width % s.height;
    int64_t f = i / s.width / s.height % s.frames;
    int64_t dx = x % p;
    int64_t dy = y % p;
    *c = i / s.width / s.height / s.frames;
    *pixel = (f * s.height + y) * s.width + x;
    *row = (f * (s.height / p) + y / p) * (s.width / p) + x / p;
    switch (s.order) {
    case OZ_PATCH_YXC: *feature = (dy * p + dx) * s.channels + *c; break;
    case OZ_PATCH_CXY: *feature = (*c * p + dx) * p + dy; break;
    default: *feature = (*c * p + dy) * p + dx; break;
    }
}

__global__ void patch(const __grid_constant__ struct tokens s)
{
    FOR_ITEMS(i, s.channels * s.frames * s.height * s.width)
    {
        int64_t c;
        int64_t pixel;
        int64_t row;
        int64_t feature;
        locate(s, i, &c, &pixel, &row, &feature);
        oz_put(s.tokens, row, feature, s.picture[i]);
    }
}

__global__ void unpatch(const __grid_constant__ struct tokens s)
{
    FOR_ITEMS(i, s.channels * s.frames * s.height * s.width)
    {
        int64_t c;
        int64_t pixel;
        int64_t row;
        int64_t feature;
        locate(s, i, &c, &pixel, &row, &feature);
        float value = oz_get(s.tokens, row, feature);
        value = s.scale != NULL ? value * s.scale[c] : value;
        value = s.shift != NULL ? value + s.shift[c] : value;
        oz_put(s.out, s.channel_last ? pixel : c, s.channel_last ? c : pixel, value);
    }
}

/* What both directions say alike. */
template <class Args> static struct tokens tokens_of(const Args *a)
{
    struct tokens s = {};
    s.order = a->order;
    s.channels = a->channels;
    s.frames = a->frames;
    s.height = a->height;
    s.width = a->width;
    s.patch = a->patch;
    s.tokens = *a->tokens;
    return s;
}

int oz_launch_patch(oz_cuda_stream stream, const struct oz_patch_args *a)
{
    struct tokens s = tokens_of(a);
    s.picture = a->picture;
    int64_t items = s.channels * s.frames * s.height * s.width;
    if (items == 0) {
        return 0;
    }
    patch<<<oz_blocks_for(items), 256, 0, stream>>>(s);
    return (int)cudaGetLastError();
}

int oz_launch_unpatch(oz_cuda_stream stream, const struct oz_unpatch_args *a)
{
    struct tokens s = tokens_of(a);
    s.out = *a->out;
    s.scale = a->channel_scale;
    s.shift = a->channel_shift;
    s.channel_last = a->channel_last;
    int64_t items = s.channels * s.frames * s.height * s.width;
    if (items == 0) {
        return 0;
    }
    unpatch<<<oz_blocks_for(items), 256, 0, stream>>>(s);
    return (int)cudaGetLastError();
}
