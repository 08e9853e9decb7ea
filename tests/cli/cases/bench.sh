# Timings are no test; that they come out whole is.
json_ok() {
    LC_ALL=C awk -f "$here/json.awk" "$1"
}
unset OUNCE_CPU OUNCE_FORCE
expect 'a model' 0 'emoji: 32x32, 1 steps*bf16*load *ms*text *step *decode *total *peak memory*' '' bench $small --repeat 1 --requests 0 --quiet
expect 'its parts' 0 'emoji: 32x48, 2 steps*f32*1 thread, 2 repeats*step*steps/s*1 together: *4 together: *8 together: *' '' bench emoji --width 32 --height 48 --num-inference-steps 2 \
    --repeat 2 --requests 3 --precision f32 --threads 1 --true-cfg-scale 1 --device cpu
"$program" bench $small --repeat 1 --requests 2 --json >model.json
ok 'JSON' json_ok model.json
expect 'no such model' 8 '' 'ounce: *' bench ./nowhere
expect 'a wrong size' 2 '' 'ounce: *' bench --width 17

lora=$root/tests/golden/lora/kohya.safetensors
expect 'with an adapter' 0 'emoji: 32x32, 1 steps*' '' bench $small --repeat 1 --requests 0 --quiet --lora "$lora:0.5"
expect 'with one that is not there' 6 '' 'ounce: *nowhere.safetensors*' bench $small --repeat 1 --requests 0 --quiet --lora nowhere.safetensors
expect 'with other weights' 0 'emoji: 32x32, 1 steps*' '' bench $small --repeat 1 --requests 0 --quiet --transformer "$OUNCE_MODELS/emoji/transformer"
expect 'quantized' 0 'emoji: 32x32, 1 steps*, quantization int8, *' '' bench $small --repeat 1 --requests 0 --quiet -q int8 --keep conservative
expect 'by a config' 0 'emoji: 32x32, 1 steps*, quantization fp8, *' '*"xyzzy": matches no layer*' bench $small --repeat 1 --requests 0 --quiet \
    --quantization-config '{"method": "fp8"}' --ignored-layers img_mlp,xyzzy --allow-unmatched
expect 'quantized, against plain' 2 '' 'ounce: model.json was measured with quantization none, this run has int8; *' \
    bench $small --repeat 1 --requests 0 -q int8 --against model.json
expect 'kernels by a part of a config' 2 '' 'ounce: --quantization-config has no effect with --kernels*' \
    bench --kernels --quantization-config.linear.weight int8
expect 'quantized kernels' 2 '' 'ounce: --quantization has no effect with --kernels*' bench --kernels -q int8
expect 'an adapter for kernels' 2 '' 'ounce: --lora has no effect with --kernels*' bench --kernels --lora "$lora"

"$program" bench --kernels emoji.mlp,linear,scalar --repeat 3 --threads 1 --json >old.json
ok 'JSON of kernels' json_ok old.json
ok 'their shapes' grep -q '"shape":"emoji.mlp.up m64 n1024 k256 bf16"' old.json
ok 'nothing else' sh -c '! grep "\"shape\"" old.json | grep -v "\"kernel\":\"oz_linear"'
expect 'a table, against' 0 '*1 thread*oz_linear*scalar*emoji.mlp.up*GFLOP/s*%*against old.json: *within noise*' '' \
    bench --kernels emoji.mlp.up,linear,scalar --repeat 3 --threads 1 --against old.json
sed 's/"share\([_q13]*\)":[0-9.e-]*/"share\1":900/g' old.json >fast.json
expect 'slower' 7 '*SLOWER*2 slower*' 'ounce: 2 of 2 kernels and shapes got slower*at most 5 % were allowed.' \
    bench --kernels emoji.mlp,linear,scalar --repeat 3 --threads 1 --against fast.json --max-slowdown 5
expect 'slower, but nobody asks' 0 '*2 slower*' '' \
    bench --kernels emoji.mlp,linear,scalar --repeat 3 --threads 1 --against fast.json
if "$program" kernels | grep -q 'oz_linear_s8_s8_f32__avx2.* usable'; then
    "$program" bench --kernels 's8_s8_f32__avx2,m1 n,int8_per' --repeat 1 --threads 2 --json >row.json
    ok 'JSON of one row' json_ok row.json
    ok 'with both ceilings' grep -Eq '"ceiling":"(read|decode)".*"ceilings":\{"read":\{"median":[0-9].*"decode":\{"median":[0-9]' row.json
fi
expect 'other threads' 2 '' 'ounce: *1 threads*--threads 1*' bench --kernels emoji.mlp --threads 2 --against old.json
expect 'no such document' 3 '' 'ounce: model.json is not what*' bench --kernels emoji.mlp --against model.json
expect 'no such file' 6 '' 'ounce: *nowhere.json*' bench --kernels emoji.mlp --against nowhere.json
expect 'no such kernel' 2 '' 'ounce: No usable kernel or shape matches "xyzzy"*' bench --kernels xyzzy
expect 'a threshold for nothing' 2 '' 'ounce: --max-slowdown needs --against FILE.' bench --kernels --max-slowdown 5
expect 'a size for kernels' 2 '' 'ounce: --width has no effect with --kernels*' bench --kernels --width 32
expect 'a model against another' 2 '' 'ounce: model.json was measured with num_inference_steps 1, this run has 2; *' \
    bench --width 32 --height 32 --num-inference-steps 2 --repeat 1 --requests 0 --against model.json
expect 'a model against kernels' 3 '' 'ounce: old.json is not what*' bench $small --repeat 1 --requests 0 --against old.json
sed 's/"\(median\|min\|max\)":[0-9.e-]*/"\1":1e-9/g' model.json >quick.json
expect 'a model that got slower' 7 '*SLOWER*' 'ounce: A part got slower than in quick.json beyond noise*at most 5 % were allowed.' \
    bench $small --repeat 2 --requests 0 --against quick.json --max-slowdown 5
expect 'a model as it was' 0 '*load *step *%*' '' bench $small --repeat 1 --requests 0 --against model.json --report model.html
ok 'its charts' grep -q '<svg class="chart"' model.html
expect 'a report of another kind' 2 '' '*--report must be a name that ends in .html*' bench $small --report model.pdf
expect 'a report of kernels' 2 '' 'ounce: --report has no effect with --kernels*' bench --kernels --report x.html
expect 'the bounds' 2 '' '*--repeat must be a whole number from 1 to 192*' bench --repeat 193
