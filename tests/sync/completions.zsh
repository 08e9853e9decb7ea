# completions.zsh FOLDER: drives shells in FOLDER/here, with zsh/_ounce and ounce (for bash) of FOLDER.
# Called by `completions`. A line is typed, TAB is pressed, and Ctrl-G, bound in the shell to a function
# that prints the line, tells what became of it.
emulate -R zsh
zmodload zsh/zpty || { print "skipped: this zsh has no module zpty"; exit 77 }
folder=$1
integer failed=0 passed=0

# wait_for TEXT: reads what the shell writes, into seen, until it holds the text; at most 30 s.
wait_for() {
    local piece
    integer tries=0
    seen=
    while (( tries++ < 600 )); do
        if zpty -rt shell piece; then
            seen+=$piece
            [[ $seen == *$1* ]] && return 0
        else
            sleep 0.05
        fi
    done
    return 1
}

# start NAME COMMAND SETUP: a shell on a terminal, ready for lines.
start() {
    name=$1
    zpty -b shell "cd ${(q)folder}/here && env -i PATH=${(q)PATH} HOME=${(q)folder} TERM=dumb LC_ALL=C $2"
    zpty -w shell "$3; echo rea''dy"
    if ! wait_for ready; then
        print -r -- "$name does not start: ${(V)seen}"
        exit 1
    fi
}

# completes LINE WANT: TAB behind LINE makes WANT of it.
completes() {
    zpty -w -n shell "$1"$'\t\a'
    wait_for '>>'
    local got=${${seen##*<<}%%>>*}
    if [[ $got == $2 ]]; then
        (( ++passed ))
    else
        print -r -- "$name: '$1' becomes '$got', not '$2'"
        (( ++failed ))
    fi
}

# lists LINE TEXT...: the first TAB behind LINE shows each text.
lists() {
    zpty -w -n shell "$1"$'\t\a'
    wait_for '>>'
    for text in "${@:2}"; do
        if [[ $seen == *$text* ]]; then
            (( ++passed ))
        else
            print -r -- "$name: behind '$1' stands no '$text': ${(V)seen}"
            (( ++failed ))
        fi
    done
}

both() {
    completes 'ounce gen' 'ounce generate '
    completes 'ounce --ver' 'ounce --version '
    completes 'ounce generate --see' 'ounce generate --seed '
    completes 'ounce generate --precision f' 'ounce generate --precision f32 '
    completes 'ounce generate -p x --lora ad' 'ounce generate -p x --lora adapter.safetensors '
    completes 'ounce generate --lora a --lor' 'ounce generate --lora a --lora '
    completes 'ounce inspect mod' 'ounce inspect model/'
    completes 'ounce inspect --see' 'ounce inspect --see' # it has no --seed
    completes 'ounce kernels mod' 'ounce kernels mod'     # nor has this a model
    completes 'ounce help gen' 'ounce help generate '
}

start zsh 'zsh -f -i' 'PS1="> "; fpath=(../zsh $fpath); autoload -Uz compinit; compinit -u -D;
    show() { zle -I; print -r -- "<<$BUFFER>>"; BUFFER= }; zle -N show; bindkey "^G" show'
both
completes 'ounce generate -n 2 --num' 'ounce generate -n 2 --num-inference-steps ' # --num-images is -n
lists 'ounce ' 'generate ' '-- draw pictures from prompts' "the machine's limit" 'say more'
zpty -d shell

if (( $+commands[bash] )); then
    start bash 'bash --norc --noprofile -i' 'PS1="> "; . ../ounce; bind "set enable-bracketed-paste off";
        show() { printf "<<%s>>\n" "$READLINE_LINE"; READLINE_LINE=; }; bind -x "\"\C-g\": show"'
    both
    zpty -d shell
fi
print "completions: $passed passed, $failed failed"
(( failed == 0 ))
