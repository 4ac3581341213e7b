#!/bin/bash
# Two hosts, and a run that goes on without the second one.
set -u
TEST_CASES=all exec tests/dist/hosts.sh
