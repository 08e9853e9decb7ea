"""How far each quantization scheme moves the bundled model, emulated in PyTorch.

    python tools/golden/make_scheme_emulation.py --model models/emoji \
        --reference tests/parity/reference.safetensors --out tests/golden/schemes/emulation.json

The transformer of diffusers runs in float32 on a CPU; the linears of its blocks, and no others (modulation, embedders
and final projection are kept), are replaced by ones that quantize weights and activations and multiply the dequantized
values in float32. For each scheme and each case of the reference file the output gives two relative L2 distances to
the unquantized model: of the first (conditional) noise prediction, and of the latents after five steps.

Rules: one f32 scale amax / max for e4m3 (448) and s8 (127), by tensor, row, token, 128x128 or 1x128; MX exponents as
named; NVFP4: amax / 2688 of the tensor (of a sequence, for activations), then e4m3 of block amax / 6 over that for each
16; dual scale: f32 amax / 6 of each 512, then ceil(log2(amax / 6)) for each 32. Elements round to nearest even. Whether
an element is divided by its scale or multiplied by an inverse is each scheme's rule too: it decides ties.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from diffusers import QwenImageTransformer2DModel
from safetensors import safe_open

STEPS = 5


def e4m3(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).float()


def e2m1(x):
    """To nearest even in each binade: steps of 0.5 below 2, 1 below 4, 2 up to 6."""
    a = x.abs().clamp(max=6)
    step = 0.5 + 0.5 * (a >= 2) + (a >= 4)
    return torch.copysign((a / step).round() * step, x)


def check_e2m1():
    """ml_dtypes, which is slower, says the same, ties included."""
    x = np.linspace(-7, 7, 14 * 4096 + 1, dtype=np.float32)
    n = x.clip(-6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    assert np.array_equal(e2m1(torch.from_numpy(x)).numpy(), n)


def s8(x):
    return x.round().clamp(-127, 127)


def scaled(x, amax, largest, element, rule):
    """x coded with the scale amax / largest, and decoded; zero where the scale is."""
    a = torch.where(amax > 0, amax, 1)
    s = a / largest
    code = {"divide": lambda: x / s, "inverse": lambda: x * (1 / s), "multiply": lambda: x * (largest / a)}[rule]()
    return torch.where(amax > 0, element(code) * s, 0)


def grouped(x, size):
    """x [n, k] as groups of a row [n, ceil(k / size), size], padded with zeros."""
    return torch.nn.functional.pad(x, (0, -x.shape[1] % size)).reshape(x.shape[0], -1, size)


def amax_of(x):
    return x.abs().amax(-1, keepdim=True)


def ungrouped(g, x):
    return g.reshape(g.shape[0], -1)[:, : x.shape[1]]


def fp8_tensor(w):
    return scaled(w, w.abs().max(), 448, e4m3, "inverse")


def fp8_row(x):
    return scaled(x, amax_of(x), 448, e4m3, "divide")


def int8_row(x):
    return scaled(x, amax_of(x), 127, s8, "multiply")


def fp8_group(x):
    g = grouped(x, 128)
    return ungrouped(scaled(g, amax_of(g), 448, e4m3, "divide"), x)


def fp8_block(w):
    n, k = w.shape
    p = torch.nn.functional.pad(w, (0, -k % 128, 0, -n % 128))
    b = p.reshape(p.shape[0] // 128, 128, p.shape[1] // 128, 128)
    b = scaled(b, b.abs().amax((1, 3), keepdim=True), 448, e4m3, "inverse")
    return b.reshape(p.shape)[:n, :k]


def exponent(amax, rule, largest):
    """log2 of a group's scale, in double: no rounding of the logarithm reaches it."""
    a = amax.double().clamp(min=2.0**-126)
    if rule == "ceil":
        return torch.ceil(torch.log2(a / largest))
    if rule == "even":  # rounded to one bit of mantissa first
        bits = (amax.view(torch.int32) + 0x200000) & 0x7F800000
        a = bits.view(torch.float32).double().clamp(min=2.0**-126)
    return torch.floor(torch.log2(a)) - 2


def mx(element, largest, rule):
    def quantize(x):
        g = grouped(x, 32)
        s = torch.exp2(exponent(amax_of(g), rule, largest).clamp(-127, 127)).float()
        return ungrouped(element(g / s) * s, x)

    return quantize


def dual(x):
    g = grouped(x, 512)
    s = amax_of(g) / 6
    s = torch.where(s > 0, s, 1)
    inner = (g / s).reshape(-1, 512)
    inner = mx(e2m1, 6, "ceil")(inner).reshape(g.shape)
    return ungrouped(inner * s, x)


def nvfp4(x):
    whole = 2688 / x.abs().max().clamp(min=1e-8)
    g = grouped(x, 16)
    s = e4m3(whole * (amax_of(g) / 6)) * (1 / whole)
    return ungrouped(torch.where(s > 0, e2m1(g * (1 / torch.where(s > 0, s, 1))) * s, 0), x)


PLAIN = None
MXFP8, MXFP4, MXFP4_EVEN = mx(e4m3, 448, "ceil"), mx(e2m1, 6, "floor"), mx(e2m1, 6, "even")

# name: weights, activations
SCHEMES = {
    "fp8_per_tensor/fp8_per_token": (fp8_tensor, fp8_row),
    "fp8_per_channel/fp8_per_token": (fp8_row, fp8_row),
    "fp8_per_block/fp8_per_block": (fp8_block, fp8_group),
    "fp8_per_channel/none": (fp8_row, PLAIN),
    "int8/int8_per_token": (int8_row, int8_row),
    "mxfp8/mxfp8": (MXFP8, MXFP8),
    "mxfp4/none": (MXFP4, PLAIN),
    "mxfp4/mxfp8": (MXFP4, MXFP8),
    "mxfp4/mxfp4": (MXFP4, MXFP4),
    "mxfp4_even/none": (MXFP4_EVEN, PLAIN),
    "mxfp4_even/mxfp4": (MXFP4_EVEN, MXFP4_EVEN),
    "mxfp4_dualscale/none": (dual, PLAIN),
    "mxfp4_dualscale/mxfp4_dualscale": (dual, dual),
    "nvfp4/none": (nvfp4, PLAIN),
    "nvfp4/nvfp4": (nvfp4, nvfp4),
}


class Linear(torch.nn.Module):
    def __init__(self, base, weights, activations):
        super().__init__()
        self.weight, self.bias = weights(base.weight.data), base.bias
        self.activations = activations

    def forward(self, x):
        if self.activations is not None:  # one sequence: all its rows
            x = self.activations(x.reshape(-1, x.shape[-1])).reshape(x.shape)
        return torch.nn.functional.linear(x, self.weight, self.bias)


def replace(model, weights, activations):
    """Replaces the linears of the blocks; returns how to undo it."""
    undo = []
    for name, module in list(model.transformer_blocks.named_modules()):
        if not isinstance(module, torch.nn.Linear) or "_mod." in name:
            continue
        parent = model.transformer_blocks.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], Linear(module, weights, activations))
        undo.append((parent, name.rpartition(".")[2], module))
    assert len(undo) == 12 * len(model.transformer_blocks), len(undo)
    return undo


def predict(model, case, latents, states, sigma):
    return model(
        hidden_states=latents,
        timestep=sigma.reshape(1),
        encoder_hidden_states=states,
        encoder_hidden_states_mask=None,
        img_shapes=[[(1, case["height"] // 16, case["width"] // 16)]],
        return_dict=False,
    )[0]


def run(model, case, t):
    """First conditional prediction, latents after STEPS steps."""
    x, sigmas, scale, first = t["latents.init"], t["sigmas"], case["true_cfg_scale"], None
    for i in range(STEPS):
        v = predict(model, case, x, t["prompt_embeds"], sigmas[i])
        first = v if first is None else first
        if scale > 1:
            n = predict(model, case, x, t["negative_prompt_embeds"], sigmas[i])
            c = n + scale * (v - n)
            v = c * (v.norm(dim=-1, keepdim=True) / c.norm(dim=-1, keepdim=True))
        x = x + (sigmas[i + 1] - sigmas[i]) * v
    return first, x


def distance(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", type=Path, required=True)
    p.add_argument("--reference", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    check_e2m1()
    model = QwenImageTransformer2DModel.from_pretrained(args.model / "transformer", torch_dtype=torch.float32).eval()
    cases, results = [], {}
    with safe_open(args.reference, "pt") as f, torch.no_grad():
        for case in json.loads(f.metadata()["cases"]):
            key = f"f32.case{case['case']}."
            t = {k[len(key) :]: f.get_tensor(k) for k in f.keys() if k.startswith(key)}
            exact = run(model, case, t)
            # The emulation's loop is the pipeline's: it must come to the reference itself.
            assert distance(exact[0], t["noise_pred.00"]) < 1e-4, case
            assert distance(exact[1], t[f"latents.{STEPS - 1:02d}"]) < 1e-4, case
            cases.append((case, t, exact))
        for name, (weights, activations) in SCHEMES.items():
            undo = replace(model, weights, activations)
            results[name] = []
            for case, t, exact in cases:
                got = run(model, case, t)
                pair = [distance(g, e) for g, e in zip(got, exact)]
                results[name].append({"prediction": round(pair[0], 6), "latents": round(pair[1], 6)})
            for parent, child, module in undo:
                setattr(parent, child, module)
            print(name, results[name])
    made = ", ".join(f"{m} {version(m)}" for m in ("diffusers", "torch", "ml_dtypes"))
    lines = ",\n".join(f"  {json.dumps(n)}: {json.dumps(r)}" for n, r in results.items())
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(f'{{"made_with": {json.dumps(made)}, "steps": {STEPS}, "schemes": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
