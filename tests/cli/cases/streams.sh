# Standard streams that are closed, full, or lose their reader.

# code WHAT WANT: compares the exit code before it.
code() {
    got=$?
    ok "$1: exit $got" [ $got -eq "$2" ]
}

"$program" --help >&- 2>"$logs/err"
code 'help, stdout closed' 6
ok 'it says so' grep -q '^ounce: Cannot write to standard output: ' "$logs/err"
"$program" inspect >&- 2>"$logs/err"
code 'inspect, stdout closed' 6
ok 'it says so' grep -q '^ounce: Cannot write to standard output: ' "$logs/err"
if [ -c /dev/full ]; then
    "$program" inspect --tensors >/dev/full 2>"$logs/err"
    code 'inspect, disk full' 6
    ok 'it says so, once' [ "$(cat "$logs/err")" = 'ounce: Cannot write to standard output: No space left on device.' ]
    "$program" --version >/dev/full 2>"$logs/err"
    code 'version, disk full' 6
fi
{
    "$program" inspect --json --tensors 2>"$logs/err"
    echo $? >"$logs/code"
} | true
ok 'a reader that went away' grep -qx 6 "$logs/code"
ok 'who is told nothing' [ ! -s "$logs/err" ]

# shellcheck disable=SC2086  # $small is a list
"$program" generate $small --quiet --prompt x >&- 2>"$logs/err"
code 'generate, stdout closed' 6
files 'the picture is there all the same' ounce.png
ok 'and whole' has_text ounce.png IEND
rm ounce.png
# shellcheck disable=SC2086
"$program" generate $small --prompt x <&- >&- 2>&-
code 'generate, all closed' 6
files 'no stream went into the picture' ounce.png
ok 'it is a PNG' [ "$(head -c 4 ounce.png | od -An -c | tr -d ' ')" = '211PNG' ]
# shellcheck disable=SC2086
expect 'no bar without a terminal' 0 'ounce.png' '1 picture in *' generate $small --prompt x
ok 'no escape sequences' lacks_text "$logs/err" "$(printf '\033')"
