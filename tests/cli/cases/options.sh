# What the parser refuses, and how it says so. Needs no model: everything here fails before one is
# opened, which also stands first when a model is missing (exit 2, not 8).

# nearest WRITTEN MEANT
nearest() {
    expect "nearest of $1" 2 '' "ounce: There is no option $1; did you mean $2?" generate "$1" 3
}
nearest --heigth --height
nearest --promt --prompt
nearest --num_inference_steps --num-inference-steps
nearest --Seed --seed
nearest --steps --num-inference-steps
nearest --neg --negative-prompt
nearest --cfg-scale --true-cfg-scale
nearest --prompt-file --prompts-file
nearest --thread --threads
expect 'with a value behind =' 2 '' '*no option --sead; did you mean --seed?' generate --sead=3
expect 'far from all' 2 '' '*no option --xyzzyxyzzy; `ounce help generate` lists them all.' generate --xyzzyxyzzy
expect 'a letter' 2 '' '*no option -z; `ounce help generate` lists them all.' generate -z
expect 'a letter among others' 2 '' '*no option -z;*' generate -vz
expect 'one dash' 2 '' '*no option -prompt; long ones have two dashes: --prompt.' generate -prompt x
expect 'one dash, h is not help' 2 '' '*two dashes: --height=3.' generate -height=3
expect 'of another command' 2 '' '*--json is an option of `ounce inspect`, not of `ounce generate`.' generate --json
expect 'letter of another command' 2 '' '*--verbose is an option of `ounce generate`, not of `ounce inspect`.' inspect -v
expect 'of the program' 2 '' '*--version is an option of `ounce`, not of `ounce generate`.' generate --version

expect 'no value' 2 '' 'ounce: --prompt needs a value: --prompt TEXT.' generate --prompt
expect 'no value, letter' 2 '' 'ounce: -n needs a value: -n N.' generate -n
expect 'an option as a value' 2 '' '*the option --seed follows. If that is the value, write --prompt=--seed.' \
    generate --prompt --seed 3
expect 'a value for a flag' 2 '' '*--quiet takes no value.' generate --quiet=yes
for option in --seed=1 --keep=none --quantization=fp8 --allow-unmatched --output=x.png --width=32 --negative-prompt=x --device=cpu --no-metadata --quiet; do
    expect "$option twice" 2 '' "ounce: ${option%%=*} is given twice." generate "$option" "$option"
done
expect 'letter and long twice' 2 '' '*--num-images is given twice.' generate -n 2 --num-images 2
expect 'quiet and verbose' 2 '' '*--quiet and --verbose exclude each other.' generate --quiet --verbose -p x

# number OPTION RANGE BAD...: each bad value is refused with the range.
number() {
    option=$1 range=$2
    shift 2
    for value in "$@"; do
        expect "$option $value" 2 '' "ounce: $option must be *number $range, not '$value'." generate -p x "$option=$value"
    done
}
number --height 'from 16 to 16384' 0 15 16385 -16 1e2 32.0 '' ' 32' '32 ' 0x20 +32 99999999999999999999
number --width 'from 16 to 16384' 15 x
number --num-inference-steps 'from 1 to 10000' 0 10001 -1 2147483648 4294967297
number --num-images 'from 1 to 10000' 0 10001 two
number --max-header-bytes 'from 1 to 100000000' 0 -1 100000001 16M
number --threads 'from 1 to 1024' 0 1025 -1
number --max-batch 'from 1 to 64' 0 65 -1
number --seed 'from 0 to 18446744073709551615' -1 18446744073709551616 1.5 ''
number --true-cfg-scale 'from 0 to 1000' -0.1 1000.1 nan inf 4,5 0x4 '' 1e400 four 4.0x
expect 'precision' 2 '' "*--precision must be one of bf16, f32, not 'fp8'." generate -p x --precision fp8
expect 'device' 2 '' '*No device is named "cud"; did you mean "cuda"? Devices of this build: cuda, cpu, auto.' generate -p x --device cud
expect 'number of a device' 2 '' '*a number from 0 is expected*' generate -p x --device cuda:x
OUNCE_PLUGINS=/nonexistent expect 'no plug-in' 9 '' '*/nonexistent/libounce-cuda.so is not installed*--device cpu.' generate -p x --device cuda

expect 'no prompt' 2 '' 'ounce: There is no prompt.*--prompt or --prompts-file*ounce generate --prompt "red apple"' generate
expect 'the prompt as a model' 2 '' '*ounce generate --prompt "green pear"' generate 'green pear'
expect 'a prompt without quotes' 2 '' "*one model, but there are 'red' and 'apple'.*needs quotes*" generate red apple
expect 'two models' 2 '' '*`ounce inspect` takes one model*' inspect -- a --b
expect 'an empty model' 2 '' '*model is an empty text*' inspect ''
expect 'too many pictures' 2 '' '*101 prompts with 10000 pictures each are 1010000 pictures;*from 1 to 1000000.' \
    generate -n 10000 $(for i in $(seq 101); do echo "-p$i"; done)
files 'nothing was written'
