"""Golden layers of integers in groups with zero points, by AutoRound, AutoAWQ and GPTQModel.

    python tools/golden/int_groups.py --out tests/golden/int_groups

Written: int_groups.safetensors, and bits.safetensors with GPTQ's odd sizes and AWQ's version gemv. For each case C the module's own tensors, `C.qweight`, `C.qzeros`, `C.scales`, perhaps `C.g_idx`,
as the tool packs them, and `C.values` F16 [N, K], what the tool itself makes of them: its forward of the unit matrix
(AutoRound), or its own dequantization. All cases have the same weights [32, 128] from a hash of their index, in groups of
32. Zero points 0 are there where the tool can store them: AutoRound's and GPTQModel's first format take one less.

The tools run on a CPU. AutoAWQ is not maintained any more and warns of it.
"""

import argparse
import os
from importlib.metadata import version

import torch
from auto_round_extension.torch.qlinear_torch import QuantLinear as AutoRoundV2
from auto_round_extension.torch.qlinear_torch_zp import QuantLinear as AutoRoundV1
from awq.modules.linear.gemm import WQLinear_GEMM
from awq.modules.linear.gemv import WQLinear_GEMV
from awq.utils.packing_utils import dequantize_gemm
from gptqmodel import QuantizeConfig
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.quantization import FORMAT
from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module
from safetensors.torch import save_file

N, K, GROUP = 32, 128, 32


def weights():
    i = torch.arange(N * K, dtype=torch.int64) + 1
    for factor in (0x9E3779B1, 0x85EBCA6B):
        i = i * factor & 0xFFFFFFFF
        i = i ^ i >> 15
    x = ((i & 0xFFFF).double() / 65536 - 0.5).float().reshape(N, K)
    x[:8] += 0.5  # groups without negative numbers: zero point 0
    return x * (1 + torch.arange(K) // GROUP)


def quantize(w, bits, least):
    """Scales [N, G] in halves and zero points [N, G], asymmetric."""
    groups = w.reshape(N, -1, GROUP)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scale = ((high - low) / (2**bits - 1)).half().float()
    zero = torch.round(-low / scale).clamp(least, 2**bits - 1)
    return scale, zero


def linear(w):
    layer = torch.nn.Linear(K, N, bias=False)
    layer.weight.data = w.clone()
    return layer


def keep(out, case, module, values, names=("qweight", "qzeros", "scales")):
    for name in names:
        out["%s.%s" % (case, name)] = getattr(module, name).detach()
    assert values.shape == (N, K) and values.dtype == torch.float16
    out[case + ".values"] = values


def auto_round(out, w):
    for case, kind, bits, least in [("auto_round_v1", AutoRoundV1, 4, 1), ("auto_round_v1_8", AutoRoundV1, 8, 1),
                                    ("auto_round_v2", AutoRoundV2, 4, 0), ("auto_round_v2_2", AutoRoundV2, 2, 0)]:
        scale, zero = quantize(w, bits, least)
        m = kind(bits, GROUP, K, N, False)
        m.device = "cpu"  # which AutoRoundV2 reads and does not set
        m.pack(linear(w), scale, zero, None, "cpu")
        values = m(torch.eye(K, dtype=torch.float16)).t()
        keep(out, case, m, values)


def awq(out, w):
    scale, zero = quantize(w, 4, 0)
    m = WQLinear_GEMM.from_linear(linear(w), 4, GROUP, scales=scale.t().contiguous(), zeros=zero.t().contiguous())
    keep(out, "awq", m, dequantize_gemm(m.qweight, m.qzeros, m.scales, 4, GROUP).t())


def awq_gemv(out, w):
    """No CPU dequantizes this version: the codes must be those of gemm, and so are the values."""
    scale, zero = quantize(w, 4, 0)
    m = WQLinear_GEMV.from_linear(linear(w), 4, GROUP, scales=scale.half(), zeros=zero)
    codes = (m.qweight[:, :, None] >> torch.arange(0, 32, 4) & 15).reshape(N, K)
    assert torch.equal(codes, torch.round(w / scale.repeat_interleave(GROUP, 1)
                                          + zero.repeat_interleave(GROUP, 1)).clamp(0, 15).int())
    full = {}
    awq(full, w)
    keep(out, "awq_gemv", m, full["awq.values"])


def gptqmodel_bits(out, w):
    g_idx = (torch.arange(K) // GROUP).to(torch.int32)
    for bits in (3, 5, 6, 7):
        for case, kind, first in [("", FORMAT.GPTQ_V2, False), ("_v1", FORMAT.GPTQ, True), ("_p", FORMAT.GPTQ_P, False)]:
            if bits != 3 and kind != FORMAT.GPTQ_P:
                continue  # these sizes have no other format
            scale, zero = quantize(w, bits, 1 if first else 0)
            m = TorchLinear(bits=bits, group_size=GROUP, sym=False, desc_act=False, in_features=K, out_features=N,
                            format=kind)
            m.pack_original(linear(w), scale, zero, g_idx)
            values = m.dequantize_weight().t().contiguous()
            if first:
                convert_gptq_v2_to_v1_format_module(m, QuantizeConfig(bits=bits, group_size=GROUP))
            keep(out, "gptqmodel_%d%s" % (bits, case), m, values, ("qweight", "qzeros", "scales", "g_idx"))


def gptqmodel(out, w):
    order = torch.arange(K) * 37 % K // GROUP  # columns dealt out to groups
    for case, act_order, first in [("gptqmodel_v2", False, False), ("gptqmodel_v1", False, True),
                                   ("gptqmodel_act_order", True, True)]:
        g_idx = (order if act_order else torch.arange(K) // GROUP).to(torch.int32)
        sorted_w = torch.empty_like(w)
        sorted_w[:, :] = w[:, torch.argsort(g_idx.long(), stable=True)]
        scale, zero = quantize(sorted_w, 4, 0)
        m = TorchLinear(bits=4, group_size=GROUP, sym=False, desc_act=act_order, in_features=K, out_features=N)
        m.pack_original(linear(w), scale, zero, g_idx)
        values = m.dequantize_weight().t().contiguous()
        if first:
            convert_gptq_v2_to_v1_format_module(m, QuantizeConfig(bits=4, group_size=GROUP))
        keep(out, case, m, values, ("qweight", "qzeros", "scales", "g_idx"))


def write(folder, name, out, w):
    for case in sorted({k.split(".")[0] for k in out}):
        error = (out[case + ".values"].float() - w).abs().max() / w.abs().max()
        print("%-20s largest error %.3f of the largest weight" % (case, error))
    path = os.path.join(folder, name + ".safetensors")
    save_file({k: v.contiguous().clone() for k, v in out.items()}, path,
              metadata={t: version(t) for t in ["auto-round", "autoawq", "gptqmodel", "torch"]})
    os.chmod(path, 0o644)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    folder = parser.parse_args().out
    os.makedirs(folder, exist_ok=True)
    out, w = {}, weights()
    auto_round(out, w)
    awq(out, w)
    gptqmodel(out, w)
    write(folder, "int_groups", out, w)
    out = {}
    gptqmodel_bits(out, w)
    awq_gemv(out, w)
    write(folder, "bits", out, w)


if __name__ == "__main__":
    main()
