"""Distances and structural similarity of small pictures, by numpy and scikit-image.

    python tools/golden/metrics.py --out tests/golden/metrics

pictures.safetensors holds pairs: `<case>.reference`, `<case>.candidate`, [height, width, 3] u8, [3, height, width] f32 in
0..1, or [n] f32 that is no picture. expected.json: for each case the data range and every metric; null where a value is
infinite, not defined, or the picture is smaller than the window. Numbers are counters and their hashes: no random
generator, the same on every machine.
"""

import argparse
import json
import math
from importlib.metadata import version
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from skimage.metrics import structural_similarity


def noise(count, seed):
    """In -0.5..0.5, from a 32-bit hash of a counter."""
    x = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B1) + np.uint64(seed * 0x85EBCA6B)
    x &= np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        x ^= x >> np.uint64(shift)
        x = (x * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return x.astype(np.float64) / 2.0**32 - 0.5


def picture(height, width):
    """A disc on a gradient, 0..1."""
    y, x = np.mgrid[0:height, 0:width]
    disc = (y - height / 2) ** 2 + (x - width / 3) ** 2 < (min(height, width) / 3) ** 2
    return np.stack([x / width, y / height, np.where(disc, 0.9, 0.2)], axis=-1)


def noisy(height, width, strength, seed):
    a = picture(height, width)
    return a, (a + strength * noise(a.size, seed).reshape(a.shape)).clip(0, 1)


def u8(x):
    return np.rint(255 * x).astype(np.uint8)


def planes(x):
    return np.ascontiguousarray(x.transpose(2, 0, 1)).astype(np.float32)


def cases():
    for name, height, width, strength in (("mild", 24, 31, 0.05), ("strong", 40, 17, 1.0), ("window", 11, 11, 0.2),
                                          ("small", 7, 10, 0.2), ("tiny", 6, 40, 0.2)):
        a, b = noisy(height, width, strength, 1 + len(name))
        yield f"u8.{name}", u8(a), u8(b)
        yield f"f32.{name}", planes(a), planes(b)
    black, white = np.zeros((12, 13, 3), np.uint8), np.full((12, 13, 3), 255, np.uint8)
    one = white.copy()
    one[5, 6, 1] = 254
    yield "u8.identical", u8(picture(16, 16)), u8(picture(16, 16))
    yield "u8.both_black", black, black
    yield "u8.black_white", black, white
    yield "u8.white_black", white, black
    yield "u8.one_level", white, one
    x = (6 * noise(500, 7)).astype(np.float32)
    yield "flat.latents", x, (x + 0.1 * noise(500, 8)).astype(np.float32)
    yield "flat.opposite", x, -x
    yield "flat.large", (x * 1e18).astype(np.float32), (x * 1.0001e18).astype(np.float32)


def finite(x):
    return x if math.isfinite(x) else None


def ssim(a, b, **how):
    channel = 2 if a.dtype == np.uint8 else 0
    sides = [n for i, n in enumerate(a.shape) if i != channel]
    if a.ndim != 3 or min(sides) < (11 if how else 7):
        return None
    # In f64: scikit-image takes the type of the picture for its sums.
    return structural_similarity(a.astype(np.float64), b.astype(np.float64), channel_axis=channel,
                                 data_range=255 if a.dtype == np.uint8 else 1, **how)


def expected(a, b, data_range):
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    d, norms = y - x, (np.linalg.norm(x), np.linalg.norm(y))
    mse, l2 = np.mean(d**2), np.linalg.norm(d)
    with np.errstate(divide="ignore"):
        psnr = 20 * np.log10(data_range) - 10 * np.log10(mse) if data_range else math.nan
    zeros = [n == 0 for n in norms]
    return {
        "identical": bool(np.array_equal(a, b)),
        "cosine_similarity": float(all(zeros)) if any(zeros) else float(np.clip(x @ y / np.prod(norms), -1, 1)),
        "mae": float(np.mean(np.abs(d))),
        "mse": float(mse),
        "rmse": float(np.sqrt(mse)),
        "max_abs": float(np.max(np.abs(d))),
        "l2": float(l2),
        "relative_l2": 0.0 if l2 == 0 else finite(float(l2 / norms[0])) if norms[0] > 0 else None,
        "psnr_db": finite(float(psnr)),
        "ssim": ssim(a, b, gaussian_weights=True, sigma=1.5, use_sample_covariance=False),
        "ssim_uniform": ssim(a, b),
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tensors, results = {}, {}
    for name, a, b in cases():
        data_range = {"u8": 255, "f32": 1, "flat": 0}[name.partition(".")[0]]
        tensors |= {f"{name}.reference": a, f"{name}.candidate": b}
        results[name] = {"data_range": data_range} | expected(a, b, data_range)
    save_file(tensors, args.out / "pictures.safetensors")
    made = ", ".join(f"{m} {version(m)}" for m in ("numpy", "scikit-image"))
    lines = ",\n".join(f"  {json.dumps(n)}: {json.dumps(r)}" for n, r in results.items())
    (args.out / "expected.json").write_text(f'{{"made_with": {json.dumps(made)}, "cases": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
