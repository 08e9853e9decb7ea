"""Opens models that `ounce quantize` has written with the makers' own libraries, and compares what they
dequantize with what ounce's own codecs decode after quantizing the plain model while loading.

    ninja -C build/dev ounce_cli decode_dump
    python tools/golden/open_written.py --build build/dev --model models/emoji --work /tmp/written

For each scheme: `ounce quantize` writes the model, `decode_dump` writes ounce's values. Then
 1. transformer: diffusers' QwenImageTransformer2DModel is built from the config; compressed-tensors applies
    the written quantization_config to it and compresses it; the written tensors are loaded (strict: every
    name and shape); compressed-tensors decompresses it.
 2. text encoder (where it is quantized): transformers' from_pretrained, then the same.
 3. bitsandbytes: diffusers' and transformers' from_pretrained; every tensor must find its place. Each
    weight is then dequantized by bitsandbytes, in f32. diffusers asks for a GPU before it reads such a
    checkpoint; that one check is left out here, for bitsandbytes computes on the CPU as well.
Values are compared bit for bit (-0 is 0). NVFP4 is the one scheme whose makers round otherwise, code *
(scale / factor) against ounce's (code * scale) * (1 / factor): there the codes, the scales and the
factor's reciprocal are compared bit for bit, and the values in units in the last place of f32.
Prints a table in Markdown, and fails when anything differs.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import torch
import bitsandbytes as bnb
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors import safe_open

SCHEMES = {
    "fp8_per_tensor": '{"method":"fp8_per_tensor"}',
    "fp8_per_channel": '{"method":"fp8_per_channel"}',
    "fp8_per_block": '{"method":"fp8_per_block"}',
    "fp8_per_channel, weight-only": '{"linear":{"weight":"fp8_per_channel","activation":null}}',
    "int8": '{"method":"int8"}',
    "mxfp8": '{"method":"mxfp8"}',
    "mxfp8, mxfp8 activations": '{"linear":{"weight":"mxfp8","activation":"mxfp8"}}',
    "mxfp4": '{"method":"mxfp4"}',
    "mxfp4, mxfp4 activations": '{"linear":{"weight":"mxfp4","activation":"mxfp4"}}',
    "mxfp4, mxfp8 activations": '{"linear":{"weight":"mxfp4","activation":"mxfp8"}}',
    "nvfp4": '{"method":"nvfp4"}',
    "nvfp4, fp8 activations": '{"linear":{"weight":"nvfp4","activation":"fp8_per_token"}}',
    "fp8_per_channel and nvfp4": json.dumps(
        {"transformer": {"targets": {"re:.*\\.attn\\..*": "fp8_per_channel", "re:.*mlp.*": "nvfp4"}}}
    ),
    "text encoder int8": '{"text_encoder":"int8"}',
    "text encoder fp8_per_channel": '{"text_encoder":"fp8_per_channel"}',
    "text encoder mxfp4": '{"text_encoder":"mxfp4"}',
    "bitsandbytes nf4": '{"method":"bitsandbytes"}',
    "bitsandbytes fp4": '{"method":"bitsandbytes","quant_type":"fp4"}',
    "bitsandbytes nf4, nested": '{"method":"bitsandbytes","compress_statistics":true}',
    "bitsandbytes fp4, nested": '{"method":"bitsandbytes","quant_type":"fp4","compress_statistics":true}',
    "text encoder bitsandbytes nf4": '{"text_encoder":"bitsandbytes"}',
    "text encoder bitsandbytes nf4, nested": '{"text_encoder":{"method":"bitsandbytes","compress_statistics":true}}',
}


def tensors(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(folder, name), "pt") as f:
                found.update({key: f.get_tensor(key) for key in f.keys()})
    return found


def bits(x):
    """f32 bits, -0 as 0."""
    return (np.asarray(x.to(torch.float32)) + 0.0).view(np.int32)


def nvfp4_ulps(module, ours):
    """Of a compressed module: exact parts are asserted, the rest is a distance."""
    scale = module["weight_scale"]
    factor = module["weight_global_scale"]
    codes = unpack_fp4_from_uint8(module["weight_packed"], *ours.shape).float()
    one = torch.repeat_interleave(scale.float(), 16, dim=1)
    again = codes * one * (1.0 / factor)
    assert (bits(again) == bits(ours)).all(), "codes, scales or factor differ"
    args = module["args"]
    theirs = dequantize(codes, scale.float(), args=args, global_scale=factor, dtype=torch.float32)
    return int(np.abs(bits(theirs).astype(np.int64) - bits(ours).astype(np.int64)).max())


def build_transformer(folder, config):
    from diffusers import QwenImageTransformer2DModel

    plain = {k: v for k, v in config.items() if k != "quantization_config"}
    model = QwenImageTransformer2DModel.from_config(plain).to(torch.bfloat16)
    q = QuantizationConfig.model_validate(config["quantization_config"])
    apply_quantization_config(model, q)
    compressor = ModelCompressor(quantization_config=q)
    compressor.compress_model(model)
    stored = tensors(folder)
    theirs = dict(model.state_dict())
    assert set(theirs) == set(stored), sorted(set(theirs) ^ set(stored))[:6]
    for name, tensor in stored.items():
        assert tensor.shape == theirs[name].shape, (name, tensor.shape, theirs[name].shape)
    model.load_state_dict(stored, strict=True, assign=True)
    return model, compressor


def build_text_encoder(folder):
    from transformers import CompressedTensorsConfig, Qwen2_5_VLForConditionalGeneration

    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)  # bf16 would round scales
    q = QuantizationConfig.model_validate(json.load(open(os.path.join(folder, "config.json")))["quantization_config"])
    return model, ModelCompressor(quantization_config=q)


def open_bitsandbytes(folder, component):
    """The model as its maker's library loads it, and its 4-bit layers, dequantized in f32."""
    if component == "transformer":
        from diffusers import QwenImageTransformer2DModel as Class
        from diffusers.quantizers.bitsandbytes.bnb_quantizer import BnB4BitDiffusersQuantizer

        BnB4BitDiffusersQuantizer.validate_environment = lambda self, *args, **kwargs: None
    else:
        from transformers import Qwen2_5_VLForConditionalGeneration as Class
    dtype = {"torch_dtype" if component == "transformer" else "dtype": torch.bfloat16}
    model, info = Class.from_pretrained(folder, device_map={"": "cpu"}, output_loading_info=True, **dtype)
    # transformers' own: what the config's vision tower lacks in the file, and a head that is tied
    lost = [k for k in info["missing_keys"] if "visual" not in k and k != "lm_head.weight"] + list(info["unexpected_keys"])
    assert not lost and not info["mismatched_keys"], (lost[:4], info["mismatched_keys"])
    values = {}
    for name, module in model.named_modules():
        if isinstance(module, bnb.nn.Linear4bit):
            state = module.weight.quant_state
            assert state.dtype == torch.bfloat16 and state.shape == (module.out_features, module.in_features)
            state.dtype = torch.float32
            values[name] = bnb.functional.dequantize_4bit(module.weight.data, state)
    return values


def compare_values(values, ours):
    names = {n.removesuffix(".weight"): n for n in ours}
    assert len(values) == len(names), (len(values), len(names))
    differ = []
    for name, value in values.items():
        own = next((n for n in names if n == name or ("." + name).endswith("." + n.removeprefix("model."))), None)
        assert own is not None, name
        if not (bits(value) == bits(ours[names[own]])).all():
            differ.append(name)
    return len(values), 0, differ, 0


def compare(model, compressor, ours):
    """Layers, those in NVFP4, weights that differ, and the largest distance of NVFP4."""
    kept = {}
    for name, module in model.named_modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is not None and hasattr(module, "weight_global_scale"):
            kept[name] = {k: v.detach().clone() for k, v in module.named_parameters(recurse=False)} | {"args": scheme.weights}
    quantized = [n for n, m in model.named_modules() if getattr(m, "quantization_scheme", None) is not None]
    compressor.decompress_model(model)
    modules = dict(model.named_modules())
    names = {n.removesuffix(".weight"): n for n in ours}
    assert len(quantized) == len(names), (len(quantized), len(names))
    differ, ulps = [], 0
    for name in quantized:
        own = next((n for n in names if n == name or ("." + name).endswith("." + n.removeprefix("model."))), None)
        assert own is not None, name
        if name in kept:
            ulps = max(ulps, nvfp4_ulps(kept[name], ours[names[own]]))
        elif not (bits(modules[name].weight.detach()) == bits(ours[names[own]])).all():
            differ.append(name)
    return len(quantized), len(kept), differ, ulps


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--model", required=True)
    a.add_argument("--work", required=True)
    a.add_argument("--only")
    args = a.parse_args()
    failed = False
    print(", ".join(f"{p} {version(p)}" for p in ("compressed-tensors", "bitsandbytes", "accelerate", "diffusers", "transformers", "torch", "safetensors")))
    print("\n| scheme | format | layers | values |\n|---|---|---|---|")
    for name, config in SCHEMES.items():
        if args.only and args.only not in name:
            continue
        written, dump = os.path.join(args.work, "model"), os.path.join(args.work, "values")
        for folder in (written, dump):
            shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(args.work, exist_ok=True)
        subprocess.run([f"{args.build}/apps/ounce", "quantize", args.model, "--quantization-config", config, "-o", written, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([f"{args.build}/tests/parity/decode_dump", args.model, config, dump], check=True)
        component = "text_encoder" if name.startswith("text") else "transformer"
        folder = os.path.join(written, component)
        parsed = json.load(open(os.path.join(folder, "config.json")))
        with safe_open(os.path.join(dump, component + ".safetensors"), "pt") as f:
            ours = {k: f.get_tensor(k) for k in f.keys()}
        if "bitsandbytes" in name:
            layers, nvfp4, differ, ulps = compare_values(open_bitsandbytes(folder, component), ours)
        else:
            model, compressor = build_text_encoder(folder) if component == "text_encoder" else build_transformer(folder, parsed)
            layers, nvfp4, differ, ulps = compare(model, compressor, ours)
        failed = failed or bool(differ) or ulps > 2
        result = f"{len(differ)} layers differ" if differ else f"{layers - nvfp4} equal bit for bit" if nvfp4 < layers else ""
        if nvfp4:
            result += f"{', ' if result else ''}{nvfp4} in codes, scales and factor, their values within {ulps} ulp"
        print(f"| {name} | {parsed['quantization_config'].get('format', 'bitsandbytes')} | {layers} | {result} |", flush=True)
    sys.exit(1 if failed else 0)


main()
