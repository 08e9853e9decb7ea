#!/bin/sh
# serve.sh: what serving costs. Starts `ounce serve` with the bundled model and asks it: 50 mixed pictures
# alone and 8 at a time (the bytes must be the same), lone pictures against `ounce generate`, and many
# clients for a while. Environment:
#   OUNCE    the program (default: the newest build), with serve_load beside it in tests/http
#   CLIENTS (500)  SECONDS_OF_LOAD (60)  COUNT (20)  ROUNDS (3)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
: "${CLIENTS:=500}" "${SECONDS_OF_LOAD:=60}" "${COUNT:=20}" "${ROUNDS:=3}"
# shellcheck disable=SC2012  # names are ours
: "${OUNCE:=$(ls -t "$root"/build/*/apps/ounce 2>/dev/null | head -n 1)}"
: "${OUNCE_MODELS:=$root/models}"
export OUNCE_MODELS
load=$(dirname "$(dirname "$OUNCE")")/tests/http/serve_load
[ -x "$load" ] || { echo "there is no $load: build it (target serve_load)" >&2; exit 2; }
work=$(mktemp -d)
server=
trap 'rm -rf "$work"; [ -z "$server" ] || kill "$server" 2>/dev/null || :' EXIT
trap 'exit 130' INT TERM

# start OPTION...
start() {
    "$OUNCE" serve --port 0 --quiet --max-queue 64 "$@" >"$work/url" 2>"$work/log" &
    server=$!
    until [ -s "$work/url" ] && curl -fs "$(cat "$work/url")/ready" >/dev/null; do
        sleep 0.1
        kill -0 $server || { cat "$work/log" >&2; exit 1; }
    done
    port=$(sed 's/.*://' "$work/url")
}

stop() {
    kill -TERM $server
    wait $server
    server=
}

start
"$load" "$port" same "$ROUNDS"
stop

start
"$load" "$port" lone "$COUNT"
stop
echo "ounce generate, one at a time:"
"$OUNCE" generate -p 'red apple' -n "$COUNT" --max-batch 1 -o "$work/pictures/" >/dev/null

start --max-connections 2000
"$load" "$port" load "$CLIENTS" "$SECONDS_OF_LOAD" $server
curl -fs "http://127.0.0.1:$port/metrics" | grep -E '^ounce_(batch_fill|steps_total|pictures_total)'
stop
