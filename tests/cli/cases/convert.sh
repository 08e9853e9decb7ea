# Models that are quantized become plain ones: the same values, and where BF16 holds them the same picture;
# or their codes carry over; refused where there is nothing to convert.
draw="$small --quiet --no-metadata -p apple"
OUNCE_CPU=scalar # one order of sums
export OUNCE_CPU
for method in mxfp8 mxfp4; do
    "$program" quantize -o q -q $method --quiet >/dev/null
    expect "$method: converted" 0 'm' "transformer (compressed_tensors): 72 layers ($method 72) become bf16, 133 tensors are copied; * MB become 29.1 MB.*written in *" convert q -o m
    expect "$method: quantized" 0 'quantized.png' '' generate q $draw -o quantized.png
    expect "$method: plain" 0 'plain.png' '' generate m $draw -o plain.png
    ok "$method: the same picture" cmp quantized.png plain.png
    ok "$method: the config as it was" cmp m/transformer/config.json "$OUNCE_MODELS/emoji/transformer/config.json"
    ok "$method: the rest is copied" cmp m/text_encoder/model.safetensors "$OUNCE_MODELS/emoji/text_encoder/model.safetensors"
    expect "$method: nothing tells of it" 0 '*' '' inspect m
    ok "$method: every tensor is accounted for" sh -c '! "$1" inspect --tensors m | grep -E "UNEXPECTED|WRONG|quantized by"' sh "$program"
    expect "$method: its codes carry over" 0 'c' '*(compressed_tensors): 72 layers (*) keep their codes, *' convert q --output c --to codes
    ok "$method: the same files" diff -r q c
    rm -r q m c ./*.png
done
unset OUNCE_CPU

"$program" quantize -o q -q int8 --quiet >/dev/null
expect 'in shards, quietly' 0 'm' '' convert q -o m --max-shard-bytes 4000000 --threads 2 --quiet
ok 'an index' grep -q '"transformer_blocks.0.attn.to_q.weight": "diffusion_pytorch_model-0000' m/transformer/diffusion_pytorch_model.safetensors.index.json
expect 'it is a model already' 2 '' 'ounce: m holds a model already.*--overwrite).' convert q -o m
expect 'replaced, verbosely' 0 'm' '*become bf16*' convert q -o m --overwrite --verbose
ok 'what was there is gone' test ! -e m/transformer/diffusion_pytorch_model.safetensors.index.json
expect 'it draws' 0 'x.png' '' generate m $draw -o x.png
expect 'it is quantized anew' 0 'n' '' quantize m -q fp8 -o n --quiet
expect 'a lone transformer joins a base' 0 'l' 'transformer (*72 layers (int8_channel 72) become bf16*' convert --transformer q/transformer -o l
ok 'the same weights' cmp m/transformer/diffusion_pytorch_model.safetensors l/transformer/diffusion_pytorch_model.safetensors

expect 'nowhere' 2 '' 'ounce: Where to? --output FOLDER is missing.' convert q
expect 'nothing to convert' 2 '' 'ounce: * is plain and in the diffusers layout: there is nothing to convert. To quantize it: ounce quantize.' convert -o p
expect 'another form' 2 '' 'ounce: --to must be one of bf16, codes, not *fp8*' convert q -o p --to fp8
expect 'an option of quantize' 2 '' 'ounce: --quantization is an option of *, not of `ounce convert`.' convert q -o p -q fp8
expect 'a header that is too long' 3 '' '*' convert q -o p --max-header-bytes 100
expect 'onto itself' 2 '' '*q is the model that is read, or lies in it*' convert q -o q --overwrite
ok 'nothing is left of what was refused' sh -c '! ls -d p* 2>/dev/null'
rm -r q m n l ./*.png
