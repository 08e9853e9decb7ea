# The description of a model. What stands in it is the library's; here: that it comes out whole.
json_ok() {
    LC_ALL=C awk -f "$here/json.awk" "$1"
}
printf '{"a": [1, -2.5e3, true, null, "x\\n\\u00e4"], "b": {}}' >good.json
ok 'the check takes JSON' json_ok good.json
for bad in '' '{' '[1,]' '{"a" 1}' '{"a":1}}' '[01]' '"a' '[nul]' '{a:1}' '["\x"]'; do
    printf '%s' "$bad" >bad.json
    ok "the check refuses $bad" sh -c '! LC_ALL=C awk -f "$1/json.awk" bad.json' sh "$here"
done

expect 'the bundled model' 0 '*transformer*' '' inspect
ok 'other components' grep -q text_encoder "$logs/out"
expect 'by its folder' 0 '*vae*' '' inspect "$OUNCE_MODELS/emoji"
expect 'by its name' 0 '*vae*' '' inspect emoji
expect 'tensors' 0 '*transformer_blocks.0.attn.to_q.weight*' '' inspect --tensors
ok 'a line for each' sh -c '[ "$(grep -c "transformer_blocks.0.attn.to_q.weight" "$1")" -eq 1 ]' sh "$logs/out"
"$program" inspect --json >all.json
ok 'JSON' json_ok all.json
"$program" inspect --json --tensors "$OUNCE_MODELS/emoji" >all.json
ok 'JSON with tensors' json_ok all.json
ok 'tensors are in it' grep -q 'transformer_blocks.0.attn.to_q.weight' all.json
golden=$root/tests/golden/gguf/blocks.gguf
expect 'a lone file' 0 '*50 tensors, 1 file*general.architecture = golden*Q4_K *4.500 bits*' '' inspect "$golden"
expect 'its tensors' 0 '*q4_k *Q4_K  ?2,256? 288 bytes*' '' inspect --tensors "$golden"
"$program" inspect --json --tensors "$golden" >all.json
ok 'its JSON' json_ok all.json
expect 'nothing to replace in it' 2 '' '*which has no transformer to be replaced*' inspect --transformer x "$golden"
expect 'no such file' 6 '' '*Cannot open nothing.gguf*' inspect nothing.gguf
expect 'no such model' 8 '' 'ounce: *no-such-model*' inspect ./no-such-model
mkdir empty
expect 'a folder without a model' 8 '*' 'ounce: *empty*' inspect empty
ok 'found without OUNCE_MODELS' env -u OUNCE_MODELS "$program" inspect
