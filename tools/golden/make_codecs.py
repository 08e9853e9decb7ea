"""Golden files of number formats and codecs, by the field's own tools, on a CPU.

    python tools/golden/make_codecs.py --out tests/golden/codecs

Written into --out: one file for each tool and elements.safetensors. Elements: `<format>.values` f32 of every code; `<format>.from` f32 inputs and
`<format>.codes` what they become after a clamp to the finite range (ml_dtypes; PyTorch is asserted to agree where it
has the format). Codecs: input `x` [48, 256] bf16 (in torch.safetensors), for
each case `<codec>.<tool>[.<rule>].{codes,scales,scales2,...}`.
4-bit codes have the even element in the low nibble, except bitsandbytes' (`bnb`), stored as it packs them.
"""

import argparse
import os
from importlib.metadata import version

import bitsandbytes.functional as bnb
import ml_dtypes
import numpy as np
import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import quantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import save_file
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_mx
from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale
from torchao.quantization.quant_primitives import quantize_affine

ROWS, COLS = 48, 256


def bits(x):
    return np.asarray(x, dtype=np.float32).view(np.uint32)


def floats(u):
    return np.asarray(u, dtype=np.uint32).view(np.float32)


def elements(out):
    """Values of all codes; midpoints of neighbours and their neighbours; denormals; a sweep of bits."""
    formats = {
        "e4m3": (ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn, 256, 448.0),
        "e5m2": (ml_dtypes.float8_e5m2, torch.float8_e5m2, 256, 57344.0),
        "e2m1": (ml_dtypes.float4_e2m1fn, None, 16, 6.0),
        "e8m0": (ml_dtypes.float8_e8m0fnu, torch.float8_e8m0fnu, 256, None),
    }
    for name, (dtype, torch_dtype, count, largest) in formats.items():
        codes = np.arange(count, dtype=np.uint8)
        values = codes.view(dtype).astype(np.float32)
        if torch_dtype is not None:
            other = torch.from_numpy(codes).view(torch_dtype).float().numpy()
            same = (bits(other) == bits(values)) | (np.isnan(other) & np.isnan(values))
            assert same.all(), name
        out[name + ".values"] = torch.from_numpy(values.copy())
        if largest is None:
            continue
        finite = np.unique(np.abs(values[np.isfinite(values)]))
        middle = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
        u = np.concatenate([bits(finite), bits(middle), bits(middle) - 1, bits(middle) + 1, bits(finite[1:]) - 1,
                            bits(finite) + 1, [1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000],
                            np.arange(0x2F000000, 0x48000000, 0x00050003)]).astype(np.uint32)
        x = np.concatenate([floats(u), floats(u | 0x80000000)])
        clamped = np.clip(x, -largest, largest)
        codes = clamped.astype(dtype).view(np.uint8)
        if torch_dtype is not None:
            assert (torch.from_numpy(clamped).to(torch_dtype).view(torch.uint8).numpy() == codes).all(), name
        out[name + ".from"] = torch.from_numpy(x)
        out[name + ".codes"] = torch.from_numpy(codes.copy())


def hashed(shape, low, high, salt):
    """Integers in [low, high) from a multiplicative hash of their index."""
    i = np.arange(np.prod(shape), dtype=np.uint64) + np.uint64(salt << 20)
    for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9):
        i = (i * np.uint64(factor)) ^ (i * np.uint64(factor) >> np.uint64(29))
    return low + ((i >> np.uint64(24)) % np.uint64(high - low)).astype(np.int64).reshape(shape)


def inputs():
    """Roughly normal numbers with rows and groups of many magnitudes; zeros; ties; one outlier; denormals."""
    x = sum(hashed((ROWS, COLS), -(1 << 15), 1 << 15, salt) for salt in range(4)).astype(np.float32) * 2.0**-19
    x *= np.exp2(hashed((ROWS, COLS // 16, 1), 0, 13, 4) - 6).repeat(16, 2).reshape(ROWS, COLS).astype(np.float32)
    x[3] = 0
    x[4, 32:64] = 0
    x[5, :16] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -6]
    x[6] = np.exp2(hashed((COLS,), 0, 23, 5) - 20)
    x[7, 100] = 30
    x[8] *= 1e-4
    x[9, :32] = 448 * np.exp2(-hashed((32,), 0, 20, 6).astype(np.float32))
    for i, m in enumerate([1.0, 1.5, 1.5078125, 1.75, 1.7578125, 1.8125, 1.8203125, 1.9375, 1.9921875]):
        x[10 + i, :32] *= 2.0**-10  # groups whose largest is at a threshold of a rule
        x[10 + i, 7] = m
    return torch.from_numpy(x).to(torch.bfloat16)


def pytorch(out, x):
    """vLLM's formulas with PyTorch's arithmetic and casts."""
    w = x.float()
    fp8 = torch.float8_e4m3fn
    scale = w.abs().max() / 448
    out["fp8_tensor.torch.codes"] = (w * (1 / scale)).clamp(-448, 448).to(fp8).view(torch.uint8)
    out["fp8_tensor.torch.scales"] = scale.reshape(1)
    scale = (w.abs().amax(1, keepdim=True) / 448).clamp(min=1 / (448 * 512))
    out["fp8_channel.torch.codes"] = (w / scale).clamp(-448, 448).to(fp8).view(torch.uint8)
    out["fp8_channel.torch.scales"] = scale.reshape(-1)
    blocks = torch.nn.functional.pad(w, (0, 0, 0, 128 - ROWS)).view(128, COLS // 128, 128)
    scale = blocks.abs().amax((0, 2)).clamp(min=1e-4) / 448
    out["fp8_block.torch.codes"] = (
        (blocks * (1 / scale).view(1, -1, 1)).view(128, COLS)[:ROWS].clamp(-448, 448).to(fp8).view(torch.uint8))
    out["fp8_block.torch.scales"] = scale
    amax = w.abs().amax(1, keepdim=True)
    inverse = torch.where(amax == 0, 0, torch.full_like(amax, 127) / amax)  # 127 / amax takes a reciprocal
    out["int8_channel.torch.codes"] = (w * inverse).round().clamp(-127, 127).to(torch.int8)
    out["int8_channel.torch.scales"] = (amax / 127).reshape(-1)
    scale = x.abs().amax(1, keepdim=True) / 127  # in bf16
    q = (x / scale).round().clamp(-127, 127)
    out["int8_channel_bf16.torch.codes"] = torch.nan_to_num(q).to(torch.int8)
    out["int8_channel_bf16.torch.scales"] = scale.float().reshape(-1)


def torchao(out, x, int8_scales):
    rules = {"ceil": ScaleCalculationMode.RCEIL, "even": ScaleCalculationMode.EVEN, "floor": ScaleCalculationMode.FLOOR}
    for name, dtype in [("mxfp8", torch.float8_e4m3fn), ("mxfp4", torch.float4_e2m1fn_x2)]:
        for rule, mode in rules.items():
            scales, codes = to_mx(x, dtype, 32, mode)
            out["%s.torchao.%s.codes" % (name, rule)] = codes.view(torch.uint8)
            out["%s.torchao.%s.scales" % (name, rule)] = scales.view(torch.uint8)
    scale2 = per_tensor_amax_to_scale(x.float().abs().max())
    scales, codes = nvfp4_quantize(x, 16, scale2)
    out["nvfp4.torchao.codes"] = codes.view(torch.uint8).reshape(ROWS, -1)
    out["nvfp4.torchao.scales"] = scales.view(torch.uint8).reshape(ROWS, -1)
    out["nvfp4.torchao.scales2"] = scale2.float().reshape(1)
    scale = int8_scales
    safe = torch.where(scale == 0, 1, scale)
    out["int8_channel.torchao.codes"] = quantize_affine(x.float(), (1, COLS), safe, torch.zeros_like(safe), torch.int8, -127,
                                                     127)
    out["int8_channel.torchao.scales"] = scale


def compressed(out, x):
    w = x.float()
    cases = {
        "fp8_tensor": dict(num_bits=8, type="float", strategy="tensor"),
        "fp8_channel": dict(num_bits=8, type="float", strategy="channel"),
        "int8_channel": dict(num_bits=8, type="int", strategy="channel"),
        "mxfp4": dict(num_bits=4, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8),
        "mxfp8": dict(num_bits=8, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8),
        "nvfp4": dict(num_bits=4, type="float", strategy="tensor_group", group_size=16,
                      scale_dtype=torch.float8_e4m3fn),
    }
    for name, fields in cases.items():
        args = QuantizationArgs(symmetric=True, **fields)
        size = fields.get("group_size") or (COLS if fields["strategy"] == "channel" else None)
        groups = w.reshape(1, -1) if size is None else w.reshape(ROWS, -1, size)
        low, high = groups.amin(-1), groups.amax(-1)
        g = generate_gparam(w.min(), w.max()) if name == "nvfp4" else None
        scale, zero = calculate_qparams(low, high, args, global_scale=g)
        if size is None:
            scale = scale.reshape(1)
        q = quantize(w, scale, None, args, global_scale=g)
        key = name + ".compressed_tensors"
        if args.type == "int":
            out[key + ".codes"] = q.to(torch.int8)
            out[key + ".scales"] = scale.float().reshape(-1)
            continue
        if args.num_bits == 8:
            out[key + ".codes"] = q.to(torch.float8_e4m3fn).view(torch.uint8)
        else:
            code = torch.from_numpy(q.numpy().astype(ml_dtypes.float4_e2m1fn).view(np.uint8).astype(np.int32))
            out[key + ".codes"] = (code[:, ::2] | code[:, 1::2] << 4).to(torch.uint8)
        if name.startswith("mx"):
            out[key + ".scales"] = (torch.log2(scale.float()) + 127).to(torch.uint8).reshape(ROWS, -1)
        elif name == "nvfp4":
            out[key + ".scales"] = scale.to(torch.float8_e4m3fn).view(torch.uint8).reshape(ROWS, -1)
            out[key + ".scales2"] = (1 / g).float().reshape(1)
        else:
            out[key + ".scales"] = scale.float().reshape(-1)


def bitsandbytes(out, x):
    for kind in ["nf4", "fp4"]:
        for nested in [False, True]:
            q, state = bnb.quantize_4bit(x, blocksize=64, quant_type=kind, compress_statistics=nested)
            key = {"nf4": "nf4", "fp4": "fp4_bnb"}[kind] + ("_nested" if nested else "") + ".bnb"
            out[key + ".codes"] = q.reshape(-1)
            out[key + ".scales"] = state.absmax
            if nested:
                out[key + ".scales2"] = state.state2.absmax
                out[key + ".offsets"] = state.offset.reshape(1)
                out["dynamic8.values"] = state.state2.code
                absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
                out[key + ".absmax"] = absmax
            out[key + ".decoded"] = bnb.dequantize_4bit(q, state).float()[:12]
            out["%s.values" % {"nf4": "nf4", "fp4": "fp4_bnb"}[kind]] = state.code


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    tools = ["torch", "torchao", "compressed-tensors", "bitsandbytes", "ml-dtypes", "numpy"]
    x = inputs()
    torch_cases = {"x": x}
    pytorch(torch_cases, x)
    files = {"torch": torch_cases, "elements": {}, "torchao": {}, "compressed_tensors": {}, "bitsandbytes": {}}
    elements(files["elements"])
    torchao(files["torchao"], x, torch_cases["int8_channel.torch.scales"])
    compressed(files["compressed_tensors"], x)
    bitsandbytes(files["bitsandbytes"], x)
    for name, tensors in files.items():
        path = os.path.join(out, name + ".safetensors")
        save_file({k: v.contiguous().clone() for k, v in tensors.items()}, path,
                  metadata={t: version(t) for t in tools})
        os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
