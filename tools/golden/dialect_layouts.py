"""
dialect_layouts.py --out tests/golden/dialects: small checkpoints in the layouts of toolchains that are no
packages of their own, or cannot be installed (ComfyUI, Quark, nunchaku, vLLM-Omni, gpt-oss,
DeepSeek), written from the descriptions of their formats by numpy alone: an independent second
implementation, in float64, of what src/quant/dialect reads.

Each case is a folder: model.safetensors, a config where the toolchain has one, and expected.safetensors,
whose tensors are what the layers are worth. Its metadata key "units" says by how many units of the last
place of its dtype a reader may differ: 0 where the arithmetic is exact.

Weights are val(i, j) of a 32-bit hash, i = number of the tensor, j = row-major element, as in
dialects.py.
"""

import argparse
import json
import pathlib
import struct

import ml_dtypes
import numpy as np

BF16 = ml_dtypes.bfloat16
E4M3 = ml_dtypes.float8_e4m3fn
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
NAMES = {
    np.dtype(np.float32): "F32", np.dtype(BF16): "BF16", np.dtype(np.uint8): "U8",
    np.dtype(np.int8): "I8", np.dtype(np.int32): "I32", np.dtype(np.int64): "I64",
    np.dtype(E4M3): "F8_E4M3", np.dtype(np.float16): "F16",
}


def val(i, count):
    """[-0.5, 0.5): the high bits of a multiplicative hash of i and j."""
    j = np.arange(count, dtype=np.uint64)
    x = j + np.uint64(i * 0x9E3779B97F4A7C15 % 2**64)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5


def matrix(i, rows, cols):
    """A weight in bf16, as float64, of magnitudes that differ by row."""
    w = val(i, rows * cols).reshape(rows, cols) * 2 / np.sqrt(cols)
    w *= np.exp2(4 * val(i + 100, rows))[:, None]
    return w.astype(BF16).astype(np.float64)


def save(path, tensors, metadata=None):
    """A safetensors file, by hand: the header, then tensors in order of their names."""
    header = {} if not metadata else {"__metadata__": metadata}
    data = b""
    for name in sorted(tensors):
        t = np.ascontiguousarray(tensors[name])
        raw = t.tobytes()
        header[name] = {"dtype": NAMES[tensors[name].dtype], "shape": list(tensors[name].shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def f32(x):
    return np.asarray(x, dtype=np.float32)


def scalar(x):
    return np.array(np.float32(x))


def fp8(x, scale):
    return np.clip(x / scale, -448, 448).astype(E4M3)


def fp4(x):
    """Codes of the nearest value, ties to even codes."""
    a = np.abs(x)
    code = np.zeros(a.shape, dtype=np.uint8)
    for at, tie_up in ((0.25, 0), (0.75, 1), (1.25, 0), (1.75, 1), (2.5, 0), (3.5, 1), (5, 0)):
        code += (a > at) | ((a == at) & bool(tie_up))
    return code | (np.signbit(x).astype(np.uint8) << 3)


def fp4_value(code):
    return np.where(code & 8, -1.0, 1.0) * E2M1[code & 7]


def pack(codes, high_first=False):
    """Two codes in a byte along the last axis."""
    a, b = codes[..., 0::2] & 15, codes[..., 1::2] & 15
    return (a << 4 | b if high_first else a | b << 4).astype(np.uint8)


def swizzle(s):
    """Scales in tiles of 128 rows and 4 columns, filled with zeros."""
    rows, cols = -(-s.shape[0] // 128) * 128, -(-s.shape[1] // 4) * 4
    full = np.zeros((rows, cols), dtype=np.uint8)
    full[: s.shape[0], : s.shape[1]] = s.view(np.uint8)
    tiles = full.reshape(rows // 128, 4, 32, cols // 4, 4)  # tile, quarter, lane, column tile, column
    return tiles.transpose(0, 3, 2, 1, 4).reshape(rows, cols)


def hadamard(n):
    h4 = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]], dtype=np.float64)
    h = np.ones((1, 1))
    while h.shape[0] < n:
        h = np.kron(h, h4)
    return h / np.sqrt(n)


class Case:
    def __init__(self, out, name, units=0):
        self.folder = out / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tensors, self.expected, self.metadata, self.units = {}, {}, {}, units

    def plain(self, i=9):
        w = matrix(i, 8, 32)
        self.tensors["proj_out.weight"] = w.astype(BF16)
        self.expected["proj_out.weight"] = w.astype(BF16)

    def expect(self, module, w, dtype=np.float32):
        self.expected[module + ".weight"] = w.astype(dtype)

    def finish(self, config=None, files=None):
        save(self.folder / "model.safetensors", self.tensors, self.metadata)
        save(self.folder / "expected.safetensors", self.expected, {"units": str(self.units)})
        if config is not None:
            text = json.dumps({"quantization_config": config}, indent=1)
            (self.folder / "config.json").write_text(text + "\n")
        for name, value in (files or {}).items():
            (self.folder / name).write_text(json.dumps(value, indent=1) + "\n")


MODULES = (("attn.to_q", 1, 24, 64), ("mlp.up", 2, 20, 96))


# ---- FP8 ----


def add_fp8(case, module, w, scale_name, scale=None):
    s = np.float32(np.abs(w).max() / 448 if scale is None else scale)
    q = fp8(w, np.float64(s))
    case.tensors[module + ".weight"] = q
    case.tensors[module + "." + scale_name] = np.array(s)
    case.expect(module, f32(q) * s)


def comfy_old(out):
    case = Case(out, "comfy_fp8_old")
    for module, i, rows, cols in MODULES:
        add_fp8(case, module, matrix(i, rows, cols), "scale_weight")
        case.tensors[module + ".scale_input"] = scalar(1.0)
    case.tensors["scaled_fp8"] = np.zeros(0, dtype=E4M3)
    case.plain()
    case.finish()


def hint(text):
    return np.frombuffer(json.dumps(text).encode(), dtype=np.uint8)


def comfy_new(out):
    case = Case(out, "comfy_fp8")
    for k, (module, i, rows, cols) in enumerate(MODULES):
        add_fp8(case, module, matrix(i, rows, cols), "weight_scale")
        case.tensors[module + ".input_scale"] = scalar(0.03125)
        if k == 0:
            case.tensors[module + ".comfy_quant"] = hint(
                {"format": "float8_e4m3fn", "full_precision_matrix_mult": True})
    case.metadata = {"_quantization_metadata": json.dumps(
        {"format_version": "1.0", "layers": {"net.mlp.up": {"format": "float8_e4m3fn"}}})}
    case.plain()
    case.finish()


def comfy_cast(out):
    case = Case(out, "comfy_fp8_cast")
    for module, i, rows, cols in MODULES:
        q = matrix(i, rows, cols).astype(E4M3)
        case.tensors[module + ".weight"] = q
        case.expect(module, f32(q))
    case.plain()
    case.finish()


def nvfp4_parts(w):
    s2 = np.float32(np.abs(w).max() / 2688)
    blocks = w.reshape(w.shape[0], -1, 16)
    s = np.clip(np.abs(blocks).max(2) / 6 / np.float64(s2), 2.0**-9, 448).astype(E4M3)
    q = fp4(blocks / (s.astype(np.float64)[..., None] * np.float64(s2)))
    value = (f32(fp4_value(q)) * f32(s)[..., None]) * s2
    return q.reshape(w.shape), s, s2, value.reshape(w.shape)


def comfy_nvfp4(out):
    case = Case(out, "comfy_nvfp4")
    for module, i, rows, cols in MODULES:
        q, s, s2, value = nvfp4_parts(matrix(i, rows, cols))
        full = np.zeros((-(-rows // 16) * 16, cols), dtype=np.uint8)
        full[:rows] = q
        case.tensors[module + ".weight"] = pack(full, high_first=True)
        case.tensors[module + ".weight_scale"] = swizzle(s).view(E4M3)
        case.tensors[module + ".weight_scale_2"] = np.array(s2)
        case.tensors[module + ".input_scale"] = scalar(0.0625)
        case.tensors[module + ".comfy_quant"] = hint({"format": "nvfp4"})
        case.expect(module, value)
    case.plain()
    case.finish()


def mx_exponent(amax, top):
    with np.errstate(divide="ignore"):
        e = np.ceil(np.log2(np.where(amax > 0, amax, 2.0**-140) / top))
    return np.clip(e, -127, 127).astype(np.int64)


def comfy_mxfp8(out):
    case = Case(out, "comfy_mxfp8")
    for module, i, rows, cols in MODULES:
        w = matrix(i, rows, cols).reshape(rows, -1, 32)
        e = mx_exponent(np.abs(w).max(2), 448)
        q = fp8(w, np.exp2(e)[..., None])
        full = np.zeros((-(-rows // 32) * 32, cols), dtype=E4M3)
        full[:rows] = q.reshape(rows, cols)
        case.tensors[module + ".weight"] = full
        case.tensors[module + ".weight_scale"] = swizzle((e + 127).astype(np.uint8))
        case.tensors[module + ".comfy_quant"] = hint({"format": "mxfp8"})
        case.expect(module, (f32(q) * f32(np.exp2(e))[..., None]).reshape(rows, cols))
    case.finish()


def int8_parts(w, axis):
    amax = np.abs(w).max(axis=axis, keepdims=True)
    s = f32(amax / 127)
    q = np.clip(np.rint(w / s.astype(np.float64)), -127, 127).astype(np.int8)
    return q, s


def comfy_int8(out):
    case = Case(out, "comfy_int8")
    for (module, i, rows, cols), axis in zip(MODULES, (None, 1)):
        q, s = int8_parts(matrix(i, rows, cols), axis)
        case.tensors[module + ".weight"] = q
        case.tensors[module + ".weight_scale"] = s.reshape(()) if axis is None else s
        case.tensors[module + ".comfy_quant"] = hint({"format": "int8_tensorwise"})
        case.expect(module, f32(q) * s)
    case.finish()


def comfy_convrot(out):
    """Rotated before it was quantized: expanded, with the rotation undone."""
    case = Case(out, "comfy_convrot", units=1)
    for (module, i, rows, cols), g in zip(MODULES, (64, 16)):
        h = hadamard(g)
        w = (matrix(i, rows, cols).reshape(rows, -1, g) @ h).reshape(rows, cols)
        q, s = int8_parts(w, 1)
        case.tensors[module + ".weight"] = q
        case.tensors[module + ".weight_scale"] = s
        case.tensors[module + ".comfy_quant"] = hint(
            {"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": g})
        back = (q.astype(np.float64) * s).reshape(rows, -1, g) @ h
        case.expect(module, back.reshape(rows, cols), BF16)
    case.finish()


def hf_block(out):
    case = Case(out, "hf_fp8_block")
    for module, i, rows, cols in (("attn.to_q", 1, 136, 24), ("mlp.up", 2, 16, 136)):
        w = matrix(i, rows, cols)
        s = np.zeros((-(-rows // 128), -(-cols // 128)), dtype=np.float32)
        q = np.zeros(w.shape, dtype=E4M3)
        for r in range(s.shape[0]):
            for c in range(s.shape[1]):
                at = np.s_[r * 128 : (r + 1) * 128, c * 128 : (c + 1) * 128]
                s[r, c] = np.abs(w[at]).max() / 448
                q[at] = fp8(w[at], np.float64(s[r, c]))
        case.tensors[module + ".weight"] = q
        case.tensors[module + ".weight_scale_inv"] = s
        big = np.repeat(np.repeat(s, 128, 0), 128, 1)[:rows, :cols]
        case.expect(module, f32(q) * big)
    case.plain()
    case.finish({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                 "weight_block_size": [128, 128], "modules_to_not_convert": ["proj_out"]})


def hf_static(out):
    case = Case(out, "hf_fp8_static")
    for module, i, rows, cols in MODULES:
        add_fp8(case, module, matrix(i, rows, cols), "weight_scale")
        case.tensors[module + ".input_scale"] = scalar(0.015625)
    case.plain()
    case.finish({"quant_method": "fp8", "activation_scheme": "static"})


def hf_inverse(out):
    """GPTQModel's own: the scale divides."""
    case = Case(out, "hf_fp8_inverse")
    for module, i, rows, cols in MODULES:
        w = matrix(i, rows, cols)
        inverse = f32(448 / np.abs(w).max(1))
        q = np.clip(w * inverse.astype(np.float64)[:, None], -448, 448).astype(E4M3)
        case.tensors[module + ".weight"] = q
        case.tensors[module + ".weight_scale_inv"] = inverse
        case.expect(module, f32(q) * (np.float32(1) / inverse)[:, None])
    case.finish({"quant_method": "fp8", "weight_scale_semantics": "inverse",
                 "weight_scale_method": "row"})


# ---- vLLM-Omni ----


def omni_mxfp4(out):
    case = Case(out, "omni_mxfp4", units=1)
    for module, i, rows, cols in MODULES:
        w = matrix(i, rows, cols)
        mul = f32(np.exp2(np.rint(2 * val(i + 200, cols))))
        smoothed = w / mul.astype(np.float64)
        g = smoothed.reshape(rows, -1, 32)
        e = mx_exponent(np.abs(g).max(2), 6)
        value = fp4_value(fp4(g / np.exp2(e)[..., None]))
        case.tensors[module + ".weight"] = value.reshape(rows, cols).astype(BF16)  # numbers, not codes
        case.tensors[module + ".weight_scale"] = (e + 127).astype(np.uint8)
        result = (value * np.exp2(e)[..., None]).reshape(rows, cols)
        case.tensors[module + ".mul_scale"] = mul
        case.expect(module, result * mul, BF16)
    case.plain()
    case.finish({"quant_method": "mxfp4", "is_checkpoint_mxfp4_serialized": True,
                 "require_smooth_scale": True, "ignored_layers": ["proj_out"]})


def omni_int8(out):
    case = Case(out, "omni_int8")
    for module, i, rows, cols in MODULES:
        q, s = int8_parts(matrix(i, rows, cols), 1)
        case.tensors.update({module + ".weight": q, module + ".weight_scale": s})
        case.expect(module, f32(q) * s)
    case.plain()
    case.finish({"quant_method": "int8", "is_checkpoint_int8_serialized": True, "activation_scheme": "dynamic",
                 "ignored_layers": ["proj_out"]})


def omni_mxfp8(out):
    """One layer in codes, one in their values."""
    case = Case(out, "omni_mxfp8")
    for module, i, rows, cols in MODULES:
        g = matrix(i, rows, cols).reshape(rows, -1, 32)
        e = mx_exponent(np.abs(g).max(2), 448)
        q = fp8(g, np.exp2(e)[..., None]).reshape(rows, cols)
        case.tensors[module + ".weight"] = q if module == MODULES[0][0] else q.astype(np.float32).astype(BF16)
        case.tensors[module + ".weight_scale"] = (e + 127).astype(np.uint8)
        case.expect(module, (f32(q).reshape(g.shape) * f32(np.exp2(e))[..., None]).reshape(rows, cols))
    case.plain()
    case.finish({"quant_method": "mxfp8", "is_checkpoint_mxfp8_serialized": True, "ignored_layers": ["proj_out"]})


def omni_dual(out):
    case = Case(out, "omni_dualscale")
    for module, i, rows, cols in (("attn.to_q", 1, 4, 1024),):
        w = matrix(i, rows, cols).reshape(rows, -1, 512)
        dual = f32(np.abs(w).max(2) / 6)
        g = (w / dual.astype(np.float64)[..., None]).reshape(rows, -1, 16, 32)
        e = mx_exponent(np.abs(g).max(3), 6)
        value = fp4_value(fp4(g / np.exp2(e)[..., None]))
        case.tensors[module + ".weight"] = value.reshape(rows, cols).astype(E4M3)
        case.tensors[module + ".weight_scale"] = (e + 127).astype(np.uint8).reshape(rows, -1)
        case.tensors[module + ".weight_dual_scale"] = dual[..., None]
        result = (f32(value) * f32(np.exp2(e))[..., None]) * dual[..., None, None]
        case.expect(module, result.reshape(rows, cols))
    case.plain()
    case.finish({"quant_method": "mxfp4_dualscale", "is_checkpoint_serialized": True})


# ---- SVDQuant ----


def svd_split(w, smooth, rank):
    """A branch of `rank` for the smoothed weight, in bf16, and what is left."""
    u, s, v = np.linalg.svd(w * smooth, full_matrices=False)
    up = (u[:, :rank] * s[:rank]).astype(BF16)
    down = (v[:rank] / smooth).astype(BF16)  # applies to plain activations
    left = w * smooth - up.astype(np.float64) @ (down.astype(np.float64) * smooth)
    return down, up, left


def fragment_codes(q):
    """Nibbles in the order of nunchaku's lanes, by filling a table of places."""
    n, k = q.shape
    out = np.zeros(n * k, dtype=np.uint8)
    for r in range(n):
        for c in range(k):
            nt, a, b, cc = r // 128, r % 128 // 16, r % 16 // 8, r % 8
            kt, d, e, f = c // 64, c % 64 // 32, c % 32 // 8, c % 8
            out[((((((nt * (k // 64) + kt) * 8 + a) * 8 + cc) * 4 + e) * 2 + b) * 2 + d) * 8 + f] = q[r, c]
    return pack(out).reshape(n, k // 2).view(np.int8)


def fragment_scales(s):
    """[groups, N] of 16 bits."""
    groups, n = s.shape
    out = np.zeros(groups * n, dtype=s.dtype)
    for g in range(groups):
        for r in range(n):
            a, c, b, d = r % 128 // 16, r % 8 // 2, r % 16 // 8, r % 2
            out[(r // 128 * groups + g) * 128 + a * 16 + c * 4 + b * 2 + d] = s[g, r]
    return out.reshape(groups, n)


def fragment_micro(s):
    groups, n = s.shape
    raw = s.view(np.uint8)
    out = np.zeros(groups * n, dtype=np.uint8)
    for g in range(groups):
        for r in range(n):
            p, q, rr = r % 128 // 32, r % 32 // 8, r % 8
            out[(((((r // 128) * (groups // 4) + g // 4) * 8 + rr) * 4 + q) * 4 + p) * 4 + g % 4] = raw[g, r]
    return out.reshape(groups, n).view(E4M3)


def fragment_low_rank(m, down):
    """[C, R] in tiles of 16 x 16; down: rank in the rows of a tile."""
    c, r = m.shape
    out = np.zeros(c * r, dtype=m.dtype)
    for i in range(c):
        for j in range(r):
            row, col = (j % 16, i % 16) if down else (i % 16, j % 16)
            inner = (((row % 8 * 4 + col % 8 // 2) * 2 + row // 8) * 2 + col // 8) * 2 + col % 2
            out[(i // 16 * (r // 16) + j // 16) * 256 + inner] = m[i, j]
    return out.reshape(c, r)


def nunchaku(out, kind):
    case = Case(out, "nunchaku_" + kind, units=1)
    rows, cols, rank = 128, 128, 16
    w = matrix(1, rows, cols)
    smooth = np.exp2(np.rint(2 * val(300, cols))).astype(BF16).astype(np.float64)
    down, up, left = svd_split(w, smooth, rank)
    bias = (val(400, rows) * 2).astype(BF16)
    t = {"attn.to_q." + k: v for k, v in {
        "smooth_factor": fragment_scales(smooth.astype(BF16)[None]).reshape(-1),
        "proj_down": fragment_low_rank(down.T, True), "proj_up": fragment_low_rank(up, False),
        "bias": fragment_scales(bias[None]).reshape(-1)}.items()}
    if kind == "int4":
        g = left.reshape(rows, -1, 64)
        s = (np.abs(g).max(2) / 7).astype(BF16)
        q = np.clip(np.rint(g / s.astype(np.float64)[..., None]), -8, 7).astype(np.int8)
        value = (q * s.astype(np.float64)[..., None]).reshape(rows, cols)
        codes = q.reshape(rows, cols).view(np.uint8) & 15
        t["attn.to_q.wscales"] = fragment_scales(s.T)
    else:
        channel = np.exp2(np.rint(3 * val(500, rows))).astype(BF16)
        tensor = BF16(0.00390625)
        g = (left / channel.astype(np.float64)[:, None] / float(tensor)).reshape(rows, -1, 16)
        s = np.clip(np.abs(g).max(2) / 6, 2.0**-9, 448).astype(E4M3)
        q = fp4(g / s.astype(np.float64)[..., None])
        value = fp4_value(q) * s.astype(np.float64)[..., None]
        value = value.reshape(rows, cols) * float(tensor) * channel.astype(np.float64)[:, None]
        codes = q.reshape(rows, cols)
        t["attn.to_q.wscales"] = fragment_micro(np.ascontiguousarray(s.T))
        t["attn.to_q.wcscales"] = fragment_scales(channel[None]).reshape(-1)
        t["attn.to_q.wtscale"] = np.array([tensor])
    t["attn.to_q.qweight"] = fragment_codes(codes)
    case.tensors.update(t)
    dense = value / smooth + up.astype(np.float64) @ down.astype(np.float64)
    case.expect("attn.to_q", dense, BF16)
    case.expected["attn.to_q.bias"] = bias
    case.metadata = {"model_class": "NunchakuQwenImageTransformer2DModel", "quantization_config": json.dumps(
        {"method": "svdquant", "rank": rank,
         "weight": {"dtype": "int4" if kind == "int4" else "fp4_e2m1_all", "group_size": 64 if kind == "int4" else 16}})}
    case.finish()


def awq_codes(q):
    """Codes [N, K] as words of 32 bits [N / 4, K / 2]: rows in fours, 16-bit words of columns j, j + 8,
    j + 16, j + 24 of each 32."""
    n, k = q.shape
    half = np.zeros((n // 4, k), dtype=np.uint16)
    for r in range(n):
        for c in range(k // 32):
            for j in range(8):
                word = sum(int(q[r, 32 * c + 8 * b + j]) << (4 * b) for b in range(4))
                half[r // 4, c // 2 * 64 + r % 4 * 16 + c % 2 * 8 + j] = word
    return half.view(np.int32)


def nunchaku_fused(out, kind):
    """As nunchaku writes Qwen-Image: q, k and v are one layer; the MLP's second layer of int4 has inputs
    that are shifted; modulations are AWQ's, feature by feature of the six parts, with 1 in the scales'
    biases."""
    case = Case(out, "nunchaku_fused_" + kind, units=1)
    block = "transformer_blocks.0."
    names = ("attn.to_q", "attn.to_k", "attn.to_v")[: 3 if kind == "int4" else 2]  # as small as can be
    rows, cols, rank = 128 * len(names), 128, 16

    def svdquant(name, w, i, shift=0.0):
        smooth = np.exp2(np.rint(2 * val(300 + i, w.shape[1]))).astype(BF16).astype(np.float64)
        down, up, left = svd_split(w, smooth, rank)
        bias = val(400 + i, w.shape[0]) * 2
        n = w.shape[0]
        t = {"smooth_factor": fragment_scales(smooth.astype(BF16)[None]).reshape(-1),
             "smooth_factor_orig": fragment_scales(smooth.astype(BF16)[None]).reshape(-1),
             "proj_down": fragment_low_rank(down.T, True), "proj_up": fragment_low_rank(up, False)}
        if kind == "int4":
            g = left.reshape(n, -1, 64)
            s = (np.abs(g).max(2) / 7).astype(BF16)
            q = np.clip(np.rint(g / s.astype(np.float64)[..., None]), -8, 7).astype(np.int8)
            value = (q * s.astype(np.float64)[..., None]).reshape(w.shape)
            codes = q.reshape(w.shape).view(np.uint8) & 15
            t["wscales"] = fragment_scales(s.T)
        else:
            channel = np.exp2(np.rint(3 * val(500 + i, n))).astype(BF16)
            tensor = BF16(0.00390625)
            g = (left / channel.astype(np.float64)[:, None] / float(tensor)).reshape(n, -1, 16)
            s = np.clip(np.abs(g).max(2) / 6, 2.0**-9, 448).astype(E4M3)
            q = fp4(g / s.astype(np.float64)[..., None])
            value = (fp4_value(q) * s.astype(np.float64)[..., None]).reshape(w.shape)
            value = value * float(tensor) * channel.astype(np.float64)[:, None]
            codes = q.reshape(w.shape)
            t["wscales"] = fragment_micro(np.ascontiguousarray(s.T))
            t["wcscales"] = fragment_scales(channel[None]).reshape(-1)
            t["wtscale"] = np.array([tensor])
        t["qweight"] = fragment_codes(codes)
        sums = shift * (value / smooth).sum(1)
        stored = (bias - sums).astype(BF16)
        t["bias"] = fragment_scales(stored[None]).reshape(-1)
        case.tensors.update({block + name + "." + k: v for k, v in t.items()})
        dense = value / smooth + up.astype(np.float64) @ down.astype(np.float64)
        return dense, (stored.astype(np.float64) + sums).astype(np.float32)

    dense, bias = svdquant("attn.to_qkv", matrix(1, rows, cols), 0)
    for i, name in enumerate(names):
        part = slice(128 * i, 128 * (i + 1))
        case.expect(block + name, dense[part], BF16)
        case.expected[block + name + ".bias"] = bias[part]
    if kind == "int4":
        name = block + "img_mlp.net.2"
        dense, bias = svdquant("img_mlp.net.2", matrix(2, 128, 128), 1, shift=0.171875)
        case.expect(name, dense, BF16)
        case.expected[name + ".bias"] = bias
    name = block + "img_mod.1"
    parts, features, width = 6, 8, 64
    w = matrix(3, parts * features, width)
    low, high = w.min(1), w.max(1)
    s = ((high - low) / 15).astype(BF16).astype(np.float64)[:, None]
    z = low.astype(BF16).astype(np.float64)[:, None]
    q = np.clip(np.rint((w - z) / s), 0, 15).astype(np.uint8)
    b = (val(600, parts * features) * 2).reshape(parts, features)
    b[[1, 4]] += 1
    stored = b.astype(BF16)
    case.expect(name, q * s + z, BF16)
    plain = stored.astype(np.float64)
    plain[[1, 4]] -= 1
    case.expected[name + ".bias"] = plain.reshape(-1).astype(np.float32)

    def in_turn(m):  # [parts * features, ...]: feature by feature
        m = m.reshape(parts, features, -1)
        return np.ascontiguousarray(m.transpose(1, 0, 2).reshape(parts * features, -1))

    case.tensors.update({
        name + ".qweight": awq_codes(in_turn(q)),
        name + ".wscales": np.ascontiguousarray(in_turn(s).T).astype(BF16),
        name + ".wzeros": np.ascontiguousarray(in_turn(z).T).astype(BF16),
        name + ".bias": in_turn(stored).reshape(-1)})
    case.plain()
    case.metadata = {"model_class": "NunchakuQwenImageTransformer2DModel", "quantization_config": json.dumps(
        {"method": "svdquant", "rank": rank,
         "weight": {"dtype": "int4" if kind == "int4" else "fp4_e2m1_all", "group_size": 64 if kind == "int4" else 16}})}
    case.finish()


def omni_svdquant(out):
    """vLLM-Omni's rows of NVFP4."""
    case = Case(out, "omni_svdquant", units=1)
    rows, cols, rank = 32, 64, 4
    w = matrix(1, rows, cols)
    smooth = np.exp2(np.rint(2 * val(300, cols))).astype(BF16).astype(np.float64)
    down, up, left = svd_split(w, smooth, rank)
    channel = np.exp2(np.rint(3 * val(500, rows))).astype(BF16)
    tensor = BF16(0.00390625)
    g = (left / channel.astype(np.float64)[:, None] / float(tensor)).reshape(rows, -1, 16)
    s = np.clip(np.abs(g).max(2) / 6, 2.0**-9, 448).astype(E4M3)
    q = fp4(g / s.astype(np.float64)[..., None])
    value = (fp4_value(q) * s.astype(np.float64)[..., None]).reshape(rows, cols)
    value = value * float(tensor) * channel.astype(np.float64)[:, None]
    case.tensors.update({"attn.to_q." + k: v for k, v in {
        "qweight": pack(q.reshape(rows, cols)).view(np.int8), "wscales": np.ascontiguousarray(s.T),
        "wcscales": channel, "wtscale": np.array([tensor]), "smooth_factor": smooth.astype(BF16),
        "proj_down": np.ascontiguousarray(down.T), "proj_up": up}.items()})
    case.expect("attn.to_q", value / smooth + up.astype(np.float64) @ down.astype(np.float64), BF16)
    case.metadata = {"conversion": json.dumps({"layout": "row_major"})}
    case.plain()
    case.finish({"quant_method": "svdquant", "rank": rank, "precision": "nvfp4", "act_unsigned": False,
                 "modules_to_not_convert": ["proj_out"]})


# ---- Quark, gpt-oss ----


def quark(out):
    case = Case(out, "quark", units=1)
    fp8_cfg = {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "symmetric": True},
               "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "is_dynamic": True}}
    mx = {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}}
    nv = {"weight": [{"dtype": "fp4", "qscheme": "per_group", "group_size": 16, "scale_format": "e4m3"},
                     {"dtype": "fp8_e4m3", "is_scale_quant": True}]}
    int4 = {"weight": {"dtype": "int4", "qscheme": "per_group", "group_size": 32, "symmetric": True}}
    int8 = {"weight": {"dtype": "int8", "qscheme": "per_channel", "symmetric": True}}
    w = matrix(1, 16, 64)
    s = f32(np.abs(w).max(1) / 448)
    q = fp8(w, s.astype(np.float64)[:, None])
    case.tensors.update({"a.weight": q, "a.weight_scale": s})
    case.expect("a", f32(q) * s[:, None])
    g = matrix(2, 16, 64).reshape(16, -1, 32)
    e = mx_exponent(np.abs(g).max(2), 6)
    q = fp4(g / np.exp2(e)[..., None])
    case.tensors.update({"b.weight": pack(q.reshape(16, 64)), "b.weight_scale": (e + 127).astype(np.uint8)})
    case.expect("b", (f32(fp4_value(q)) * f32(np.exp2(e))[..., None]).reshape(16, 64))
    q, s, s2, value = nvfp4_parts(matrix(3, 16, 64))
    case.tensors.update({"c.weight": pack(q), "c.weight_scale": s, "c.weight_scale_2": np.array(s2)})
    case.expect("c", value)
    g = matrix(4, 16, 64).reshape(16, -1, 32)
    s = f32(np.abs(g).max(2) / 7)
    q = np.clip(np.rint(g / s.astype(np.float64)[..., None]), -8, 7).astype(np.int64).reshape(16, 64)
    words = np.zeros((64, 2), dtype=np.uint32)
    for i, o in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):  # nibble i of a word is channel o
        words |= ((q.T[:, o::8] & 15) << (4 * i)).astype(np.uint32)
    case.tensors.update({"d.weight": words.view(np.int32), "d.weight_scale": np.ascontiguousarray(s.T)})
    case.expect("d", (q.reshape(16, -1, 32) * s.astype(np.float64)[..., None]).reshape(16, 64), BF16)
    q, s = int8_parts(matrix(5, 16, 64), 1)
    case.tensors.update({"e.weight": q, "e.weight_scale": s.reshape(-1)})
    case.expect("e", f32(q) * s)
    case.plain()
    case.finish({"quant_method": "quark", "global_quant_config": fp8_cfg, "exclude": ["proj_out"],
                 "layer_quant_config": {"b": mx, "c": nv, "d": int4, "re:e$": int8},
                 "export": {"weight_format": "real_quantized", "pack_method": "reorder"}})


def gpt_oss(out):
    """Experts alone: [E, rows, groups, 16] of codes, [E, rows, groups] of exponents."""
    case = Case(out, "gpt_oss")
    for name, i, experts, rows, cols in (("mlp.experts.gate_up_proj", 1, 3, 16, 64), ("mlp.experts.down_proj", 2, 3, 8, 96)):
        g = matrix(i, experts * rows, cols).reshape(experts, rows, -1, 32)
        e = mx_exponent(np.abs(g).max(3), 6)
        q = fp4(g / np.exp2(e)[..., None])
        case.tensors[name + "_blocks"] = pack(q)
        case.tensors[name + "_scales"] = (e + 127).astype(np.uint8)
        case.expected[name] = f32(fp4_value(q) * np.exp2(e)[..., None]).reshape(experts, rows, cols)
    case.plain()
    case.finish({"quant_method": "mxfp4", "modules_to_not_convert": ["proj_out"]})


CASES = (comfy_old, comfy_new, comfy_cast, comfy_nvfp4, comfy_mxfp8, comfy_int8, comfy_convrot, hf_block,
         hf_static, hf_inverse, omni_int8, omni_mxfp8, omni_mxfp4, omni_dual, omni_svdquant, quark, gpt_oss,
         lambda out: nunchaku(out, "int4"), lambda out: nunchaku(out, "fp4"),
         lambda out: nunchaku_fused(out, "int4"), lambda out: nunchaku_fused(out, "fp4"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out
    # The descriptions' own worked numbers.
    example = np.array([[0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6] * 2])
    q, s, s2, _ = nvfp4_parts(np.concatenate([example, -0.5 * example]))
    assert pack(q)[0, :8].tobytes().hex() == "1032547690badcfe"
    assert s.view(np.uint8).tolist() == [[0x7E, 0x7E], [0x76, 0x76]] and np.float32(s2).tobytes().hex() == "2549123b"
    assert swizzle(s).reshape(-1)[[0, 1, 16, 17]].tolist() == [0x7E, 0x7E, 0x76, 0x76]
    codes = fragment_codes(np.tile(np.arange(128, dtype=np.uint8) % 16, (128, 1)))
    assert codes.reshape(-1)[:4].tobytes().hex() == "10325476"
    for case in CASES:
        case(out)


if __name__ == "__main__":
    main()
