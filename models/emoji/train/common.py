"""What the training stages share: paths, the prompt template, captions, latents, timesteps, sample pictures.

Every random number is drawn in the order in which the published weights drew it; keep it when you edit.
"""

import json
import os
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image

DATA = Path(os.environ.get("DATA", "data"))  # emoji.npz, emoji.json of stage 1
WORK = Path(os.environ.get("WORK", "work"))  # tokenizer and weights, from stage to stage
OUT = Path(os.environ.get("OUT", "out"))  # sample pictures and the reference tensors
BATCH = int(os.environ.get("B", "384"))  # of stages 3 and 4

DEVICE = "cuda"

# Qwen-Image's own template; its first PREFIX_TOKENS tokens are dropped from the text encoder's output.
TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
PREFIX_TOKENS = 34
CAPTION_TOKENS = 28  # kept of a caption and the template's end: enough for all but the longest names
TOKENS = PREFIX_TOKENS + CAPTION_TOKENS
CAPTIONS = 24  # drawn once for each picture; training picks among them

Z_CHANNELS = 16
LATENT_GRID = [[(1, 8, 8)]]  # frames, rows and columns of patches of a 128 x 128 picture

# Offsets of the 128 x 128 crop in the 136 x 136 picture. The first is the centre; the others teach small shifts.
CROPS = ((4, 4), (3, 4), (5, 4), (4, 3), (4, 5))

SAMPLE_PROMPTS = [
    "red apple", "grinning cat", "an emoji of a rocket", "pizza", "woman astronaut", "rainbow", "a blue car",
    "flag: Japan", "thumbs up", "sunflower", "dog face", "snowman", "guitar", "green heart", "octopus",
    "hamburger emoji", "fire", "person in lotus position", "umbrella with rain drops", "birthday cake",
    "man firefighter: dark skin tone", "clown face", "cherries", "crescent moon",
]  # fmt: skip
SAMPLE_SCALES = (1.0, 2.0, 4.0)  # of true CFG


def load_emoji() -> tuple[list[dict], np.ndarray]:
    """Descriptions, and pictures [n, 136, 136, 4] uint8."""
    return json.loads((DATA / "emoji.json").read_text(encoding="utf-8")), np.load(DATA / "emoji.npz")["imgs"]


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def millions(module: torch.nn.Module) -> float:
    return sum(p.numel() for p in module.parameters()) / 1e6


def encode_latents(vae, pictures: np.ndarray) -> torch.Tensor:
    """Normalised latents [n, crops, 16, 16, 16] of all pictures on white."""
    x = torch.from_numpy(pictures).to(DEVICE).float().permute(0, 3, 1, 2) / 255
    x = x[:, :3] * x[:, 3:] + 1 - x[:, 3:]
    mean = torch.tensor(vae.config.latents_mean, device=DEVICE).view(1, Z_CHANNELS, 1, 1)
    std = torch.tensor(vae.config.latents_std, device=DEVICE).view(1, Z_CHANNELS, 1, 1)
    latents = []
    with torch.no_grad():
        for dx, dy in CROPS:
            z = []
            for i in range(0, len(x), 256):
                crop = x[i : i + 256, :, dy : dy + 128, dx : dx + 128] * 2 - 1
                z.append(vae.encode(crop.bfloat16().unsqueeze(2)).latent_dist.mean.float().squeeze(2))
            latents.append((torch.cat(z) - mean) / std)
    return torch.stack(latents, 1)


def pack(z: torch.Tensor) -> torch.Tensor:
    """Latents [b, c, h, w] to the transformer's tokens [b, h/2 * w/2, 4 c], as the pipeline packs them."""
    b, c, h, w = z.shape
    return z.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, h // 2 * (w // 2), c * 4)


def caption(emoji: dict, keyword_chance: float) -> str:
    """One caption: mostly the name, sometimes keywords, sometimes nothing (so that guidance has its negative)."""
    if random.random() < 0.1:
        return " "
    text = emoji["name"] if random.random() < 0.6 else (emoji["tts"] or emoji["name"])
    keywords = emoji["kw"]
    if random.random() < keyword_chance and keywords:
        text = ", ".join(random.sample(keywords, min(len(keywords), random.randint(1, 3))))
    elif random.random() < keyword_chance and keywords:
        text = text + ", " + random.choice(keywords)
    form = random.random()
    if form < 0.5:
        return text
    if form < 0.65:
        return "a " + text
    if form < 0.8:
        return "an emoji of " + text
    if form < 0.85:
        return "the " + text
    return text + " emoji" if form < 0.95 else text.capitalize()


def caption_tokens(tokenizer, template: str, emoji: list[dict], keyword_chance: float):
    """CAPTIONS captions for each picture: ids and mask, [n, CAPTIONS, TOKENS], cut and padded."""
    pad = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    ids = np.full((len(emoji), CAPTIONS, TOKENS), pad, np.int64)
    mask = np.zeros((len(emoji), CAPTIONS, TOKENS), np.int64)
    for row, one in enumerate(emoji):
        for column in range(CAPTIONS):
            tokens = tokenizer(template.format(caption(one, keyword_chance))).input_ids[:TOKENS]
            ids[row, column, : len(tokens)] = tokens
            mask[row, column, : len(tokens)] = 1
    return torch.from_numpy(ids).to(DEVICE), torch.from_numpy(mask).to(DEVICE)


def draw_batch(pictures: int, size: int):
    """Which picture, which crop (seven in ten the centre), which caption."""
    picture = torch.randint(0, pictures, (size,), device=DEVICE)
    crop = torch.randint(0, len(CROPS), (size,), device=DEVICE) * (torch.rand(size, device=DEVICE) < 0.3)
    text = torch.randint(0, CAPTIONS, (size,), device=DEVICE)
    return picture, crop, text


def draw_sigmas(size: int) -> torch.Tensor:
    """Noise levels: logit-normal, shifted towards noise as sampling is; 15 % uniform, so that both ends are seen."""
    u = torch.sigmoid(torch.randn(size, device=DEVICE))
    shifted = 1.6 * u / (1 + 0.6 * u)
    return torch.where(torch.rand(size, device=DEVICE) < 0.15, torch.rand(size, device=DEVICE), shifted)


def uncompile(blocks) -> None:
    """Takes back Module.compile(), so that the pipeline that is saved runs plainly."""
    for block in blocks:
        block._compiled_call_impl = None


def save_samples(pipe, path: Path) -> None:
    """A sheet of SAMPLE_PROMPTS, two rows for each guidance scale."""
    rows = []
    for scale in SAMPLE_SCALES:
        pictures = [
            np.asarray(
                pipe(
                    prompt,
                    negative_prompt=" " if scale > 1 else None,
                    true_cfg_scale=scale,
                    height=128,
                    width=128,
                    num_inference_steps=20,
                    generator=torch.Generator("cpu").manual_seed(42),
                ).images[0]
            )
            for prompt in SAMPLE_PROMPTS
        ]
        rows += [np.concatenate(pictures[:12], 1), np.concatenate(pictures[12:], 1)]
    Image.fromarray(np.concatenate(rows, 0)).save(path)
