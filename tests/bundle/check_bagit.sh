#!/bin/sh
# Bundles of a done, a failed and a killed run, shown to tools that are not ours: tar, zstd, the
# packages bagit and roc-validator. FP8LAB names the executable under test; the bundles come from
# the test program built beside it.
set -eu
here=$(dirname "$0")
venv=build/venv
if ! [ -x "$venv/bin/python" ] ||
    ! "$venv/bin/python" -c 'import bagit, rocrate, rocrate_validator' 2>/dev/null; then
    echo "SKIPPED, nothing checked: $venv lacks bagit, rocrate or roc-validator (see make test)"
    exit 77
fi
if ! command -v zstd >/dev/null; then
    echo "SKIPPED, nothing checked: the command zstd is missing (package zstd)"
    exit 77
fi
make_bundles=$(dirname "${FP8LAB:-build/release/fp8lab}")/tests/bundle/test_bundle
if ! [ -x "$make_bundles" ]; then
    echo "$make_bundles is not built"
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
mkdir "$work/runs" "$work/out"
"$make_bundles" "$work/runs" >"$work/list"
while read -r bundle; do
    zstd -qdc "$bundle" | tar -C "$work/out" -xf -
done <"$work/list"
"$venv/bin/python" -W ignore -m bagit --validate --quiet "$work"/out/*
"$venv/bin/python" "$here/check_crate.py" "$work"/out/*/data
[ "$(ls "$work/out" | wc -l)" -eq 3 ]
for status in failed killed; do
    grep -q '"http://schema.org/FailedActionStatus"' "$work"/out/*"$status"*/data/ro-crate-metadata.json
done
# A changed byte must not pass, or the checks above say nothing.
echo >>"$(ls "$work"/out/*done*/data/run.json)"
if "$venv/bin/python" -W ignore -m bagit --validate --quiet "$work"/out/*done* 2>/dev/null; then
    echo "bagit accepted a changed file"
    exit 1
fi
echo "bagit and roc-validator accept a done, a failed and a killed run"
