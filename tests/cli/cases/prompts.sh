# Where prompts come from.
expect 'no such file' 6 '' 'ounce: Cannot open the prompts file none.txt: No such file*' generate --prompts-file none.txt
expect 'a folder' 6 '' 'ounce: Cannot * .: *' generate --prompts-file .
printf '\n  \n\t\n' >blank.txt
expect 'no prompt in it' 2 '' '*no prompt in blank.txt;*' generate --prompts-file blank.txt
expect 'no prompt in standard input' 2 '' '*no prompt in standard input;*' generate --prompts-file -
printf 'red apple\na\000b\n' >zero.txt
expect 'a zero byte' 2 '' '*zero.txt is not a text file: line 2 holds a zero byte.' generate --prompts-file zero.txt
rm ./*.txt

# Prompts of the command line come first; a byte order mark and line ends of Windows are no prompts.
printf '\357\273\277grinning cat\r\n\r\n  \npizza' >input
expect 'three prompts' 0 "p-1.png
p-2.png
p-3.png" '*3 pictures in *' generate $small --prompt 'red apple' --prompts-file - -o p.png
files 'three pictures' input p-1.png p-2.png p-3.png
ok 'the first' has_text p-1.png '"red apple"'
ok 'the second, without its mark' has_text p-2.png '"grinning cat"'
ok 'the third' has_text p-3.png '"pizza"'
expect 'an empty prompt is one' 0 'e.png' '*' generate $small --prompt '' -o e.png
expect 'dashes in a prompt' 0 'd.png' '*' generate $small --prompt=--seed -o d.png
printf 'a\377b\n' >input
expect 'not UTF-8' 2 '' 'ounce: *prompt*UTF-8*' generate $small --prompts-file - -o u.png
rm -f input ./*

# More than 512 tokens: cut, and said once, however many pictures it makes.
long=$(seq -f 'word%g' 700 | tr '\n' ' ')
expect 'a long prompt' 0 "l-1.png
l-2.png" 'ounce: warning: The prompt is longer than 512 tokens; these words are lost: "* word700 "' \
    generate $small --quiet -p "$long" -n 2 --true-cfg-scale 1 -o l.png
