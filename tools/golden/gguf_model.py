"""The bundled model's transformer as a GGUF file, quantized by the makers' own code; and the same dequantized, in bf16.

    python tools/golden/gguf_model.py --model models/emoji --type q8_0 --out /tmp/q8_0
    python tools/golden/gguf_model.py --model models/emoji --type q4_k --ggml /path/libggml.so --out /tmp/q4_k

No fixture: the files are compared by hand, docs/formats/gguf.md has the result. Written into --out: `transformer.gguf`
(names of diffusers, as the writers of such files keep them; tensors of one dimension or up to 1024 elements in F32, the
others in --type, or in BF16 where their rows are no whole blocks) and `model/`, a copy of the model whose
transformer has what gguf-py dequantizes, rounded to bf16. `--text-encoder` also writes `text_encoder.gguf`, with llama.cpp's names.

q8_0 and the other types of 32 are quantized by gguf-py. K-quants need ggml's own code, which is on PyPI as part of
llama-cpp-python's source: --ggml is a shared library of ggml.c, ggml-quants.c and ggml-threading.cpp.
"""

import argparse
import ctypes
import glob
import json
import os
import shutil

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
ENDS = {"embed_tokens": "token_embd", "norm": "output_norm"}


def read(folder):
    """Tensors of a folder of safetensors files, in f32 (the model is BF16 and F32)."""
    out = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        raw = np.fromfile(path, dtype=np.uint8)
        size = int(raw[:8].view("<u8")[0])
        for name, t in json.loads(raw[8:8 + size].tobytes()).items():
            if name == "__metadata__":
                continue
            begin, end = t["data_offsets"]
            data = raw[8 + size + begin:8 + size + end]
            if t["dtype"] == "BF16":
                x = (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                assert t["dtype"] == "F32", t["dtype"]
                x = data.view("<f4")
            out[name] = x.reshape(t["shape"])
    return out


def to_bf16(x):
    u = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path, tensors):
    header, parts, at = {}, [], 0
    for name in sorted(tensors):
        data = to_bf16(tensors[name]).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(parts))


class Quantizer:
    def __init__(self, kind, library):
        self.kind = GGMLQuantizationType[kind.upper()]
        self.elements, self.bytes = GGML_QUANT_SIZES[self.kind]
        self.ggml = None
        if library is not None:
            self.ggml = ctypes.CDLL(library, mode=os.RTLD_LAZY)
            f = self.ggml.ggml_quantize_chunk
            f.restype = ctypes.c_size_t
            f.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]

    def __call__(self, x):
        if self.ggml is None:
            return quantize(x, self.kind)
        x = np.ascontiguousarray(x, dtype=np.float32)
        out = np.zeros((x.shape[0], x.shape[1] // self.elements * self.bytes), dtype=np.uint8)
        n = self.ggml.ggml_quantize_chunk(int(self.kind), x.ctypes.data, out.ctypes.data, 0, x.shape[0], x.shape[1], None)
        assert n == out.nbytes
        return out


def write(path, arch, tensors, quantizer, rename=lambda name: name):
    """Writes the file; gives what the tensors are worth in it."""
    w = GGUFWriter(path, arch)
    w.add_quantization_version(2)
    values, count = {}, 0
    for name, x in tensors.items():
        if x.ndim < 2 or x.size <= 1024:
            w.add_tensor(rename(name), x.astype(np.float32))
            values[name] = x
        elif x.shape[-1] % quantizer.elements != 0:
            w.add_tensor(rename(name), to_bf16(x).view(np.uint8), raw_dtype=GGMLQuantizationType.BF16)
            values[name] = x
        else:
            b = quantizer(x)
            w.add_tensor(rename(name), b, raw_dtype=quantizer.kind)
            values[name] = dequantize(b, quantizer.kind).reshape(x.shape)
            count += 1
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(path, "%d tensors, %d in %s" % (len(tensors), count, quantizer.kind.name))
    return values


def llama_name(name):
    head, kind = name.replace("model.language_model.", "model.").rsplit(".", 1)
    parts = head.split(".")
    if parts[1] == "layers":
        return "blk.%s.%s.%s" % (parts[2], LAYER[".".join(parts[3:])], kind)
    return "%s.%s" % (ENDS[parts[1]], kind)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--type", required=True)
    parser.add_argument("--ggml")
    parser.add_argument("--text-encoder", action="store_true")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    quantizer = Quantizer(args.type, args.ggml)
    values = write(os.path.join(args.out, "transformer.gguf"), "qwen_image",
                   read(os.path.join(args.model, "transformer")), quantizer)
    copy = os.path.join(args.out, "model")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(args.model, copy)
    for path in glob.glob(os.path.join(copy, "transformer", "diffusion_pytorch_model*")):
        os.remove(path)
    write_safetensors(os.path.join(copy, "transformer", "diffusion_pytorch_model.safetensors"), values)
    if args.text_encoder:
        tensors = {k: v for k, v in read(os.path.join(args.model, "text_encoder")).items()
                   if "visual" not in k and k != "lm_head.weight"}
        write(os.path.join(args.out, "text_encoder.gguf"), "qwen2vl", tensors, quantizer, llama_name)


if __name__ == "__main__":
    main()
