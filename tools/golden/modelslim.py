"""
modelslim.py --out tests/golden/dialects: a small checkpoint of msModelSlim's own making: its quantizers, wrappers
and ascendv1 saver, on a CPU, with the values that it computes with.

The same weights and folders as dialect_layouts.py (read its docstring). What a layer is worth is what its maker's
modules make of an identity: each wrapper's transform, then the weight that its quantizer dequantizes.
"""

import argparse
import json
import pathlib
import shutil
import tempfile

import msmodelslim.ir as qir
import numpy as np
import torch
from dialect_layouts import BF16, Case, matrix, val
from msmodelslim.core.quant_service.modelslim_v1.save.ascendv1 import AscendV1Config, AscendV1Saver
from msmodelslim.core.quantizer.base import AutoWeightQuantizer, QConfig
from msmodelslim.core.quantizer.linear import LinearQConfig, LinearQuantizer
from msmodelslim.ir.api import dequantize
from msmodelslim.ir.qal import QParam, QScheme
from safetensors import safe_open


def config(dtype, scope, method="minmax", symmetric=True, **ext):
    return {"dtype": dtype, "scope": scope, "method": method, "symmetric": symmetric, "ext": ext}


PLAIN = config("float", "per_tensor", "none")
TOKEN = config("int8", "per_token")
ROW8, ROW4 = config("int8", "per_channel"), config("int4", "per_channel")
FP8 = config("fp8_e4m3", "per_channel")
MX8, MX4 = config("mxfp8", "per_block"), config("mxfp4", "per_block")
DUAL = config("mxfp4", "dual_scale", "dualscale", dual_block_size=512)


def quantized(w, act, weight):
    """Its module, and the weight that the module computes with."""
    linear = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    linear.weight.data = w
    x = torch.linspace(-1, 2, 3 * w.shape[1]).reshape(3, -1)
    if act == ROW4:  # four bits a token: there is a module for it, and no quantizer
        quantizer = AutoWeightQuantizer.from_config(QConfig(**weight))
        quantizer.init_weight(qir.qal.QStorage(qir.qal.QDType.FLOAT, value=w), None)
        value = quantizer(x)
        scheme = QScheme(qir.qal.QScope.PER_TOKEN, qir.qal.QDType.INT4, True)
        return qir.AutoFakeQuantLinear.create(QParam(scheme), quantizer.get_q_param(), quantizer.get_q_storage(), None), value
    quantizer = LinearQuantizer(LinearQConfig(act=act, weight=weight))
    quantizer.setup(linear)
    params = quantizer.weight_quantizer.get_q_param().ext if weight == DUAL else {}
    if weight == DUAL:
        params["axes"] = [-1]  # its forward asks for a list, all else for a number
    quantizer(x)
    value = quantizer.weight_quantizer(x)
    if weight == FP8:  # it is its saver that rounds to FP8
        own = quantizer.weight_quantizer
        rounded = own.get_q_storage().value.to(torch.float8_e4m3fn).to(torch.float32)
        value = dequantize(own.get_q_storage().same_like(rounded).T, own.get_q_param()).T.value
    if weight["method"] == "gptq":  # whose forward returns the weight as it was
        own = quantizer.weight_quantizer
        value = dequantize(own.get_q_storage().T, own.get_q_param()).T.value  # as its module of W8A16 does
    if weight == DUAL:
        params["axes"] = -1
    return quantizer.deploy(), value


def weight(i, rows, cols):
    return torch.from_numpy(matrix(i, rows, cols)).to(torch.float32)


def smoothed(module, value, scales):
    wrapper = qir.NonFusionSmoothQuantWrapper(scales, module)
    return wrapper, value * wrapper.scales


def flat(w, left, right, act, weight_config):
    """W for L^T X R, quantized: W (x) = W' (L^T X R)."""
    trans = {k: v for k, v in (("left_trans", left), ("right_trans", right)) if v is not None}
    probe = qir.FlatQuantOnlineWrapper(torch.nn.Identity())
    probe._add_flat(dict(trans))
    turn = probe._apply_flat(torch.eye(w.shape[1], dtype=torch.float64)).to(torch.float64)  # rows: images of units
    inside = (w.double() @ torch.linalg.inv(turn).T).to(torch.float32)
    module, value = quantized(inside, act, weight_config)
    wrapper = qir.FlatQuantOnlineWrapper(module)
    wrapper._add_flat(dict(trans))
    wrapper._add_clip(torch.tensor([4.0]))
    return wrapper, value.double() @ turn.T


def branch(w, rank, act, weight_config):
    u, s, v = torch.linalg.svd(w.double())
    l1, l2 = v[:rank].to(torch.float32), (u[:, :rank] * s[:rank]).to(torch.float32)
    module, value = quantized((w.double() - l2.double() @ l1.double()).to(torch.float32), act, weight_config)
    return qir.SVDResidualWrapper(module, l1, l2), value.double() + l2.double() @ l1.double()


def factor(i, n, off):
    return torch.eye(n) + off * torch.from_numpy(val(i, n * n).reshape(n, n)).to(torch.float32)


def layers():
    yield "a", quantized(weight(1, 16, 64), config("int8", "per_tensor", symmetric=False), ROW8)
    yield "b", quantized(weight(2, 16, 64), TOKEN, ROW8)
    yield "c", quantized(weight(3, 16, 64), config("int8", "pd_mix", symmetric=False), ROW8)
    yield "d", quantized(weight(4, 16, 64), TOKEN, config("int8", "per_group", "gptq", group_size=32))
    yield "e", quantized(weight(5, 16, 64), TOKEN, ROW4)
    yield "f", quantized(weight(6, 16, 64), ROW4, ROW4)
    yield "g", quantized(weight(7, 16, 32), config("fp8_e4m3", "per_token"), FP8)
    yield "h", quantized(weight(8, 16, 64), MX8, MX8)
    yield "i", quantized(weight(10, 16, 64), MX4, MX4)
    yield "j", quantized(weight(11, 16, 64), MX8, MX4)
    yield "k", quantized(weight(12, 4, 1024), DUAL, DUAL)
    scales = torch.from_numpy(np.exp2(val(210, 64))).to(torch.float32)
    yield "l", smoothed(*quantized(weight(13, 16, 64) * scales, MX4, MX4), scales)
    yield "m", flat(weight(14, 16, 64), factor(220, 4, 0.3), factor(221, 16, 0.2), TOKEN, ROW4)
    yield "n", flat(weight(15, 16, 64), factor(222, 4, 0.3), None, MX4, MX4)
    yield "o", smoothed(*branch(weight(16, 16, 64) * scales, 4, MX4, MX4), scales)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    case = Case(parser.parse_args().out, "modelslim_tool", units=1)
    with tempfile.TemporaryDirectory() as folder:
        saver = AscendV1Saver(torch.nn.Module(), AscendV1Config(save_directory=folder, part_file_size=0), None)
        for name, (module, value) in layers():
            saver._process_module_maybe_wrapper_ir(name, module)
            case.expect(name, value.detach().double().numpy(), BF16)
        plain = torch.nn.Linear(32, 8, bias=False)
        plain.weight.data = weight(9, 8, 32).to(torch.bfloat16)
        saver.on_float_linear("proj_out", plain)
        saver.json_writer.write("version", saver.version)
        saver.json_writer.write("model_quant_type", saver.model_quant_type)
        saver.json_writer.write("group_size", saver.group_size)
        saver.json_writer.close()
        saver.safetensors_writer.close()
        path = pathlib.Path(folder)
        with safe_open(path / "quant_model_weights.safetensors", "pt") as f:
            case.expected["proj_out.weight"] = f.get_tensor("proj_out.weight").float().numpy().astype(BF16)
        labels = json.loads((path / "quant_model_description.json").read_text())
        case.folder.mkdir(parents=True, exist_ok=True)
        case.finish(files={"quant_model_description.json": dict(sorted(labels.items()))})  # expected, and labels
        shutil.copyfile(path / "quant_model_weights.safetensors", case.folder / "model.safetensors")


if __name__ == "__main__":
    main()
