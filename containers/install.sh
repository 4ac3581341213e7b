#!/bin/sh
# Installs what fp8lab needs from the distribution: Debian 12 and Ubuntu 24.04.
#
#   containers/install.sh [GROUP...]          default: build
#     build   compiler, make, and the libraries the program links
#     data    the King James text, which the quick start trains on (otherwise: licence texts)
#     test    cmocka; independent readers of bundles (zstd, Python packages in a venv); the shells
#             whose completion is tested
#     lint    clang, for `make conversions`
#     cross   aarch64 compilers and emulator, for the golden values of the other architecture
#     plugin  what nvcc needs beside itself
#     image   tools that build and run images
#     slurm   a scheduler of one node, for the launcher tests
#     mpi     the launchers of Open MPI and MPICH, for the same tests
#
# Asks dpkg first; if nothing is missing it changes nothing and uses no network. Installs as root,
# or through `sudo -n`. Without either it names the missing packages and exits with 6. Missing
# packages of an optional group (data, cross, image, slurm, mpi) are named and are no failure.
set -eu

packages_of() {
    case $1 in
    build) echo gcc libc6-dev make pkg-config liblua5.4-dev libarchive-dev libjansson-dev \
        libssl-dev libonig-dev zlib1g-dev ;;
    data) echo bible-kjv ;;
    test) echo libcmocka-dev python3-venv zstd bash-completion zsh fish ;;
    lint) echo clang libomp-dev ;;
    cross) echo gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross \
        qemu-user-static ;;
    plugin) echo gcc g++ libc6-dev make ;;
    image) echo buildah podman runc mmdebstrap ;;
    slurm) echo slurmctld slurmd slurm-client munge ;;
    mpi) echo openmpi-bin mpich ;;
    *) return 1 ;;
    esac
}

# A package is present if dpkg says so, or if what we need from it works. Examples: pkgconf in place
# of pkg-config, a compiler from elsewhere, another distribution.
works_without_package() {
    case $1 in
    gcc) command -v gcc ;;
    g++) command -v g++ ;;
    make) command -v make ;;
    pkg-config) command -v pkg-config ;;
    libc6-dev) test -e /usr/include/stdio.h ;;
    liblua5.4-dev) pkg-config --exists lua5.4 ;;
    libarchive-dev) pkg-config --exists libarchive ;;
    libjansson-dev) pkg-config --exists jansson ;;
    libssl-dev) pkg-config --exists libcrypto ;;
    libonig-dev) pkg-config --exists oniguruma ;;
    zlib1g-dev) pkg-config --exists zlib ;;
    libcmocka-dev) pkg-config --exists cmocka ;;
    python3-venv) python3 -c 'import ensurepip, venv' ;;
    bible-kjv) command -v bible ;;
    zstd | zsh | fish | clang) command -v "$1" ;;
    bash-completion) test -e /usr/share/bash-completion/bash_completion ;;
    libomp-dev) echo '#include <omp.h>' | clang -fopenmp -fsyntax-only -x c - ;;
    gcc-aarch64-linux-gnu) command -v aarch64-linux-gnu-gcc ;;
    g++-aarch64-linux-gnu) command -v aarch64-linux-gnu-g++ ;;
    libc6-dev-arm64-cross) test -e /usr/aarch64-linux-gnu/lib/libc.a ;;
    qemu-user-static) command -v qemu-aarch64-static || command -v qemu-aarch64 ;;
    buildah | podman | runc | mmdebstrap | slurmctld | slurmd) command -v "$1" ;;
    openmpi-bin) mpirun --version | grep 'Open MPI' ;;
    mpich) command -v mpiexec.hydra ;;
    *) false ;;
    esac >/dev/null 2>&1
}

present() {
    status=$(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null || true)
    case $status in
    ii*) return 0 ;;
    esac
    works_without_package "$1"
}

missing_of() {
    for package in $(packages_of "$1"); do
        present "$package" || printf '%s ' "$package"
    done
}

# How to become root, in words for a command line: "", "sudo -n", or failure.
root_by() {
    if [ "$(id -u)" = 0 ]; then
        echo ""
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        echo "sudo -n"
    else
        return 1
    fi
}

# The package lists of a fresh image are empty or old, hence the update. If the update fails (one of
# several sources is down), the packages may still be available. A mirror may fail once, hence the
# retries. A fresh machine may run its own upgrades, hence the lock timeout.
updated=
apt_install() {
    as_root=$(root_by) || return 1
    command -v apt-get >/dev/null 2>&1 || return 1
    echo "Installing: $*" >&2
    [ -n "$updated" ] ||
        { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update >&2 && updated=1; } || true
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 --no-install-recommends \
        install "$@" >&2
}

groups=${*:-build}
for group in $groups; do
    if ! packages_of "$group" >/dev/null; then
        echo "install.sh: no group '$group';" \
            "the groups are: build data test lint cross plugin image slurm mpi" >&2
        exit 2
    fi
done

failed=0
for group in $groups; do
    missing=$(missing_of "$group")
    [ -n "$missing" ] || continue
    # shellcheck disable=SC2086  # a list of package names
    if apt_install $missing && [ -z "$(missing_of "$group")" ]; then
        continue
    fi
    missing=$(missing_of "$group")
    case $group in
    data | cross | image | slurm | mpi)
        echo "Not installed (optional, $group): ${missing% }" >&2
        ;;
    *)
        echo "Missing packages ($group): ${missing% }" >&2
        echo "Install them as root:  apt-get install ${missing% }" >&2
        failed=1
        ;;
    esac
done
[ "$failed" = 0 ] || exit 6
