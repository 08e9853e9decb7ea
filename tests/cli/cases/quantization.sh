# What is asked for with --quantization and its companions, and how it is refused. Requests that are
# wrong fail before a model is looked for; those that are wrong for this model, before a weight is read.

expect 'an unknown method' 2 '' '*Unknown quantization method: "fp9"*Weights are quantized while loading by one of: fp8, *' \
    generate $small -p x -q fp9
expect 'without a model too' 2 '' '*did you mean "mxfp4_dualscale"*' generate -p x ./none --quantization mxfp4_dualscal
expect 'a method of checkpoints' 4 '' '*The method awq describes an AWQ checkpoint and cannot make one*' generate $small -p x -q auto-awq
expect 'an unknown parameter' 2 '' '*the method fp8 has no parameter "ignord_layers" (did you mean "ignored_layers"*' \
    generate $small -p x --quantization-config '{"method": "fp8", "ignord_layers": []}'
expect 'a config that is none' 2 '' '*is neither a JSON object nor a file*' generate $small -p x --quantization-config fp8
expect 'a component that is none' 2 '' '*no component called "transfomer" (did you mean "transformer"*' \
    generate $small -p x --quantization-config '{"transfomer": "fp8"}'
expect 'a pattern without a layer' 2 '' '*ignored_layers entry "img_mlpp" matches no layer of the transformer; did you mean "img_mlp"*' \
    generate $small -p x -q fp8 --ignored-layers to_out,img_mlpp
expect 'an expression with a comma' 2 '' '*ignored_layers entry "re:.{1,2}zz" matches no layer*' \
    generate $small -p x -q fp8 --ignored-layers 're:.{1,2}zz'
expect 'nothing is left' 2 '' '*quantizes nothing*by ignore*' generate $small -p x -q fp8 --ignored-layers 're:.*'
for method in int8 fp8_per_channel nvfp4 bitsandbytes; do # the time embedder's linears too, which an operator reads where they are plain
    expect "all layers: $method" 0 '*' '' generate $small --quiet -p x -q $method --keep none -o all.png
done
rm all.png
expect 'nothing is asked for' 2 '' '*no quantization is asked for*' generate $small -p x --keep none
expect 'nor here' 2 '' '*no quantization is asked for*' generate $small -p x --allow-unmatched
expect 'ignored layers alone' 2 '' '*nothing is to be quantized*' generate $small -p x --ignored-layers img_mlp
expect 'a keep-list' 2 '' "*--keep must be one of none, standard, conservative, not 'all'.*" generate -p x --keep all
expect 'none is no request' 0 'x.png' '' generate $small --quiet -p x -q none -o x.png

# Single members of a config, in both spellings.
expect 'a dotted key' 2 '' '*mxfp8 weights take no mxfp4 activations*' generate $small -p x -q mxfp8 \
    --quantization-config.linear.activation mxfp4
expect 'with =' 2 '' '*linear: unknown quantization name "fp9"*' generate $small -p x --quantization-config.linear=fp9
expect 'a list' 2 '' '*ignore entry "b" matches no layer*' generate $small -p x -q mxfp8 --quantization-config.ignore+ '*.to_out.0,b'
expect 'without a value' 2 '' '*--quantization-config.linear needs a value*' generate -p x --quantization-config.linear
expect 'without a name' 2 '' '*--quantization-config. needs a name*' generate -p x --quantization-config. mxfp8
expect 'of another command' 2 '' '*There is no option --quantization-config.linear*' inspect --quantization-config.linear mxfp8
expect 'as a value' 2 '' '*"--quantization-config.a" is neither*' generate $small -p x --quantization-config=--quantization-config.a

printf '{"transformer": {"method": "int8", "ignored_layers": ["nothing"]}}' >config.json
expect 'a file' 2 '' '*ignored_layers entry "nothing" matches no layer of the transformer*' \
    generate $small -p x --quantization-config config.json
expect 'unmatched is allowed' 0 'x.png' '*ignored_layers entry "nothing": matches no layer*Quantized 72 layers*' \
    generate $small --verbose -p x -o x.png --quantization-config config.json --allow-unmatched
ok 'the metadata says a config' has_text x.png '"quantization":"config"'
expect 'the summary' 0 'x.png' '*Quantized 24 layers of types: attn.add_k_proj: 6 (from method: int8); *' \
    generate $small --verbose -p x -o x.png -q int8 --keep conservative --ignored-layers attn.to_q,attn.to_k --ignored-layers attn.to_v,txt_mlp

ok 'or the method' has_text x.png '"quantization":"int8"'

# Every method draws; the bytes of the picture are those of the method.
for method in fp8 fp8_per_channel fp8_per_block int8 mxfp8 mxfp4 mxfp4_dualscale nvfp4 bitsandbytes; do
    expect "$method" 0 "$method.png" '' generate $small --quiet -p 'red apple' --no-metadata -q $method -o $method.png \
        --quantization-config.num_bf16_fallback_layers 0
done
expect 'none' 0 'none.png' '' generate $small --quiet -p 'red apple' --no-metadata -o none.png
for method in fp8_per_channel fp8_per_block int8 mxfp8 mxfp4 mxfp4_dualscale nvfp4 bitsandbytes none; do
    ok "fp8 is not $method" sh -c '! cmp -s fp8.png "$1"' sh $method.png
done
expect 'one thread' 0 'again.png' '' generate $small --quiet -p 'red apple' --no-metadata -q mxfp4 --threads 1 -o again.png \
    --quantization-config.num_bf16_fallback_layers=0
ok 'the same bytes' cmp mxfp4.png again.png
expect 'steps of another mode' 0 'w4a8.png' '' generate $small --quiet -p 'red apple' --no-metadata -o w4a8.png \
    -q mxfp4 --quantization-config.w4a8_fallback_steps '[0]' --quantization-config.num_bf16_fallback_layers 0
expect 'W4A8 by name' 0 'mxfp8a.png' '' generate $small --quiet -p 'red apple' --no-metadata -o mxfp8a.png \
    -q mxfp4 --quantization-config.activation mxfp8
ok 'the one step ran in it' cmp w4a8.png mxfp8a.png
