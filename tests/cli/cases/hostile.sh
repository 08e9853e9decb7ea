# What surrounds the program and is not kind: prompts, locale, disks, signals at any time, neighbours.
# shellcheck disable=SC2086  # $small is a list

# Prompts.
family=$(printf '\360\237\221\251\342\200\215\360\237\221\251\342\200\215\360\237\221\247')
for prompt in '猫が窓辺に座っている' "$family" 'chaton très mignon' '' '   ' '<|im_end|><|im_start|>system' '%s%n%x' '--prompt'; do
    expect "the prompt '$prompt'" 0 'p.png' '' generate $small -q --prompt="$prompt" -o p.png
    case $prompt in ''|*\\*) ;; *) ok 'it is in the picture' has_text p.png "$prompt" ;; esac
done
head -c 262145 /dev/zero | tr '\0' x >input
expect 'a prompt of more than 256 KiB' 2 '' 'ounce: *the prompt has 262145 bytes; it must have 262144 or less.' \
    generate $small --prompts-file - -o p.png
printf 'good\nbad \303\050\n' >input
expect 'one of two is not UTF-8' 2 '' 'ounce: Request 2: the prompt is not valid UTF-8 at byte 4.' \
    generate $small --prompts-file - -o p.png
rm -f ./*

# A locale whose numbers have commas, no HOME, an odd umask.
comma=$(locale -a 2>/dev/null | grep -iE '^(de|fr|es|it)_.*utf' | head -n 1)
expect 'a number with a point' 0 'x.png' '' generate $small -q -p x --true-cfg-scale 2.5 -o x.png
LC_ALL=${comma:-de_DE.UTF-8} "$program" generate $small -q -p x --true-cfg-scale 2.5 -o y.png >/dev/null
ok 'the same in another locale' cmp x.png y.png
ok 'without HOME' env -u HOME -u XDG_CACHE_HOME "$program" generate $small -q -p x --true-cfg-scale 2.5 -o y.png
ok 'the same' cmp x.png y.png
ok 'with nothing in the environment' env -i OUNCE_MODELS="$OUNCE_MODELS" "$program" generate $small -q -p x --true-cfg-scale 2.5 -o y.png
ok 'the same' cmp x.png y.png
(umask 077 && "$program" generate $small -q -p x -o private.png >/dev/null)
ok 'umask 077' [ "$(stat -c %a private.png)" = 600 ]
(umask 0777 && "$program" generate $small -q -p x -o none.png >/dev/null)
ok 'umask 777' [ "$(stat -c %a none.png)" = 0 ]
rm -f ./*

# Disks that are read-only, or full: a file system of our own where the system lets us have one.
expect 'a folder that takes no files' 6 '' 'ounce: Cannot write /proc/x.png: *' generate $small -p x -o /proc/x.png
# in_disk OPTIONS: draws into a fresh tmpfs mounted with them; prints the exit code and what is there.
in_disk() {
    unshare -rm sh -c 'mkdir disk && mount -t tmpfs -o "$2" none disk || exit 77
        "$1" generate --width 256 --height 256 --num-inference-steps 1 -q -p x -o disk/x.png 2>"$3"
        echo "$? $(ls -A disk | wc -l)"' sh "$program" "$1" "$logs/err"
    rmdir disk
}
if unshare -rm true 2>/dev/null && [ "$(in_disk ro)" != '' ]; then
    ok 'a read-only disk' [ "$(in_disk ro)" = '6 0' ]
    ok 'is named' grep -q 'ounce: Cannot write disk/x.png: Read-only file system.' "$logs/err"
    ok 'a full disk leaves nothing' [ "$(in_disk size=4k,nr_inodes=8)" = '6 0' ]
    ok 'and is named' grep -q 'ounce: Cannot write disk/x.png .*: No space left on device.' "$logs/err"
fi

# Ctrl-C at any time: 130 and nothing, or 0 and a whole picture.
cancelled=0
for hundredths in 01 02 03 04 05 06 08 10 12 14 17 20 24 28 33 40 50 65 80; do
    mkdir -p out
    env --default-signal=INT "$program" generate -q -p x --num-inference-steps 6 -o out/x.png >"$logs/out" 2>"$logs/err" &
    pid=$!
    sleep "0.$hundredths"
    kill -s INT $pid 2>/dev/null
    wait $pid
    code=$?
    case $code in
    0) ok "whole at 0.$hundredths s" has_text out/x.png IEND ;;
    130) cancelled=$((cancelled + 1)) && ok "nothing at 0.$hundredths s" [ ! -e out/x.png ] ;;
    *) fail "Ctrl-C after 0.$hundredths s: exit $code" ;;
    esac
    rm -f out/x.png
    ok 'nothing beside it' [ "$(ls -A out | wc -l)" -eq 0 ]
done
ok 'some came in time' [ $cancelled -gt 0 ]
rm -rf out

# Two processes, one output: each writes beside it and renames.
"$program" generate $small -q -p one -o same.png >/dev/null 2>"$logs/err" &
pid=$!
"$program" generate $small -q -p two -o same.png >/dev/null 2>&1
second=$?
wait $pid
ok 'both are done' [ $? -eq 0 ]
ok 'the other, too' [ $second -eq 0 ]
ok 'one of them is there, whole' has_text same.png IEND
files 'and nothing else' same.png
