# Help, version, and the ways to miss a command. Needs no model.
version=$(sed -n 's/^#define OZ_VERSION_[A-Z]* //p' "$root/include/ounce/ounce.h" | paste -sd.)

expect 'version' 0 "ounce $version" '' --version
expect 'help' 0 'ounce [0-9]*Usage: ounce COMMAND*generate*inspect*--help*--version*130 interrupted.' '' --help
expect 'short help' 0 '*Usage: ounce COMMAND*' '' -h
expect 'help as a command' 0 '*Usage: ounce COMMAND*' '' help
expect 'help on a command' 0 'ounce generate: *Usage: ounce generate*--prompt TEXT*Each option has a page*' '' help generate
expect 'a command asked for help' 0 'ounce inspect: *--json*--tensors*' '' inspect --help
expect 'short, behind others' 0 'ounce generate: *' '' generate --seed 3 -h
expect 'help looks at nothing behind it' 0 'ounce generate: *' '' generate --help --nonsense
ok 'both helps are one' sh -c '[ "$("$1" help generate)" = "$("$1" generate --help)" ]' sh "$program"
"$program" help generate >help.txt
ok 'help fits a terminal' awk 'length > 100 { bad = 1 } / $/ { bad = 1 } END { exit bad }' help.txt

expect 'nothing' 2 '' 'ounce: A command must follow*ounce --help*'
expect 'unknown command, near' 2 '' '*no command '\''genrate'\''; did you mean `ounce generate`?' genrate
expect 'unknown command, swapped' 2 '' '*did you mean `ounce inspect`?' isnpect
expect 'unknown command, far' 2 '' '*no command '\''xyzzy'\''; `ounce --help` lists them.' xyzzy
expect 'help on an unknown command' 2 '' '*did you mean `ounce inspect`?' help inspct
expect 'help on two' 2 '' '*takes one command*' help generate inspect
expect 'version and more' 2 '' "*'now' has no meaning here*" --version now
expect 'an option of a command, alone' 2 '' '*--seed is an option of `ounce generate`, not of `ounce`.' --seed 3
expect 'only dashes' 2 '' 'ounce: *' --
