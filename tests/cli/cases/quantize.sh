# Models with quantized weights: the same picture as quantizing while loading, to the byte; refused where
# they must be; a folder that is whole or not there.
draw="$small --quiet --no-metadata -p apple"
for method in fp8_per_tensor fp8_per_channel fp8_per_block int8 mxfp8 mxfp4 nvfp4; do
    expect "$method: written" 0 'm' '' quantize -o m -q $method --quiet
    expect "$method: while loading" 0 'online.png' '' generate $draw -q $method -o online.png
    expect "$method: loaded" 0 'loaded.png' '' generate m $draw -o loaded.png
    ok "$method: the same picture" cmp online.png loaded.png
    expect "$method: described" 0 '*quantized by compressed_tensors: 72 linear layers as *' '' inspect m
    ok "$method: every tensor is accounted for" sh -c '! "$1" inspect --tensors m | grep -E "UNEXPECTED|WRONG"' sh "$program"
    rm -r m online.png loaded.png
done

expect 'with a summary, in shards' 0 'm' 'written in *' quantize --output m --quantization mxfp4 --keep none --max-shard-bytes 4000000 --threads 2
ok 'an index' grep -q '"transformer_blocks.0.attn.to_q.weight_packed": "diffusion_pytorch_model-0000' m/transformer/diffusion_pytorch_model.safetensors.index.json
ok 'the text encoder is copied' cmp m/text_encoder/model.safetensors "$OUNCE_MODELS/emoji/text_encoder/model.safetensors"
expect 'it is a model already' 2 '' 'ounce: m holds a model already.*--overwrite).' quantize -o m -q int8
expect 'replaced' 0 'm' '' quantize -o m -q int8 --overwrite --quiet --ignored-layers img_mlp,txt_mlp
ok 'what was there is gone' test ! -e m/transformer/diffusion_pytorch_model.safetensors.index.json
expect 'no shards of nothing' 2 '' 'ounce: --max-shard-bytes must be 1 or more.' quantize -o n -q int8 --max-shard-bytes 0
expect 'another method' 2 '' '*compressed_tensors*does not match*mxfp4*' generate m $small -p x -q mxfp4
expect 'its own' 0 'x.png' '' generate m $small --quiet -p x -q compressed-tensors -o x.png
expect 'quantized again' 2 '' '*Nothing of the model would be quantized*' quantize m -o n
expect 'a part, verbosely' 0 'n' '*text_encoder: Quantized *' quantize m -o n --quantization-config '{"text_encoder":"int8"}' --verbose --allow-unmatched
expect 'both are read' 0 'y.png' '' generate n $small --quiet -p x -o y.png
expect 'activations by a dotted key' 0 'o' '' quantize -o o -q mxfp4 --quantization-config.linear.activation mxfp8 --quiet
expect 'they stay' 0 'z.png' '' generate o $draw -o z.png
expect 'as while loading' 0 'w.png' '' generate $draw -q mxfp4 --quantization-config.linear.activation mxfp8 -o w.png
ok 'the same picture' cmp z.png w.png

expect 'nowhere' 2 '' 'ounce: Where to? --output FOLDER is missing.' quantize -q fp8
expect 'no method' 2 '' 'ounce: Nothing of the model would be quantized*' quantize -o p
expect 'a scheme without a format' 4 '' '*compressed-tensors has no format for mxfp4_dualscale. It holds*nvfp4;*' quantize -o p -q mxfp4_dualscale
expect 'a header that is too long' 3 '' '*' quantize -o p -q fp8 --max-header-bytes 100
mkdir folder
: >folder/file
expect 'a folder that is no model' 2 '' '*folder is there already and is no model*' quantize -o folder -q fp8 --overwrite
ok 'it stays' test -f folder/file
expect 'no parent' 6 '' 'ounce: Cannot *' quantize -o a/b/c -q fp8
ok 'nothing is left of what was refused' sh -c '! ls -d p* a folder.* 2>/dev/null'

# Ctrl-C: a larger model takes long enough.
"$program" random-model -o big --layers 40 --quiet >/dev/null
if env --default-signal=INT true 2>/dev/null; then
    env --default-signal=INT "$program" quantize big -q mxfp4 -o stopped --threads 1 >"$logs/out" 2>"$logs/err" </dev/null &
    pid=$!
    tries=0
    until [ -d stopped.ounce-part ] || [ $tries -ge 300 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
    kill -s INT $pid
    wait $pid
    code=$?
    if [ $code -eq 130 ]; then pass; else fail "Ctrl-C: exit $code, not 130"; show "$logs/err"; fi
    ok 'Ctrl-C leaves nothing' sh -c '! ls -d stopped* 2>/dev/null'
    # Killed: what is left is no model, and makes way.
    "$program" quantize big -q mxfp4 -o stopped --threads 1 >/dev/null 2>&1 </dev/null &
    pid=$!
    tries=0
    until [ -d stopped.ounce-part/transformer ] || [ $tries -ge 300 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
    kill -s KILL $pid
    wait $pid 2>/dev/null
    ok 'killed: no model' test ! -e stopped -a ! -e stopped.ounce-part/model_index.json
    expect 'killed: the part is none' 8 '' '*' generate stopped.ounce-part $small -p x
    expect 'again' 0 'stopped' '' quantize big -q mxfp4 -o stopped --quiet
    ok 'nothing beside it' test ! -e stopped.ounce-part
fi
rm -rf m n o big stopped stopped.ounce-part folder ./*.png
