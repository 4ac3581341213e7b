#!/bin/sh
# Writes conversations that experiments/sft_quickstart.lua trains on: one question, one answer.
#
#   containers/export_chats.sh FILE [unseen]
#
# Each line of FILE is a JSON object with `messages`. The questions are sums of two numbers below 60
# in four wordings. An answer has one format: "Answer: 12." With `unseen` FILE gets the questions
# that are kept out of training, about one in ten. The same call gives the same bytes. An existing
# file is kept; remove it to get a new one.
set -eu

out=${1:?"usage: export_chats.sh FILE [unseen]"}
which=${2:-train}
case $which in train | unseen) ;; *)
    echo "export_chats.sh: $which: the second word can only be unseen" >&2
    exit 2
    ;;
esac
if [ -s "$out" ]; then
    exit 0
fi
mkdir -p "$(dirname "$out")"
part=$out.part.$$
trap 'rm -f "$part"' EXIT

# A sum is unseen in all four wordings, so an answer cannot be copied from another wording.
awk -v which="$which" 'BEGIN {
    wording[0] = "What is %d plus %d?"
    wording[1] = "Please add %d and %d."
    wording[2] = "%d + %d ="
    wording[3] = "I have %d apples and get %d more. How many are there?"
    for (a = 0; a < 60; a++)
        for (b = 0; b < 60; b++) {
            unseen = (a * 7 + b * 13) % 10 == 3
            if (unseen != (which == "unseen")) continue
            for (w = 0; w < 4; w++)
                printf "{\"messages\":[{\"role\":\"user\",\"content\":\"" wording[w] "\"}," \
                       "{\"role\":\"assistant\",\"content\":\"Answer: %d.\"}]}\n", a, b, a + b
        }
}' | LC_ALL=C sort | LC_ALL=C sort -R --random-source=/dev/zero >"$part"
mv "$part" "$out"
echo "$out: $(wc -l <"$out") conversations, $(wc -c <"$out") bytes" >&2
