"""psnr.py NAME REFERENCE FOLDER: mean and least PSNR (dB) and the mean relative L2 of the PNG files of a folder against
the files of the same names in another; 8 bits, data range 255."""
import pathlib
import sys

import numpy as np
from PIL import Image


def read(path):
    return np.asarray(Image.open(path).convert("RGB"), dtype=np.float64)


def main():
    name, reference, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    psnr, l2 = [], []
    for path in sorted(reference.glob("*.png")):
        a, b = read(path), read(folder / path.name)
        mse = ((a - b) ** 2).mean()
        psnr.append(10 * np.log10(255.0**2 / mse) if mse > 0 else float("inf"))
        l2.append(np.sqrt(((a - b) ** 2).sum() / (a**2).sum()))
    print(f"{name} | {np.mean(psnr):.2f}, {np.min(psnr):.2f} | {np.mean(l2):.4f} | {len(psnr)} pictures")


main()
