# Sourced after cli/lib.sh: trains the model of choices.lua, and makes questions about its text.
# $bundle: the run; $step: the folder of its weights.
seq 3 7 30000 | head -c 20000 >a.txt
cp "$root/tests/infer/choices.lua" .
"$FP8LAB" run choices.lua --lib "$lib" --threads 2 --backend cpu >out 2>log || fail "run"
bundle=$(bundle_in runs)
step=$(ls -d "${bundle%.tar.zst}".ckpt/step-*)
python3 "$root/tests/outside/multiple_choice.py" make questions.bin a.txt 60 || fail "questions"
