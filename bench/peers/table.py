"""table.py NAME=FILE...: sets timings side by side. Each file holds objects as `ounce bench --json`
prints them, one per round. Ratios: the best peer over the best ounce, of medians and of bests."""
import json
import statistics
import sys

PARTS = ["load", "text", "step", "decode", "draw"]


def read(path):
    """The objects of a file, which follow each other."""
    decoder, rounds = json.JSONDecoder(), []
    with open(path, encoding="utf-8") as f:
        text = f.read().strip()
    while text:
        value, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        times = {part: value[part + "_s"]["median"] for part in PARTS[:-1]}
        times["draw"] = times["text"] + value["num_inference_steps"] * times["step"] + times["decode"]
        rounds.append(times)
    return rounds


def main():
    columns = [argument.split("=", 1) for argument in sys.argv[1:]]
    names = [name for name, _ in columns]
    data = {name: read(path) for name, path in columns}
    rounds = min(len(r) for r in data.values())
    print("medians of %d rounds in ms, (best); draw: text, all steps and decoding" % rounds)
    print("%-8s" % "" + "".join("%24s" % name for name in names) + "%10s %10s" % ("ratio", "of bests"))
    for part in PARTS:
        medians = {name: statistics.median(r[part] for r in data[name]) for name in names}
        bests = {name: min(r[part] for r in data[name]) for name in names}
        line = "%-8s" % part
        for name in names:
            line += "%24s" % ("%.1f (%.1f)" % (1e3 * medians[name], 1e3 * bests[name]))
        for values in (medians, bests):
            ours = [v for name, v in values.items() if name.startswith("ounce")]
            peers = [v for name, v in values.items() if not name.startswith("ounce")]
            if ours and peers and min(ours) > 0:
                line += " %9.2fx" % (min(peers) / min(ours))
        print(line)


if __name__ == "__main__":
    main()
