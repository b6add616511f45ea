#!/usr/bin/env bash
# Unpacks a package of this Debian release and its missing dependencies into a separate root, for the live suites.
# Installs nothing on the machine: `apt-get --download-only`, then `dpkg-deb -x`.
#   debian-program.sh ROOT PACKAGE
set -euo pipefail
root=$(realpath -m "${1:?usage: debian-program.sh ROOT PACKAGE}")
package=${2:?usage: debian-program.sh ROOT PACKAGE}
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || { echo "debian-program: $tool is missing; this needs Debian or a derivative" >&2; exit 3; }
done
archives="$root.archives"
mkdir -p "$archives/partial" "$root"
download() {
  apt-get install -y -qq --download-only --no-install-recommends \
    -o Dir::Cache::archives="$archives" -o Debug::NoLocking=true -o APT::Sandbox::User=root "$package" >&2
}
# The machine's list of packages may be outdated or missing.
download || { apt-get update -qq >&2 && download; }
for archive in "$archives"/*.deb; do dpkg-deb -x "$archive" "$root"; done
