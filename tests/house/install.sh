#!/bin/bash
# containers/install.sh, with stand-ins on PATH for a machine. The script is silent if everything is
# present, requests exactly the missing packages, and exits with 6 if it may not install.
set -u
failed=0
bin=$TEST_TMP/bin
mkdir -p "$bin"
for tool in sh env; do ln -s "$(command -v $tool)" "$bin/$tool"; done

stand_in() { # NAME BODY
    printf '#!%s\n%s\n' "$(command -v sh)" "$2" >"$bin/$1"
    chmod +x "$bin/$1"
}
# dpkg knows the packages in the file `installed`; apt-get adds the requested ones.
stand_in dpkg-query 'for last; do :; done
    while read -r p; do [ "$p" = "$last" ] && printf "ii "; done <"$TEST_TMP/installed"'
stand_in apt-get 'echo "apt-get $*" >>"$TEST_TMP/calls"
    [ -e "$TEST_TMP/broken" ] && exit 100
    case "$*" in *" install "*) for p; do echo "$p" >>"$TEST_TMP/installed"; done ;; esac'
stand_in id 'echo "$USER_ID"'

# machine USER_ID INSTALLED...: resets the stand-ins
machine() {
    export USER_ID=$1
    shift
    printf '%s\n' "$@" >"$TEST_TMP/installed"
    rm -f "$TEST_TMP/calls" "$TEST_TMP/broken"
}
# expect RC PATTERN GROUPS...: runs install.sh and compares exit code and words
expect() {
    local rc=$1 pattern=$2 said got
    shift 2
    said=$(PATH=$bin "$bin/sh" containers/install.sh "$@" 2>&1)
    got=$?
    if [ "$got" != "$rc" ] || [[ $said != $pattern ]]; then
        echo "install.sh $*: exit code $got, wanted $rc; said: $said"
        failed=1
    fi
}
called() {
    if ! grep -q -- "$1" "$TEST_TMP/calls" 2>/dev/null; then
        echo "apt-get was not asked: $1"
        failed=1
    fi
}

all=(gcc libc6-dev make pkg-config liblua5.4-dev libarchive-dev libjansson-dev
    libssl-dev libonig-dev zlib1g-dev)
machine 0 "${all[@]}"
expect 0 "" build
[ ! -e "$TEST_TMP/calls" ] || { echo "apt-get was called although nothing was missing"; failed=1; }

machine 1000 "${all[@]:0:5}"
expect 6 "*Missing packages (build): libarchive-dev libjansson-dev libssl-dev libonig-dev *" \
    build

machine 0 "${all[@]:1}"
expect 0 "*Installing: gcc*" build
called "install gcc$"

machine 0 "${all[@]:1}"
expect 0 "*Installing: gcc*Installing: openmpi-bin mpich" build mpi
if [ "$(grep -c " update$" "$TEST_TMP/calls")" != 1 ]; then
    echo "the package lists were not updated once for two groups"
    failed=1
fi

machine 0 "${all[@]}"
touch "$TEST_TMP/broken"
expect 0 "*Not installed (optional, data): bible-kjv*" build data

machine 1000 "${all[@]}"
expect 0 "*Not installed (optional, data): bible-kjv*" build data
expect 6 "*Missing packages (test): libcmocka-dev python3-venv zstd *" build test
expect 6 "*Missing packages (lint): clang libomp-dev*" lint
expect 2 "*no group 'tests'*" tests
exit "$failed"
