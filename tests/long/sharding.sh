#!/bin/bash
# Each recipe with each way of sharding, over 2 and 4 ranks.
set -u
TEST_CASES=all exec tests/dist/sharding.sh
