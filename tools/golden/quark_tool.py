"""
quark_tool.py --out tests/golden/dialects: small checkpoints that AMD Quark has quantized and exported, on a CPU,
and what its own modules dequantize from what they have written.

The same weights and folders as dialect_layouts.py (read its docstring). Two exporters: that of diffusers' models
(quark_diffusers, packed "reorder"), which names tensors after the modules of its quantizers, and that of
transformers' (quark_transformers, packed "order"). The import compiles two small extensions (ninja, a C++
compiler; minutes the first time). Called quark.py, this file would be imported in the package's place.
"""

import argparse
import json
import pathlib
import shutil
import tempfile

import numpy as np
import torch
from dialect_layouts import BF16, Case, matrix
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import register_to_config
from quark.torch import ModelQuantizer, export_safetensors
from quark.torch.quantization.config import config as q
from transformers import PretrainedConfig, PreTrainedModel

FP8 = q.FP8E4M3PerTensorSpec
ROW4 = q.Int4PerChannelSpec

# A layer's weight and what goes into it; the names are those of the modules.
LAYERS = {
    "a": (FP8(), None),
    "b": (FP8(), FP8()),  # static: calibrated with one batch
    "c": (q.FP8E4M3PerChannelSpec(ch_axis=0), q.FP8E4M3PerChannelSpec(ch_axis=-2, is_dynamic=True)),
    "d": (q.Int8PerChannelSpec(ch_axis=0, symmetric=True), q.Int8PerTensorSpec("min_max", True, "float", "half_even", True)),
    "e": (q.Int8PerTensorSpec("min_max", True, "float", "half_even", False), None),
    "f": (q.Int8PerChannelSpec(ch_axis=0, symmetric=False), None),
    "g": (q.Int8PerGroupSpec(ch_axis=1, group_size=32), None),
    "h": (q.Int4PerGroupSpec(ch_axis=1, group_size=32), None),
    "i": (q.Uint4PerGroupSpec(ch_axis=1, group_size=32), None),
    "j": (ROW4(ch_axis=0), None),
    "k": (q.OCP_MXFP4Spec(ch_axis=-1, is_dynamic=False), None),
    "l": (q.ScaleQuantSpec(q.FP4PerGroupSpec(-1, 16, "e4m3", is_dynamic=False), FP8()), None),
    "m": (q.ProgressiveSpec(FP8(), ROW4(ch_axis=0)), FP8(is_dynamic=True)),
    "n": (q.ProgressiveSpec(FP8(), ROW4(ch_axis=0, symmetric=False)), None),
    "o": (q.Int4PerGroupSpec(ch_axis=1, group_size=32, symmetric=False), None),
    "p": (q.Uint4PerChannelSpec(ch_axis=0, symmetric=False, is_dynamic=False), None),
    "q": (q.Uint8PerChannelSpec(ch_axis=0, symmetric=False, is_dynamic=False), None),
    "r": (q.Int8PerGroupSpec(ch_axis=1, group_size=32, symmetric=False), None),
    "s": (q.Uint8PerGroupSpec(ch_axis=1, group_size=32, symmetric=False, is_dynamic=False), None),
    "t": (q.ProgressiveSpec(FP8(), q.Int4PerGroupSpec(ch_axis=1, group_size=32)), None),
}
WORDS = "hijmnopt"  # of 4 bits, output or input channels in words: two words a row or column, the others are smaller
ORDERED = "abdhjlmn"  # what quark_transformers has of them


def spec(x):
    return None if x is None else x.to_quantization_spec()


def layer(i, rows, cols):
    linear = torch.nn.Linear(cols, rows, bias=False)
    linear.weight.data = torch.from_numpy(matrix(i, rows, cols)).to(torch.bfloat16)
    return linear


class Layers:
    names = tuple(LAYERS)

    def fill(self):
        for i, name in enumerate(LAYERS):
            if name in self.names:
                setattr(self, name, layer(i + 1, 16 if name in WORDS else 8, 64))
        self.proj_out = layer(len(LAYERS) + 1, 8, 32)

    def forward(self, x):
        return [getattr(self, name)(x) for name in self.names]


class Diffusers(Layers, ModelMixin, ConfigMixin):
    @register_to_config
    def __init__(self):
        super().__init__()
        self.fill()


class Config(PretrainedConfig):
    model_type = "layers"


class Transformers(Layers, PreTrainedModel):
    config_class = Config
    names = tuple(ORDERED)

    def __init__(self, config):
        super().__init__(config)
        self.fill()
        self.post_init()

    def _init_weights(self, module):
        pass


def make(out, name, model, pack_method):
    case = Case(out, name)
    case.expected["proj_out.weight"] = model.proj_out.weight.detach().float().numpy().astype(BF16)
    layers = {k: q.QLayerConfig(weight=spec(w), input_tensors=spec(a)) for k, (w, a) in LAYERS.items() if k in model.names}
    config = q.QConfig(global_quant_config=layers["a"], layer_quant_config=layers, exclude=["proj_out"])
    batch = torch.linspace(-1, 2, 3 * 64).reshape(1, 3, 64).to(torch.bfloat16)
    model = ModelQuantizer(config).quantize_model(model, [batch])
    model = ModelQuantizer.freeze(model)
    rounded = {k: getattr(model, k).get_quant_weight(getattr(model, k).weight).detach() for k in model.names}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        export_safetensors(model, path, weight_format="real_quantized", pack_method=pack_method)
        for k in model.names:
            module = getattr(model, k)
            value = module.weight_quantizer(module.weight.data)
            # What it computed with before it packed anything is the same in its model's dtype.
            assert torch.equal(value.to(torch.bfloat16), rounded[k].to(torch.bfloat16)), k
            case.expect(k, value.numpy())
        case.finish()  # expected
        (file,) = path.glob("*.safetensors")
        shutil.copyfile(file, case.folder / "model.safetensors")
        config = json.loads((path / "config.json").read_text())["quantization_config"]
        text = json.dumps({"quantization_config": config}, sort_keys=True)
        (case.folder / "config.json").write_text(text + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out
    make(out, "quark_diffusers", Diffusers(), "reorder")
    make(out, "quark_transformers", Transformers(Config()), "order")


if __name__ == "__main__":
    main()
