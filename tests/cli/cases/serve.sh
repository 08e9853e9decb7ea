# `ounce serve` before it serves: what is refused, in which words; and one life with every option. What it
# serves: tests/http.
if "$program" serve --deploy-config none.yaml 2>&1 | grep -q 'This build has no server'; then
    expect 'a build without it says so' 4 '' '*configured without libmicrohttpd-dev*' serve
    return 0
fi

# number OPTION RANGE BAD...
serve_number() {
    option=$1 range=$2
    shift 2
    for value in "$@"; do
        expect "$option $value" 2 '' "ounce: $option must be a*number $range, not '$value'." serve "$option=$value"
    done
}
serve_number --port 'from 0 to 65535' -1 65536 http
serve_number --max-num-seqs 'from 1 to 64' 0 65
serve_number --max-queue 'from 1 to 10000' 0 10001
serve_number --max-per-client 'from 0 to 10064' -1 10065
serve_number --max-pixels 'from 256 to 268435456' 255 1e6
serve_number --max-connections 'from 1 to 60000' 0 60001
serve_number --request-timeout 'from 0 to 604800' -1 604801 nan
serve_number --result-ttl 'from 0.1 to 604800' 0
serve_number --read-timeout 'from 0.1 to 3600' 0 3601
serve_number --shutdown-timeout 'from 0 to 3600' -1 3601

# The library behind `ounce serve` is opened when it is asked for; one that is none stands in for its absence.
mkdir lib
for number in 10 11 12 13 14 15; do # whichever this build opens
    echo none >lib/libmicrohttpd.so.$number
done
ok 'without libmicrohttpd it says so' sh -c '! LD_LIBRARY_PATH=lib "$1" serve --port 0 2>err &&
    grep -q "needs libmicrohttpd, and libmicrohttpd.so.[0-9]* does not open: .*Install it" err' sh "$program"
ok 'and the rest works' env LD_LIBRARY_PATH=lib "$program" --version
rm -r lib err

expect 'a public address without a key' 2 '' '*--host 0.0.0.0 can be reached from other machines*--api-key-file FILE*--allow-no-key*' \
    serve --host 0.0.0.0 --port 0
expect 'an IPv6 one' 2 '' '*can be reached*' serve --host :: --port 0
expect 'no address' 2 '' '*--host 300.1.1.1 is no address to listen on: *' serve --host 300.1.1.1
expect 'an address of another machine' 6 '' '*Cannot listen on 192.0.2.1, port 0: *' serve --host 192.0.2.1 --port 0 --api-key x
expect 'an empty key' 2 '' '*--api-key: an API key has 1 to 512 characters, not 0.' serve --api-key ''
expect 'a key with a blank' 2 '' '*printable ASCII*' serve --api-key 'a b'
expect 'no key file' 6 '' '*--api-key-file none cannot be read: *' serve --api-key-file none
echo '# nothing' >keys
expect 'an empty key file' 2 '' '*--api-key-file keys holds no key*' serve --api-key-file keys
expect 'half of TLS' 2 '' '*--tls-cert and --tls-key come together.' serve --tls-cert x
expect 'no certificate' 6 '' '*--tls-cert none cannot be read*' serve --tls-cert none --tls-key none --port 0
expect 'a bad public URL' 2 '' '*--public-url must begin with http*' serve --public-url example.org
expect 'defaults that are none' 2 '' '*default_sampling_params: *not valid JSON*' serve --default-sampling-params '{'
expect 'defaults of no field' 2 '' "*did you mean 'num_inference_steps'?*" serve --default-sampling-params '{"num_inference_step": 3}'
expect 'no model' 8 'http*' '*' serve "$work/none" --port 0
expect 'quiet and verbose' 2 '' '*exclude each other.' serve --quiet --verbose

expect 'no deploy config' 6 '' '*--deploy-config none.yaml cannot be read*' serve --deploy-config none.yaml
# deploy WHAT WORDS: the text in deploy.yaml is refused in these words.
deploy() {
    expect "$1" "$3" '' "$2" serve --deploy-config deploy.yaml --port 0
}
printf 'quantizaton: fp8\n' >deploy.yaml
deploy 'an unknown key' "*deploy.yaml: ounce has no key 'quantizaton'; did you mean 'quantization'?*" 2
printf 'stages:\n- stage_id: 0\n  gpu_memory_utilization: 0.9\n' >deploy.yaml
deploy 'an unknown key of a stage' "*no key 'gpu_memory_utilization'*" 2
printf 'stages: [{}, {}]\n' >deploy.yaml
deploy 'two stages' '*stages must be a list of one*' 4
printf 'max_num_seqs: many\n' >deploy.yaml
deploy 'a number that is none' '*max_num_seqs must be a whole number from 1 to 64.' 2
printf 'devices: "0,1"\n' >deploy.yaml
deploy 'two devices' '*one device*' 2
printf 'a: [\n' >deploy.yaml
deploy 'no YAML' '*deploy.yaml, line *' 3
printf 'default_sampling_params: {x: &a [1,1,1,1,1,1,1,1,1,1], y: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a], z: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b], w: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c], v: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]}\n' >deploy.yaml
deploy 'a YAML bomb' '*mapping of at most*' 2

# One life with everything; SIGTERM ends it with 0.
printf 'quantization: int8\nstages:\n- stage_id: 0\n  max_num_seqs: 2\n  devices: cpu\n  default_sampling_params:\n    size: 32x32\n    num_inference_steps: 1\n' >deploy.yaml
echo secret-of-the-file >keys
"$program" serve --port 0 --host localhost --api-key secret-of-the-line --api-key-file keys --allow-no-key \
    --served-model-name a --served-model-name b --max-num-seqs 3 --max-queue 5 --max-per-client 4 \
    --max-pixels 65536 --max-connections 10 --request-timeout 30 --result-ttl 5 --read-timeout 5 --shutdown-timeout 1 \
    --public-url http://example.org/ --cors-origin https://example.org --deploy-config deploy.yaml \
    --default-sampling-params '{"seed": 5}' --log-prompts --omni --step-execution --trust-remote-code \
    --enforce-eager --force-cutlass-fp8 >"$logs/url" 2>"$logs/log" &
server=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    grep -q 'event=ready' "$logs/log" && break
    sleep 0.5
done
ok 'it says where' grep -q '^http://localhost:[1-9]' "$logs/url"
ok 'it is ready' grep -q 'event=ready model=a' "$logs/log"
for option in omni step-execution trust-remote-code enforce-eager force-cutlass-fp8; do
    ok "--$option is named as without effect" grep -q -e "--$option has no effect" "$logs/log"
done
kill -TERM $server
wait $server
ok 'SIGTERM is a good end' test $? -eq 0
ok 'no key is in the log' lacks_text "$logs/log" secret
files 'it left nothing' deploy.yaml keys
