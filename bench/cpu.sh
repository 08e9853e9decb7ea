#!/bin/sh
# cpu.sh [MODEL]: the same picture with ounce and with diffusers, on the CPU, in turns; medians and ratios.
# MODEL is a folder in the diffusers layout (default: the bundled emoji model). Environment:
#   PYTHON   an interpreter with torch, diffusers, transformers (default: python3)
#   OUNCE    the program (default: the newest build)
#   ROUNDS (5)  SIZE (128, or WxH)  STEPS (20)  SCALE (4)  THREADS (as many as the process may use)
#   OUNCES ("bf16 f32")  PEERS ("f32 bf16"): which precisions run
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
: "${PYTHON:=python3}" "${ROUNDS:=5}" "${SIZE:=128}" "${STEPS:=20}" "${SCALE:=4}" "${THREADS:=$(nproc)}"
: "${OUNCES=bf16 f32}" "${PEERS=f32 bf16}"
# shellcheck disable=SC2012  # names are ours
: "${OUNCE:=$(ls -t "$root"/build/*/apps/ounce 2>/dev/null | head -n 1)}"
: "${OUNCE_MODELS:=$root/models}"
export OUNCE_MODELS
model=${1:-$OUNCE_MODELS/emoji}
width=${SIZE%x*} height=${SIZE#*x}
[ -x "$OUNCE" ] || { echo "there is no program ounce: build it, or set OUNCE" >&2; exit 2; }
if [ -n "$PEERS" ] && ! "$PYTHON" -c 'import diffusers, torch, transformers' 2>/dev/null; then
    echo "$PYTHON has no diffusers, torch and transformers: pip install them, or set PYTHON" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

echo "$model: ${width}x$height, $STEPS steps, true CFG scale $SCALE, $THREADS threads, $ROUNDS rounds"
round=1
while [ "$round" -le "$ROUNDS" ]; do
    for precision in $OUNCES; do
        "$OUNCE" bench "$model" --width "$width" --height "$height" --num-inference-steps "$STEPS" \
            --true-cfg-scale "$SCALE" --threads "$THREADS" --precision "$precision" --repeat 1 --quiet --json \
            >>"$work/ounce-$precision"
    done
    for precision in $PEERS; do
        "$PYTHON" "$here/peers/diffusers_cpu.py" "$model" --width "$width" --height "$height" --steps "$STEPS" \
            --scale "$SCALE" --threads "$THREADS" --precision "$precision" 2>"$work/err" \
            >>"$work/diffusers-$precision" || { cat "$work/err" >&2; exit 1; }
    done
    round=$((round + 1))
done
set --
for precision in $OUNCES; do set -- "$@" "ounce $precision=$work/ounce-$precision"; done
for precision in $PEERS; do set -- "$@" "diffusers $precision=$work/diffusers-$precision"; done
"$PYTHON" "$here/peers/table.py" "$@"
