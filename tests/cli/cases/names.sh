# How a model is named: a folder, org/name in the Hugging Face cache, a transformer from elsewhere.
# shellcheck disable=SC2086  # $small is a list
unset HF_HUB_CACHE HF_HOME XDG_CACHE_HOME
revision=0123456789abcdef0123456789abcdef01234567

# The cache as its makers lay it out: a snapshot of links into blobs.
cache=$work/hf/hub
repository=$cache/models--some-org--emoji.v1
snapshot=$repository/snapshots/$revision
mkdir -p "$repository/blobs" "$repository/refs" "$snapshot"
printf %s $revision >"$repository/refs/main"
number=0
(cd "$OUNCE_MODELS/emoji" && find . -type f ! -path './train/*' ! -path './reference/*' -size -40000k) >"$logs/list"
while read -r file; do
    number=$((number + 1))
    mkdir -p "$snapshot/$(dirname "$file")"
    cp "$OUNCE_MODELS/emoji/$file" "$repository/blobs/$number"
    ln -s "$repository/blobs/$number" "$snapshot/$file"
done <"$logs/list"

HF_HUB_CACHE=$cache
export HF_HUB_CACHE
expect 'by HF_HUB_CACHE' 0 "*snapshots/$revision*" '' inspect some-org/emoji.v1
unset HF_HUB_CACHE
HF_HOME=$work/hf
export HF_HOME
expect 'by HF_HOME' 0 'x.png' '' generate some-org/emoji.v1 $small --quiet -p 'red apple' -o x.png
expect 'the bundled one' 0 'y.png' '' generate $small --quiet -p 'red apple' --no-metadata -o y.png
expect 'without its name in it' 0 'x.png' '' generate some-org/emoji.v1 $small --quiet -p 'red apple' --no-metadata -o x.png
ok 'the same picture' cmp x.png y.png
unset HF_HOME
mkdir -p "$work/home/.cache"
ln -s "$work/hf" "$work/home/.cache/huggingface"
ok 'by HOME' env HOME="$work/home" "$program" inspect some-org/emoji.v1
ok 'by XDG_CACHE_HOME' env HOME=/nowhere XDG_CACHE_HOME="$work/home/.cache" "$program" inspect some-org/emoji.v1

HF_HOME=$work/hf
export HF_HOME
expect 'not in the cache' 8 '' "ounce: some-org/other is no folder here, and is not in $cache. *: hf download some-org/other. *" inspect some-org/other
expect 'no way out of it' 8 '' 'ounce: No such model: *' inspect ../emoji
expect 'nor by a point' 8 '' 'ounce: No such model: *' inspect some-org/..
ok 'no cache at all' sh -c 'env -u HF_HOME -u HOME "$1" inspect a/b 2>&1 | grep --quiet "there is no cache: set HF_HOME"' sh "$program"
printf '../../x' >"$repository/refs/main"
expect 'a revision that is none' 3 '' 'ounce: */refs/main does not hold the name of a revision.*' inspect some-org/emoji.v1
printf 'abc\n' >"$repository/refs/main"
expect 'a download that was only begun' 8 '' 'ounce: some-org/emoji.v1 is only begun: there is no */snapshots/abc.*' inspect some-org/emoji.v1
printf %s $revision >"$repository/refs/main"
# A link out of the repository.
mv "$snapshot/vae/config.json" "$work/kept"
ln -s /etc/passwd "$snapshot/vae/config.json"
expect 'a link out of it' 3 '' 'ounce: */vae/config.json leads to /etc/passwd, out of its repository *' inspect some-org/emoji.v1
rm "$snapshot/vae/config.json"
mv "$work/kept" "$snapshot/vae/config.json"
unset HF_HOME

# A transformer from elsewhere.
transformer=$OUNCE_MODELS/emoji/transformer
expect 'its folder' 0 'x.png' '' generate $small --quiet -p 'red apple' --no-metadata --transformer "$transformer" -o x.png
ok 'the same picture' cmp x.png y.png
index=$(ls "$transformer"/*.index.json)
expect 'its index' 0 '*transformer (QwenImageTransformer2DModel)*' '' inspect --transformer "$index"
expect 'one shard of two' 3 '*' 'ounce: *tensors are missing*' inspect --transformer "$(ls "$transformer"/*-00001-of-*.safetensors)"
expect 'another component' 3 '*' 'ounce: *does not fit its config*' generate $small -p x --transformer "$OUNCE_MODELS/emoji/vae" -o z.png
expect 'nothing' 6 '' 'ounce: *nowhere.safetensors*No such file*' generate $small -p x --transformer nowhere.safetensors -o z.png
expect 'not for kernels' 2 '' 'ounce: --transformer has no effect with --kernels*' bench --kernels --transformer x
printf 'GGUF....................' >x.gguf
expect 'no version of it' 4 '' 'ounce: x.gguf is GGUF of version 774778414; versions 2 and 3 are read.' inspect --transformer x.gguf
expect 'a lone file' 4 '' 'ounce: x.gguf is GGUF of version *' inspect x.gguf
expect 'a file as the model' 4 '' "ounce: x.gguf is a file; *add --transformer x.gguf." generate -p x -o y.png x.gguf
expect 'a header above the limit' 3 '' 'ounce: *at most 100 are read*--max-header-bytes*' inspect --max-header-bytes 100
