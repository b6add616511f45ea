#!/usr/bin/env bash
# Unpacks the newest CPythons of Debian sid (3.14, 3.15, where apt has them) into a separate root, for the live suite; they run by chroot,
# which needs root.
#   debian-python.sh ROOT [VERSION…]     prints one line per usable interpreter: VERSION
set -euo pipefail
root=$(realpath -m "${1:?usage: debian-python.sh ROOT [VERSION…]}"); shift
versions=("${@:-3.14}"); [ $# -gt 0 ] || versions=(3.14 3.15)
command -v chroot >/dev/null && [ "$(id -u)" = 0 ] || {
  echo "debian-python: needs root for chroot; run the suite as root or leave these versions out" >&2; exit 3; }
for version in "${versions[@]}"; do
  bash "$(dirname "$0")/debian-root.sh" "$root" sid "$(dpkg --print-architecture)" "python$version" "python$version-venv" ca-certificates ||
    echo "debian-python: Debian sid has no python$version today; left out" >&2
  mkdir -p "$root/suite"
done
for version in "${versions[@]}"; do
  chroot "$root" "/usr/bin/python$version" -c '' 2>/dev/null && echo "$version"
done
