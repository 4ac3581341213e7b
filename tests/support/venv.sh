#!/bin/sh
# Makes the Python environment of the tests that read our bundles and checkpoints with other
# projects' packages: tests/support/venv.sh DIRECTORY. Does nothing if it is up to date. Without a
# network it prints a message and succeeds; those tests are then skipped, each by name.
set -eu

venv=$1
here=$(dirname "$0")
# The stamp contains the requirements, so a changed pin makes the environment again.
if cmp -s "$here/requirements.txt" "$venv/requirements.txt" && [ -x "$venv/bin/python" ]; then
    exit 0
fi
skip() {
    echo "SKIPPING the tests that need Python packages: $1" >&2
    rm -rf "$venv"
    exit 0
}
echo "Setting up $venv" >&2
rm -rf "$venv"
python3 -m venv "$venv" >&2 || skip "python3 -m venv failed"
pip="$venv/bin/python -m pip --quiet --disable-pip-version-check --no-cache-dir"
$pip install --no-compile -r "$here/requirements.txt" >&2 || skip "pip could not install them"
cp "$here/requirements.txt" "$venv/requirements.txt"
