"""Golden files of a tiny Qwen2.5-VL text tower, computed by transformers in float32 on a CPU.

    python tools/golden/text_tower.py --out tests/golden/text_tower

Written into --out:

  tied.safetensors          the checkpoint: weights `model.*` (bf16, names of the old flat layout)
  untied.safetensors        `lm_head.weight` alone; the body is the one above
  golden.safetensors        what transformers computed with them
  {tied,untied}.config.json       as transformers 5.x saves it (nested text_config, rope_parameters)
  {tied,untied}.config_flat.json  as transformers 4.x did (one level, rope_theta and rope_scaling)

`input_ids` [n] is common to all cases. For each case C (see `positions`): `C.position_ids` [3, n] (rows t, h, w),
`C.layers.L` [n, hidden] (the residual stream after decoder layer L), `C.norm` [n, hidden] (after the final norm: what a
text-to-image pipeline takes), `C.tied.logits` and `C.untied.logits` [n, vocab].

The weights come from a hash, not from a random generator; README.md beside this file gives the rule. They are rounded
to bf16 once, so that the file holds exactly what transformers computed with.
"""

import argparse
import json
import math
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.utils import logging

Tensors = dict[str, torch.Tensor]

HIDDEN, LAYERS, HEADS, KV_HEADS, INTERMEDIATE, VOCAB = 64, 2, 4, 2, 96, 128
HEAD_DIM = HIDDEN // HEADS
MROPE_SECTION = [2, 3, 3]
ROPE_THETA = 1e6
EPS = 1e-6
TOKENS = 11
ORDINARY_IDS = 120  # ids from here on are special in the configs below
SPECIAL_IDS = {"vision_start_token_id": 124, "vision_end_token_id": 125, "image_token_id": 126, "video_token_id": 127}

TEXT = {
    "attention_dropout": 0.0,
    "bos_token_id": 120,
    "eos_token_id": 121,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": INTERMEDIATE,
    "max_position_embeddings": 4096,
    "max_window_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "rms_norm_eps": EPS,
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": VOCAB,
}
VISION = {  # needed by the class, never run here
    "depth": 1,
    "fullatt_block_indexes": [0],
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": HIDDEN,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
}

FILL_RULE = (
    "i: index of the name in the byte-sorted list of the untied checkpoint's names (lm_head.weight is 0); j: row-major "
    "index of the element; val(i,j): x = i*0x9E3779B9 + j*0x85EBCA6B + 0xC2B2AE35 mod 2^32, x ^= x>>15, "
    "x *= 0x2C1B3C6D, x ^= x>>12, x *= 0x297A2D39, x ^= x>>15, x/2^32 - 0.5. Names ending in layernorm.weight or "
    "norm.weight: 1 + 0.2*val; else two dimensions: 2*val/sqrt(columns); else (bias) 0.1*val. In double, rounded to "
    "f32, then to bf16 (nearest even)"
)


def val(i: int, count: int) -> np.ndarray:
    """The first `count` values of hash stream `i`, each in [-0.5, 0.5)."""
    mask = np.uint64(0xFFFFFFFF)
    j = np.arange(count, dtype=np.uint64)
    x = (np.uint64(i * 0x9E3779B9 & 0xFFFFFFFF) + j * np.uint64(0x85EBCA6B) + np.uint64(0xC2B2AE35)) & mask
    x ^= x >> np.uint64(15)
    x = x * np.uint64(0x2C1B3C6D) & mask
    x ^= x >> np.uint64(12)
    x = x * np.uint64(0x297A2D39) & mask
    x ^= x >> np.uint64(15)
    return x.astype(np.float64) / 2.0**32 - 0.5


def shapes() -> dict[str, list[int]]:
    """Every parameter of the untied checkpoint, in the old layout."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    table = {
        "lm_head.weight": [VOCAB, HIDDEN],
        "model.embed_tokens.weight": [VOCAB, HIDDEN],
        "model.norm.weight": [HIDDEN],
    }
    for layer in range(LAYERS):
        p = f"model.layers.{layer}."
        table |= {p + "input_layernorm.weight": [HIDDEN], p + "post_attention_layernorm.weight": [HIDDEN]}
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            table |= {p + f"self_attn.{name}_proj.weight": [rows, HIDDEN], p + f"self_attn.{name}_proj.bias": [rows]}
        table |= {
            p + "self_attn.o_proj.weight": [HIDDEN, q],
            p + "mlp.gate_proj.weight": [INTERMEDIATE, HIDDEN],
            p + "mlp.up_proj.weight": [INTERMEDIATE, HIDDEN],
            p + "mlp.down_proj.weight": [HIDDEN, INTERMEDIATE],
        }
    return table


def fill() -> Tensors:
    """All weights, by FILL_RULE."""
    weights = {}
    for i, (name, shape) in enumerate(sorted(shapes().items(), key=lambda item: item[0].encode())):
        v = val(i, math.prod(shape))
        if name.endswith(("layernorm.weight", "norm.weight")):
            v = 1 + 0.2 * v
        elif len(shape) >= 2:
            v = 2 * v / math.sqrt(math.prod(shape[1:]))
        else:
            v = 0.1 * v
        weights[name] = torch.from_numpy(v.astype(np.float32)).reshape(shape).to(torch.bfloat16)
    return weights


def hashed_integers(stream: int, count: int, limit: int) -> torch.Tensor:
    """Integers 0..limit-1 out of a hash stream."""
    return torch.from_numpy(np.floor((val(stream, count) + 0.5) * limit).astype(np.int64))


def positions() -> Tensors:
    """The cases: what rows t, h, w hold."""
    plain = torch.arange(TOKENS)
    # Three text tokens, a picture of 2 x 3 merged patches, two text tokens: as the model numbers them.
    image = (
        [(p, p, p) for p in range(3)] + [(3, 3 + r, 3 + c) for r in range(2) for c in range(3)] + [(6, 6, 6), (7, 7, 7)]
    )
    return {
        "plain": plain.expand(3, -1),
        "image": torch.tensor(image).T,
        "scattered": hashed_integers(1001, 3 * TOKENS, 1000).reshape(3, TOKENS),
    }


def nested_config(tied: bool) -> dict:
    """config.json as transformers 5.x saves it."""
    rope = {"rope_type": "default", "type": "mrope", "mrope_section": MROPE_SECTION, "rope_theta": ROPE_THETA}
    config = Qwen2_5_VLConfig(
        text_config=TEXT | {"rope_parameters": rope},
        vision_config=VISION,
        tie_word_embeddings=tied,
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        dtype="bfloat16",
        **SPECIAL_IDS,
    )
    return json.loads(config.to_json_string())


def flat_config(tied: bool) -> dict:
    """config.json as the published Qwen2.5-VL repositories have it (transformers 4.x)."""
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        **TEXT,
        **SPECIAL_IDS,
        "rope_scaling": {"type": "mrope", "mrope_section": MROPE_SECTION},
        "rope_theta": ROPE_THETA,
        "sliding_window": 4096,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.41.2",
        "vision_config": {"model_type": "qwen2_5_vl", **VISION},
    }


def load(config: dict, weights: Tensors) -> Qwen2_5_VLForConditionalGeneration:
    """The real class, through its real loader, from a checkpoint in the old layout; in float32."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        save_file(weights, Path(folder, "model.safetensors"), metadata={"format": "pt"})
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
    mine = {name.replace("model.language_model.", "model."): p for name, p in model.state_dict().items()}
    for name, weight in weights.items():
        assert torch.equal(mine[name], weight.float()), f"{name} was not loaded as stored"
    text = model.config.text_config
    assert text.rope_parameters["mrope_section"] == MROPE_SECTION and text.rope_parameters["rope_theta"] == ROPE_THETA
    assert text.num_key_value_heads == KV_HEADS
    return model


def run(model: Qwen2_5_VLForConditionalGeneration, ids: torch.Tensor, position_ids: torch.Tensor | None) -> Tensors:
    """One forward of one sequence, with every decoder layer's output."""
    tower, seen = model.model.language_model, {}
    hooks = [
        layer.register_forward_hook(lambda _m, _i, out, key=f"layers.{n}": seen.update({key: out}))
        for n, layer in enumerate(tower.layers)
    ]
    hooks.append(tower.norm.register_forward_hook(lambda _m, _i, out: seen.update(norm=out)))
    rows = None if position_ids is None else position_ids[:, None, :]
    with torch.no_grad():
        logits = model(input_ids=ids[None], position_ids=rows, use_cache=False).logits
        for hook in hooks:
            hook.remove()
        alone = tower(input_ids=ids[None], position_ids=rows, use_cache=False).last_hidden_state
    assert torch.equal(alone, seen["norm"]), "the tower alone and inside the whole model disagree"
    return {key: value[0].clone() for key, value in (seen | {"logits": logits}).items()}


def without(weights: Tensors, *suffixes: str) -> Tensors:
    """The same weights with some tensors set to zero."""
    return {name: torch.zeros_like(w) if name.endswith(suffixes) else w for name, w in weights.items()}


def swapped_kv_heads(weights: Tensors) -> Tensors:
    """The same weights with the key and value heads in the wrong order."""
    kv = ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias")
    return {name: w.roll(HEAD_DIM, 0).contiguous() if name.endswith(kv) else w for name, w in weights.items()}


def check_that_faults_show(config: dict, weights: Tensors, ids: torch.Tensor, cases: Tensors, golden: Tensors) -> None:
    """A golden file that a broken engine would pass is worth nothing: plant faults, and see them."""
    good = load(config, weights)
    image, scattered = cases["image"], cases["scattered"]
    faults = {
        "t used for all three rows": ("image", run(good, ids, image[[0, 0, 0]])),
        "h and w exchanged": ("image", run(good, ids, image[[0, 2, 1]])),
        "plain positions for an image": ("image", run(good, ids, None)),
        "t used for h": ("scattered", run(good, ids, scattered[[0, 0, 2]])),
        "t used for w": ("scattered", run(good, ids, scattered[[0, 1, 0]])),
        "no q bias": ("plain", run(load(config, without(weights, "q_proj.bias")), ids, None)),
        "no k bias": ("plain", run(load(config, without(weights, "k_proj.bias")), ids, None)),
        "no v bias": ("plain", run(load(config, without(weights, "v_proj.bias")), ids, None)),
        "kv heads exchanged": ("plain", run(load(config, swapped_kv_heads(weights)), ids, None)),
        "eps 1e-5": ("plain", run(load(config | {"rms_norm_eps": 1e-5}, weights), ids, None)),
    }
    for name, (case, got) in faults.items():
        error = (got["norm"] - golden[f"{case}.norm"]).abs().max().item()
        print(f"  {name} ({case}): {error:.2g}")
        assert error > 1e-3, f"{name}: too small a difference to be seen"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write, e.g. tests/golden/text_tower")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    logging.set_verbosity_error()  # the vision tower's weights are missing on purpose
    logging.disable_progress_bar()
    assert np.allclose(val(0, 4), [0.45400967, 0.16093584, 0.49432255, -0.39614543], atol=5e-9)

    weights, cases = fill(), positions()
    ids = hashed_integers(1000, TOKENS, ORDINARY_IDS)
    body = {name: w for name, w in weights.items() if name != "lm_head.weight"}
    golden: Tensors = {"input_ids": ids}

    for tied in (True, False):
        name, held = ("tied", body) if tied else ("untied", weights)
        configs = {"config": nested_config(tied), "config_flat": flat_config(tied)}
        for kind, config in configs.items():
            Path(out, f"{name}.{kind}.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        model, other = (load(config, held) for config in configs.values())
        for case, rows in cases.items():
            result, same = run(model, ids, rows), run(other, ids, rows)
            assert all(torch.equal(result[key], same[key]) for key in result), "the two configs disagree"
            if case == "plain":
                default = run(model, ids, None)
                assert all(torch.equal(result[key], default[key]) for key in result), "positions 0..n-1 are the default"
            golden[f"{case}.{name}.logits"] = result.pop("logits")
            if tied:
                golden[f"{case}.position_ids"] = rows.contiguous()
                golden |= {f"{case}.{key}": value for key, value in result.items()}
            else:
                assert torch.equal(result["norm"], golden[f"{case}.norm"])
    print("planted faults, largest error after the final norm:")
    check_that_faults_show(flat_config(True), body, ids, cases, golden)

    made_with = ", ".join(f"{package} {version(package)}" for package in ("transformers", "torch"))
    files = {"tied": body, "untied": {"lm_head.weight": weights["lm_head.weight"]}, "golden": golden}
    for name, tensors in files.items():
        path = Path(out, f"{name}.safetensors")
        save_file(tensors, path, metadata={"fill": FILL_RULE, "made_with": f"{made_with}; float32, eager, CPU"})
        path.chmod(0o644)
        print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
