# What the program says when something is wrong, word by word: tests/cli/messages.txt holds each command,
# its exit status and its words, to be read as by somebody who has never seen the code. To take the words
# of the program over after a change: OUNCE_UPDATE=1 tests/cli/run build/dev/apps/ounce messages
golden=$here/messages.txt
unset HF_HUB_CACHE HF_HOME XDG_CACHE_HOME
HF_HOME=$work/hf
export HF_HOME

# What the commands find.
mkdir empty folder.png out
printf 'red apple\n' >prompts.txt
: >blank.txt
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n' >lfs.safetensors
printf 'PK\003\004........' >pickle.safetensors
printf '<!DOCTYPE html><html>' >page.safetensors
printf 'GGUF............' >model.gguf
: >nothing.safetensors
"$root/tests/bugs/make" files >/dev/null
for name in broken wrong other; do
    mkdir $name
    for part in model_index.json ounce.json scheduler text_encoder tokenizer transformer vae; do
        ln -s "$OUNCE_MODELS/emoji/$part" $name/$part
    done
done
rm broken/model_index.json wrong/transformer other/model_index.json
sed 's/"_class_name"/_class_name/' "$OUNCE_MODELS/emoji/model_index.json" >broken/model_index.json
sed 's/QwenImagePipeline/FluxPipeline/' "$OUNCE_MODELS/emoji/model_index.json" >other/model_index.json
mkdir wrong/transformer
ln -s "$OUNCE_MODELS"/emoji/transformer/*.safetensors "$OUNCE_MODELS"/emoji/transformer/*.index.json wrong/transformer
sed 's/"num_layers": 6/"num_layers": 7/' "$OUNCE_MODELS/emoji/transformer/config.json" >wrong/transformer/config.json

# say COMMAND: the command as it stands in the list, what became of it, and what it said.
say() {
    printf '%s\n' "$1"
    eval "set -- ${1#\$ ounce}"
    "$program" "$@" >/dev/null 2>"$logs/err" </dev/null
    printf 'exit %d\n' $?
    sed "s|$work|WORK|g; s|$OUNCE_MODELS|MODELS|g; s|[^ ]*/\.\./share/ounce|PREFIX/share/ounce|g
        s|/[^ ]*/share/ounce/models/|DATA/share/ounce/models/|g; s|^|    |" "$logs/err"
    echo
}

sed '/^\$ ounce/,$d' "$golden" >"$logs/messages"
grep '^\$ ounce' "$golden" >"$logs/commands"
while read -r line; do
    say "$line"
done <"$logs/commands" >>"$logs/messages"
[ "${OUNCE_UPDATE:-}" != 1 ] || cp "$logs/messages" "$golden"
ok 'every message' diff "$golden" "$logs/messages"
ok 'there are some' [ "$(wc -l <"$logs/commands")" -gt 40 ]
