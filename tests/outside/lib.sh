# For the shell tests of this folder: sourced, from the repository root. UPDATE=1 writes the
# recorded outputs anew; read the difference before you commit it.
. tests/cli/lib.sh
: "${VENV:=$root/build/venv}" "${BUILD:=$root/build/release}" "${UPDATE:=}"
shown="out log"
[ -x "$VENV/bin/python" ] || {
    echo "FAILED: there is no Python environment $VENV: make test-venv"
    exit 1
}
python() { "$VENV/bin/python" -W ignore "$@"; }

recorded() { # FILE FOUND: the file of the repository holds the output found now
    if [ -n "$UPDATE" ]; then
        cp "$2" "$root/$1"
    else
        diff -u "$root/$1" "$2" || fail "$1 is not the output of now (UPDATE=1 writes it)"
    fi
}
