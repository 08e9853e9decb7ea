#include "load/item.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/param.h"

bool oz_load_is_vector(const struct oz_layer *layer)
{
    return layer->kind == OZ_LAYER_NORM || layer->kind == OZ_LAYER_VECTOR;
}

/* A row's own shape as what operators read (dev/ops.h, struct oz_param). */
static struct oz_load_matrix matrix_of(const struct oz_layer *layer)
{
    struct oz_load_matrix m = {.slices = 1, .rows = 1, .cols = 1};
    int32_t first = 0; /* dims before the columns */
    if (layer->kind == OZ_LAYER_EXPERTS && layer->rank > 2) {
        m.slices = layer->shape[0];
        first = 1;
    }
    if (!oz_load_is_vector(layer)) {
        m.rows = layer->shape[first++];
    }
    for (int32_t i = first; i < layer->rank; i++) {
        m.cols *= layer->shape[i];
    }
    return m;
}

/* The shape of a parameter that is bound in parts. */
static struct oz_load_matrix matrix_of_param(const struct oz_param *p, const struct oz_layer *part)
{
    struct oz_layer whole = *part;
    whole.kind = p->rank > 2 && part->kind == OZ_LAYER_LINEAR ? OZ_LAYER_EXPERTS : part->kind;
    whole.rank = p->rank;
    memcpy(whole.shape, p->shape, sizeof whole.shape);
    return matrix_of(&whole);
}

enum oz_param_use oz_load_use(const struct oz_layer *layer)
{
    switch (layer->kind) {
    case OZ_LAYER_LINEAR: return OZ_USE_LINEAR;
    case OZ_LAYER_EXPERTS: return OZ_USE_EXPERTS;
    case OZ_LAYER_EMBED: return OZ_USE_EMBED;
    case OZ_LAYER_CONV: return OZ_USE_CONV;
    case OZ_LAYER_NORM:
    case OZ_LAYER_VECTOR: break;
    }
    return OZ_USE_VECTOR;
}

int64_t oz_load_source_row(const struct oz_load_part *part, int64_t r)
{
    const struct oz_layer *layer = part->layer;
    int64_t rows = oz_load_is_vector(layer) ? part->shape.cols : part->shape.rows;
    if (layer->transform & OZ_TRANSFORM_PERMUTE) {
        r = layer->permutation[r];
    }
    if (layer->transform & OZ_TRANSFORM_SWAP_HALVES) {
        r = r < rows / 2 ? r + rows / 2 : r - rows / 2;
    }
    return layer->file_row + r;
}

int64_t oz_load_scope_rows(const struct oz_load_item *item)
{
    bool cells = item->encodes || item->planes != NULL; /* of what stays */
    int64_t scope = cells ? oz_weight_scope_rows(&item->weight) : 1;
    int64_t pack = item->pack_rows > 0 ? item->pack_rows : 1;
    int64_t a = scope;
    int64_t b = pack;
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return scope / a * pack;
}

/* ---- parts ---- */

static bool holds(const struct oz_load_part *p, int64_t slice, int64_t r, int64_t *part_row)
{
    int64_t from = r - p->first_row;
    *part_row = from / p->row_stride;
    return slice >= p->slice && slice - p->slice < p->shape.slices && from >= 0 &&
           from % p->row_stride == 0 && *part_row < p->shape.rows;
}

const struct oz_load_part *oz_load_find_part(const struct oz_load_item *item, int64_t slice,
                                             int64_t r, int64_t *part_row)
{
    int32_t low = 0;
    int32_t high = item->parts[0].shape.slices == 1 ? item->part_count : 0;
    while (low < high) { /* the first of that slice; they are sorted by it */
        int32_t middle = low + (high - low) / 2;
        if (item->parts[middle].slice < slice) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (int32_t i = low; i < item->part_count; i++) {
        if (holds(&item->parts[i], slice, r, part_row)) {
            return &item->parts[i];
        }
    }
    return NULL;
}

static int by_slice(const void *a, const void *b)
{
    const struct oz_load_part *x = a;
    const struct oz_load_part *y = b;
    int64_t order = x->slice != y->slice ? x->slice - y->slice : x->first_row - y->first_row;
    return (order > 0) - (order < 0);
}

/* Do the parts fill the parameter, each row once? Vectors are rows of one element here. */
static enum oz_status check_cover(const struct oz_load_item *item, struct oz_error *err)
{
    bool vector = item->use == OZ_USE_VECTOR;
    int64_t rows = vector ? item->shape.cols : item->shape.rows;
    int64_t filled = 0;
    for (int32_t i = 0; i < item->part_count; i++) {
        const struct oz_load_part *p = &item->parts[i];
        int64_t own = vector ? p->shape.cols : p->shape.rows;
        int64_t last = own > 0 ? p->first_row + (own - 1) * p->row_stride : 0;
        if (p->slice < 0 || p->first_row < 0 || p->slice + p->shape.slices > item->shape.slices ||
            last >= rows || (!vector && p->shape.cols != item->shape.cols)) {
            return OZ_FAIL(err, OZ_ERR_INTERNAL,
                           "%s: its part [%" PRId64 ", %" PRId64 ", %" PRId64
                           "] does not lie within its parameter [%" PRId64 ", %" PRId64 ", %" PRId64
                           "].",
                           p->layer->name, p->shape.slices, p->shape.rows, p->shape.cols,
                           item->shape.slices, item->shape.rows, item->shape.cols);
        }
        filled += p->shape.slices * own;
    }
    bool full = filled == item->shape.slices * rows;
    for (int64_t s = 0; s < item->shape.slices && full && !vector; s++) {
        for (int64_t r = 0; r < rows && full; r++) {
            int64_t at;
            full = oz_load_find_part(item, s, r, &at) != NULL;
        }
    }
    return full ? OZ_OK
                : OZ_FAIL(err, OZ_ERR_INTERNAL,
                          "%s: the parts of its parameter leave rows empty or overlap (%" PRId64
                          " of %" PRId64 " rows).",
                          item->parts[0].layer->name, filled, item->shape.slices * rows);
}

/* ---- what is built ---- */

/* Is all that the row asks for built? What is not must not be ignored. */
static bool is_built(const struct oz_layer *layer, bool encodes)
{
    uint32_t built = OZ_TRANSFORM_RESHAPE | OZ_TRANSFORM_SWAP_HALVES | OZ_TRANSFORM_PERMUTE;
    bool parts = layer->file_rows != 0 || layer->file_row != 0;
    bool conv = layer->kind == OZ_LAYER_CONV;
    if (oz_load_is_vector(layer)) {
        built |= OZ_TRANSFORM_ADD_ONE;
    } else if (conv) {
        built = OZ_TRANSFORM_RESHAPE | OZ_TRANSFORM_LAST_TAP;
    } else { /* elements that stay as they are stored cannot be added to */
        built |= OZ_TRANSFORM_TRANSPOSE | (encodes ? OZ_TRANSFORM_ADD_ONE : 0U);
    }
    /* The file's dim 0 is the canonical rows only where nothing stands in between. */
    bool parts_built = layer->kind == OZ_LAYER_LINEAR || layer->kind == OZ_LAYER_EMBED ||
                       oz_load_is_vector(layer) ||
                       (layer->kind == OZ_LAYER_EXPERTS && layer->rank == 2);
    if (parts && (!parts_built || (layer->transform & OZ_TRANSFORM_TRANSPOSE) != 0)) {
        return false;
    }
    bool whole = layer->bind_row_stride == 0 && layer->bind_row == 0 && layer->bind_slice == 0;
    return (layer->transform & ~built) == 0 && (whole || (layer->bind_row_stride > 0 && !conv));
}

static enum oz_status check_row(const struct oz_layer *layer, const struct oz_tensor_view *t,
                                bool encodes, struct oz_error *err)
{
    if (oz_codec_plain(t->dtype) == NULL || t->codec != NULL) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "Tensor %s is stored as %s: this version loads F32, F16, BF16 and F64.",
                       t->name, t->codec != NULL ? "a block format" : oz_dtype_name(t->dtype));
    }
    if (!is_built(layer, encodes)) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "%s asks for a transform that is not built yet.",
                       layer->name);
    }
    return OZ_OK;
}

/* Rows of this weight that share cells. */
static int64_t shared_rows(const struct oz_load_item *item, const struct oz_load_part *part)
{
    const struct oz_codec *codec = item->planes->codec != NULL ? item->planes->codec : item->codec;
    struct oz_weight w = oz_weight_shape(codec, 1, part->shape.rows, part->shape.cols);
    w.group_cols = item->planes->group_cols > 0 ? item->planes->group_cols : w.group_cols;
    return oz_weight_scope_rows(&w);
}

/* Planes of a whole parameter, whose rows may be moved where no cell is of two that part. */
static enum oz_status check_planes(const struct oz_load_item *item, const struct oz_load_part *part,
                                   struct oz_error *err)
{
    const struct oz_layer *layer = part->layer;
    const uint32_t built = OZ_TRANSFORM_SWAP_HALVES | OZ_TRANSFORM_PERMUTE;
    int64_t rows = part->shape.rows;
    int64_t scope = layer->transform != 0 ? shared_rows(item, part) : 1;
    bool moves = (layer->transform & ~built) == 0 && item->use == OZ_USE_LINEAR &&
                 ((layer->transform & OZ_TRANSFORM_PERMUTE) == 0 || scope == 1) && rows % 2 == 0 &&
                 rows / 2 % scope == 0;
    if ((layer->transform != 0 && !moves) || layer->file_rows != 0 || layer->file_row != 0 ||
        layer->bind_row_stride != 0 || item->part_count != 1) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s is quantized in the file, and its rows would have to be moved, which is "
                       "not built yet for what %" PRId64 " rows share.",
                       layer->name, scope);
    }
    return OZ_OK;
}

static enum oz_status check_scheme(const struct oz_load_item *item, struct oz_error *err)
{
    const struct oz_layer *layer = item->parts[0].layer;
    if (!item->encodes) {
        return OZ_OK;
    }
    if (item->use == OZ_USE_CONV || item->use == OZ_USE_VECTOR) {
        return OZ_FAIL(
            err, OZ_ERR_UNSUPPORTED,
            "%s: %s quantizes linear layers, experts and embeddings only; leave it as it "
            "is stored.",
            layer->name, item->scheme);
    }
    if (item->codec->encode == NULL) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: ounce reads %s and does not make it; choose another scheme.",
                       layer->name, item->codec->name);
    }
    if (item->shape.cols % item->codec->col_multiple != 0) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s has %" PRId64 " columns, which %s takes in multiples of %d only: ignore "
                       "%s or choose another scheme.",
                       layer->name, item->shape.cols, item->scheme, (int)item->codec->col_multiple,
                       layer->module);
    }
    return OZ_OK;
}

/* ---- the way and the arena ---- */

/* Can operators read the tensor where it lies in the map? */
static bool readable_in_place(const struct oz_load_args *a, const struct oz_load_item *item)
{
    const struct oz_layer *layer = item->parts[0].layer;
    const struct oz_tensor_view *t = item->parts[0].tensor;
    uintptr_t element = (uintptr_t)oz_dtype_bits(t->dtype) / 8;
    return a->dev->host_memory && !item->encodes && item->lora_rank == 0 && item->part_count == 1 &&
           layer->bind_row_stride == 0 &&
           (layer->transform & ~(uint32_t)OZ_TRANSFORM_RESHAPE) == 0 && layer->file_rows == 0 &&
           t->data != NULL && (uintptr_t)t->data % element == 0;
}

static void log_declined(void *ctx, const char *kernel, const char *reason)
{
    const struct oz_layer *layer = ctx;
    oz_log(OZ_LOG_DEBUG, "dispatch", "%s: %s declines: %s", layer->name, kernel, reason);
}

/* What the device wants to make of the weight in one mode. OUNCE_LOG=dispatch tells, once for each. */
static enum oz_status ask_mode(const struct oz_load_args *a, const struct oz_load_item *item,
                               int32_t mode, struct oz_plan_answer *answer, struct oz_error *err)
{
    const struct oz_layer *layer = item->parts[0].layer;
    struct oz_param shape = *item->param;
    bool tell = !a->model->measuring && item->use != OZ_USE_VECTOR &&
                oz_log_wants(OZ_LOG_DEBUG, "dispatch");
    const struct oz_plan_request request = {.use = item->use,
                                            .mode = mode,
                                            .report = tell ? log_declined : NULL,
                                            .report_ctx = (void *)(uintptr_t)layer};
    shape.weight = item->weight;
    OZ_TRY(a->dev->ops->plan_param(a->dev, &shape, &request, answer, err));
    if (tell) {
        oz_log(OZ_LOG_DEBUG, "dispatch", "%s: %s, %zu bytes packed%s", layer->name, answer->kernel,
               answer->packed_bytes, mode > 0 ? " (fallback steps)" : "");
    }
    return OZ_OK;
}

/* In all of its modes: one that some step will take must not turn out to be impossible then. */
static enum oz_status ask_plan(const struct oz_load_args *a, struct oz_load_item *item,
                               struct oz_error *err)
{
    struct oz_plan_answer answer;
    OZ_TRY(ask_mode(a, item, 0, &answer, err));
    item->kernels[0] = answer.kernel;
    for (int32_t mode = 1; mode < item->param->act_count; mode++) {
        struct oz_plan_answer other;
        OZ_TRY(ask_mode(a, item, mode, &other, err));
        item->kernels[mode] = other.kernel;
        if (other.packed_bytes != answer.packed_bytes || other.band_rows != answer.band_rows) {
            return OZ_FAIL(err, OZ_ERR_INTERNAL,
                           "%s: device %s would pack it for %s and otherwise for %s, its second "
                           "activation mode; a weight has one packing.",
                           item->parts[0].layer->name, a->dev->name, answer.kernel, other.kernel);
        }
    }
    item->param->plan = answer.plan;
    if (answer.packed_bytes > 0 && item->parts[0].layer->planes_read && item->assigned == NULL &&
        !readable_in_place(a, item)) { /* nobody else would keep the planes */
        item->param->plan = NULL;
        answer = (struct oz_plan_answer){0};
    }
    item->pack_rows = answer.packed_bytes > 0 ? answer.band_rows : 0;
    item->packed_bytes = (int64_t)answer.packed_bytes;
    return OZ_OK;
}

static enum oz_load_way choose_way(const struct oz_load_args *a, const struct oz_load_item *item)
{
    bool packs = item->packed_bytes > 0;
    if (item->planes != NULL) {
        const struct oz_tensor_view *t = item->planes->planes[OZ_PLANE_CODES].tensor;
        bool whole = item->planes->codec == NULL && item->parts[0].layer->transform == 0 &&
                     t != NULL && t->codec == item->codec &&
                     item->planes->planes[OZ_PLANE_CODES].move == OZ_MOVE_BYTES;
        return whole && !packs && a->dev->host_memory ? OZ_WAY_MAPPED : OZ_WAY_PLANES;
    }
    if (item->use == OZ_USE_VECTOR) {
        return OZ_WAY_WHOLE;
    }
    if (item->use == OZ_USE_CONV) {
        return packs ? OZ_WAY_PACK_WHOLE : OZ_WAY_WHOLE;
    }
    if (readable_in_place(a, item)) {
        return packs ? OZ_WAY_PACK_MAP : OZ_WAY_MAPPED;
    }
    return OZ_WAY_STREAM;
}

static enum oz_status push(const struct oz_load_args *a, const struct oz_load_item *item,
                           int64_t bytes, void **memory, struct oz_error *err)
{
    if (oz_arena_push(a->model, (size_t)bytes, memory) != OZ_OK) {
        return OZ_FAIL(
            err, OZ_ERR_NOMEM, "The model arena is full at %s: %" PRId64 " bytes, %zu of %zu used.",
            item->parts[0].layer->name, bytes, a->model->used_bytes, a->model->capacity_bytes);
    }
    return OZ_OK;
}

static enum oz_status push_planes(const struct oz_load_args *a, struct oz_load_item *item,
                                  enum oz_plane from, struct oz_error *err)
{
    for (int i = (int)from; i < OZ_PLANE_COUNT; i++) {
        struct oz_plane_view *plane = &item->weight.planes[i];
        int64_t bytes;
        int64_t row_bytes;
        void *memory;
        if (!plane->present) {
            continue;
        }
        if (oz_weight_plane_bytes(&item->weight, (enum oz_plane)i, &bytes, &row_bytes) != OZ_OK) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED, "%s: its size as %s overflows.",
                           item->parts[0].layer->name, item->codec->name);
        }
        OZ_TRY(push(a, item, bytes, &memory, err));
        plane->data = a->model->measuring ? NULL : memory;
        plane->bytes = bytes;
        plane->row_stride_bytes = row_bytes;
        plane->slice_stride_bytes = item->shape.slices > 0 ? bytes / item->shape.slices : 0;
        item->plane_bytes += bytes;
    }
    return OZ_OK;
}

/* What the file says beyond the codec: the size of groups, planes that not all have. */
static void describe_planes(struct oz_load_item *item)
{
    const struct oz_stored_weight *stored = item->planes;
    if (stored->group_cols > 0) {
        item->weight.group_cols = stored->group_cols;
    }
    for (int32_t i = 0; i < item->codec->plane_count; i++) {
        const struct oz_plane_spec *spec = &item->codec->planes[i];
        if (spec->optional && (stored->planes[spec->plane].tensor != NULL ||
                               stored->planes[spec->plane].move == OZ_MOVE_REPEAT)) {
            item->weight.planes[spec->plane].present = true;
            item->weight.planes[spec->plane].dtype = spec->dtype;
        }
    }
}

/* What the file has beside the weight, where its activations ask for it. */
static void add_side_planes(struct oz_load_item *item)
{
    bool is_static = false;
    for (int32_t i = 0; item->assigned != NULL && i < item->assigned->mode_count; i++) {
        is_static = is_static || item->assigned->acts[i] == OZ_ACT_FP8_STATIC;
    }
    if (is_static && item->planes != NULL &&
        item->planes->planes[OZ_PLANE_INPUT_SCALE].tensor != NULL) {
        item->weight.planes[OZ_PLANE_INPUT_SCALE].present = true;
        item->weight.planes[OZ_PLANE_INPUT_SCALE].dtype = OZ_DTYPE_F32;
    }
}

/* The device's encoder of rows as they are staged. Values that change on the way, and planes that no scale
 * of the rows makes, are the host's. */
static const char *find_row_encoder(const struct oz_load_args *a, const struct oz_load_item *item)
{
    bool streams = item->way == OZ_WAY_STREAM && item->packed_bytes == 0;
    if (!item->encodes || !streams || item->adds_one || item->lora_rank > 0 ||
        a->dev->host_memory || a->dev->ops->row_encoder == NULL) {
        return NULL;
    }
    for (int i = OZ_PLANE_FIRST_SIDE; i < OZ_PLANE_COUNT; i++) {
        if (item->weight.planes[i].present) {
            return NULL;
        }
    }
    return a->dev->ops->row_encoder(a->dev, item->codec, item->staged);
}

static enum oz_status place(const struct oz_load_args *a, struct oz_load_item *item,
                            struct oz_error *err)
{
    item->weight =
        oz_weight_shape(item->codec, item->shape.slices, item->shape.rows, item->shape.cols);
    if (item->planes != NULL && item->planes->codec == NULL) {
        describe_planes(item);
    }
    add_side_planes(item);
    item->param->weight = item->weight;
    item->param->act_count = 0;
    bool multiplies = item->use == OZ_USE_LINEAR || item->use == OZ_USE_EXPERTS;
    bool plain = oz_codec_is_plain(item->codec);          /* expanded: as if the file had it so */
    if (item->assigned != NULL && multiplies && !plain) { /* tables give rows and take none */
        OZ_TRY(oz_param_set_acts(item->param, item->assigned, err));
    }
    OZ_TRY(ask_plan(a, item, err));
    item->way = choose_way(a, item);
    if (item->packed_bytes > 0) {
        OZ_TRY(push(a, item, item->packed_bytes, &item->packed, err));
        item->packed = a->model->measuring ? NULL : item->packed;
        /* time_embed reads planes, which plain files have in the map. */
        item->keeps_planes = item->planes != NULL && plain && a->dev->host_memory &&
                             item->parts[0].layer->role == OZ_ROLE_EMBEDDER;
        OZ_TRY(
            push_planes(a, item, item->keeps_planes ? OZ_PLANE_CODES : OZ_PLANE_FIRST_SIDE, err));
    } else if (item->way != OZ_WAY_MAPPED) {
        OZ_TRY(push_planes(a, item, OZ_PLANE_CODES, err));
    }
    if (item->encodes && a->dev->ops->find_encoder != NULL && !item->adds_one) {
        item->encoder = a->dev->ops->find_encoder(a->dev, item->codec, item->staged);
    }
    item->row_encoder = find_row_encoder(a, item);
    if (a->stats != NULL) {
        a->stats->arena_bytes += item->packed_bytes + item->plane_bytes;
        a->stats->mapped_bytes += item->way == OZ_WAY_MAPPED ? item->parts[0].tensor->bytes : 0;
    }
    return OZ_OK;
}

/* ---- the list ---- */

static const struct oz_scheme *scheme_of(const struct oz_load_args *a, int32_t row)
{
    const struct oz_scheme *s = a->assignment != NULL ? &a->assignment->choices[row].scheme
                                : oz_match_stored(a->match, row) != NULL
                                    ? &a->match->stored->schemes[row]
                                    : NULL;
    return s != NULL && s->codec != NULL ? s : NULL;
}

/* Do two schemes make the same weight for the same operators? */
static bool same_scheme(const struct oz_scheme *a, const struct oz_scheme *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    bool same = a->codec == b->codec && a->exponent_rule == b->exponent_rule &&
                a->scope == b->scope && a->mode_count == b->mode_count;
    for (int32_t i = 0; same && i < a->mode_count; i++) {
        same = a->acts[i] == b->acts[i];
    }
    return same;
}

/* What a LoRA on a part needs. */
static enum oz_status check_lora(const struct oz_load_args *a, const struct oz_load_part *p,
                                 bool encodes, struct oz_error *err)
{
    const struct oz_tensor_view *t = p->tensor;
    const char *file = a->lora->files[a->lora->pairs[a->lora->first[p->row]].file].path;
    bool coded =
        a->assignment != NULL && a->assignment->choices[p->row].source == OZ_SOURCE_CHECKPOINT;
    if (coded || oz_codec_plain(t->dtype) == NULL || t->codec != NULL) {
        return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                       "%s: its LoRA for %s cannot be merged, for the checkpoint holds that layer "
                       "quantized already (%s is stored as %s). Start from the checkpoint that is "
                       "not quantized, and quantize while loading.",
                       file, p->layer->module, t->name,
                       t->codec != NULL ? t->codec->name : oz_dtype_name(t->dtype));
    }
    if (t->dtype == OZ_DTYPE_F64 && !encodes) {
        return OZ_FAIL(
            err, OZ_ERR_UNSUPPORTED,
            "%s: its LoRA for %s cannot be merged into F64, for merging computes in f32; "
            "convert %s, or quantize the layer.",
            file, p->layer->module, t->name);
    }
    return OZ_OK;
}

/* Fills an item from its parts. */
static enum oz_status describe(const struct oz_load_args *a, struct oz_load_item *item,
                               struct oz_error *err)
{
    const struct oz_load_part *first = &item->parts[0];
    const struct oz_scheme *scheme = scheme_of(a, first->row);
    item->param = first->layer->bind;
    item->use = oz_load_use(first->layer);
    item->stored = first->tensor->dtype;
    item->staged = item->stored;
    item->assigned = scheme;
    item->planes = oz_match_stored(a->match, first->row);
    item->encodes = scheme != NULL && item->planes == NULL;
    item->scheme = scheme != NULL ? scheme->name : "as stored";
    item->codec = scheme != NULL               ? scheme->codec
                  : item->use == OZ_USE_VECTOR ? oz_codec_plain(OZ_DTYPE_F32)
                                               : oz_codec_plain(item->stored);
    for (int32_t i = 0; i < item->part_count; i++) {
        const struct oz_load_part *p = &item->parts[i];
        const struct oz_scheme *own = scheme_of(a, p->row);
        int64_t rank = oz_lora_rank(a->lora, p->row);
        if (rank > 0) {
            OZ_TRY(check_lora(a, p, item->encodes, err));
            item->lora_rank = rank > item->lora_rank ? rank : item->lora_rank;
            item->staged = item->encodes ? OZ_DTYPE_F32 : item->stored;
        }
        OZ_TRY(item->planes != NULL ? check_planes(item, p, err)
                                    : check_row(p->layer, p->tensor, item->encodes, err));
        item->adds_one |= (p->layer->transform & OZ_TRANSFORM_ADD_ONE) != 0;
        bool equal = same_scheme(own, scheme);
        if (!equal || p->tensor->dtype != item->stored) {
            return OZ_FAIL(err, OZ_ERR_UNSUPPORTED,
                           "%s and %s become one parameter and differ in %s: %s and %s.",
                           first->layer->name, p->layer->name, equal ? "dtype" : "scheme",
                           equal ? oz_dtype_name(item->stored) : item->scheme,
                           equal ? oz_dtype_name(p->tensor->dtype)
                                 : (own != NULL ? own->name : "as stored"));
        }
    }
    bool whole = first->layer->bind_row_stride == 0;
    item->shape = whole ? matrix_of(first->layer) : matrix_of_param(item->param, first->layer);
    if (scheme != NULL) {
        item->exponent_rule = scheme->exponent_rule;
        bool fused = scheme->scope == OZ_SCOPE_FUSED && item->codec->observe_passes > 0;
        item->fused = fused ? first->layer->fused : NULL;
        item->fused_index = first->layer->fused_index;
    }
    OZ_TRY(check_scheme(item, err));
    return whole ? OZ_OK : check_cover(item, err);
}

/* Which item each row belongs to: rows of one parameter share theirs; -1: not loaded. */
static int32_t group_rows(const struct oz_load_args *a, int32_t *item_of, struct oz_param **params)
{
    const struct oz_match *m = a->match;
    int32_t count = 0;
    for (int32_t r = 0; r < m->table->count; r++) {
        const struct oz_layer *layer = &m->table->rows[r];
        item_of[r] = -1;
        if (m->row_tensor[r] < 0 || layer->bind == NULL || !oz_load_takes(a, layer)) {
            continue;
        }
        int32_t at = layer->bind_row_stride != 0 ? count - 1 : -1;
        while (at >= 0 && params[at] != layer->bind) { /* they stand near one another */
            at--;
        }
        item_of[r] = at >= 0 ? at : count;
        params[count] = at >= 0 ? params[count] : layer->bind;
        count += at < 0;
    }
    return count;
}

static struct oz_load_part make_part(const struct oz_match *m, int32_t row)
{
    const struct oz_layer *layer = &m->table->rows[row];
    return (struct oz_load_part){.layer = layer,
                                 .tensor = oz_ckpt_tensor(m->ckpt, m->row_tensor[row]),
                                 .row = row,
                                 .shape = matrix_of(layer),
                                 .slice = layer->bind_slice,
                                 .first_row = layer->bind_row,
                                 .row_stride =
                                     layer->bind_row_stride > 0 ? layer->bind_row_stride : 1};
}

/* Deals the rows out to their items' parts. */
static void deal(struct oz_load_items *list, const struct oz_match *m, const int32_t *item_of)
{
    int32_t at = 0;
    for (int32_t r = 0; r < m->table->count; r++) {
        if (item_of[r] >= 0) {
            list->items[item_of[r]].part_count++;
        }
    }
    for (int32_t i = 0; i < list->count; i++) {
        list->items[i].parts = list->parts + at;
        at += list->items[i].part_count;
        list->items[i].part_count = 0;
    }
    for (int32_t r = 0; r < m->table->count; r++) {
        if (item_of[r] >= 0) {
            struct oz_load_item *item = &list->items[item_of[r]];
            list->parts[item->parts - list->parts + item->part_count++] = make_part(m, r);
        }
    }
    for (int32_t i = 0; i < list->count; i++) {
        const struct oz_load_item *item = &list->items[i];
        qsort(list->parts + (item->parts - list->parts), (size_t)item->part_count,
              sizeof *list->parts, by_slice);
    }
}

enum oz_status oz_load_items_init(struct oz_load_items *list, const struct oz_load_args *a,
                                  struct oz_error *err)
{
    const struct oz_match *m = a->match;
    size_t rows = (size_t)m->table->count;
    int32_t *item_of = oz_alloc(rows * sizeof *item_of);
    struct oz_param **params = oz_alloc(rows * sizeof(struct oz_param *));
    *list = (struct oz_load_items){.items = oz_alloc_zero(rows, sizeof *list->items),
                                   .parts = oz_alloc_zero(rows, sizeof *list->parts)};
    bool memory = item_of != NULL && params != NULL && list->items != NULL && list->parts != NULL;
    if (memory) {
        list->count = group_rows(a, item_of, params);
        deal(list, m, item_of);
    }
    oz_free(item_of);
    oz_free(params);
    if (!memory) {
        return OZ_FAIL_NOMEM(err, "the list of parameters");
    }
    for (int32_t i = 0; i < list->count; i++) {
        OZ_TRY(describe(a, &list->items[i], err));
        OZ_TRY(place(a, &list->items[i], err));
    }
    return OZ_OK;
}

void oz_load_items_deinit(struct oz_load_items *list)
{
    oz_free(list->items);
    oz_free(list->parts);
    *list = (struct oz_load_items){0};
}
