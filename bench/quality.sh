#!/bin/sh
# quality.sh [ROW...]: what each scheme costs on the bundled model: the 20 prompts of prompts-emoji.txt, the first
# with seed 100, each next one with a seed more; 128x128, 20 steps, true CFG 4; against ounce without quantization.
# Means over the pictures by `ounce compare`. A ROW is a name of the table below (default: all). Environment:
#   OUNCE    the program (default: the newest build)
#   PRECISION (bf16)   THREADS (as many as the process may use)
#   OUT      a folder that keeps the pictures, a folder for each row, and compare.json
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
: "${PRECISION:=bf16}" "${THREADS:=$(nproc)}"
# shellcheck disable=SC2012  # names are ours
: "${OUNCE:=$(ls -t "$root"/build/*/apps/ounce 2>/dev/null | head -n 1)}"
: "${OUNCE_MODELS:=$root/models}"
export OUNCE_MODELS
case $OUNCE in /*) ;; *) OUNCE=$PWD/$OUNCE ;; esac
[ -x "$OUNCE" ] || { echo "there is no program ounce: build it, or set OUNCE" >&2; exit 2; }
work=${OUT:-$(mktemp -d)}
mkdir -p "$work"
[ -n "${OUT:-}" ] || trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work"

# name, as tools/golden/make_scheme_emulation.py has it where it does | method | further keys of the config
rows='fp8_per_tensor/fp8_per_token|fp8_per_tensor|
fp8_per_channel/fp8_per_token|fp8_per_channel|
fp8_per_block/fp8_per_block|fp8_per_block|
fp8_per_channel/none|fp8_per_channel|activation=none
int8/int8_per_token|int8|
mxfp8/none|mxfp8|
mxfp8/mxfp8|mxfp8|activation=mxfp8
mxfp4/none|mxfp4|mxfp4_scale_alg=0
mxfp4/mxfp8|mxfp4|mxfp4_scale_alg=0 activation=mxfp8
mxfp4/mxfp4|mxfp4|mxfp4_scale_alg=0 activation=mxfp4
mxfp4_even/none|mxfp4|
mxfp4_even/mxfp4|mxfp4|activation=mxfp4
mxfp4_dualscale/none|mxfp4_dualscale|activation=none
mxfp4_dualscale/mxfp8|mxfp4_dualscale|activation=mxfp8
mxfp4_dualscale/mxfp4_dualscale|mxfp4_dualscale|activation=mxfp4_dualscale
nvfp4/none|nvfp4|
nvfp4/fp8_per_token|nvfp4|activation=fp8_per_token
nvfp4/nvfp4|nvfp4|activation=nvfp4
nf4/none|bitsandbytes|
fp4/none|bitsandbytes|quant_type=fp4'

draw() { # FOLDER [options...]: p-01.png ...
    folder=$1
    shift
    mkdir -p "$folder"
    seed=100
    while read -r prompt; do
        "$OUNCE" generate --prompt "$prompt" --seed $seed --quiet --precision "$PRECISION" --threads "$THREADS" \
            --no-metadata -o "$folder/p-$(printf %02d $((seed - 99))).png" "$@" >/dev/null || return
        seed=$((seed + 1))
    done <"$here/prompts-emoji.txt"
}

wanted() { # NAME [ROW...]: is it one of the rows, or are there none?
    name=$1
    shift
    [ $# -gt 0 ] || return 0
    for row in "$@"; do [ "$row" = "$name" ] && return 0; done
    return 1
}

echo "$rows" >rows
for row in "$@"; do
    cut -d'|' -f1 rows | grep -qxF -e "$row" || { echo "no row is called '$row'; the names are in $0" >&2; exit 2; }
done
draw reference
folders=
while IFS='|' read -r name method keys; do
    wanted "$name" "$@" || continue
    folder=$(echo "$name" | sed 's|/|___|')
    set_keys=
    for key in $keys; do set_keys="$set_keys --quantization-config.${key%%=*} ${key#*=}"; done
    # shellcheck disable=SC2086  # words
    draw "$folder" -q "$method" --quantization-config.num_bf16_fallback_layers 0 $set_keys
    folders="$folders $folder"
done <rows
# shellcheck disable=SC2086  # words
"$OUNCE" compare reference $folders --output-json compare.json
