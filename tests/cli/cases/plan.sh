# The plan of a load and a run: what stands in it is the library's; here: that it comes out whole, that
# options have their effect, and that what does not fit together is refused.
json_ok() {
    LC_ALL=C awk -f "$here/json.awk" "$1"
}
# value NAME FILE: the number behind "NAME": in a document
value() {
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$2" | head -n 1
}

expect 'the bundled model' 0 '*text_encoder*transformer*vae*all components*kernels*memory: 1 picture,*peak*bare process*' '' plan
ok 'nothing is quantized' sh -c '! grep -q Quantized "$1"' sh "$logs/out"
expect 'int8' 0 '*Quantized 72 layers of types: *attn.to_q: 6 (from method: int8)*' '' plan -q int8
ok 'blocks are folded' grep -q '^ *6 transformer_blocks\.\*\.attn\.to_q\.weight  *attn_qkv .*int8 .*encoded; method: int8; activations int8_per_token$' "$logs/out"
ok 'the keep-list says so' grep -q 'img_mod.*as stored .*packed; keep: standard: modulation$' "$logs/out"
expect 'each tensor' 0 '*   1 transformer_blocks.3.attn.to_q.weight *' '' plan -q int8 --tensors --keep conservative
OUNCE_CPU=avx2 "$program" plan -q int8 >"$logs/out" 2>"$logs/err"
ok 'kernels of a tier' sh -c 'grep -q "oz_linear_s8_s8_f32__avx2_6x16" "$1"' sh "$logs/out"
"$program" plan --json >stored.json
ok 'JSON' json_ok stored.json
"$program" plan --json -q mxfp4 --ignored-layers attn.to_q --num-images 3 --max-batch 2 -p x -p longer >mxfp4.json
ok 'JSON with options' json_ok mxfp4.json
ok 'a layer in it' grep -q '{"name":"transformer_blocks.5.attn.to_k.weight",.*"fate":"encoded","role":"attn_qkv","shape":\[256,256\],"dtype":"BF16","scheme":"mxfp4","source":"method","rule":"mxfp4"' mxfp4.json
ok 'an ignored one' grep -q '{"name":"transformer_blocks.5.attn.to_q.weight",.*"source":"ignore","rule":"attn.to_q"' mxfp4.json
ok 'the schedule' grep -q '"schedule":{"read_bytes": [1-9]' mxfp4.json
ok 'less memory' test "$(value load_peak_bytes mxfp4.json)" -lt "$(value load_peak_bytes stored.json)"
ok 'two together, the longest' grep -q '"pictures":\[{.*"prompt":"longer"},{.*"prompt":"longer"}\]' mxfp4.json
"$program" plan --json --width 256 --height 256 --num-inference-steps 3 --true-cfg-scale 1 --precision f32 --threads 1 --device cpu >large.json
ok 'a larger picture' test "$(value step_bytes large.json)" -gt "$(value step_bytes stored.json)"
ok 'its size' grep -q '"width":256,"height":256,"num_inference_steps":3,"true_cfg_scale":1,' large.json
expect 'a file of weights' 0 '*transformer*' '' plan --transformer "$OUNCE_MODELS/emoji/transformer" --max-header-bytes 1000000
expect 'a negative prompt' 0 '*with guidance*' '' plan --negative-prompt 'a b c'

# What fits.
expect 'all fits' 0 '*nothing: all weights as they are stored*: fits*Nothing is to be quantized.*' '' plan --fit 1GiB
expect 'nothing fits' 7 '' 'ounce: Nothing fits 1048576 bytes. The least that would is *' plan --fit 1M
limit=$(($(value run_peak_bytes stored.json) + $(value process_bytes stored.json) + 2097152 - 4000000)) # the embedding is mapped
"$program" plan --json --fit $limit >fit.json
ok 'JSON of it' json_ok fit.json
ok 'what it gave up' grep -q '"fit":{"limit_bytes":'$limit',"given_up":\[' fit.json
config=$(sed -n 's/.*"quantization_config":\(.*\)}}$/\1/p' fit.json)
ok 'a config' test -n "$config"
"$program" plan --json --quantization-config "$config" >again.json
ok 'that says the same' test "$(value run_peak_bytes fit.json)" = "$(value run_peak_bytes again.json)"
for wrong in '' x 12Q 1.2.3M 0 -1 1e9 12KiBs; do
    expect "--fit '$wrong'" 2 '' '*--fit must be a number of bytes*' plan "--fit=$wrong"
done
expect 'fit and a method' 2 '' '*chooses the quantization itself*' plan --fit 1G -q int8
expect 'fit and a keep-list' 2 '' '*chooses the quantization itself*' plan --fit 1G --keep none

expect 'a wrong request' 2 '' '*ignored_layers entry "img_mlpp" matches no layer of the transformer; did you mean "img_mlp"*' \
    plan -q fp8 --ignored-layers img_mlpp
expect 'unmatched is allowed' 0 '*warning: ignored_layers entry "img_mlpp": matches no layer*' '' \
    plan -q fp8 --ignored-layers img_mlpp --allow-unmatched
expect 'a dotted key' 0 '*activations mxfp8*' '' plan -q mxfp4 --quantization-config.activation mxfp8

# Whose kernels multiply.
expect 'auto' 0 '*all components*' '' plan --linear-backend auto
ok 'of which nothing is said' sh -c '! grep -q "linear backend" "$1"' sh "$logs/out"
expect 'the reference' 0 '*linear backend ref: the scalar reference.*oz_linear_f32_any_f32__scalar*' '' plan --linear-backend ref
expect 'the processor' 0 "*linear backend cpu: the processor's kernels.*" '' plan --linear-backend CPU
expect 'weight-only' 0 '*linear backend marlin: weight-only products*Quantized 72 layers*' '' plan -q fp8 --linear-backend marlin
ok 'activations stay' sh -c '! grep -q "activations fp8" "$1"' sh "$logs/out"
expect 'native' 0 '*linear backend flashinfer: *activations fp8_per_token*' '' plan -q fp8 --linear-backend flashinfer-cutlass
expect 'weight-only of nothing' 2 '' '*--linear-backend xpu_woq means weight-only products*nothing is to be quantized*' plan --linear-backend xpu-woq
expect 'weight-only and activations' 2 '' '*--linear-backend marlin means*the request says linear.activation=mxfp8*' \
    plan -q mxfp8 --linear-backend marlin --quantization-config.linear.activation mxfp8
expect 'of a card' 2 '' '*"cublaslt" is of CUDA devices*"auto", "cpu" and "ref"*' plan --linear-backend cublaslt
expect 'unknown backend' 2 '' '*--linear-backend marlinn is not known (did you mean marlin?); there are auto, ref, *' plan --linear-backend marlinn
expect 'no experts' 2 '' '*--moe-backend ref: emoji has no experts*' plan --moe-backend ref
expect 'unknown experts' 2 '' '*--moe-backend triton is not known*' plan --moe-backend triton
"$program" plan --json -q int8 --linear-backend torch >backend.json
ok 'JSON of a backend' json_ok backend.json
ok 'its meaning' grep -q '"linear_backend":"torch","linear_backend_means":"products' backend.json

# What becomes of the modulation's weights.
expect 'they stay' 0 '*modulation table and batch*' '' plan --modulation resident
ok 'and none passes' sh -c '! grep -q passing "$1"' sh "$logs/out"
expect 'they pass' 0 '*img_mod.1.weight*passing*modulation table, which stays*making it, before*' '' plan --modulation schedule
expect 'the grid' 0 '*modulation table, which stays*' '' plan -q fp8 --keep none --modulation grid
expect 'unknown mode' 2 '' '*--modulation must be one of resident, schedule, grid*' plan --modulation table
"$program" plan --json --modulation schedule >modulation.json
ok 'JSON of a mode' json_ok modulation.json
ok 'the mode' grep -q '"modulation":"schedule"' modulation.json

# What gives way by a study's result.
"$program" random-model -o sensitive --like emoji --layers 2 --text-layers 1 >log 2>&1
"$program" compare sensitive --quiet -p x --width 32 --height 32 --num-inference-steps 1 --sensitivity \
    --candidate-quantization int8 --candidate-quantization nvfp4 --output-json layers.json >log 2>&1
stored=$("$program" plan sensitive --width 32 --height 32 --json | sed -n 's/.*"resident_bytes":\([0-9]*\).*/\1/p' | tail -n 1)
limit=$("$program" plan sensitive --width 32 --height 32 --json --fit 1T | sed -n 's/.*"need_bytes":\([0-9]*\).*/\1/p')
limit=$((limit - stored / 8))
expect 'by measured errors' 0 '*units by their errors * fits*--quantization-config *transformer*' '' \
    plan sensitive --width 32 --height 32 --fit $limit --fit-by layers.json
expect 'more than the main model has' 7 '' '*Nothing fits 1048576 bytes*the text encoder at 4 bits*' \
    plan sensitive --width 32 --height 32 --fit 1M --fit-by layers.json
expect 'of another model' 3 '' '*is about another model*' plan --fit 20M --fit-by layers.json
expect 'no result' 3 '' '*modulation.json is no complete result*another document*' plan --fit 20M --fit-by modulation.json
expect 'a result without a limit' 2 '' '*fit_bytes*' plan --fit-by layers.json

expect 'a wrong size' 2 '' '*multiple of 16*' plan --width 100
expect 'no such model' 8 '' 'ounce: *no-such-model*' plan ./no-such-model

# Which weights are on the device: here all are, in the host's memory.
expect 'none' 0 '*weights, in memory*' '' plan --offload none
ok 'of which nothing is said' sh -c '! grep -q pinned "$1"' sh "$logs/out"
for mode in stage block; do
    expect "$mode has nothing to do" 2 '' 'ounce: Offload "'$mode'" has nothing to do on device cpu, whose memory is the host*' plan --offload $mode
    expect "$mode, to draw" 2 '' 'ounce: Offload "'$mode'" has nothing to do*' generate $small --offload $mode -p x -o x.png
done
expect 'unknown offload' 2 '' '*--offload must be one of none, stage, block*' plan --offload layer
