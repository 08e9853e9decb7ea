# Where weights come from. A model of configs alone draws what the same model with random weights in
# files draws; whatever is written says that they were dummies.
tiny="--layers 1 --heads 2 --head-dim 16 --text-layers 1 --vae-base-dim 4"
"$program" random-model -o full $tiny --quiet >/dev/null
cp -R full configs
find configs -name '*.safetensors*' -exec rm {} +
dummy="--load-format dummy"
warning='ounce: warning: The weights are dummies*'

# same NAME OPTION...: both draw the same picture.
same() {
    name=$1
    shift
    expect "$name, from files" 0 a.png '' generate ./full $small --quiet --no-metadata -p 'red apple' -o a.png "$@"
    expect "$name, dummies" 0 b.png "$warning" generate ./configs $small --quiet --no-metadata -p 'red apple' -o b.png $dummy "$@"
    ok "$name: the same bytes" cmp a.png b.png
}
same 'as stored'
same 'one thread' --threads 1
same 'fp8' -q fp8
same 'mxfp4 of everything' -q mxfp4 --keep none
same 'modulation that passes by' --modulation schedule
same 'f32' --precision f32

expect 'the summary says so' 0 'c.png' '*warning: The weights are dummies*the weights were dummies*' generate ./configs $small $dummy -p x -o c.png
ok 'so do the metadata' grep -q '"load_format":"dummy"' c.png
expect 'case does not matter' 0 'c.png' "$warning" generate ./configs $small --quiet --load-format=DUMMY -p x -o c.png
expect 'without it there are no weights' 6 '' '*configs/text_encoder holds no checkpoint that ounce reads*' generate ./configs $small -p x -o d.png
expect 'a file in place of them' 2 '' "*cannot come from * and be dummies, too*" generate ./configs $small $dummy --transformer full/transformer -p x -o d.png
cp -R configs quantized
sed '1s/{/{"quantization_config": {"quant_method": "fp8"},/' configs/transformer/config.json >quantized/transformer/config.json
expect 'weights that are said to be quantized' 4 '' '*says that the weights are quantized; dummy weights are drawn as bf16*' generate ./quantized $small $dummy -p x -o d.png
ok 'nothing was written' test ! -e d.png

# The configs of the bundled model.
for file in model_index.json ounce.json scheduler/scheduler_config.json text_encoder/config.json \
    tokenizer/tokenizer.json tokenizer/tokenizer_config.json transformer/config.json vae/config.json; do
    mkdir -p "emoji/$(dirname $file)"
    cp "$OUNCE_MODELS/emoji/$file" "emoji/$file"
done
expect 'plan' 0 '*load format dummy: weights are drawn at random*transformer*memory: 1 picture*' '' plan ./emoji $dummy -q fp8
ok 'what is quantized' grep -q '^ *6 transformer_blocks\.\*\.attn\.to_q\.weight .*fp8_per_tensor .*encoded; method: fp8' "$logs/out"
"$program" plan --json ./emoji $dummy >dummy.json
ok 'JSON' sh -c 'LC_ALL=C awk -f "$1/json.awk" dummy.json' sh "$here"
ok 'the format in it' grep -q '"load_format":"dummy"' dummy.json
ok 'nothing is mapped' sh -c '! grep -q "\"mapped_bytes\":[1-9]" dummy.json'

# Names of others.
expect 'safetensors' 0 "*load format safetensors: auto: a file's first bytes say what it is.*" '' plan --load-format safetensors
expect 'auto' 0 '*all components*' '' plan --load-format auto
ok 'of which nothing is said' sh -c '! grep -q "load format" "$1"' sh "$logs/out"
"$program" plan --json --load-format hf >hf.json
ok 'its meaning' grep -q '"load_format":"hf","load_format_means":"auto: ' hf.json
expect 'pickles' 4 '' 'ounce: Load format pt is not read: a pickle is a program*' plan --load-format pt
expect 'unknown' 2 '' 'ounce: Load format dumy is not known (did you mean dummy?); there are auto, dummy, *' plan --load-format dumy

expect 'bench' 0 '*GB/s of weights, which are dummies*' '*' bench ./configs $dummy --width 32 --height 32 --num-inference-steps 1 --repeat 1 --requests 0 --quiet
"$program" bench ./configs $dummy --width 32 --height 32 --num-inference-steps 1 --repeat 1 --requests 0 --quiet --json >bench.json 2>/dev/null
ok 'its JSON' grep -q '"load_format":"dummy"' bench.json
expect 'against files' 2 '' '*load_format*' bench ./full --against bench.json --width 32 --height 32 --num-inference-steps 1 --repeat 1 --requests 0 --quiet
expect 'bench of kernels' 2 '' '*--load-format has no effect with --kernels*' bench --kernels $dummy
