#!/bin/bash
# More conversations than in CI, through every template of trl.
set -u
count=300 names=
export count names
exec tests/outside/templates.sh
