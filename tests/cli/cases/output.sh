# Where pictures go; what cannot be written is found before the work: exit 6 although there is no model.
none='./no-such-model'
expect 'no such folder' 6 '' 'ounce: Cannot write sub/x.png: there is no folder sub/.' generate $none -p x -o sub/x.png
expect 'no parent to make one in' 6 '' 'ounce: Cannot make the folder a/b/: No such file*' generate $none -p x -o a/b/
mkdir x.png.d && ln -s x.png.d link && mkfifo pipe.png && : >plain
expect 'a file as a folder' 6 '' 'ounce: Cannot write plain/x.png: *' generate $none -p x -o plain/x.png
expect 'a file as a folder to make' 6 '' 'ounce: Cannot *' generate $none -p x -o plain/
expect 'a pipe' 6 '' '*pipe.png: it is there, and is no ordinary file.' generate $none -p x -o pipe.png
mkdir y-2.png
expect 'a folder of a numbered name' 6 '' '*y-2.png: it is there, and is no ordinary file.' generate $none -p x -n 3 -o y.png
rmdir y-2.png
expect 'not a picture' 2 '' "*--output must be a name that ends in .png, or a folder*not 'x.jpg'." generate $none -p x -o x.jpg
expect 'no ending' 2 '' "*not 'apple'." generate $none -p x -o apple
expect 'only an ending' 2 '' "*not '.png'." generate $none -p x --output .png
expect 'empty' 2 '' "*not ''." generate $none -p x --output=
expect 'standard output' 2 '' '*do not go to standard output.' generate $none -p x -o -
expect 'the sheet, too' 6 '' 'ounce: Cannot write sub/s.png: *' generate $none -p x --contact-sheet sub/s.png
expect 'two of one name' 2 '' '*--contact-sheet ./x-2.png is also the name*' \
    generate $none -p x -n 2 -o x.png --contact-sheet ./x-2.png
expect 'of one name by another way' 2 '' '*is also the name*' \
    generate $none -p x -o x.png.d/x.png --contact-sheet link/x.png
expect 'a name that is too long' 6 '' 'ounce: Cannot write *: File name too long.' \
    generate $none -p x -o "$(printf '%0300d' 0).png"
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked && chmod a-w locked
    expect 'no right' 6 '' 'ounce: Cannot write locked/x.png: Permission denied.' generate $none -p x -o locked/x.png
fi
expect 'no model' 8 '' 'ounce: *no-such-model*' generate $none -p x
expect 'a new folder, but no model' 8 '' 'ounce: *no-such-model*' generate $none -p x -o new/
ok 'the new folder is gone' [ ! -e new ]
files 'nothing was written' link pipe.png plain

# A name as long as the system allows works, also while it is written; a link stays one.
name=$(printf '%0251d' 0).png
expect 'the longest name' 0 "$name" '' generate $small --quiet -p x -o "$name"
: >real.png && ln -s real.png link.png
expect 'a link' 0 'link.png' '' generate $small --quiet -p x -o link.png
ok 'stays one' [ -L link.png ]
ok 'what it leads to has the picture' has_text real.png PNG
OUNCE_TRACE=none/trace.json
export OUNCE_TRACE
expect 'a trace that cannot be written' 6 '' 'ounce: Cannot write beside none/trace.json: *' generate $small -p x -o t.png
unset OUNCE_TRACE
ok 'is found before the work' [ ! -e t.png ]
# The limit comes when the program has begun to read more blank prompts than a pipe holds: sanitizers write
# files of their own while they start.
mkfifo prompts
ok 'a limit on file sizes is no end of the program' sh -c '
    "$1" generate --width 32 --height 32 --num-inference-steps 1 --quiet --prompts-file - -o limit.png <prompts &
    exec 9>prompts
    head -c 500000 /dev/zero | tr "\0" "\n" >&9
    prlimit --pid $! --fsize=0
    echo x >&9
    exec 9>&-
    wait $!
    [ $? -eq 6 ]' sh "$program"
rm prompts
files 'and leaves nothing' link pipe.png plain "$name" real.png link.png
