#!/bin/bash
# Records reference bundles: every row of an experiment, and the seed band of each from three seeds.
#
#   experiments/reference/record.sh FP8LAB EXPERIMENT.lua FOLDER [FLAGS OF run...]
#
# FOLDER (experiments/reference/cpu) gets NAME.tar.zst and NAME.band.json for each row. Its old
# contents are replaced after everything has run. Each row runs with its own seed and two more. Only
# the variables that find programs and libraries are passed on: a reference records no others.
set -eu
fp8lab=$1 experiment=$2 folder=$3
shift 3
mkdir -p runs
work=$(mktemp -d runs/record.XXXXXX)
trap 'rm -rf "$work"' EXIT
clean=(env -i PATH="${RECORD_PATH:-/usr/local/bin:/usr/bin:/bin}" HOME=/ LANG=C.UTF-8)
[ -z "${LD_LIBRARY_PATH:-}" ] || clean+=(LD_LIBRARY_PATH="$LD_LIBRARY_PATH")

# The name in a bundle's file: <time>-<name>-<8 digits>.tar.zst
row_of() {
    local name=${1##*/}
    name=${name#*Z-}
    echo "${name%-????????.tar.zst}"
}

"${clean[@]}" "$fp8lab" run "$experiment" --runs "$work/1" "$@"
for seed in 2 3; do
    "${clean[@]}" "$fp8lab" run "$experiment" --runs "$work/$seed" --set train.seed=$seed -q "$@"
done
mkdir "$work/new"
for bundle in "$work"/1/*.tar.zst; do
    row=$(row_of "$bundle")
    cp "$bundle" "$work/new/$row.tar.zst"
    "$fp8lab" compare -q --seed-band "$work/new/$row.band.json" "$work/new/$row.tar.zst" \
        "$work"/2/*-"$row"-????????.tar.zst "$work"/3/*-"$row"-????????.tar.zst >/dev/null
done
mkdir -p "$folder"
rm -f "$folder"/*.tar.zst "$folder"/*.band.json
mv "$work"/new/* "$folder"
ls -l "$folder"
