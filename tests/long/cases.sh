#!/bin/bash
# timeout: 1800
# Test programs that run a selection of their cases in `make test`: all cases.
set -u
failed=0
for name in dist/test_shard train/test_training dist/test_written fault/test_runner \
    dist/test_one_rank_fails; do
    TEST_CASES=all "$BUILD/tests/$name" || failed=1
done
exit $failed
