#!/bin/bash
# A shell test that counts failures with tests/cli/lib.sh ends with their count; without that line
# it would always pass.
set -u
silent=$(grep -lE '^\. .*tests/cli/lib\.sh' tests/*/*.sh | grep -v '/lib\.sh$' |
    xargs grep -LE '^ *exit "?\$failed')
[ -z "$silent" ] || { echo "FAILED: no 'exit \$failed' at the end of: $silent"; exit 1; }
