#!/bin/sh
# quality.sh [ROW...]: what each scheme costs on the bundled model: the 20 prompts of prompts-emoji.txt, the first
# with seed 100, each next one with a seed more; 128x128, 20 steps, true CFG 4; against ounce without quantization.
# One `ounce compare` with a candidate for each ROW, by its name in the table below (default: all). Environment:
#   OUNCE    the program (default: the newest build)
#   PRECISION (bf16)   THREADS (as many as the process may use)
#   OUT      a folder that keeps compare.json, report.html and the pictures
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

# name | what it asks for. Names are those of tools/golden/make_scheme_emulation.py, with ___ for the slash, as peers/emulated_pictures.py has it.
rows='fp8_per_tensor___fp8_per_token|fp8_per_tensor
fp8_per_channel___fp8_per_token|fp8_per_channel
fp8_per_block___fp8_per_block|fp8_per_block
fp8_per_channel___none|{"method": "fp8_per_channel", "activation": null}
int8___int8_per_token|int8
int8___none|{"method": "int8", "activation": null}
mxfp8___none|mxfp8
mxfp8___mxfp8|{"method": "mxfp8", "activation": "mxfp8"}
mxfp4___none|{"method": "mxfp4", "mxfp4_scale_alg": 0}
mxfp4___mxfp8|{"method": "mxfp4", "mxfp4_scale_alg": 0, "activation": "mxfp8"}
mxfp4___mxfp4|{"method": "mxfp4", "mxfp4_scale_alg": 0, "activation": "mxfp4"}
mxfp4_even___none|mxfp4
mxfp4_even___mxfp4|{"method": "mxfp4", "activation": "mxfp4"}
mxfp4_dualscale___none|{"method": "mxfp4_dualscale", "num_bf16_fallback_layers": 0, "activation": null}
mxfp4_dualscale___mxfp8|{"method": "mxfp4_dualscale", "num_bf16_fallback_layers": 0, "activation": "mxfp8"}
mxfp4_dualscale___mxfp4_dualscale|{"method": "mxfp4_dualscale", "num_bf16_fallback_layers": 0}
nvfp4___none|nvfp4
nvfp4___fp8_per_token|{"method": "nvfp4", "activation": "fp8_per_token"}
nvfp4___nvfp4|{"method": "nvfp4", "activation": "nvfp4"}
nf4___none|bitsandbytes
fp4___none|{"method": "bitsandbytes", "quant_type": "fp4"}'

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
chosen=$*
set --
while IFS='|' read -r name request; do
    # shellcheck disable=SC2086  # names have no blanks
    wanted "$name" $chosen && set -- "$@" --candidate-quantization "$name=$request"
done <rows
"$OUNCE" compare --prompts-file "$here/prompts-emoji.txt" --seed 100 --precision "$PRECISION" --threads "$THREADS" --quiet \
    --output-json compare.json --report report.html --save-output-dir . "$@"
