#!/bin/sh
# dialects.sh FOLDER [CASE...]: the bundled model as other toolchains have quantized it against what they dequantize
# themselves, in pictures. FOLDER/CASE/quantized and FOLDER/CASE/dequantized are models (tools/golden/dialect_models.py; a
# GGUF file is FOLDER/CASE/transformer.gguf beside model/, as tools/golden/gguf_model.py writes them). For each case a line:
# PSNR, mean and least, against the unquantized model, of the checkpoint with plain activations, of the same as it is opened
# (where that quantizes activations), and of the maker's dequantized weights in BF16; then of the first and of what
# `ounce convert` writes against the maker's. The exit status is 1 where the first is more than 0.5 dB worse than the
# maker's. Environment:
#   OUNCE    the program (default: the newest build)
#   PROMPTS (4)   how many of prompts-emoji.txt, the first with seed 100   STEPS (20)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
: "${PROMPTS:=4}" "${STEPS:=20}" "${OUNCE_MODELS:=$root/models}"
# shellcheck disable=SC2012  # names are ours
: "${OUNCE:=$(ls -t "$root"/build/*/apps/ounce 2>/dev/null | head -n 1)}"
export OUNCE_MODELS
case $OUNCE in /*) ;; *) OUNCE=$PWD/$OUNCE ;; esac
[ -x "$OUNCE" ] || { echo "there is no program ounce: build it, or set OUNCE" >&2; exit 2; }
[ $# -gt 0 ] || { echo "usage: dialects.sh FOLDER [CASE...]" >&2; exit 2; }
folder=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- $(ls "$folder")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
head -n "$PROMPTS" "$here/prompts-emoji.txt" >"$work/prompts"
base=$OUNCE_MODELS/emoji
missed=0

# psnr LABEL FILE: "mean least" of a candidate in a table of `ounce compare`; "identical" where every picture is.
psnr() {
    awk -v label="$1" '$1 == label { print $2, $3; found = 1 } END { if (!found) print "- -" }' "$2"
}

echo "case | weights | as opened | dequantized | weights against dequantized | converted against dequantized"
for name in "$@"; do
    from=$folder/$name
    rm -rf "$work/out" "$work/converted"
    if [ -f "$from/transformer.gguf" ]; then # joined to a base: as a model of its own
        rm -rf "$work/gguf"
        cp -rs "$base" "$work/gguf"
        rm "$work/gguf/transformer"/*.safetensors*
        ln -s "$from/transformer.gguf" "$work/gguf/transformer/"
        quantized=$work/gguf dequantized=$from/model
    else
        quantized=$from/quantized dequantized=$from/dequantized
    fi
    "$OUNCE" convert "$quantized" -o "$work/converted" --quiet >/dev/null
    set -- --candidate-model "weights=$quantized"
    if "$OUNCE" inspect "$quantized" | grep -q 'quantized by .* activations [^n]'; then
        set -- --candidate-quantization 'weights={"linear":{"activation":null}}' --candidate-model "opened=$quantized"
    fi
    "$OUNCE" compare "$quantized" --reference-model "$base" "$@" --candidate-model "dequantized=$dequantized" \
        --candidate-model "converted=$work/converted" --prompts-file "$work/prompts" --seed 100 --num-inference-steps "$STEPS" \
        --quiet --save-output-dir "$work/out" >"$work/table"
    "$OUNCE" compare "$work/out/dequantized" "$work/out/weights" "$work/out/converted" >"$work/other"
    weights=$(psnr weights "$work/table")
    plain=$(psnr dequantized "$work/table")
    echo "$name | $weights | $(psnr opened "$work/table") | $plain | $(psnr "$work/out/weights" "$work/other") | $(psnr "$work/out/converted" "$work/other")"
    awk -v a="$weights" -v b="$plain" 'BEGIN { exit a < b - 0.5 }' ||
        { echo "$name: more than 0.5 dB worse" >&2; missed=1; }
done
exit $missed
