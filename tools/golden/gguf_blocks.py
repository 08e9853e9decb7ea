"""Golden GGUF file: every block type, and what gguf-py makes of it.

    python tools/golden/gguf_blocks.py --ggml /path/libggml.so --out tests/golden/gguf/blocks.gguf

Written with gguf's own writer. For each type T (lower case) the file has `T` [ROWS, COLS] in that type, and `T.values` F32
[ROWS, COLS]: the values that gguf.quants.dequantize gives. Row 0 is one row of smooth numbers, quantized by gguf where it can, else by ggml
(gguf_model.py says where that is from); where neither can without a matrix of importance, and in row 1, it is blocks of hashed
bytes, with the bits taken out that would make their f16 factors larger than 2 or not finite. What gguf does not dequantize (q8_k, q1_0) is computed here from the types'
definitions, independently of the C code; the metadata say which (`ounce.own`). Q8_1, whose size gguf has wrong (40 bytes; ggml
has 36), and Q2_0, which it does not know, are left out.

Beside that, `ounce.digest.T` in the metadata: FNV-1a (64 bits) over the f32 bytes of DIGEST_BLOCKS blocks of hashed bytes,
so that every entry of the grids is met. `ounce.factors.T`: byte offsets within a block of the upper bytes of its factors.
The other keys have every type of value that the container knows.
"""

import argparse

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from gguf.quants import QuantError, dequantize, quantize
from gguf_model import Quantizer

ROWS, COLS, DIGEST_BLOCKS = 2, 256, 768

# Upper bytes of f16 (q8_k: f32) factors within a block.
FACTORS = {
    "q4_0": [1], "q4_1": [1, 3], "q5_0": [1], "q5_1": [1, 3], "q8_0": [1], "q2_k": [81, 83],
    "q3_k": [109], "q4_k": [1, 3], "q5_k": [1, 3], "q6_k": [209], "q8_k": [3], "iq4_nl": [1], "iq4_xs": [1],
    "iq2_xxs": [1], "iq2_xs": [1], "iq2_s": [1], "iq3_xxs": [1], "iq3_s": [1], "iq1_s": [1], "iq1_m": [55],
    "tq1_0": [53], "tq2_0": [65], "mxfp4": [], "nvfp4": [], "q1_0": [1],
}

BY_GGML = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "iq3_xxs", "iq3_s", "iq2_s", "q1_0"]


def hashed(count, salt):
    """Bytes of a multiplicative hash of their index; the test computes them again."""
    i = np.arange(count, dtype=np.uint64) + np.uint64(salt << 32)
    for factor in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9):
        i = i * np.uint64(factor)
        i ^= i >> np.uint64(29)
    return (i >> np.uint64(24)).astype(np.uint8)


def blocks(name, count, size, salt):
    b = hashed(count * size, salt).reshape(count, size)
    for at in FACTORS[name]:
        b[:, at] &= 0xBF
    return b


def own(name, b):
    """Values of types that gguf-py does not dequantize."""
    half = b[:, :2].copy().view(np.float16).astype(np.float32)
    if name == "q8_k":
        return b[:, :4].copy().view(np.float32) * b[:, 4:260].view(np.int8).astype(np.float32)
    bits = np.unpackbits(b[:, 2:], axis=-1, bitorder="little").astype(np.float32)
    return half * (2 * bits - 1)


def values(name, kind, b):
    if name in ("q8_k", "q1_0"):
        return own(name, b)
    with np.errstate(over="ignore"):
        return dequantize(b, kind).astype(np.float32)


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def smooth():
    i = np.arange(COLS, dtype=np.float64)
    return (np.sin(i * 0.37) * (1 + np.cos(i * 0.11)) * 0.4).astype(np.float32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--ggml", required=True)
    args = parser.parse_args()
    w = GGUFWriter(args.out, "golden")
    w.add_uint8("ounce.u8", 200)
    w.add_int8("ounce.i8", -100)
    w.add_uint16("ounce.u16", 60000)
    w.add_int16("ounce.i16", -30000)
    w.add_uint32("ounce.u32", 4000000000)
    w.add_int32("ounce.i32", -2000000000)
    w.add_float32("ounce.f32", 0.1)
    w.add_bool("ounce.bool", True)
    w.add_string("ounce.string", "gr\u00fc\u00dfe")
    w.add_uint64("ounce.u64", 18000000000000000000)
    w.add_int64("ounce.i64", -9000000000000000000)
    w.add_float64("ounce.f64", 0.1)
    w.add_array("ounce.numbers", [1, -2, 3])
    w.add_array("ounce.strings", ["a", "bc", ""])
    w.add_array("ounce.many", list(range(40)))
    x = smooth()
    by_gguf, by_ggml = [], []
    for salt, name in enumerate(FACTORS):
        kind = GGMLQuantizationType[name.upper()]
        elements, size = GGML_QUANT_SIZES[kind]
        b = blocks(name, ROWS * COLS // elements, size, salt)
        try:
            b[:COLS // elements] = quantize(x[None], kind).reshape(-1, size)
            by_gguf.append(name)
        except (QuantError, NotImplementedError):
            if name in BY_GGML:
                b[:COLS // elements] = Quantizer(name, args.ggml)(x[None]).reshape(-1, size)
                by_ggml.append(name)
        y = values(name, kind, b).reshape(ROWS, COLS)
        w.add_tensor(name, b.reshape(ROWS, -1), raw_dtype=kind)
        w.add_tensor(name + ".values", y)
        digest = values(name, kind, blocks(name, DIGEST_BLOCKS, size, salt + 100))
        w.add_uint64("ounce.digest." + name, fnv(digest.tobytes()))
        w.add_array("ounce.factors." + name, FACTORS[name] or [-1])
    w.add_string("ounce.quantized_by_gguf", " ".join(by_gguf))
    w.add_string("ounce.quantized_by_ggml", " ".join(by_ggml))
    w.add_string("ounce.own", "q8_k q1_0")
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
