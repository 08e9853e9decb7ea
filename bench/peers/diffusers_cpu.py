"""Draws one picture with diffusers on the CPU and prints the times of its parts as JSON.

The object is that of `ounce bench --json`: load, text, a step, decode, total, in seconds with median,
min and max over --repeats. The pipeline is loaded once and warmed up once (one step, not counted), so
that no lazy initialisation is in the figures; that makes "total" the parts' sum, where for ounce it is
the wall time from opening the model.
"""
import argparse
import json
import statistics
import sys
import time


def timed(owner, name, spent):
    """Wraps owner.name so that the time spent in it is added to spent[name]."""
    function = getattr(owner, name)

    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        result = function(*args, **kwargs)
        spent[name] = spent.get(name, 0) + time.perf_counter() - start
        return result

    setattr(owner, name, wrapper)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a folder in the diffusers layout")
    parser.add_argument("--prompt", default="red apple")
    parser.add_argument("--negative-prompt", default=" ")
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--height", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--scale", type=float, required=True, help="true CFG; up to 1 it is off")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--precision", choices=["f32", "bf16"], required=True)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--output", help="write the last picture here")
    args = parser.parse_args()

    import torch
    import diffusers
    from diffusers import QwenImagePipeline

    diffusers.utils.logging.set_verbosity_error()
    if args.threads > 0:
        torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    start = time.perf_counter()
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args.precision]
    pipe = QwenImagePipeline.from_pretrained(args.model, torch_dtype=dtype)
    pipe.set_progress_bar_config(disable=True)
    load_s = time.perf_counter() - start

    spent = {}
    timed(pipe, "encode_prompt", spent)
    timed(pipe.vae, "decode", spent)

    def draw(steps):
        spent.clear()
        begin = time.perf_counter()
        image = pipe(prompt=args.prompt,
                     negative_prompt=args.negative_prompt if args.scale > 1 else None,
                     true_cfg_scale=args.scale, width=args.width, height=args.height,
                     num_inference_steps=steps,
                     generator=torch.Generator("cpu").manual_seed(args.seed)).images[0]
        whole = time.perf_counter() - begin
        text, decode = spent["encode_prompt"], spent["decode"]
        return image, {"text": text, "step": (whole - text - decode) / steps, "decode": decode,
                       "total": load_s + whole}

    draw(2)
    runs = []
    for _ in range(args.repeats):
        image, times = draw(args.steps)
        runs.append(times)
    if args.output:
        image.save(args.output)
    result = {"document": "peer", "peer": "diffusers", "version": diffusers.__version__,
              "torch": torch.__version__, "model": args.model, "width": args.width,
              "height": args.height, "num_inference_steps": args.steps, "true_cfg_scale": args.scale,
              "precision": args.precision, "threads": torch.get_num_threads(),
              "repeats": args.repeats,
              "load_s": {"median": load_s, "min": load_s, "max": load_s}}
    for part in ("text", "step", "decode", "total"):
        values = [run[part] for run in runs]
        result[part + "_s"] = {"median": statistics.median(values), "min": min(values),
                               "max": max(values)}
    json.dump(result, sys.stdout)
    print()


if __name__ == "__main__":
    main()
