"""
nunchaku_model.py --model models/emoji --out DIR --kind int4|fp4: a transformer as nunchaku writes
Qwen-Image (names and layouts; codes by rounding to nearest, which its makers do better), and beside it the
same weights dequantized: DIR/nunchaku.safetensors, DIR/dequantized.safetensors. Both draw the same picture
but for roundings:

    ounce generate --transformer DIR/nunchaku.safetensors ...
    ounce generate --transformer DIR/dequantized.safetensors ...
"""

import argparse
import json
import pathlib
import struct

import dialect_layouts as d
import numpy as np

RANK, SHIFT = 16, 0.171875
FUSED = {"attn.to_qkv": ("attn.to_q", "attn.to_k", "attn.to_v"),
         "attn.add_qkv_proj": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj")}
ALONE = ("attn.to_out.0", "attn.to_add_out", "img_mlp.net.0.proj", "img_mlp.net.2", "txt_mlp.net.0.proj",
         "txt_mlp.net.2")
MODULATIONS = ("img_mod.1", "txt_mod.1")


def load(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        for name, v in json.loads(raw[8:8 + length]).items():
            if name != "__metadata__":
                assert v["dtype"] == "BF16"
                begin, end = (8 + length + x for x in v["data_offsets"])
                tensors[name] = np.frombuffer(raw[begin:end], dtype=d.BF16).reshape(v["shape"])
    return tensors


def codes_of(q):
    """d.fragment_codes of large weights: the places of one tile, tile by tile."""
    n, k = q.shape
    places = np.zeros((128, 64), dtype=np.int64)
    for r in range(128):
        for c in range(64):
            a, b, cc, dd, e, f = r // 16, r % 16 // 8, r % 8, c // 32, c % 32 // 8, c % 8
            places[r, c] = ((((a * 8 + cc) * 4 + e) * 2 + b) * 2 + dd) * 8 + f
    tiles = q.reshape(n // 128, 128, k // 64, 64).transpose(0, 2, 1, 3).reshape(-1, 128 * 64)
    out = np.zeros_like(tiles)
    out[:, places.reshape(-1)] = tiles
    return d.pack(out.reshape(-1)).reshape(n, k // 2).view(np.int8)


def svdquant(w, bias, kind, shift):
    """A layer's tensors, and what it is worth: weight and bias."""
    w = w.astype(np.float64)
    smooth = np.exp2(np.rint(np.log2(np.abs(w).max(0) + 1e-6) / -4)).astype(d.BF16).astype(np.float64)
    down, up, left = d.svd_split(w, smooth, RANK)
    n = w.shape[0]
    t = {"smooth_factor": d.fragment_scales(smooth.astype(d.BF16)[None]).reshape(-1),
         "proj_down": d.fragment_low_rank(down.T, True), "proj_up": d.fragment_low_rank(up, False)}
    if kind == "int4":
        g = left.reshape(n, -1, 64)
        s = np.maximum(np.abs(g).max(2) / 7, 1e-8).astype(d.BF16)
        q = np.clip(np.rint(g / s.astype(np.float64)[..., None]), -8, 7).astype(np.int8)
        value = (q * s.astype(np.float64)[..., None]).reshape(w.shape)
        codes = q.reshape(w.shape).view(np.uint8) & 15
        t["wscales"] = d.fragment_scales(s.T)
    else:
        channel = np.exp2(np.rint(np.log2(np.abs(left).max(1) + 1e-9))).astype(d.BF16)
        tensor = d.BF16(0.00390625)
        g = (left / channel.astype(np.float64)[:, None] / float(tensor)).reshape(n, -1, 16)
        s = np.clip(np.abs(g).max(2) / 6, 2.0**-9, 448).astype(d.E4M3)
        q = d.fp4(g / s.astype(np.float64)[..., None])
        value = (d.fp4_value(q) * s.astype(np.float64)[..., None]).reshape(w.shape)
        value = value * float(tensor) * channel.astype(np.float64)[:, None]
        codes = q.reshape(w.shape)
        t["wscales"] = d.fragment_micro(np.ascontiguousarray(s.T))
        t["wcscales"] = d.fragment_scales(channel[None]).reshape(-1)
        t["wtscale"] = np.array([tensor])
    t["qweight"] = codes_of(codes)
    sums = (shift if kind == "int4" else 0) * (value / smooth).sum(1)
    stored = (bias.astype(np.float64) - sums).astype(d.BF16)
    t["bias"] = d.fragment_scales(stored[None]).reshape(-1)
    dense = value / smooth + up.astype(np.float64) @ down.astype(np.float64)
    return t, dense.astype(d.BF16), (stored.astype(np.float64) + sums).astype(np.float32)


def awq(w, bias):
    w = w.astype(np.float64)
    rows, cols = w.shape
    g = w.reshape(rows, cols // 64, 64)
    s = np.maximum((g.max(2) - g.min(2)) / 15, 1e-8).astype(d.BF16).astype(np.float64)
    z = g.min(2).astype(d.BF16).astype(np.float64)
    q = np.clip(np.rint((g - z[..., None]) / s[..., None]), 0, 15)
    dense = (q * s[..., None] + z[..., None]).reshape(rows, cols)
    plus = np.repeat([0.0, 1, 0, 0, 1, 0], rows // 6)
    stored = (bias.astype(np.float64) + plus).astype(d.BF16)

    def in_turn(m):
        m = m.reshape(6, rows // 6, -1)
        return np.ascontiguousarray(m.transpose(1, 0, 2).reshape(rows, -1))

    t = {"qweight": d.awq_codes(in_turn(q.reshape(rows, cols)).astype(np.uint8)),
         "wscales": np.ascontiguousarray(in_turn(s).T).astype(d.BF16),
         "wzeros": np.ascontiguousarray(in_turn(z).T).astype(d.BF16), "bias": in_turn(stored).reshape(-1)}
    return t, dense.astype(d.BF16), (stored.astype(np.float64) - plus).astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--kind", choices=("int4", "fp4"), required=True)
    args = parser.parse_args()
    plain = load(args.model / "transformer")
    dense, packed = dict(plain), dict(plain)
    blocks = sorted({n.split(".")[1] for n in plain if n.startswith("transformer_blocks.")})

    def put(block, name, parts, result):
        t, weight, bias = result
        packed.update({block + name + "." + k: v for k, v in t.items()})
        rows = weight.shape[0] // len(parts)
        for i, part in enumerate(parts):
            packed.pop(block + part + ".weight")
            if part != name:
                packed.pop(block + part + ".bias")
            dense[block + part + ".weight"] = weight[i * rows:(i + 1) * rows]
            dense[block + part + ".bias"] = bias[i * rows:(i + 1) * rows]

    for number in blocks:
        block = "transformer_blocks." + number + "."

        def of(parts, kind):
            return np.concatenate([plain[block + p + "." + kind] for p in parts])

        layers = list(FUSED.items()) + [(name, (name,)) for name in ALONE]
        for name, parts in layers:
            shift = SHIFT if name.endswith("net.2") else 0
            put(block, name, parts, svdquant(of(parts, "weight"), of(parts, "bias"), args.kind, shift))
        for name in MODULATIONS:
            put(block, name, (name,), awq(plain[block + name + ".weight"], plain[block + name + ".bias"]))
        print(block, flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    config = {"method": "svdquant", "rank": RANK, "weight": {
        "dtype": "int4" if args.kind == "int4" else "fp4_e2m1_all", "group_size": 64 if args.kind == "int4" else 16}}
    d.save(args.out / "nunchaku.safetensors", packed, {
        "model_class": "NunchakuQwenImageTransformer2DModel", "quantization_config": json.dumps(config)})
    d.save(args.out / "dequantized.safetensors", dense)


if __name__ == "__main__":
    main()
