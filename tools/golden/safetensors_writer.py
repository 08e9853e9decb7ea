"""Makes tests/golden/ckpt/*.safetensors: what the field's own libraries write, for ckpt/writer.

Every dtype that the reference library has, names whose byte order differs from any locale's, a
scalar, a tensor without elements; and a checkpoint in shards with its index. Values are a counter.
"""
import argparse
import json
import os

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file

DTYPES = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
          "bfloat16", "float32", "float64", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]


def counted(shape, dtype, start):
    t = torch.zeros(shape, dtype=dtype)
    raw = t.reshape(-1).view(torch.uint8) if t.numel() else t
    if dtype == torch.bool:
        return torch.arange(t.numel()).remainder(2).bool().reshape(shape)
    for i in range(raw.numel() if t.numel() else 0):
        raw[i] = (start + i) % 100
    return t


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    out = parser.parse_args().out
    tensors = {}
    for n, name in enumerate(DTYPES):
        dtype = getattr(torch, name)
        tensors["t.%s" % name] = counted((2, n % 3 + 1), dtype, n)
        tensors["B%s" % name] = counted((n % 4 + 1,), dtype, 2 * n)
    tensors["scalar"] = counted((), torch.float32, 7)
    tensors["empty"] = counted((0, 4), torch.bfloat16, 0)
    tensors["na\u00efve \"quoted\""] = counted((3,), torch.float32, 9)
    save_file(tensors, os.path.join(out, "all.safetensors"), metadata={"format": "pt"})

    state = {"b%02d" % i: counted((4, 4 * (i % 5 + 1)), torch.bfloat16, i) for i in range(12)}
    state["a_large"] = counted((16, 40), torch.bfloat16, 5)
    state["z"] = counted((2,), torch.float32, 5)
    split = split_torch_state_dict_into_shards(state, filename_pattern="model{suffix}.safetensors",
                                               max_shard_size=600)
    folder = os.path.join(out, "shards")
    os.makedirs(folder, exist_ok=True)
    for file, names in split.filename_to_tensors.items():
        save_file({k: state[k] for k in names}, os.path.join(folder, file), metadata={"format": "pt"})
    index = {"metadata": {"total_size": split.metadata["total_size"]},
             "weight_map": dict(sorted(split.tensor_to_filename.items()))}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(index, indent=2, sort_keys=True) + "\n")
    print("order:", " ".join(state))


if __name__ == "__main__":
    main()
