# Adapters and the scheduler's members. What is wrong fails before a weight is read.
# shellcheck disable=SC2086  # $small is a list
golden=$root/tests/golden/lora
kohya=$golden/kohya.safetensors

expect 'without' 0 'bare.png' '' generate $small --quiet -p 'red apple' -o bare.png
expect 'one' 0 'one.png' '' generate $small --quiet -p 'red apple' --lora "$kohya:0.0625" -o one.png
ok 'another picture' sh -c '! cmp -s bare.png one.png'
ok 'its name and scale are told' has_text one.png '"loras":[{"file":"kohya.safetensors","scale":0.0625}]'
ok 'not without' lacks_text bare.png loras
expect 'threads' 0 'again.png' '' generate $small --quiet -p 'red apple' --lora "$kohya:0.0625" --threads 1 -o again.png
ok 'the same bytes' cmp one.png again.png
expect 'two' 0 'two.png' '' generate $small --quiet -p 'red apple' --lora "$kohya:0.0625" \
    --lora "$golden/diffusers.safetensors:-0.125" -o two.png
ok 'yet another picture' sh -c '! cmp -s one.png two.png'
expect 'and quantized' 0 'q.png' '' generate $small --quiet -p 'red apple' --lora "$kohya:0.0625" -q int8 -o q.png
expect 'what it adapts' 0 'v.png' '*transformer: LoRA *kohya.safetensors adapts 4 layers, scale 0.0625.*' \
    generate $small -v -p 'red apple' --lora "$kohya:0.0625" -o v.png
rm -f ./*.png
expect 'the plan has it' 0 '*LoRA *kohya.safetensors: merged into 4 layers, scale 0.5*transformer_blocks.*.attn.to_q.weight*; LoRA merged first*' '' \
    plan -q int8 --lora "$kohya:0.5"
expect 'and its JSON' 0 '*"lora":*"rank": 4, "alpha": 8, "scale": 0.5, "factor": 1}*' '' plan --json --lora "$kohya:0.5"

expect 'no file' 6 '' '*nowhere.safetensors*No such file*' generate $small -p x --lora nowhere.safetensors
expect 'no scale' 2 '' '*"big" behind the colon is no scale such as 0.8.*' generate $small -p x --lora "$kohya:big"
expect 'the scale 0' 2 '' '*the scale 0 has no effect*' generate $small -p x --lora "$kohya:0"
expect 'an empty name' 2 '' '*A LoRA has no file*' generate $small -p x --lora ''
expect 'whole weights' 3 '' '*is no part of a LoRA*--transformer*' generate $small -p x --lora "$(ls "$OUNCE_MODELS"/emoji/transformer/*-00001-of-*)"
LC_ALL=C sed 's/blocks_0_attn_to_q/blocks_0_attn_to_g/g' "$kohya" >near.safetensors
expect 'a layer that is none' 3 '' '*near.safetensors: lora_unet_transformer_blocks_0_attn_to_g.alpha matches no layer of the transformer (nor do 2 others of 12); did you mean transformer_blocks.0.attn.to_q?*' \
    generate $small -p x --lora near.safetensors
LC_ALL=C sed 's/lora_unet_transformer_blocks/lora_unet_double_blocks_of_x/g' "$kohya" >other.safetensors
expect 'another model' 3 '' '*none of its 12 keys matches a layer of the transformer: the LoRA is for another model.*' \
    generate $small -p x --lora other.safetensors
LC_ALL=C sed 's/attn_to_q.lora_up.weight/attn_to_q.lokr_w1_a_long/g' "$kohya" >lokr.safetensors
expect 'another kind' 4 '' '*lokr_w1_a_long belongs to LoKr*' generate $small -p x --lora lokr.safetensors
rm -f ./*.safetensors

shift3='{"base_shift": 1.0986122886681098, "max_shift": 1.0986122886681098, "shift_terminal": null}'
expect 'the model'\''s schedule' 0 'a.png' '' generate --quiet -p pizza --width 32 --height 32 --num-inference-steps 4 -o a.png
expect 'another schedule' 0 'b.png' '' generate --quiet -p pizza --width 32 --height 32 --num-inference-steps 4 --scheduler-config "$shift3" -o b.png
ok 'other pictures' sh -c '! cmp -s a.png b.png'
ok 'it is told' has_text b.png scheduler_config
echo "$shift3" >shift.json
expect 'from a file' 0 'c.png' '' generate --quiet -p pizza --width 32 --height 32 --num-inference-steps 4 --no-metadata --scheduler-config shift.json -o c.png
expect 'without its request' 0 'd.png' '' generate --quiet -p pizza --width 32 --height 32 --num-inference-steps 4 --no-metadata --scheduler-config "$shift3" -o d.png
ok 'the same picture' cmp c.png d.png
expect 'a member that is none' 2 '' '*the scheduler has no member "base_shit" (did you mean "base_shift"?)*' generate $small -p x --scheduler-config '{"base_shit": 1}'
expect 'nothing in it' 2 '' '*changes nothing*' generate $small -p x --scheduler-config '{}'
expect 'no JSON' 3 '' '*scheduler_config*' generate $small -p x --scheduler-config '{"shift": }'
expect 'no such file' 6 '' '*none.json*' generate $small -p x --scheduler-config none.json
expect 'a value out of range' 3 '' '*"shift" is -1; it must be above 0*' generate $small -p x --scheduler-config '{"shift": -1}'
expect 'given twice' 2 '' '*--scheduler-config is given twice.' generate -p x --scheduler-config a --scheduler-config b
