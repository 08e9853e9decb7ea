# Models with quantized weights: the same picture as quantizing while loading, to the byte; refused where
# they must be; a folder that is whole or not there.
draw="$small --quiet --no-metadata -p apple"
for method in fp8_per_tensor fp8_per_channel fp8_per_block int8 mxfp8 mxfp4 nvfp4 bitsandbytes; do
    expect "$method: written" 0 'm' '' quantize -o m -q $method --quiet
    expect "$method: while loading" 0 'online.png' '' generate $draw -q $method -o online.png
    expect "$method: loaded" 0 'loaded.png' '' generate m $draw -o loaded.png
    ok "$method: the same picture" cmp online.png loaded.png
    expect "$method: described" 0 '*quantized by *: 72 linear layers as *' '' inspect m
    ok "$method: every tensor is accounted for" sh -c '! "$1" inspect --tensors m | grep -E "UNEXPECTED|WRONG"' sh "$program"
    rm -r m online.png loaded.png
done

expect 'with a summary, in shards' 0 'm' 'written in *' quantize --output m --quantization mxfp4 --keep none --max-shard-bytes 4000000 --threads 2
ok 'an index' grep -q '"transformer_blocks.0.attn.to_q.weight_packed": "diffusion_pytorch_model-0000' m/transformer/diffusion_pytorch_model.safetensors.index.json
ok 'the text encoder is copied' cmp m/text_encoder/model.safetensors "$OUNCE_MODELS/emoji/text_encoder/model.safetensors"
expect 'it is a model already' 2 '' 'ounce: m holds a model already.*--overwrite).' quantize -o m -q int8
expect 'replaced' 0 'm' '' quantize -o m -q int8 --overwrite --quiet --ignored-layers img_mlp,txt_mlp
ok 'what was there is gone' test ! -e m/transformer/diffusion_pytorch_model.safetensors.index.json
expect 'no shards of nothing' 2 '' 'ounce: --max-shard-bytes must be a whole number from 1 to *, not '"'0'." quantize -o n -q int8 --max-shard-bytes 0
expect 'another method' 2 '' '*compressed_tensors*does not match*mxfp4*' generate m $small -p x -q mxfp4
expect 'its own' 0 'x.png' '' generate m $small --quiet -p x -q compressed-tensors -o x.png
expect 'quantized again' 2 '' '*Nothing of the model would be quantized*' quantize m -o n
expect 'a part, verbosely' 0 'n' '*text_encoder: Quantized *' quantize m -o n --quantization-config '{"text_encoder":"int8"}' --verbose --allow-unmatched
expect 'both are read' 0 'y.png' '' generate n $small --quiet -p x -o y.png
expect 'activations by a dotted key' 0 'o' '' quantize -o o -q mxfp4 --quantization-config.linear.activation mxfp8 --quiet
expect 'they stay' 0 'z.png' '' generate o $draw -o z.png
expect 'as while loading' 0 'w.png' '' generate $draw -q mxfp4 --quantization-config.linear.activation mxfp8 -o w.png
ok 'the same picture' cmp z.png w.png

expect 'bitsandbytes, nested' 0 'b' '' quantize -o b --quantization-config '{"method":"bitsandbytes","compress_statistics":true}' --quiet
expect 'described' 0 '*quantized by bitsandbytes: 72 linear layers as bitsandbytes_nf4_nested, activations none*' '' inspect b
expect 'its own name' 0 'x.png' '' generate b $small --quiet -p x -q bitsandbytes -o x.png
expect 'mixed with others' 4 '' '*cannot be in one component*one scheme*' quantize -o p --quantization-config '{"transformer":{"targets":{"re:.*attn.*":"bitsandbytes","re:.*img_mlp.*":"int8"}}}'
rm -r b

expect 'nowhere' 2 '' 'ounce: Where to? --output FOLDER is missing.' quantize -q fp8
expect 'no method' 2 '' 'ounce: Nothing of the model would be quantized*' quantize -o p
expect 'a scheme without a format' 4 '' '*no format holds mxfp4_dualscale. Linear layers can be written as *nvfp4 (compressed-tensors), and bitsandbytes; *' quantize -o p -q mxfp4_dualscale
expect 'a header that is too long' 3 '' '*' quantize -o p -q fp8 --max-header-bytes 100
mkdir folder
: >folder/file
expect 'a folder that is no model' 2 '' '*folder is there already and is no model*' quantize -o folder -q fp8 --overwrite
ok 'it stays' test -f folder/file
expect 'no parent' 6 '' 'ounce: Cannot *' quantize -o a/b/c -q fp8
ok 'nothing is left of what was refused' sh -c '! ls -d p* a folder.* 2>/dev/null'

# Stopped: a larger model takes long enough. The same command goes on with the files that are whole.
"$program" random-model -o big --layers 40 --quiet >/dev/null
expect 'uninterrupted' 0 'whole' '' quantize big -q mxfp4 -o whole --quiet --max-shard-bytes 1000000

# stop SIGNAL FILES: starts `ounce quantize` and ends it when its working folder has so many weights files.
# What an earlier run left counts only when this one has said that it goes on with it.
stop() {
    went_on=
    [ -d stopped.ounce-part ] || went_on=true
    : >"$logs/err"
    env --default-signal=INT "$program" quantize big -q mxfp4 -o stopped --threads 1 \
        --max-shard-bytes 1000000 >"$logs/out" 2>"$logs/err" </dev/null &
    pid=$!
    tries=0
    until { [ -d stopped.ounce-part ] && ${went_on:-grep -q resuming "$logs/err"} && [ "$(ls stopped.ounce-part/transformer/*-of-* 2>/dev/null | wc -l)" -ge "$2" ]; } || [ $tries -ge 3000 ]; do
        sleep 0.005
        tries=$((tries + 1))
    done
    kill -s "$1" $pid
    wait $pid 2>/dev/null
    code=$?
}
if env --default-signal=INT true 2>/dev/null; then
    stop INT 0
    ok "Ctrl-C: exit $code" test $code -eq 130
    ok 'it says what is kept' grep -Eq '^ounce: Interrupted; (nothing was written to stopped|[0-9]+ whole files? .* kept in stopped.ounce-part: the same command goes on from there)\.$' "$logs/err"
    for files in 2 5; do
        stop INT $files
        ok "Ctrl-C after $files files: exit $code" test $code -eq 130
        ok "Ctrl-C after $files files: kept" grep -Eq '^ounce: Interrupted; [0-9]+ whole files .* are kept in stopped.ounce-part: the same command goes on from there\.$' "$logs/err"
        ok 'no model' test ! -e stopped -a ! -e stopped.ounce-part/model_index.json
    done
    ok 'the second one went on' grep -Eq '^stopped: resuming an interrupted run: [0-9]+ whole files of it, .* MB, are kept\.$' "$logs/err"
    stop KILL 8
    expect 'what is left is no model' 8 '' '*' generate stopped.ounce-part $small -p x
    expect 'again' 0 'stopped' 'stopped: resuming an interrupted run: *' quantize big -q mxfp4 -o stopped --max-shard-bytes 1000000
    ok 'the bytes of an uninterrupted one' diff -r whole stopped
    ok 'nothing beside it' test ! -e stopped.ounce-part -a ! -e stopped/.ounce-part
    rm -r stopped
    stop KILL 3
    expect 'something else' 0 'stopped' '*stopped.ounce-part holds an interrupted run that does not fit this one, because it was asked for something else, or by another version: it is begun anew.*' quantize big -q int8 -o stopped --quiet
    rm -r stopped
    stop KILL 3
    touch big/transformer/config.json
    expect 'another model' 0 'stopped' "*stopped.ounce-part holds an interrupted run *the model's files have been changed since: it is begun anew.*" quantize big -q mxfp4 -o stopped --quiet --max-shard-bytes 1000000
    ok 'the same bytes' diff -r whole stopped
fi
rm -rf m n o big whole stopped stopped.ounce-part folder ./*.png

# Adapters and other weights: merged into what is written.
lora=$root/tests/golden/lora/kohya.safetensors:0.0625
"$program" random-model -o other --seed 7 --quiet >/dev/null
for how in "-q int8 --lora $lora" "-q mxfp4 --ignored-layers attn --lora $lora --lora $root/tests/golden/lora/diffusers.safetensors" \
    "-q fp8 --transformer other/transformer" "-q mxfp8 --transformer other/transformer --lora $lora"; do
    # shellcheck disable=SC2086  # a list
    expect "written: $how" 0 'm' '' quantize -o m --quiet $how
    # shellcheck disable=SC2086
    expect "while loading: $how" 0 'online.png' '' generate $draw $how -o online.png
    expect "loaded: $how" 0 'loaded.png' '' generate m $draw -o loaded.png
    ok "the same picture: $how" cmp online.png loaded.png
    rm -rf m ./*.png
done
how="--quantization-config {\"text_encoder\":\"int8\"} --transformer other/transformer --lora $lora"
# shellcheck disable=SC2086
expect 'weights from elsewhere that stay plain' 0 'm' '' quantize -o m --quiet $how
# shellcheck disable=SC2086
expect 'while loading' 0 'online.png' '' generate $draw $how -o online.png
expect 'loaded' 0 'loaded.png' '' generate m $draw -o loaded.png
ok 'the same picture' cmp online.png loaded.png
ok 'its config as it is' cmp m/transformer/config.json "$OUNCE_MODELS/emoji/transformer/config.json"
rm -r m
expect 'quantized' 0 'm' '' quantize -o m --quiet -q int8
expect 'a LoRA on quantized weights' 4 '' '*is quantized already (compressed_tensors); a LoRA cannot be added to that. Start from the checkpoint that is not quantized.' quantize m -o n --quantization-config '{"text_encoder":"int8"}' --lora "$lora"
expect 'no such LoRA' 6 '' '*nowhere.safetensors*' quantize -o n -q int8 --lora nowhere.safetensors
expect 'no such transformer' 6 '' '*nowhere*' quantize -o n -q int8 --transformer nowhere
ok 'nothing is left of what was refused' sh -c '! ls -d n* 2>/dev/null'
rm -rf m other ./*.png
