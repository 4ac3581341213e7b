#!/bin/bash
# Untrusted run directories: `list` and `close` follow no link out of them and do not block on a
# FIFO. `list` changes only runs that this user left open on this host.
set -u
. tests/cli/lib.sh

umask 022
run_tiny --set archive=full --keep-dir --runs made
expect "exit code" 0 $code
# Other users may list and show a run, also while it runs.
expect "what other users cannot read" "" \
    "$(find made \( -type d ! -perm -005 \) -o \( -type f ! -perm -004 \))"
made=$(ls -d made/*/)
id=$(basename "$made")
sed -i 's/"status": "done"/"status": "running"/' "$made/data/run.json"
rm "$made"/*.txt "$made"/data/metrics/summary.json
printf '1\n%s\n%s\n' "$(hostname)" "$(cat /proc/sys/kernel/random/boot_id)" >"$made/lock"

again() { # CASE: a copy in runs/CASE alone, left open as by a runner of this host that died
    case_name=$1
    rm -rf runs
    mkdir -p "runs/$1"
    cp -r "$made" "runs/$1/$id"
    run=runs/$1/$id
    echo "do not touch" >"runs/$1.txt"
}
everything() { # all files in the folder of the case and beside it, byte by byte
    (cd runs && find . -printf '%y %p %l %s %T@\n' | sort
     find . -type f -print0 | sort -z | xargs -0 sha256sum)
}
ends() { # WORDS...: within a minute
    timeout 60 "$FP8LAB" "$@" >out 2>log </dev/null
    code=$?
    [ $code != 124 ] || fail "$1 waits"
}
untouched() { # list and close change no file and report the problem
    before=$(everything)
    ends list "runs/$case_name"
    expect "list changes nothing" "$before" "$(everything)"
    [ -s log ] || fail "list says nothing"
    ends close "$run"
    [ $code = 2 ] || [ $code = 4 ] || [ $code = 6 ] || fail "close: exit code $code"
    expect "close changes nothing" "$before" "$(everything)"
    [ -s log ] || fail "close says nothing"
}

again closable
ends list "runs/$case_name"
expect "list closes runs of this host" "killed" "$(awk '$1 == "'"$id"'" { print $2 }' out)"
[ -e "$run.tar.zst" ] || fail "no bundle"

again log
ln -sf ../../../../log.txt "$run/data/logs/runner.log"
untouched
grep -q "runner.log is a symbolic link" log || fail "close says: $(cat log)"
again data
mv "$run/data" runs/elsewhere
ln -s ../../elsewhere "$run/data"
untouched
again metrics
mv "$run/data/metrics" runs/other-metrics
ln -s ../../../other-metrics "$run/data/metrics"
untouched
again lock
ln -sf ../../lock.txt "$run/lock"
untouched
again absolute
ln -sf "$PWD/runs/absolute.txt" "$run/data/metrics/train.jsonl"
untouched
for file in lock data/run.json data/logs/runner.log data/metrics/train.jsonl \
    data/experiment/resolved.json data/run.json.partial; do
    again "fifo-${file//\//-}"
    rm -f "$run/$file"
    mkfifo "$run/$file"
    untouched
done

# Someone deleted the records: what is left is closed, and `close` says what is missing.
for how in dead ended; do
    again deleted-$how
    [ $how = dead ] || sed -i 's/"status": "running"/"status": "failed"/' "$run/data/run.json"
    rm -r "$run/data/metrics"
    ends close "$run"
    expect "exit code of close" 4 $code
    says "data/metrics was deleted: the bundle lacks the records of the run's steps"
    ends verify "$run.tar.zst"
    expect "exit code of verify" 0 $code
done

# Runs of another user, of another host, or of an unnamed host.
again no-lock
rm "$run/lock"
before=$(everything)
ends list "runs/$case_name"
expect "list changes nothing" "$before" "$(everything)"
grep -q "left open" out || fail "list says: $(cat out)"
ends close "$run"
expect "exit code of close" 0 $code
[ -e "$run.tar.zst" ] || fail "no bundle"
again link-to-a-run
mv "$run" runs/far-away
ln -s ../far-away "$run"
before=$(everything)
ends list "runs/$case_name"
expect "list changes nothing" "$before" "$(everything)"
again another-user
if chown -R 12345 "$run" 2>/dev/null; then
    before=$(everything)
    ends list "runs/$case_name"
    expect "list changes nothing" "$before" "$(everything)"
else
    echo "NOT CHECKED: another user's directory (no right to give one away)"
fi

# A directory that an older program left because it was killed before it wrote run.json. Directories
# with other files, with a bundle, or without the name of a run are not such directories.
leftover=20260101T000000Z-t-s-00000001
says_leftover="$leftover holds no run: .* remove the directory"
begin_leftover() { # CASE
    case_name=$1
    run=runs/$1/$leftover
    mkdir -p "$run/data/logs"
}
begin_leftover leftover
for folder in data/logs data ""; do
    untouched
    grep -q "$says_leftover" log || fail "close says: $(cat log)"
    expect "exit code of close" 2 $code
    ends list "runs/$case_name"
    expect "exit code of list" 0 $code
    grep -q "$says_leftover" log || fail "list says: $(cat log)"
    [ -z "$folder" ] || rmdir "$run/$folder"
done
ends close "$run/"
grep -q "$says_leftover" log || fail "close of a path with a slash says: $(cat log)"
touch "$run/lock"
ends list "runs/$case_name"
grep -q "$says_leftover" log || fail "list of a lock that nobody holds says: $(cat log)"
no_leftover() {
    ends list "runs/$case_name"
    ! grep -q "holds no run" log || fail "list says: $(cat log)"
    ends close "$run"
    expect "exit code of close" 2 $code
    ! grep -q "holds no run" log || fail "close says: $(cat log)"
}
begin_leftover leftover-with-records
echo "{}" >"$run/data/train.jsonl"
no_leftover
begin_leftover leftover-with-bundle
touch "$run.tar.zst"
no_leftover
begin_leftover leftover-that-begins
touch "$run/lock"
exec 9<"$run/lock"
flock 9
no_leftover
exec 9<&-
begin_leftover leftover-of-another-name
mv "$run" "runs/$case_name/20260101T000000Z-t-s-0000000g"
run=runs/$case_name/20260101T000000Z-t-s-0000000g
no_leftover

[ $failed = 0 ] && echo "foreign directories are not changed"
exit $failed
