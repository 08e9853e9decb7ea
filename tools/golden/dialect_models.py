"""
dialect_models.py --model models/emoji --out DIR [--only NAME]: the bundled model's transformer quantized by ModelOpt,
compressed-tensors, TorchAO, bitsandbytes and in ComfyUI's formats, and beside it what the maker dequantizes.

No fixture: too large. bench/dialects.sh compares the pictures, docs/quality.md has the result. For each case
DIR/NAME/quantized and DIR/NAME/dequantized are models whose other files are links to the bundled one's: the 72 linear
layers of attention and MLPs in the maker's form, and as the maker's own dequantization gives them, rounded to bf16. The
functions are those of dialects.py and dialect_layouts.py, which make the fixtures: ComfyUI's files are written there from
the description of the format.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import dialect_layouts as layouts  # noqa: E402
import dialects  # noqa: E402

STEM = "diffusion_pytorch_model.safetensors"


class Job:
    """What the patched functions of both files see in place of their small weights."""

    def __init__(self, model, out):
        self.model, self.out = model, out
        self.tensors = {}
        for path in sorted((model / "transformer").glob("*.safetensors")):
            self.tensors.update(load_file(path))
        names = [n[:-7] for n, t in self.tensors.items() if t.dim() == 2 and n.startswith("transformer_blocks.")
                 and n.endswith(".weight") and (".attn." in n or "_mlp." in n)]
        self.modules = [(n, i, *self.tensors[n + ".weight"].shape) for i, n in enumerate(sorted(names))]

    def weight(self, i, rows, cols):
        name, _, *shape = self.modules[i]
        if [rows, cols] != shape:  # a plain layer that fixtures have beside; finish() leaves it out
            return torch.zeros(rows, cols)
        return self.tensors[name + ".weight"].to(torch.float32)

    def folder(self, name, kind):
        to = self.out / name / kind
        shutil.rmtree(to, ignore_errors=True)
        (to / "transformer").mkdir(parents=True)
        for entry in self.model.resolve().iterdir():
            if entry.is_dir() and entry.name != "transformer":
                shutil.copytree(entry, to / entry.name, copy_function=os.symlink)
            elif entry.is_file():
                os.symlink(entry, to / entry.name)
        return to / "transformer"

    def finish(self, name, tensors, expected, metadata, config, files):
        for named in (tensors, expected):
            named.pop("proj_out.weight", None)
        to = self.folder(name, "quantized")
        plain = {k: v for k, v in self.tensors.items() if k not in expected}
        save_file({**plain, **tensors}, to / STEM, metadata)
        text = json.loads((self.model / "transformer" / "config.json").read_text())
        if config is not None:
            text["quantization_config"] = config
        (to / "config.json").write_text(json.dumps(text, indent=2) + "\n")
        for file, value in (files or {}).items():
            (to / file).write_text(json.dumps(value, indent=1) + "\n")
        to = self.folder(name, "dequantized")
        worth = {k: v.to(torch.bfloat16).contiguous() for k, v in expected.items()}
        save_file({**plain, **worth}, to / STEM, {"format": "pt"})
        shutil.copy(self.model / "transformer" / "config.json", to / "config.json")
        print("%-16s %d layers" % (name, len(expected)), flush=True)


def as_torch(x):
    if isinstance(x, torch.Tensor):
        return x.detach().contiguous()
    if x.dtype == layouts.E4M3:
        return torch.from_numpy(x.view(np.uint8).copy()).view(torch.float8_e4m3fn)
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(x))


def patch(module, job):
    """Case of a file: it writes a model instead."""

    class Case(module.Case):
        def __init__(self, out, name, units=0):
            self.name = name
            self.tensors, self.expected, self.metadata, self.units = {}, {}, None, units

        def plain(self, *_):
            pass

        def finish(self, config=None, files=None):
            job.finish(self.name, {k: as_torch(v) for k, v in self.tensors.items()},
                       {k: as_torch(v) for k, v in self.expected.items()}, self.metadata, config, files)

    module.Case, module.MODULES = Case, job.modules
    module.Case.__name__ = "Case"


def comfy_convrot(job):
    case = layouts.Case(None, "comfy_convrot")
    h = layouts.hadamard(64)
    for module, i, rows, cols in job.modules:
        w = (layouts.matrix(i, rows, cols).reshape(rows, -1, 64) @ h).reshape(rows, cols)
        q, s = layouts.int8_parts(w, 1)
        case.tensors[module + ".weight"], case.tensors[module + ".weight_scale"] = q, s
        case.tensors[module + ".comfy_quant"] = layouts.hint(
            {"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": 64})
        back = ((q.astype(np.float64) * s).reshape(rows, -1, 64) @ h).reshape(rows, cols)
        case.expected[module + ".weight"] = torch.from_numpy(back)
    case.finish()


def torchao_fp8(job):
    from torchao.quantization import Float8WeightOnlyConfig

    # Its Case adds a plain layer by hand: the model's own is there instead.
    dialects.torchao_case(None, "torchao_fp8", Float8WeightOnlyConfig(), shapes=job.modules)


def modelopt_fp8(job):
    import modelopt.torch.quantization as mtq

    dialects.modelopt_exported(None, "modelopt_fp8", mtq.FP8_DEFAULT_CFG, "FP8", shapes=job.modules, files=True)


def modelopt_nvfp4(job):
    flat = {"quant_method": "modelopt", "producer": {"name": "modelopt", "version": "0.47.0"}, "ignore": ["proj*"]}
    dialects.modelopt_block(None, "modelopt_nvfp4", "NVFP4", {**flat, "quant_algo": "NVFP4", "config_groups": {"group_0": {
        "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}}})


def ct_fp8(job):
    dialects.compressed(None, "ct_fp8", {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"},
                        "naive-quantized")


def ct_int4(job):
    dialects.compressed(None, "ct_int4", {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32,
                                          "symmetric": False}, "pack-quantized")


def bnb_nf4_nested(job):
    dialects.bitsandbytes(None)


def comfy_fp8_scaled(job):
    layouts.comfy_old(None)


CASES = (modelopt_fp8, modelopt_nvfp4, ct_fp8, ct_int4, torchao_fp8, bnb_nf4_nested, comfy_fp8_scaled, comfy_convrot)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    job = Job(args.model, args.out)
    dialects.weight = job.weight
    layouts.matrix = lambda i, rows, cols: job.weight(i, rows, cols).double().numpy()
    patch(dialects, job)
    patch(layouts, job)
    for make in CASES:
        if args.only in make.__name__:
            make(job)


if __name__ == "__main__":
    main()
