# Models with random weights: complete, the same for the same seed, and refused where they must be.
tiny="--family qwen-image --like emoji --layers 1 --heads 2 --head-dim 16 --text-layers 1 --vae-base-dim 4"
expect 'a tiny one' 0 'tiny' 'written in *' random-model -o tiny $tiny
expect 'is whole' 0 'random: QwenImagePipeline*defaults: 128x128*text_encoder*transformer*vae*' '' inspect ./tiny
ok 'nothing unexpected in it' sh -c '! "$1" inspect --tensors ./tiny | grep -E "UNEXPECTED|WRONG"' sh "$program"
expect 'it draws' 0 'x.png' '' generate ./tiny $small --quiet -p 'red apple' -o x.png
expect 'again, elsewhere' 0 'two/' '' random-model --output two/ $tiny --quiet
ok 'the same bytes' diff -r tiny two
expect 'another seed' 0 'three' '' random-model -o three $tiny --seed 7 --quiet
ok 'other bytes' sh -c '! cmp -s tiny/vae/diffusion_pytorch_model.safetensors three/vae/diffusion_pytorch_model.safetensors'
# A parameter's values do not depend on how many others there are.
expect 'one layer more' 0 'four' '' random-model -o four ${tiny%--layers 1*} --layers 2 ${tiny#*--layers 1} --quiet
ok 'the text encoder is the same' cmp tiny/text_encoder/model.safetensors four/text_encoder/model.safetensors

expect 'there is one already' 2 '' 'ounce: tiny holds a model already*' random-model -o tiny $tiny
expect 'no folder' 2 '' 'ounce: Where to? --output FOLDER is missing.' random-model
expect 'the folder as an argument' 2 '' "ounce: *takes no argument, but there is 'tiny'; the folder is --output 'tiny'." random-model tiny
expect 'heads that do not divide' 2 '' 'ounce: 18 features in a head must be a multiple of 4*' random-model -o five --head-dim 18
expect 'an odd VAE' 2 '' 'ounce: *even.' random-model -o five --vae-base-dim 5
expect 'like nothing' 2 '' "*--like must be one of emoji, qwen-image, not 'flux'." random-model -o five --like flux
expect 'no parent' 6 '' 'ounce: Cannot make the folder *' random-model -o a/b/c $tiny
ok 'no folder is left of what was refused' test ! -e five
rm -rf tiny two three four x.png
