# Pictures of the bundled model: names, metadata, seeds, what is said.
# shellcheck disable=SC2086  # $small is a list
expect 'the default name' 0 'ounce.png' '1 picture in *: load * s, text * s, denoise * s (1 steps, * steps/s), decode * s; peak memory * MiB' \
    generate $small --prompt 'red apple'
ok 'it is a PNG' has_text ounce.png PNG
ok 'it carries its request' has_text ounce.png '"red apple"'
ok 'under the keyword ounce' sh -c 'tr "\000" "\n" <ounce.png | LC_ALL=C grep -aq "tEXtounce$"'
expect 'quiet' 0 'q.png' '' generate $small --prompt 'red apple' --quiet -o q.png
ok 'the same command, the same bytes' cmp ounce.png q.png
expect 'the seed is 42' 0 'q.png' '' generate $small --quiet --prompt 'red apple' --seed 42 -o q.png
ok 'the default seed' cmp ounce.png q.png
expect 'an ending in capitals' 0 'bare.PNG' '' generate $small --quiet -p 'red apple' --no-metadata -o bare.PNG
ok 'no keyword' lacks_text bare.PNG tEXtounce
ok 'no prompt' lacks_text bare.PNG apple
ls >"$logs/list"
ok 'nothing else is there' sh -c '[ "$(LC_ALL=C sort "$1" | tr "\n" " ")" = "bare.PNG ounce.png q.png " ]' sh "$logs/list"
rm -f ./*

expect 'numbers' 0 "many-1.png
many-2.png
many-3.png" '' generate $small --quiet -p 'red apple' --num-images 3 --seed 5 -o many.png
expect 'a seed of its own' 0 'one.png' '' generate $small --quiet -p 'red apple' --seed 6 -o one.png
ok 'picture i has seed + i' cmp many-2.png one.png
ok 'and differs from the first' sh -c '! cmp -s many-1.png many-2.png'
expect 'another number of threads' 0 'one.png' '' generate $small --quiet -p 'red apple' --seed 6 --threads 1 -o one.png
ok 'the same bytes' cmp many-2.png one.png
expect 'prompts begin again at the seed' 0 "two-1.png
two-2.png
two-3.png
two-4.png" '' generate $small --quiet -p pizza -p 'red apple' -n 2 --seed 5 -o two.png
ok 'beside others, the same bytes' cmp two-4.png many-2.png
rm -f ./*

expect 'a folder is made' 0 "out/ounce-1.png
out/ounce-2.png" '' generate $small --quiet -p pizza -n 2 -o out/
expect 'a folder that is there' 0 'out/ounce.png' '' generate $small --quiet -p pizza -o out
expect 'numbers sort' 0 'out/k-01.png*out/k-10.png' '' generate $small --quiet -p pizza -n 10 -o out/k.png
files 'all of them' out/ounce-1.png out/ounce-2.png out/ounce.png $(seq -f 'out/k-%02g.png' 10)
rm -rf out

expect 'a sheet alone' 0 'sheet.png' '2 pictures in *' generate $small -p pizza -p rainbow --contact-sheet sheet.png
files 'the sheet alone' sheet.png
ok 'a sheet has no request' lacks_text sheet.png tEXtounce
expect 'a sheet and pictures' 0 "p-1.png
p-2.png
sheet.png" '' generate $small --quiet -p pizza -n 2 -o p.png --contact-sheet sheet.png
rm -f ./*

expect 'guidance' 0 'g.png' '' generate $small --quiet -p pizza --true-cfg-scale 2.5 --negative-prompt red -o g.png
ok 'the request has it' has_text g.png 2.5
expect 'guidance off' 0 'off.png' '' generate $small --quiet -p pizza --true-cfg-scale 1 -o off.png
expect 'guidance off, by 0' 0 'zero.png' '' generate $small --quiet -p pizza --true-cfg-scale 0 -o zero.png
ok 'both are one' cmp off.png zero.png
expect 'all that there is' 0 'x.png' '*1 picture in *' generate $small "$OUNCE_MODELS/emoji" -p pizza --verbose \
    --precision f32 --device cpu -o x.png
ok 'its precision is in it' has_text x.png '"precision":"f32"'
expect 'the default precision' 0 'y.png' '' generate $small --quiet -p pizza -o y.png
ok 'is bf16' has_text y.png '"precision":"bf16"'
rm -f ./*

expect 'a width that is no multiple' 2 '' 'ounce: *100*96*' generate -p x --width 100 --height 96
expect 'a height that is no multiple' 2 '' 'ounce: *130*128*' generate -p x --height 130
expect 'the second of two' 2 '' 'ounce: *' generate -p '' -p "$(printf '\377')" -n 2
expect 'a folder that is no model' 8 '' 'ounce: *' generate "$work" -p x
expect 'a file that is no model' 4 '' 'ounce: *is a file*' generate "$program" -p x
OUNCE_TRACE=trace.json "$program" generate $small --quiet -p x -o t.png >"$logs/out" 2>&1
ok 'a trace is JSON' awk -f "$here/json.awk" trace.json
rm t.png trace.json
expect 'a replaced picture' 0 'x.png' '' generate $small --quiet -p x -o x.png
expect 'again' 0 'x.png' '' generate $small --quiet -p y -o x.png
ok 'is the new one' has_text x.png '"y"'
files 'and the only one' x.png
