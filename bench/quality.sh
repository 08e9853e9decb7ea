#!/bin/sh
# quality.sh [ROW...]: what each scheme costs on the bundled model: the 20 prompts of prompts-emoji.txt, seeds 100
# to 119, 128x128, 20 steps, true CFG 4, against ounce without quantization; mean and least PSNR (dB) of the 8-bit
# pictures. A ROW is a name of the table below (default: all). Environment:
#   PYTHON   an interpreter with numpy and Pillow (default: python3)
#   OUNCE    the program (default: the newest build)
#   PRECISION (bf16)   THREADS (as many as the process may use)   OUT (a folder that keeps the pictures)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
: "${PYTHON:=python3}" "${PRECISION:=bf16}" "${THREADS:=$(nproc)}"
# shellcheck disable=SC2012  # names are ours
: "${OUNCE:=$(ls -t "$root"/build/*/apps/ounce 2>/dev/null | head -n 1)}"
: "${OUNCE_MODELS:=$root/models}"
export OUNCE_MODELS
[ -x "$OUNCE" ] || { echo "there is no program ounce: build it, or set OUNCE" >&2; exit 2; }
work=${OUT:-$(mktemp -d)}
[ -n "${OUT:-}" ] || trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# name | method | further keys of the config
rows='fp8_per_tensor / fp8_per_token|fp8_per_tensor|
fp8_per_channel / fp8_per_token|fp8_per_channel|
fp8_per_block / fp8_per_block|fp8_per_block|
fp8_per_channel / none|fp8_per_channel|activation=none
int8 / int8_per_token|int8|
mxfp8 / none|mxfp8|
mxfp8 / mxfp8|mxfp8|activation=mxfp8
mxfp4 floor / none|mxfp4|mxfp4_scale_alg=0
mxfp4 floor / mxfp8|mxfp4|mxfp4_scale_alg=0 activation=mxfp8
mxfp4 floor / mxfp4|mxfp4|mxfp4_scale_alg=0 activation=mxfp4
mxfp4 even / none|mxfp4|
mxfp4_dualscale / none|mxfp4_dualscale|activation=none
mxfp4_dualscale / same|mxfp4_dualscale|activation=mxfp4_dualscale
nvfp4 / none|nvfp4|
nvfp4 / nvfp4|nvfp4|activation=nvfp4
nf4 / none|bitsandbytes|'

draw() { # FOLDER [options...]
    mkdir -p "$work/$1"
    (cd "$work/$1" && shift && "$OUNCE" generate --prompts-file "$here/prompts-emoji.txt" --seed 100 --quiet \
        --precision "$PRECISION" --threads "$THREADS" --no-metadata -o p.png "$@" >/dev/null)
}

draw reference
echo "scheme | PSNR mean, min (dB) | relative L2"
echo "$rows" | while IFS='|' read -r name method keys; do
    if [ $# -gt 0 ]; then
        wanted=no
        for row in "$@"; do [ "$row" = "$name" ] && wanted=yes; done
        [ $wanted = yes ] || continue
    fi
    folder=$(echo "$name" | tr ' /' '__')
    set_keys=
    for key in $keys; do set_keys="$set_keys --quantization-config.${key%%=*} ${key#*=}"; done
    # shellcheck disable=SC2086  # words
    draw "$folder" -q "$method" --quantization-config.num_bf16_fallback_layers 0 $set_keys ||
        { echo "$name | failed"; continue; }
    "$PYTHON" "$here/psnr.py" "$name" "$work/reference" "$work/$folder"
done
