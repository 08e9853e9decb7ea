# Ctrl-C and SIGTERM: exit 130, no file, no folder. The signal comes when the folder of the pictures is
# there: handlers are set before it is made.

# interrupt WHAT SIGNAL: starts long work and ends it. The subshell gives the program the signals that a
# background job ignores.
interrupt() {
    env --default-signal=INT "$program" generate --prompt 'red apple' --num-inference-steps 1000 \
        -o "$work/out/" >"$logs/out" 2>"$logs/err" </dev/null &
    pid=$!
    tries=0
    until [ -d out ] || [ $tries -ge 300 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    sleep 0.3
    kill -s "$2" $pid
    wait $pid
    code=$? err=$(cat "$logs/err")
    if [ $code -ne 130 ]; then
        fail "$1: exit $code, not 130"
        show "$logs/err"
    elif ! matches "$err" 'ounce: Interrupted; no picture was written.'; then
        fail "$1: stderr is '$err'"
    else
        pass
    fi
    files "$1 leaves nothing"
    ok "$1 takes the folder away" [ ! -e out ]
}

if env --default-signal=INT true 2>/dev/null; then
    interrupt 'Ctrl-C' INT
fi
interrupt 'SIGTERM' TERM

# While prompts are read.
mkfifo keys
sleep 30 >keys &
writer=$!
env --default-signal=INT "$program" generate --prompts-file - <keys >"$logs/out" 2>"$logs/err" &
pid=$!
sleep 0.5
kill -s TERM $pid
wait $pid
code=$?
ok "reading prompts ends with $code" [ $code -eq 130 ]
ok 'it says so' grep -q '^ounce: Interrupted; no picture was written.$' "$logs/err"
kill $writer
rm keys
