"""Two LoRA files for the bundled model, and what diffusers and PEFT make of it with both merged.

    python tools/golden/lora.py --model models/emoji --reference tests/parity/reference.safetensors \
        --out tests/golden/lora

kohya.safetensors: names with underscores, lora_down and lora_up, alpha; rank 4, F16; scale 0.0625.
diffusers.safetensors: names with dots, lora_A and lora_B, "lora_alpha" in the metadata; rank 2, F16; scale -0.125.
golden.safetensors: a row of each merged weight, BF16, and the first conditional noise prediction of case 0, F32.

Factors are small integers times a power of two and so are scales, so every sum of their products is exact in float32,
in whatever order; the addition to the weight is then one rounding, and the cast to BF16 another: merged weights are
the same bits everywhere. Values are by a hash. diffusers reads and converts both files and PEFT merges them, in float32
and one after the other; each weight is compared here with W + scale alpha / rank B A in double.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import torch
from diffusers import QwenImageTransformer2DModel
from diffusers.loaders import QwenImageLoraLoaderMixin
from safetensors import safe_open
from safetensors.torch import save_file

ROW = 7
SCALES = 0.0625, -0.125
# module: alpha
KOHYA = {
    "transformer_blocks.0.attn.to_q": 8.0,
    "transformer_blocks.0.attn.to_out.0": 4.0,
    "transformer_blocks.1.img_mlp.net.0.proj": 8.0,
    "transformer_blocks.3.attn.add_v_proj": 2.0,
}
DIFFUSERS = ["transformer_blocks.0.attn.to_q", "transformer_blocks.2.img_mod.1", "proj_out"]
DIFFUSERS_ALPHA = 4


def factor(number, rows, cols):
    """Integers from -8 to 8 over 16."""
    i = torch.arange(rows * cols, dtype=torch.int64) + 100003 * number
    x = (i * 2654435761) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 739977069) & 0xFFFFFFFF
    x = x ^ (x >> 13)
    return ((x % 17 - 8).double() / 16).reshape(rows, cols).half()


def write(model, out):
    kohya, peft = {}, {}
    for i, (name, alpha) in enumerate(KOHYA.items()):
        n, k = model.get_submodule(name).weight.shape
        flat = "lora_unet_" + name.replace(".", "_")
        kohya[f"{flat}.lora_down.weight"] = factor(2 * i, 4, k)
        kohya[f"{flat}.lora_up.weight"] = factor(2 * i + 1, n, 4)
        kohya[f"{flat}.alpha"] = torch.tensor(alpha)
    for i, name in enumerate(DIFFUSERS):
        n, k = model.get_submodule(name).weight.shape
        peft[f"transformer.{name}.lora_A.weight"] = factor(100 + 2 * i, 2, k)
        peft[f"transformer.{name}.lora_B.weight"] = factor(101 + 2 * i, n, 2)
    config = {
        "transformer.r": 2,
        "transformer.lora_alpha": DIFFUSERS_ALPHA,
        "transformer.target_modules": DIFFUSERS,
        "transformer.peft_type": "LORA",
    }
    save_file(kohya, out / "kohya.safetensors")
    save_file(peft, out / "diffusers.safetensors", {"format": "pt", "lora_adapter_metadata": json.dumps(config)})
    return kohya, peft


def merge(model, path, scale):
    state, metadata = QwenImageLoraLoaderMixin.lora_state_dict(str(path), return_lora_metadata=True)
    QwenImageLoraLoaderMixin.load_lora_into_transformer(state, model, "only", metadata=metadata)
    model.fuse_lora(lora_scale=scale, adapter_names=["only"])
    model.unload_lora()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", type=Path, required=True)
    p.add_argument("--reference", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    model = QwenImageTransformer2DModel.from_pretrained(args.model / "transformer", torch_dtype=torch.float32).eval()
    kohya, peft = write(model, args.out)
    want = {k: v.double() for k, v in model.state_dict().items()}
    for name, alpha in KOHYA.items():
        flat = "lora_unet_" + name.replace(".", "_")
        b, a = kohya[f"{flat}.lora_up.weight"].double(), kohya[f"{flat}.lora_down.weight"].double()
        want[f"{name}.weight"] += SCALES[0] * alpha / 4 * (b @ a)
    for name in DIFFUSERS:
        b, a = (peft[f"transformer.{name}.lora_{x}.weight"].double() for x in "BA")
        want[f"{name}.weight"] += SCALES[1] * DIFFUSERS_ALPHA / 2 * (b @ a)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    merge(model, args.out / "kohya.safetensors", SCALES[0])
    merge(model, args.out / "diffusers.safetensors", SCALES[1])
    adapted = [f"{n}.weight" for n in dict.fromkeys([*KOHYA, *DIFFUSERS])]
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            off = (weight.double() - want[name]).abs().max()
            assert off <= 2 * 2.0**-24 * want[name].abs().max(), (name, off)
            assert (name in adapted) == (not torch.equal(weight, before[name])), name
            if name in adapted:  # as a file in BF16 would hold it
                weight.copy_(weight.bfloat16().float())
        golden = {f"row.{n}": model.state_dict()[n][ROW].bfloat16() for n in adapted}
        with safe_open(args.reference, "pt") as f:
            case = json.loads(f.metadata()["cases"])[0]
            t = {k: f.get_tensor(f"f32.case0.{k}") for k in ("latents.init", "sigmas", "prompt_embeds", "noise_pred.00")}
        golden["noise_pred"] = model(
            hidden_states=t["latents.init"],
            timestep=t["sigmas"][0].reshape(1),
            encoder_hidden_states=t["prompt_embeds"],
            encoder_hidden_states_mask=None,
            img_shapes=[[(1, case["height"] // 16, case["width"] // 16)]],
            return_dict=False,
        )[0].contiguous()
    moved = (golden["noise_pred"] - t["noise_pred.00"]).norm() / t["noise_pred.00"].norm()
    print(f"the prediction moves by {float(moved):.3f} of its length")
    assert 0.05 < moved < 1.5
    made = ", ".join(f"{m} {version(m)}" for m in ("diffusers", "peft", "torch"))
    save_file(golden, args.out / "golden.safetensors", {"made_with": made})


if __name__ == "__main__":
    main()
