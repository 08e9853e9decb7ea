# Variants of a model: what comes out, what is refused, and what is left of an interrupted run. That the figures
# are right is tests/unit/metrics_test.c's and tests/unit/study_test.c's.
# shellcheck disable=SC2086  # $tiny is a list
json_ok() {
    LC_ALL=C awk -f "$here/json.awk" "$1"
}
tiny='--width 32 --height 32 --num-inference-steps 2'
one="compare $tiny --quiet -p x --candidate-quantization"

expect 'a table' 0 '*emoji: 1 pictures of 32x32, 2 steps*candidate*PSNR dB*reference*int8 *[0-9].[0-9][0-9] *every layer ran as planned in 1 of 1*recommended*' '' \
    $one int8 --output-json one.json --report one.html --contact-sheet one.png --save-output-dir kept --threads 1
ok 'the document is JSON' json_ok one.json
ok 'without infinities' sh -c '! grep -Eiq "[^a-z](inf|nan|infinity)[^a-z]" one.json'
ok 'members of the original, for one candidate' sh -c 'for k in variant_configs sampling_kwargs metric_guidance reference_generation candidate_generation \
    output_metrics saved_outputs image0_metrics all_images_metrics avg_generation_time_s peak_memory_mb; do grep -q "\"$k\"" one.json || exit 1; done'
ok 'it is whole' grep -q '"complete": true' one.json
ok 'pictures are kept' test -f kept/int8/image_0.png
ok 'the report needs no other file' sh -c '! grep -Eq "(src|href)=\"[^d]" one.html'
ok 'the report has the errors of layers by role' grep -q '<h2>Layer errors by role</h2>' one.html
ok 'and a row of a role' grep -Eq '<th scope="row">attn_qkv</th><td>0[.][0-9]{3}</td>' one.html
ok 'the report has its pictures' grep -q 'src="data:image/png;base64' one.html
expect 'the sheet' 0 '*reference: one.png, 88 x 48*' '' compare one.png one.png
"$program" generate $tiny --quiet -p x -o drawn.png >"$logs/out"
expect 'the kept pictures are what generate draws' 0 '*identical*' '' compare kept/reference/image_0.png drawn.png
"$program" generate $tiny --quiet -p x -q int8 -o drawn8.png >"$logs/out"
expect 'those of a candidate too' 0 '*identical*' '' compare kept/int8/image_0.png drawn8.png

# the last block's text is not needed: quantizing its MLP changes no bit
unneeded='nothing={"targets": {"re:transformer_blocks[.]5[.]txt_mlp[.]net[.]2$": "int8"}}'
expect 'an equal candidate' 0 '*nothing *same *' '' $one "$unneeded" --warmup-runs 0 --repeat 2
expect 'an equal candidate must not be' 7 '*MISSED*' 'ounce: *nothing has the reference*bit for bit*' $one "$unneeded" --assert-different
expect 'one that differs' 0 '*passes*' '' $one int8 --assert-different
expect 'thresholds' 7 '*int8*MISSED*' 'ounce: 1 of 1 candidates missed a threshold: int8 has a PSNR of *less than 999. int8 has a cosine similarity of * less than 1.*' \
    $one int8 --min-psnr 999 --min-cosine 1 --min-ssim 0
expect 'ratios' 7 '*MISSED*' 'ounce: *times the reference*peak memory, more than 0.01. int8 takes *times the reference*time, more than 0.001.' \
    $one int8 --max-memory-ratio 0.01 --max-time-ratio 0.001

expect 'one fails, the others go on' 4 '*int4w *FAILED: *int8 *[0-9].[0-9][0-9]*' '*ounce: 1 of 2 candidates failed: int4w: *' \
    $one int4w=awq --candidate-quantization int8 --output-json failed.json --report failed.html
expect 'a request that is no JSON' 2 '*FAILED*' '*ounce: 1 of 1 candidates failed: x: *' $one 'x={"method": }' --output-json odd.json
ok 'the document is JSON all the same' json_ok odd.json
ok 'the document says why' grep -q '"error": "The' failed.json
ok 'the report too' grep -q 'failed: ' failed.html
"$program" quantize -q int8 -o written --quiet
expect 'a model that was written' 0 '*written *[0-9].[0-9][0-9]*' '' compare $tiny --quiet -p x --candidate-model written/ --reference-model emoji
expect 'a model that is not there' 8 '*gone *FAILED*' '*ounce: 1 of 1 candidates failed: gone: *' compare $tiny --quiet -p x --candidate-model gone=./nowhere

printf 'red apple\npizza\nfire\n' >prompts.txt
expect 'several, each with its seed' 0 '*6 pictures*' '' compare $tiny --quiet --prompts-file prompts.txt -n 2 --seed 7 --candidate-quantization int8 \
    --output-json six.json --keep none --ignored-layers img_mlp --allow-unmatched --negative-prompt y --true-cfg-scale 2 --precision f32 --device cpu
ok 'seeds go on' grep -q '"seed": 12' six.json
sed 's/"complete": true/"complete": false/' one.json >partial.json
expect 'an interrupted run goes on' 0 '*' '*going on with an interrupted run: 1 of 2 pictures of it are kept.*' compare $tiny -p x --threads 1 \
    --candidate-quantization int8 --candidate-quantization mxfp4 --output-json partial.json
ok 'and is whole' sh -c 'head -n 1 partial.json | grep -q "\"complete\": true"'
ok 'and JSON' json_ok partial.json
sed '1s/"complete": true/"complete": false/' one.json >other.json
expect 'another run does not' 0 '*' '*holds the result of another comparison*' compare $tiny -p other --threads 1 --candidate-quantization int8 --output-json other.json
echo '{' >broken.json
expect 'nor one from a broken file' 0 '*' '*broken.json is no earlier result and will be replaced*' compare $tiny -p x --threads 1 --candidate-quantization int8 --output-json broken.json
ok 'which is replaced' json_ok broken.json
if [ -c /dev/full ]; then
    expect 'a full disk' 6 '' 'ounce: *' $one int8 --output-json /dev/full
fi
expect 'a folder that cannot be' 6 '' 'ounce: *one.json*' $one int8 --save-output-dir one.json/x
TMPDIR=$PWD/nowhere
export TMPDIR
expect 'no scratch folder' 6 '' 'ounce: Cannot make a scratch file in *nowhere: *TMPDIR names another folder.' $one int8
unset TMPDIR

expect 'no prompt' 2 '' 'ounce: There is no prompt.*' compare --candidate-quantization int8
expect 'two models' 2 '' 'ounce: *takes one model*' compare a b -p x --candidate-quantization int8
expect 'one name twice' 2 '' 'ounce: Two variants are called "int8"; put a label before one: *' $one int8 --candidate-quantization int8
expect 'the name of the reference' 2 '' 'ounce: Two variants are called "reference"*' $one reference=int8
expect 'a name that is none' 2 '' 'ounce: "-x=int8": before = stands a label*' $one -x=int8
expect 'an empty candidate' 2 '' 'ounce: *empty text*' $one ''
expect 'a report of another kind' 2 '' 'ounce: --report must be a name that ends in .html*' $one int8 --report x.pdf
expect 'a wrong size' 2 '' 'ounce: *must be a multiple of 16*' compare -p x --width 17 --candidate-quantization int8
expect 'an option of models for pictures' 2 '' 'ounce: --report is about models; *' compare one.png one.png --report x.html
expect 'both voices' 2 '' 'ounce: --quiet and --verbose exclude each other.' $one int8 --verbose

# Which layers bear which scheme.
"$program" random-model -o few --like emoji --layers 2 --text-layers 1 >"$logs/out"
search="compare few $tiny --quiet -p x --sensitivity --candidate-quantization int8 --candidate-quantization nvfp4"
expect 'ranks' 0 '*26 linears*role*modulation*mlp_down*all*layer, worst first*more, and the least*no picture needs it*' '' $search --output-json layers.json
ok 'JSON of layers' json_ok layers.json
sed '1s/"complete": true/"complete": false/; s/"kept": [0-9][0-9.e+-]*/"kept": null/; s/"cost": [0-9][0-9.e+-]*/"cost": null/g' layers.json >half.json
expect 'goes on from what was measured' 0 '*' '*going on with what an earlier run has measured*' $search --output-json half.json
ok 'to the same' sh -c 'grep -o "\"cost\": [^}]*" layers.json >a; grep -o "\"cost\": [^}]*" half.json >b; cmp a b'
expect 'a proposal' 0 "*proposal: *--quantization-config '{*}'*proof, on seeds*proposal *[0-9].[0-9][0-9]*" '' $search --budget bytes=6MiB --report layers.html
ok 'its report' grep -q 'Which layers bear it' layers.html
expect 'an impossible budget' 7 '*26 linears*' 'ounce: No assignment of these schemes has so few bytes*' $search --budget bytes=1KiB
expect 'pictures, and a budget in dB' 0 '*(full)*proposal: *' '' compare few $tiny --quiet -p x --sensitivity --full --candidate-quantization int8 --budget psnr=20
expect 'a relative L2, and modulation that passes by' 0 '*proposal: *proof*' '' $search --budget rel-l2=0.5 --modulation schedule
expect 'a budget that is none' 2 '' 'ounce: A budget is psnr=DB*not "psnr=x".' $search --budget psnr=x
expect 'a report without a proposal' 2 '' '*needs --budget.' $search --report x.html
expect 'a scheme that is more' 2 '' 'ounce: *a search takes methods*' compare $tiny -p x --sensitivity --candidate-quantization '{"method": "mxfp4", "mxfp4_scale_alg": 0}'
expect 'what a search has not' 2 '' 'ounce: --min-psnr has no effect with --sensitivity.' $search --min-psnr 3
expect 'a budget for nothing' 2 '' 'ounce: --budget needs --sensitivity.' $one int8 --budget psnr=40
