"""Times diffusers' Qwen-Image transformer and VAE at full size on a CUDA card, with random weights made
there, and prints one JSON object of seconds: for each variant "step" (median of --repeats forwards) and
"steps" (--steps of them in one go), "peak_gib"; and "decode".

Variants: bf16 (blocks compiled) and fp8 (linears of the blocks as e4m3 with a scale per output row, rows
of the input quantized per token, through torch._scaled_mm; blocks compiled). One forward a step (no
classifier-free guidance). What a user of diffusers has; bench.sh of the card prints ounce's beside it.
"""
import argparse
import json
import statistics
import time


def fp8_linear_class(torch):
    class Linear(torch.nn.Module):
        def __init__(self, linear):
            super().__init__()
            w = linear.weight.data
            scale = w.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12) / 448.0
            self.register_buffer("weight", (w.float() / scale).to(torch.float8_e4m3fn))
            self.register_buffer("scale", scale.t().contiguous())
            self.bias = linear.bias

        def forward(self, x):
            rows = x.reshape(-1, x.shape[-1])
            s = rows.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12) / 448.0
            q = (rows.float() / s).to(torch.float8_e4m3fn)
            y = torch._scaled_mm(q, self.weight.t(), scale_a=s, scale_b=self.scale,
                                 out_dtype=torch.bfloat16)
            y = y if self.bias is None else y + self.bias
            return y.reshape(*x.shape[:-1], y.shape[-1])

    return Linear


def quantize(torch, block):
    linear = fp8_linear_class(torch)
    for parent in list(block.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, torch.nn.Linear):
                setattr(parent, name, linear(child))


def median_ms(torch, run, repeats):
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--size", type=int, default=1024, help="pixels of a side")
    parser.add_argument("--text", type=int, default=64, help="text tokens")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--variants", default="bf16,fp8")
    args = parser.parse_args()

    import torch
    from diffusers import AutoencoderKLQwenImage, QwenImageTransformer2DModel

    torch.set_grad_enabled(False)
    torch._dynamo.config.recompile_limit = 256  # each quantized linear is a module of its own shape
    torch.manual_seed(0)
    device = "cuda"
    out = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    with torch.device("meta"):
        model = QwenImageTransformer2DModel(num_layers=args.layers)
    model = model.to(torch.bfloat16).to_empty(device=device).eval()
    for p in model.parameters():
        if p.dim() > 1:
            p.normal_(0, p.shape[-1] ** -0.5)
        else:
            p.fill_(1.0) if p.dim() == 1 and p.numel() == 128 else p.zero_()
    model.pos_embed = type(model.pos_embed)(theta=10000, axes_dim=[16, 56, 56], scale_rope=True)
    side = args.size // 16
    tokens = side * side
    kwargs = dict(hidden_states=torch.randn(1, tokens, 64, device=device, dtype=torch.bfloat16),
                  encoder_hidden_states=torch.randn(1, args.text, 3584, device=device,
                                                    dtype=torch.bfloat16),
                  encoder_hidden_states_mask=None,  # as the pipeline passes it when no row is padding
                  timestep=torch.full((1,), 0.5, device=device, dtype=torch.bfloat16),
                  img_shapes=[[(1, side, side)]], txt_seq_lens=[args.text], return_dict=False)
    import inspect
    known = inspect.signature(model.forward).parameters
    kwargs = {k: v for k, v in kwargs.items() if k in known}

    def step():
        return model(**kwargs)[0]

    for variant in args.variants.split(","):
        if variant == "fp8":
            for block in model.transformer_blocks:
                quantize(torch, block)
        torch._dynamo.reset()
        start = time.time()
        for block in model.transformer_blocks:
            block.compile()
        finite = bool(step().isfinite().all())
        step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        result = {"compile_s": time.time() - start, "finite": finite,
                  "step": median_ms(torch, step, args.repeats)}

        def steps():
            for _ in range(args.steps):
                step()

        result["steps"] = median_ms(torch, steps, 3)
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        out[variant] = result
        print(json.dumps({variant: result}), flush=True)
    del model
    torch.cuda.empty_cache()
    vae = AutoencoderKLQwenImage().to(device, torch.bfloat16).eval()
    latent = torch.randn(1, 16, 1, args.size // 8, args.size // 8, device=device,
                         dtype=torch.bfloat16)
    vae.decode(latent)
    out["decode"] = median_ms(torch, lambda: vae.decode(latent), 5)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
