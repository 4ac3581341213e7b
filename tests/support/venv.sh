#!/bin/sh
# Makes the Python environment of the comparisons with packages of others (tests/outside/):
# tests/support/venv.sh DIRECTORY [REQUIREMENTS]. Does nothing if it is there with these versions.
# Fails if a package is missing and cannot be installed: without it nothing would be compared.
set -eu

venv=$1
here=$(dirname "$0") list=${2:-requirements.txt}
# The stamp contains the requirements, so a changed pin makes the environment again.
if cmp -s "$here/$list" "$venv/requirements.txt" && [ -x "$venv/bin/python" ]; then
    exit 0
fi
fail() {
    echo "$1; the comparisons with Python packages (tests/outside/) need $here/$list:" \
        "connect to a package index and repeat" >&2
    rm -rf "$venv"
    exit 1
}
echo "Setting up $venv" >&2
rm -rf "$venv"
python3 -m venv "$venv" >&2 || fail "python3 -m venv failed"
pip="$venv/bin/python -m pip --quiet --disable-pip-version-check --no-cache-dir"
$pip install --no-compile -r "$here/$list" >&2 || fail "pip cannot install packages"
[ "$list" != requirements.txt ] || $pip install --no-compile --no-deps trl==1.16.0 >&2 ||
    fail "pip cannot install trl"
cp "$here/$list" "$venv/requirements.txt"
