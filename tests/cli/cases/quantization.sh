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
expect 'an expression with a comma' 2 '' '*ignored_layers entry "re:.{1,2}x" matches no layer*' \
    generate $small -p x -q fp8 --ignored-layers 're:.{1,2}x'
expect 'nothing is left' 2 '' '*quantizes nothing*by ignore*' generate $small -p x -q fp8 --ignored-layers 're:.*'
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
expect 'unmatched is allowed' 4 '' '*ignored_layers entry "nothing": matches no layer*is right, and would quantize*' \
    generate $small --verbose -p x --quantization-config config.json --allow-unmatched
expect 'the summary' 4 '' '*Quantized 24 layers of types: attn.add_k_proj: 6 (from method: int8); *' \
    generate $small --verbose -p x -q int8 --keep conservative --ignored-layers attn.to_q,attn.to_k --ignored-layers attn.to_v,txt_mlp
