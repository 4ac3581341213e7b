#!/bin/bash
# Lays out the root of the image: containers/rootfs.sh PROGRAM-FOLDER PLUGIN-FOLDER CUDA-FOLDER OUT
#
# The system is a few of the base's own packages (a shell and its tools, the C library), copied file
# by file. So every base gives a small image, with the C library that the program was linked with
# and dpkg's list of packages. The program is the relocatable folder of `make dist` in /opt/fp8lab,
# with the CUDA libraries beside its own. /usr/share/fp8lab/image.json records all of it.
set -euo pipefail
program=$1
plugin=$2
cuda=$3
out=$4
SEED=(base-files base-passwd coreutils dash libc-bin libc6 libgcc-s1 libstdc++6 zlib1g)

# ---- the system --------------------------------------------------------------------------------
mapfile -t packages < <(
    apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts \
        --no-breaks --no-replaces --no-enhances "${SEED[@]}" | grep '^[a-z0-9]' | sort -u |
        while read -r package; do
            case $(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null) in
            ii*) echo "${package%%:*}" ;;
            esac
        done | sort -u)
rm -rf "$out"
mkdir -p "$out"/{usr/{bin,lib,sbin,share/fp8lab},etc,proc,sys,dev,run,var/lib/dpkg,opt}
for folder in bin sbin lib lib32 lib64; do # merged into /usr, as the base has it
    [ ! -L "/$folder" ] || ln -s "$(readlink "/$folder")" "$out/$folder"
    [ ! -L "/$folder" ] || mkdir -p "$out/usr/$folder"
done
# Without manuals, translations and character sets, but with licences.
dpkg-query -L "${packages[@]}" |
    grep -vE '^/(usr/share/(man|info|locale|lintian|bug|perl5)|usr/lib/[^/]+/(gconv|perl))(/|$)' |
    grep -vE '^/usr/share/doc/[^/]+/[^/]+$|^/usr/sbin/(iconvconfig|zic)' |
    cat - <(printf '/usr/share/doc/%s/copyright\n' "${packages[@]}") |
    sort -u | while read -r path; do
        if [ -e "$path" ] || [ -L "$path" ]; then echo "${path#/}"; fi
    done |
    tar -C / --no-recursion -cf - -T - | tar -C "$out" --keep-directory-symlink -xf -
dpkg-query -s "${packages[@]}" >"$out/var/lib/dpkg/status"
cat >"$out/etc/passwd" <<'END'
root:x:0:0:root:/root:/bin/sh
fp8lab:x:10001:10001:fp8lab:/work:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
END
printf 'root:x:0:\nfp8lab:x:10001:\nnogroup:x:65534:\n' >"$out/etc/group"
printf 'passwd: files\ngroup: files\nhosts: files dns\n' >"$out/etc/nsswitch.conf"

# ---- the program -------------------------------------------------------------------------------
cp -r "$program" "$out/opt/fp8lab"
opt=$out/opt/fp8lab
mkdir -p "$opt/data"
containers/export_text.sh "$opt/data/quickstart.txt"
containers/export_chats.sh "$opt/data/chats.jsonl"
if [ -e "$plugin/libfp8lab_cuda.so" ]; then
    install -D -m 644 "$plugin/libfp8lab_cuda.so" "$opt/lib/fp8lab/libfp8lab_cuda.so"
    cp -L "$cuda"/lib/* "$opt/lib/"
    mkdir -p "$opt/licenses/cuda"
    cp -r "$cuda"/licenses/. "$opt/licenses/cuda/"
    chmod 644 "$opt"/lib/*.so*
    [ ! -e /NGC-DL-CONTAINER-LICENSE ] || cp /NGC-DL-CONTAINER-LICENSE "$out/"
fi

# The build fails unless every library opens. The image contains open-libraries, which searches
# where fp8lab does, so that a user can repeat the check.
gcc -O2 -o "$opt/bin/open-libraries" containers/open_libraries.c -ldl \
    -Wl,--disable-new-dtags -Wl,-rpath,'$ORIGIN/../lib'
# $ORIGIN needs /proc, which is not mounted here; hence LD_LIBRARY_PATH.
LD_LIBRARY_PATH=/opt/fp8lab/lib chroot "$out" \
    /opt/fp8lab/bin/open-libraries /opt/fp8lab/lib >/dev/null

# ---- working folders ---------------------------------------------------------------------------
# Any user may be given (-u), hence the modes. Paths in experiments count from /work.
mkdir -p "$out/work" "$out/runs" "$out/data" "$out/tmp" "$out/root"
chmod 1777 "$out/work" "$out/runs" "$out/tmp"
cp "$opt"/data/* "$out/data/"
ln -s /runs "$out/work/runs"
ln -s /data "$out/work/data"
ln -s /opt/fp8lab/experiments "$out/work/experiments"

# ---- the record --------------------------------------------------------------------------------
text() { if [ -n "$1" ]; then printf '"%s"' "${1//[\"\\]/}"; else printf null; fi; }
CUDA_VERSION='' CUDNN_VERSION='' NCCL_VERSION=''
[ ! -e "$cuda/build/env" ] || . "$cuda/build/env"
package_rows() { # packages of the system, and of the program's libraries
    { printf '%s\n' "${packages[@]}"; ls "$opt/licenses"; } | sort -u | while read -r package; do
        dpkg-query -W -f='    ["${Package}", "${Version}"],\n' "$package" 2>/dev/null || true
    done | sort -u | sed '$s/,$//'
}
library_rows() {
    [ ! -e "$cuda/build/env" ] || stat -L -c '%n %s' "$cuda"/lib/* | sort |
        sed -E 's/.*\/([^ ]*) ([0-9]*)$/    ["\1", \2],/' | sed '$s/,$//'
}
cat >"$out/usr/share/fp8lab/image.json" <<END
{
  "schema": "fp8lab.image/1",
  "base": { "name": $(text "$BASE_IMAGE"), "digest": $(text "${BASE_DIGEST:-}") },
  "platform": "linux/$TARGETARCH",
  "system": $(text "$(. /etc/os-release && echo "$PRETTY_NAME")"),
  "commit": $(text "$COMMIT"),
  "dirty": $([ "${DIRTY:-0}" = 0 ] && echo false || echo true),
  "created": $(text "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"),
  "cuda": $(text "$CUDA_VERSION"),
  "cudnn": $(text "$CUDNN_VERSION"),
  "nccl": $(text "$NCCL_VERSION"),
  "libraries": [
$(library_rows)
  ],
  "packages": [
$(package_rows)
  ]
}
END

# Two builds of the same sources would differ in file times only.
find "$out" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
echo "rootfs.sh: $(du -sm "$out" | cut -f1) MiB, of which CUDA" \
    "$(du -smcL "$cuda"/lib 2>/dev/null | tail -1 | cut -f1) MiB; ${#packages[@]} packages" >&2
