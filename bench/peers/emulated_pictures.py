"""Draws the prompts of a file with diffusers on the CPU, plainly and in quantization schemes emulated in PyTorch.

    python bench/peers/emulated_pictures.py models/emoji --out DIR [--dtype float32] [--noise float32] [--schemes NAME...]

The schemes are those of tools/golden/make_scheme_emulation.py (default: all); "reference" is the pipeline without
quantization. DIR gets a folder for each, named as bench/quality.sh names its own, with a PNG for each prompt, for
`ounce compare`. --noise float32 gives ounce's first latents (drawn in float32, then rounded to --dtype);
--noise native those that the pipeline draws itself, which in bfloat16 are others at the same seed.
"""
import argparse
import pathlib
import sys
import time

import torch
from diffusers import QwenImagePipeline
from diffusers.utils import logging

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/golden"))
import make_scheme_emulation as emulation  # noqa: E402


class Linear(torch.nn.Module):
    """A quantized linear whose input and output are the pipeline's type; within, float32."""

    def __init__(self, base, weights, activations):
        super().__init__()
        self.weight = weights(base.weight.data.float())
        self.bias = base.bias if base.bias is None else base.bias.data.float()
        self.activations = activations

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1]).float()
        if self.activations is not None:
            rows = self.activations(rows)
        y = torch.nn.functional.linear(rows, self.weight, self.bias)
        return y.reshape(*x.shape[:-1], -1).to(x.dtype)


def draw(pipe, prompt, seed, dtype, noise, side):
    generator = torch.Generator("cpu").manual_seed(seed)
    latents = None
    if noise == "float32":
        first = torch.randn(1, 1, 16, side // 8, side // 8, generator=generator, dtype=torch.float32)
        latents = pipe._pack_latents(first, 1, 16, side // 8, side // 8).to(dtype)
    return pipe(prompt, negative_prompt=" ", true_cfg_scale=4.0, height=side, width=side, num_inference_steps=20,
                generator=generator, latents=latents).images[0]


def main():
    here = pathlib.Path(__file__).resolve().parents[1]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--schemes", nargs="+", default=["reference", *emulation.SCHEMES])
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--prompts", type=pathlib.Path, default=here / "prompts-emoji.txt")
    p.add_argument("--seed", type=int, default=100)
    p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    p.add_argument("--noise", choices=["float32", "native"], default="float32")
    p.add_argument("--threads", type=int, default=0)
    args = p.parse_args()
    if args.threads > 0:
        torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    logging.set_verbosity_error()
    emulation.Linear = Linear
    dtype = getattr(torch, args.dtype)
    pipe = QwenImagePipeline.from_pretrained(args.model, torch_dtype=dtype)
    pipe.set_progress_bar_config(disable=True)
    prompts = [line for line in args.prompts.read_text(encoding="utf-8").splitlines() if line]
    for name in args.schemes:
        folder = args.out / name.replace("/", "___")
        folder.mkdir(parents=True, exist_ok=True)
        undo = [] if name == "reference" else emulation.replace(pipe.transformer, *emulation.SCHEMES[name])
        begin = time.perf_counter()
        for i, prompt in enumerate(prompts):
            draw(pipe, prompt, args.seed + i, dtype, args.noise, 128).save(folder / f"p-{i + 1:02d}.png")
        for parent, child, module in undo:
            setattr(parent, child, module)
        print(f"{name}: {len(prompts)} pictures, {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
