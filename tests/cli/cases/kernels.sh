# The lists of kernels.
json_ok() {
    LC_ALL=C awk -f "$here/json.awk" "$1"
}
unset OUNCE_CPU OUNCE_FORCE
expect 'the lists' 0 'cpu, tier *scalar*avx2*linear*oz_linear*__scalar*usable*proven: everywhere*sample*' '' kernels
expect 'of a device' 0 'cpu, tier *' '' kernels --device cpu
"$program" kernels --json >all.json
ok 'JSON' json_ok all.json
ok 'kernels are in it' grep -q '"name":"oz_linear[a-z0-9_]*__scalar","tier":"scalar","usable":true,"reason":null' all.json
OUNCE_CPU=scalar "$program" kernels --json >scalar.json
ok 'JSON of one tier' json_ok scalar.json
ok 'no other tier is usable' sh -c '! grep "\"usable\":true" scalar.json | grep -v "\"tier\":\"scalar\""'
ok 'and it says why' sh -c '! grep "\"usable\":false" scalar.json | grep -Ev "the processor lacks|OUNCE_CPU leaves its tier out|never run"'
OUNCE_CPU=avx3 "$program" kernels >"$logs/out" 2>"$logs/err"
ok 'a wrong tier is refused' test $? -eq 2
ok 'with the nearest' grep -q 'did you mean avx2' "$logs/err"
OUNCE_FORCE=oz_linear_nothing "$program" kernels >"$logs/out" 2>"$logs/err"
ok 'a wrong kernel is refused' test $? -eq 2
expect 'an argument' 2 '' "ounce: \`ounce kernels\` takes no argument, but there is 'linear'." kernels linear
# Encoders of weights are a list like the operators'.
expect 'encoders' 0 '*encode*oz_encode_any_any__scalar *scalar *usable*' '' kernels
ok 'in JSON' grep -q '"name":"oz_encode_any_any__scalar","tier":"scalar","usable":true,"reason":null,"proven":"everywhere"' all.json
ok 'left out by a tier' grep -q '"name":"oz_encode_bf16_mxfp4__avx2","tier":"avx2","usable":false,"reason":"[A-Za-z]' scalar.json
OUNCE_FORCE=oz_encode_any_any__scalar "$program" plan -q mxfp4 --json >forced.json
ok 'one is forced' grep -q '"encoder":"oz_encode_any_any__scalar"' forced.json
ok 'and no other is taken' sh -c '! grep -o "\"encoder\":\"[a-z0-9_]*\"" forced.json | grep -v any_any'
OUNCE_FORCE=oz_encode_bf16_mxfp3__avx2 "$program" kernels >"$logs/out" 2>"$logs/err"
ok 'a wrong encoder is refused' test $? -eq 2
ok 'with the nearest' grep -q 'did you mean oz_encode_bf16_mxfp[48]__avx2' "$logs/err"
rm forced.json

# What was chosen for each weight, and why better ones declined, when asked.
# shellcheck disable=SC2086  # $small is a list
OUNCE_CPU=scalar OUNCE_LOG=dispatch "$program" generate $small --quiet --prompt x -o "$logs/x.png" >"$logs/out" 2>"$logs/err"
ok 'the choice of each weight' grep -q 'dispatch: transformer_blocks.0.attn.to_q.weight: oz_linear_f32_any_f32__scalar' "$logs/err"
# shellcheck disable=SC2086
OUNCE_CPU=scalar "$program" generate $small --quiet --prompt x -o "$logs/x.png" >"$logs/out" 2>"$logs/err"
ok 'nothing unless asked' [ ! -s "$logs/err" ]
