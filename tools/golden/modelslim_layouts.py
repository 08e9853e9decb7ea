"""
modelslim_layouts.py --out tests/golden/dialects: small checkpoints in layouts of msModelSlim, written from their
description: the usual ones, a second time (modelslim.py lets the tool write them), and those of its older savers. As
dialect_layouts.py (read its docstring; requirements-dialect_layouts.txt), whose numbers they are.
"""

import argparse
import pathlib

import numpy as np
from dialect_layouts import BF16, Case, f32, fp4, fp4_value, fp8, int8_parts, matrix, mx_exponent, pack, val


def modelslim(out):
    case = Case(out, "modelslim", units=1)
    labels = {"version": "1.0.0", "model_quant_type": "W8A8", "proj_out.weight": "FLOAT"}

    def label(module, name, *suffixes):
        for suffix in suffixes:
            labels[module + "." + suffix] = name

    w = matrix(1, 32, 64)
    q, s = int8_parts(w, 1)
    case.tensors.update({"a.weight": q, "a.weight_scale": s, "a.weight_offset": np.zeros_like(s)})
    case.expect("a", f32(q) * s)
    label("a", "W8A8_DYNAMIC", "weight", "weight_scale", "weight_offset")

    w = matrix(2, 16, 64)
    q, s = int8_parts(w, 1)
    x = np.float32(0.0234375)
    case.tensors.update({
        "b.weight": q, "b.deq_scale": (s * x).reshape(-1), "b.input_scale": x.reshape(1),
        "b.input_offset": f32([3]), "b.quant_bias": np.zeros(16, dtype=np.int32)})
    case.expect("b", f32(q) * ((s * x) * (np.float32(1) / x)))
    label("b", "W8A8", "weight", "deq_scale", "input_scale", "input_offset", "quant_bias")

    w = matrix(3, 16, 64).reshape(16, -1, 32)
    e = mx_exponent(np.abs(w).max(2), 448)
    q = fp8(w, np.exp2(e)[..., None])
    case.tensors.update({"c.weight": q.reshape(16, 64), "c.weight_scale": (e + 127).astype(np.uint8)})
    case.expect("c", (f32(q) * f32(np.exp2(e))[..., None]).reshape(16, 64))
    label("c", "W8A8_MXFP8", "weight", "weight_scale")

    w = matrix(4, 16, 64).reshape(16, -1, 32)
    e = mx_exponent(np.abs(w).max(2), 6)
    q = fp4(w / np.exp2(e)[..., None])
    value = f32(fp4_value(q)) * f32(np.exp2(e))[..., None]
    case.tensors.update({"d.weight": pack(q.reshape(16, 64)), "d.weight_scale": (e + 127).astype(np.uint8)})
    case.expect("d", value.reshape(16, 64))
    label("d", "W4A4_MXFP4", "weight", "weight_scale")

    w = matrix(5, 8, 1024).reshape(8, 2, 512)
    dual = f32(np.abs(w).max(2) / 6)
    g = (w / dual.astype(np.float64)[..., None]).reshape(8, 2, 16, 32)
    e = mx_exponent(np.abs(g).max(3), 6)
    q = fp4(g / np.exp2(e)[..., None])
    value = (f32(fp4_value(q)) * f32(np.exp2(e))[..., None]) * dual[..., None, None]
    case.tensors.update({
        "e.weight": pack(q.reshape(8, 1024)), "e.weight_scale": (e + 127).astype(np.uint8).reshape(8, 32),
        "e.weight_dual_scale": dual[..., None]})
    case.expect("e", value.reshape(8, 1024))
    label("e", "W4A4_MXFP4_DUALSCALE", "weight", "weight_scale", "weight_dual_scale")

    w = matrix(6, 16, 32)
    s = f32(np.abs(w).max(1, keepdims=True) / 448)
    q = fp8(w, s.astype(np.float64))
    case.tensors.update({"f.weight": q, "f.weight_scale": s, "f.weight_offset": np.zeros_like(s)})
    case.expect("f", f32(q) * s)
    label("f", "WFP8AFP8_DYNAMIC", "weight", "weight_scale", "weight_offset")

    w = matrix(7, 16, 32)
    s = f32(np.abs(w).max(1, keepdims=True) / 7)
    q = np.clip(np.rint(w / s.astype(np.float64)), -8, 7).astype(np.int8)
    packed = ((q[0::2] & 15) | (q[1::2] & 15) << 4).astype(np.uint8).view(np.int8)
    case.tensors.update({"g.weight": packed, "g.weight_scale": s, "g.weight_offset": np.zeros_like(s),
                         "g.scale_bias": f32(8 * (q * s).sum(1, keepdims=True))})
    case.expect("g", q * s.astype(np.float64), BF16)
    label("g", "W4A8_DYNAMIC", "weight", "weight_scale", "weight_offset", "scale_bias")

    case.plain()
    case.finish(files={"quant_model_description.json": labels})


def int4_parts(w, group, scale_dtype=np.float32):
    """Codes of -7 .. 7 and scales [rows, groups]."""
    g = w.reshape(w.shape[0], -1, group)
    s = (np.abs(g).max(2) / 7).astype(scale_dtype)
    q = np.clip(np.rint(g / s.astype(np.float64)[..., None]), -8, 7).astype(np.int8)
    return q.reshape(w.shape), s


def row_pairs(q):
    return ((q[0::2] & 15) | (q[1::2] & 15) << 4).astype(np.uint8).view(np.int8)


def modelslim_more(out):
    """Its less usual labels: the form for fp16 models, scales for each step, groups, two levels, layers that
    are wrapped with what smooths them, factors that activations are multiplied by (FlatQuant)."""
    case = Case(out, "modelslim_more", units=1)
    labels = {"version": "1.0.0", "model_quant_type": "W8A8", "group_size": 32, "proj_out.weight": "FLOAT"}

    def add(module, name, value, **parts):
        case.tensors.update({f"{module}.{suffix}": np.asarray(part) for suffix, part in parts.items()})
        labels.update({f"{module}.{suffix}": name for suffix in parts})
        case.expect(module.removesuffix(".linear"), value, BF16)

    w = matrix(1, 16, 64)
    q, s = int8_parts(w, 1)
    x = np.float32(0.0234375)
    add("a", "W8A8", q * s.astype(np.float64), weight=q, deq_scale=(s * x).reshape(-1).view(np.int32).astype(np.int64),
        input_scale=x.reshape(1), input_offset=f32([3]), quant_bias=np.zeros(16, dtype=np.int32))

    q, s = int8_parts(matrix(2, 16, 64), 1)
    steps = f32([0.0234375, 0.03125, 0.0625])
    add("b", "W8A8_TIMESTEP", q * s.astype(np.float64), weight=q, weight_scale=s, weight_offset=np.zeros_like(s),
        input_scale=steps.reshape(3, 1), input_offset=f32([[1], [2], [3]]), quant_bias=np.zeros((3, 16), dtype=np.int32),
        deq_scale=s.reshape(1, -1) * steps[:, None])

    g = matrix(3, 16, 64).reshape(16, 2, 32)
    s = f32(np.abs(g).max(2) / 127)
    q = np.rint(g / s.astype(np.float64)[..., None]).astype(np.int8)
    add("c", "W8A16", (q * s.astype(np.float64)[..., None]).reshape(16, 64), weight=q.reshape(16, 64), weight_scale=s,
        weight_offset=np.zeros_like(s))

    q, s = int4_parts(matrix(4, 15, 64), 64, np.float16)
    add("d", "W4A16", q * s.astype(np.float64), weight=pack(q).view(np.int8), weight_scale=s, weight_offset=np.zeros_like(s))

    q, s = int4_parts(matrix(5, 16, 64), 32)
    value = q * np.repeat(s.astype(np.float64), 32, 1)
    add("e", "W4A16", value, weight=row_pairs(q), weight_scale=s, weight_offset=np.zeros_like(s))

    def levels(w):
        """8 bits by row, whose codes become 4 bits by group."""
        eight, first = int8_parts(w, 1)
        q, second = int4_parts(eight.astype(np.float64), 32)
        parts = {"weight_scale": first, "weight_offset": np.zeros_like(first), "weight_scale_second": second,
                 "weight_offset_second": np.zeros_like(second)}
        return q, parts, q * np.repeat(second.astype(np.float64), 32, 1) * first

    q, parts, value = levels(matrix(6, 16, 64))
    add("f", "W4A8_DYNAMIC", value, weight=row_pairs(q), scale_bias=f32(8 * value.sum(1, keepdims=True)), **parts)
    q, parts, value = levels(matrix(7, 16, 64))
    add("g", "W4A8_DYNAMIC", value, weight=q, **parts)  # as before version 1.0.0: a code in each byte

    q, s = int4_parts(matrix(8, 16, 64), 32)
    value = q * np.repeat(s.astype(np.float64), 32, 1)
    add("h", "W4A8_DYNAMIC", value, weight=row_pairs(q), weight_scale=s, weight_offset=np.zeros_like(s))

    mul = f32(np.exp2(val(210, 64)))
    q, s = int8_parts(matrix(10, 16, 64) / mul, 1)
    case.tensors["i.div.mul_scale"] = mul
    labels["i.div.mul_scale"] = "FLOAT"
    add("i.linear", "W8A8_DYNAMIC", q * s.astype(np.float64) * mul, weight=q, weight_scale=s, weight_offset=np.zeros_like(s))

    def factors(i):
        """Of 64 = 8 x 8 would not tell L from R; 4 x 16 does."""
        left = f32(np.eye(4) + 0.3 * val(i, 16).reshape(4, 4))
        right = f32(np.eye(16) + 0.2 * val(i + 1, 256).reshape(16, 16))
        return left, right

    def turned(w, left, right):
        """The weight for L^T X R, and back."""
        inside = np.linalg.inv(left.astype(np.float64)) @ w.reshape(-1, 4, 16) @ np.linalg.inv(right.astype(np.float64).T)
        return inside.reshape(w.shape)

    def back(q, left, right):
        return (left.astype(np.float64) @ q.reshape(-1, 4, 16) @ right.astype(np.float64).T).reshape(q.shape)

    left, right = factors(220)
    q, s = int4_parts(turned(matrix(11, 16, 64), left, right), 64)
    add("j", "W4A4_FLATQUANT_DYNAMIC", back(q * s.astype(np.float64), left, right), weight=q, weight_scale=s,
        weight_offset=np.zeros_like(s), left_trans=left, right_trans=right, clip_ratio=f32([0.9]))

    left, right = factors(230)
    g = turned(matrix(12, 16, 64), left, right).reshape(16, -1, 32)
    e = mx_exponent(np.abs(g).max(2), 6)
    q = fp4(g / np.exp2(e)[..., None])
    value = (fp4_value(q) * np.exp2(e)[..., None]).reshape(16, 64)
    add("k", "W4A4_MXFP4_FLATQUANT", back(value, left, right), weight=pack(q.reshape(16, 64)),
        weight_scale=(e + 127).astype(np.uint8), left_trans=left, right_trans=right, clip_ratio=f32([0.9]))

    case.plain()
    case.finish(files={"quant_model_description.json": labels})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    np.seterr(all="raise", under="ignore")
    modelslim(arguments.out)
    modelslim_more(arguments.out)


if __name__ == "__main__":
    main()
