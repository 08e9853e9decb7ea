# Pictures against a reference: what is measured is tests/unit/metrics_test.c's; here: that it comes out, the
# exit status, and what is refused.
# shellcheck disable=SC2086  # $small is a list
json_ok() {
    LC_ALL=C awk -f "$here/json.awk" "$1"
}
"$program" generate $small --quiet -p 'red apple' -o a.png >"$logs/out"
"$program" generate $small --quiet -p 'red apple' --seed 7 -o b.png >"$logs/out"
"$program" generate --width 48 --height 32 --num-inference-steps 1 --quiet -p x -o wide.png >"$logs/out"
cp a.png same.png
echo 'no picture' >text.png

expect 'a table' 0 '*reference: a.png, 32 x 32*candidate*PSNR dB*SSIM*b.png *[0-9].[0-9][0-9] *same.png*identical*recommended*' '' \
    compare a.png b.png same.png
expect 'JSON' 0 '{"document": "comparison", "reference": "a.png"*"identical": true*"psnr_db": null*' '' compare a.png same.png --json
"$program" compare a.png b.png same.png --json >out.json
ok 'it is JSON' json_ok out.json
ok 'without infinities' sh -c '! grep -Eiq "inf|nan" out.json'
expect 'a table and a file' 0 '*reference: a.png*' '' compare a.png b.png same.png --output-json file.json
ok 'the file is that document' cmp out.json file.json
expect 'the thresholds hold' 0 '*b.png*passes*' '' compare a.png b.png --min-psnr 0.1 --min-ssim 0
expect 'PSNR is missed' 7 '*b.png*MISSED*same.png*passes*' 'ounce: 1 of 2 candidates missed a threshold: b.png has a PSNR of *dB, less than 99.' \
    compare a.png b.png same.png --min-psnr 99
expect 'SSIM is missed' 7 '*MISSED*' 'ounce: *b.png has an SSIM of 0.*, less than 1.' compare a.png b.png --min-ssim 1 --output-json missed.json
ok 'the file is there all the same' grep -q '"passes": false' missed.json
expect 'identical pictures pass' 0 '*' '' compare a.png same.png --min-psnr 1000 --min-ssim 1

expect 'a sheet' 0 '*reference: a.png*' '' compare a.png b.png same.png --contact-sheet sheet.png
expect 'beside another' 0 '*reference: sheet.png, 128 x 48*identical*' '' compare sheet.png sheet.png
expect 'over a picture' 2 '' 'ounce: --contact-sheet a.png is also one of the pictures; *' compare a.png b.png --contact-sheet a.png
expect 'over a picture, again' 2 '' 'ounce: --output-json b.png is also one of the pictures; *' compare a.png b.png --output-json b.png
expect 'a sheet of another kind' 2 '' 'ounce: --contact-sheet must be a name that ends in .png*' compare a.png b.png --contact-sheet sheet.jpg

mkdir x y
cp a.png b.png x
cp a.png y
cp a.png y/b.png
expect 'folders' 0 '*reference: x, 2 pictures; means over them*y *(1 identical, not in the mean PSNR)*' '' compare x y --contact-sheet two.png
expect 'its sheet' 0 '*reference: two.png, 88 x 88*' '' compare two.png two.png
rm y/b.png
expect 'a picture that only one has' 2 '' 'ounce: x holds b.png, which y has not*' compare x y
expect 'a file and a folder' 2 '' 'ounce: y is a folder, but the reference a.png is a file*' compare a.png y
expect 'sizes' 2 '' 'ounce: wide.png is 48 x 32 pixels, but the reference a.png is 32 x 32; only*' compare a.png wide.png
expect 'no PNG' 3 '' 'ounce: text.png: *' compare a.png text.png
expect 'no file' 6 '' 'ounce: *nowhere.png*' compare a.png nowhere.png
expect 'a file that cannot be written' 6 '' 'ounce: *folder.json*' compare a.png b.png --output-json no/such/folder.json
expect 'nothing' 2 '' 'ounce: There is nothing to compare: `ounce compare REFERENCE.png CANDIDATE.png...`*' compare
expect 'a reference alone' 2 '' 'ounce: There is a reference, but no candidate: *' compare a.png
expect 'an empty name' 2 '' '*empty text*' compare a.png ''
expect 'an empty file name' 2 '' '*--output-json is an empty text*' compare a.png b.png --output-json=
for value in -1 1000.1 nan x; do
    expect "--min-psnr $value" 2 '' "ounce: --min-psnr must be a number from 0 to 1000, not '$value'." compare a.png b.png "--min-psnr=$value"
done
expect '--min-ssim 1.5' 2 '' "ounce: --min-ssim must be a number from 0 to 1, not '1.5'." compare a.png b.png --min-ssim 1.5
expect 'an option of others' 2 '' '*--fit is an option of `ounce plan`, not of `ounce compare`.' compare a.png b.png --fit 1
