"""
dialects.py --out tests/golden/dialects: small checkpoints quantized by ModelOpt, compressed-tensors, TorchAO
and bitsandbytes, with the values that each tool dequantizes them to.

The same weights and folders as dialect_layouts.py (read its docstring). All run on a CPU. ModelOpt's
calibration of block formats asks for a GPU: there its own tensor classes quantize, and the config is
written here from its description; the other cases go through its quantize() and its exporter.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from dialect_layouts import MODULES, matrix  # noqa: E402

BF16 = torch.bfloat16


def weight(i, rows, cols):
    return torch.from_numpy(matrix(i, rows, cols)).to(torch.float32)


def sort_metadata(path):
    """safetensors writes metadata in the order of a hash table."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    if "__metadata__" in header:
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])


class Case:
    def __init__(self, out, name, units=0):
        self.folder = out / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tensors, self.expected, self.metadata, self.units = {}, {}, None, units

    def plain(self):
        w = weight(9, 8, 32).to(BF16)
        self.tensors["proj_out.weight"] = w
        self.expected["proj_out.weight"] = w.clone()

    def add(self, module, parts, value):
        self.tensors.update({f"{module}.{k}": v.contiguous() for k, v in parts.items()})
        self.expected[module + ".weight"] = value.contiguous()

    def finish(self, config=None, files=None):
        save_file(self.tensors, self.folder / "model.safetensors", self.metadata)
        sort_metadata(self.folder / "model.safetensors")
        save_file(self.expected, self.folder / "expected.safetensors", {"units": str(self.units)})
        if config is not None:
            text = json.dumps({"quantization_config": config}, indent=1)
            (self.folder / "config.json").write_text(text + "\n")
        for name, value in (files or {}).items():
            (self.folder / name).write_text(json.dumps(value, indent=1) + "\n")


class Model(torch.nn.Module):
    """Linear layers by dotted names, each fed with ones and a few other numbers."""

    def __init__(self, shapes):
        super().__init__()
        self.names = [name for name, *_ in shapes]
        for name, i, rows, cols in shapes:
            parent = self
            for part in name.split(".")[:-1]:
                if not hasattr(parent, part):
                    parent.add_module(part, torch.nn.Module())
                parent = getattr(parent, part)
            layer = torch.nn.Linear(cols, rows, bias=False)
            layer.weight.data = weight(i, rows, cols)
            parent.add_module(name.split(".")[-1], layer)

    def forward(self, x):
        return sum(m(torch.linspace(-1, 2, 3 * m.in_features).reshape(3, -1)).sum() for m in map(self.get_submodule, self.names))


# ---- ModelOpt ----


def modelopt_exported(out, name, config, algo, shapes=MODULES, files=False, keys=(), units=0, block=None):
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export.quant_utils import get_quant_config, postprocess_state_dict
    from modelopt.torch.export.unified_export_hf import _export_quantized_weight

    case = Case(out, name, units)
    model = Model(shapes)
    mtq.quantize(model, config, lambda m: m(None))
    quant_config = get_quant_config(model)
    assert quant_config["quantization"]["quant_algo"].upper() == algo, quant_config
    for module in model.names:
        layer = model.get_submodule(module)
        own = layer.weight_quantizer(layer.weight.data)
        _export_quantized_weight(layer, torch.float32)
        scale = layer.weight_scale.to(torch.float32)
        q = layer.weight
        if hasattr(layer, "weight_scale_2"):  # integers, then FP8: what its quantizers make of the weight
            value = own
            level = layer.weight_scale_2
            rounded = (unpacked_pairs(q, scale, block) / level).to(torch.float8_e4m3fn).to(torch.float32) * level
            assert torch.equal(rounded, own)
        elif block is not None:
            value = unpacked_pairs(q, scale, block)
        elif q.dtype == torch.int8 or scale.dim() == 1:
            value = q.to(torch.float32) * (scale[:, None] if scale.dim() else scale)
        elif scale.dim() == 4:
            value = q.to(torch.float32) * scale.squeeze(3).squeeze(1).repeat_interleave(128, 0).repeat_interleave(128, 1)
        else:
            value = q.to(torch.float32) * scale
        case.expected[module + ".weight"] = value.contiguous()
        pre = getattr(layer.input_quantizer, "_pre_quant_scale", None)
        if pre is not None:
            case.expected[module + ".weight"] = (value.double() * pre.double()).to(BF16)
    state = postprocess_state_dict(model.state_dict(), 448, None)
    case.tensors = {k: v.detach().clone().contiguous() for k, v in state.items()}
    case.plain()
    quant_config["quantization"].setdefault("exclude_modules", [])
    quant_config["quantization"]["exclude_modules"] = ["proj_out"]
    if files:
        case.finish(files={"hf_quant_config.json": quant_config})
    else:
        from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
        case.finish(convert_hf_quant_config_format(quant_config))


def unpacked_pairs(packed, scale, block):
    low = (packed & 15).to(torch.int8)
    high = (packed >> 4).to(torch.int8)
    q = torch.stack([low, high], 1).reshape(-1, packed.shape[1])
    q = torch.where(q > 7, q - 16, q).to(torch.float32)
    return q * scale.repeat_interleave(block, 1)


def modelopt_block(out, name, kind, config):
    from modelopt.torch.quantization.qtensor import MXFP4QTensor, MXFP8QTensor, NVFP4QTensor

    case = Case(out, name, units=int(kind == "NVFP4"))  # it multiplies the scales first
    for module, i, rows, cols in MODULES:
        w = weight(i, rows, cols)
        if kind == "NVFP4":
            q, s, s2 = NVFP4QTensor.quantize(w, 16)
            parts = {"weight_scale": s, "weight_scale_2": s2.reshape(()), "input_scale": torch.tensor(0.0625)}
            value = q.dequantize(torch.float32, scale=s, double_scale=s2, block_sizes={-1: 16})
        elif kind == "MXFP8":
            q, s = MXFP8QTensor.quantize(w)
            parts = {"weight_scale": s}
            value = q.dequantize(torch.float32, scale=s)
        else:
            q, s = MXFP4QTensor.quantize(w, 32)
            parts = {"weight_scale": s.reshape(rows, -1)}
            value = q.dequantize(torch.float32, scale=s, block_sizes={-1: 32})
        case.add(module, {"weight": q._quantized_data, **parts}, value.reshape(rows, cols))
    case.plain()
    case.finish(config) if "quant_method" in config else case.finish(files={"hf_quant_config.json": config})


def modelopt_mixed(out):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    case = Case(out, "modelopt_mixed", units=1)
    (first, i, rows, cols), (second, k, rows2, cols2) = MODULES
    w = weight(i, rows, cols)
    scale = w.abs().max() / 448
    q = (w / scale).to(torch.float8_e4m3fn)
    case.add(first, {"weight": q, "weight_scale": scale, "input_scale": torch.tensor(0.03125)}, q.float() * scale)
    q, s, s2 = NVFP4QTensor.quantize(weight(k, rows2, cols2), 16)
    case.add(second, {"weight": q._quantized_data, "weight_scale": s, "weight_scale_2": s2.reshape(())},
             q.dequantize(torch.float32, scale=s, double_scale=s2, block_sizes={-1: 16}))
    case.plain()
    case.finish(files={"hf_quant_config.json": {
        "producer": {"name": "modelopt", "version": "0.47.0"},
        "quantization": {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None, "quantized_layers": {
            first: {"quant_algo": "FP8"}, second: {"quant_algo": "W4A16_NVFP4", "group_size": 16}}}}})


def modelopt(out):
    import modelopt.torch.quantization as mtq

    square = (("attn.to_q", 1, 128, 128),)
    modelopt_exported(out, "modelopt_fp8", mtq.FP8_DEFAULT_CFG, "FP8", files=True)
    modelopt_exported(out, "modelopt_fp8_channel", mtq.FP8_PER_CHANNEL_PER_TOKEN_CFG, "FP8_PER_CHANNEL_PER_TOKEN")
    modelopt_exported(out, "modelopt_fp8_blocks", mtq.FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG, "FP8_PB_WO", square)
    modelopt_exported(out, "modelopt_int8_sq", mtq.INT8_SMOOTHQUANT_CFG, "W8A8_SQ_PER_CHANNEL", units=1)
    modelopt_exported(out, "modelopt_int4_awq", mtq.INT4_AWQ_CFG, "W4A16_AWQ", (("attn.to_q", 1, 24, 128),), units=1, block=128)
    modelopt_exported(out, "modelopt_w4a8_awq", mtq.W4A8_AWQ_BETA_CFG, "W4A8_AWQ", (("attn.to_q", 1, 16, 256),), units=1, block=128)
    flat = {"quant_method": "modelopt", "producer": {"name": "modelopt", "version": "0.47.0"}, "ignore": ["proj*"]}
    modelopt_block(out, "modelopt_nvfp4", "NVFP4", {**flat, "quant_algo": "NVFP4", "config_groups": {"group_0": {
        "input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
        "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}}})
    nested = {"producer": {"name": "modelopt", "version": "0.47.0"},
              "quantization": {"quant_algo": "MXFP8", "kv_cache_quant_algo": None, "exclude_modules": ["proj_out"]}}
    modelopt_block(out, "modelopt_mxfp8", "MXFP8", nested)
    modelopt_block(out, "modelopt_mxfp4", "MXFP4", {**flat, "quant_algo": "MXFP4"})
    modelopt_mixed(out)


# ---- compressed-tensors ----


def compressed(out, name, args, fmt, acts=None, dtype=torch.float32, units=0):
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme, QuantizationStatus
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    case = Case(out, name, units)
    args = QuantizationArgs(**args)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, input_activations=QuantizationArgs(**acts) if acts else None, format=fmt)
    compressor = BaseCompressor.get_value_from_registry(fmt)
    for module, i, rows, cols in MODULES:
        w = weight(i, rows, cols).to(dtype)
        group = args.group_size if args.group_size and args.group_size > 0 else cols
        g = w.reshape(rows, -1, group)
        low, high = g.amin(2), g.amax(2)
        state = {"weight": w}
        if args.strategy == "tensor":
            low, high = w.min().reshape(1), w.max().reshape(1)
        if args.strategy == "tensor_group":
            state["weight_global_scale"] = generate_gparam(low.min(), high.max()).reshape(1)
        scale, zero = calculate_qparams(low, high, args, global_scale=state.get("weight_global_scale"))
        state["weight_scale"] = scale
        if not args.symmetric:
            state["weight_zero_point"] = zero
        packed = compressor.compress(state, scheme)
        plain = compressor.decompress(packed, scheme)["weight"].to(torch.float32)
        if acts and acts.get("dynamic") is False:
            packed["input_scale"] = torch.tensor([0.015625], dtype=dtype)
        value = plain if not units else plain.to(BF16)  # what the tool gives in bf16, and what is expanded to it
        case.add(module, packed, value.reshape(rows, cols))
    case.plain()
    config = QuantizationConfig(config_groups={"group_0": scheme}, format=fmt, ignore=["proj_out"],
                                quantization_status=QuantizationStatus.COMPRESSED)
    case.finish(json.loads(config.model_dump_json()))


def compressed_tensors(out):
    fp8 = {"num_bits": 8, "type": "float", "symmetric": True}
    compressed(out, "ct_fp8_static", {**fp8, "strategy": "tensor"}, "float-quantized", {**fp8, "strategy": "tensor", "dynamic": False}, BF16, units=1)
    compressed(out, "ct_int8", {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}, "int-quantized",
               {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True})
    compressed(out, "ct_int4", {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}, "pack-quantized", units=1)
    compressed(out, "ct_int4_asym", {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False}, "pack-quantized", units=1)
    compressed(out, "ct_int4_channel", {"num_bits": 4, "type": "int", "strategy": "channel", "symmetric": False}, "pack-quantized", units=1)
    int8 = {"num_bits": 8, "type": "int", "strategy": "group", "group_size": 32}
    compressed(out, "ct_int8_packed", {**int8, "symmetric": False}, "pack-quantized", units=1)
    compressed(out, "ct_int8_channel", {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}, "pack-quantized", units=1)
    compressed(out, "ct_int8_group", {**int8, "symmetric": False}, "int-quantized", units=1)
    compressed(out, "ct_nvfp4", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True,
                                 "scale_dtype": "torch.float8_e4m3fn", "zp_dtype": "torch.float8_e4m3fn"}, "nvfp4-pack-quantized", units=1)
    compressed(out, "ct_mxfp4", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True,
                                 "scale_dtype": "torch.uint8", "zp_dtype": "torch.uint8"}, "mxfp4-pack-quantized")


# ---- TorchAO ----


def torchao_case(out, name, config, dtype=torch.float32, units=0, shapes=MODULES):
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import quantize_

    case = Case(out, name, units)
    model = Model(shapes).to(dtype)
    quantize_(model, config)
    state = model.state_dict()
    for module in model.names:
        w = state[module + ".weight"]
        value = w.dequantize().to(torch.float32)
        case.expected[module + ".weight"] = value.contiguous() if not units else value.to(BF16).contiguous()
    plain = weight(9, 8, 32).to(BF16)
    state["proj_out.weight"] = plain
    case.expected["proj_out.weight"] = plain.clone()
    tensors, metadata = flatten_tensor_state_dict(state)
    case.tensors, case.metadata = {k: v.contiguous() for k, v in tensors.items()}, metadata
    case.finish({"quant_method": "torchao", "quant_type": {"default": {"_type": type(config).__name__}}})


def torchao_int4(out):
    """Its class, whose codes a library for GPUs makes: here they are made as that is described, value =
    code x scale + zero_point with codes -8 .. 7 and both in bf16."""
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import Int4Tensor

    case, state, group = Case(out, "torchao_int4", units=1), {}, 32
    for module, i, rows, cols in MODULES:
        w = weight(i, rows, cols).reshape(rows, cols // group, group)
        low, high = w.amin(2, keepdim=True), w.amax(2, keepdim=True)
        scale = ((high - low) / 15).clamp(min=1e-6).to(BF16).to(torch.float32)
        zero = (low + 8 * scale).to(BF16).to(torch.float32)
        q = ((w - zero) / scale).round().clamp(-8, 7)
        value = (q * scale + zero).reshape(rows, cols)
        q = q.reshape(rows, cols).to(torch.int8)
        packed = (q[:, 1::2] << 4) | (q[:, ::2] & 15)
        state[module + ".weight"] = Int4Tensor(packed, scale.squeeze(2).t().contiguous().to(BF16),
                                               zero.squeeze(2).t().contiguous().to(BF16), [1, group], torch.Size((rows, cols)))
        case.expected[module + ".weight"] = value.to(BF16)
    plain = weight(9, 8, 32).to(BF16)
    state["proj_out.weight"] = plain
    case.expected["proj_out.weight"] = plain.clone()
    tensors, case.metadata = flatten_tensor_state_dict(state)
    case.tensors = {k: v.contiguous() for k, v in tensors.items()}
    case.finish({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}})


def torchao(out):
    from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig
    from torchao.quantization.granularity import PerRow

    torchao_case(out, "torchao_fp8", Float8WeightOnlyConfig())
    torchao_case(out, "torchao_int8", Int8WeightOnlyConfig(granularity=PerRow(), version=2))
    # The classes of the block formats and of int4, made directly: their configs ask for a GPU.
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    def direct(name, make, units=0):
        case = Case(out, name, units)
        state = {}
        for k, (module, i, rows, cols) in enumerate(MODULES):
            w = make(k, weight(i, rows, cols))
            state[module + ".weight"] = w
            value = w.dequantize().to(torch.float32)
            case.expected[module + ".weight"] = value.contiguous()
        plain = weight(9, 8, 32).to(BF16)
        state["proj_out.weight"] = plain
        case.expected["proj_out.weight"] = plain.clone()
        tensors, case.metadata = flatten_tensor_state_dict(state)
        case.tensors = {k: v.contiguous() for k, v in tensors.items()}
        case.finish({"quant_method": "torchao", "quant_type": {"default": {"_type": name}}})

    def nvfp4(k, w):
        scale = per_tensor_amax_to_scale(w.abs().max())
        return NVFP4Tensor.to_nvfp4(w, per_tensor_scale=scale, is_swizzled_scales=k == 1)

    direct("torchao_nvfp4", nvfp4, units=1)  # it multiplies the scales first
    torchao_int4(out)
    direct("torchao_mx", lambda k, w: MXTensor.to_mx(w, torch.float8_e4m3fn if k == 0 else torch.float4_e2m1fn_x2, 32))


# ---- bitsandbytes ----


def bitsandbytes(out):
    import bitsandbytes.functional as bnb

    case = Case(out, "bnb_int8", units=2)
    for module, i, rows, cols in MODULES:
        w = weight(i, rows, cols)
        q, stats, _ = bnb.int8_vectorwise_quant(w.to(torch.float16))
        case.add(module, {"weight": q, "SCB": stats, "weight_format": torch.tensor(0, dtype=torch.uint8)},
                 bnb.int8_vectorwise_dequant(q, stats))
    case.plain()
    case.finish({"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False, "llm_int8_skip_modules": ["proj_out"]})
    for nested in (False, True):
        case = Case(out, "bnb_nf4_nested" if nested else "bnb_fp4")
        for module, i, rows, cols in MODULES:
            w = weight(i, rows, cols)
            q, state = bnb.quantize_4bit(w.to(BF16), blocksize=64, compress_statistics=nested, quant_type="nf4" if nested else "fp4")
            parts = {"weight." + k: v for k, v in state.as_dict(packed=True).items()}
            state.dtype = torch.float32
            case.add(module, {"weight": q, **parts}, bnb.dequantize_4bit(q, state))
        case.plain()
        case.finish({"quant_method": "bitsandbytes", "load_in_4bit": True} if nested else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    np.seterr(all="raise", under="ignore")
    for make in (bitsandbytes, compressed_tensors, torchao, modelopt):
        if arguments.only in make.__name__:
            make(arguments.out)


if __name__ == "__main__":
    main()
