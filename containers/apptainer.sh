#!/bin/bash
# make sif: builds the Apptainer image, ./fp8lab.sif, from the sources.
#
#   containers/apptainer.sh [FLAGS OF apptainer build...]       e.g. --fakeroot
#
# From the environment, as for image.sh:
#   BASE_IMAGE   the base (containers/versions has the default)
#   ARCHS        GPU architectures to compile for
#   SIF          the output (default: fp8lab.sif)
#   BOOTSTRAP    the source of the base: docker (a registry, the default), docker-archive
#                (BASE_IMAGE is a file of docker save), or another that apptainer knows
#
# An image that `make image` has built needs only a conversion:
#   apptainer build fp8lab.sif docker-daemon:fp8lab:latest
set -euo pipefail
cd "$(dirname "$0")/.."
asked=${BASE_IMAGE:-}
. containers/versions
base=${asked:-$BASE_IMAGE${BASE_DIGEST:+@$BASE_DIGEST}}
command -v apptainer >/dev/null || {
    echo "apptainer.sh: there is no apptainer in PATH; apptainer.org has packages" >&2
    exit 6
}
git=(git -c safe.directory='*')
exec apptainer build "$@" --build-arg BOOTSTRAP="${BOOTSTRAP:-docker}" \
    --build-arg BASE_IMAGE="$base" --build-arg ARCHS="${ARCHS:-all}" \
    --build-arg COMMIT="$("${git[@]}" rev-parse HEAD 2>/dev/null || echo unknown)" \
    --build-arg DIRTY="$("${git[@]}" status --porcelain 2>/dev/null | grep -c . || true)" \
    --build-arg EPOCH="$("${git[@]}" log -1 --format=%ct 2>/dev/null || echo 0)" \
    "${SIF:-fp8lab.sif}" containers/fp8lab.def
