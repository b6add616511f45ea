#!/usr/bin/env bash
# Unpacks the newest CPythons of Debian sid (3.14, 3.15, where apt has them) into a separate root, for the live suite.
# Installs nothing on the machine: private apt directories, `dpkg-deb -x`, then chroot (needs root) into ROOT.
#   debian-python.sh ROOT [VERSION…]     prints one line per usable interpreter: VERSION
set -euo pipefail
root=$(realpath -m "${1:?usage: debian-python.sh ROOT [VERSION…]}"); shift
versions=("${@:-3.14}"); [ $# -gt 0 ] || versions=(3.14 3.15)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
for tool in apt-get dpkg-deb chroot; do
  command -v "$tool" >/dev/null || { echo "debian-python: $tool is missing; this suite needs Debian or a derivative" >&2; exit 3; }
done
[ "$(id -u)" = 0 ] || { echo "debian-python: needs root for chroot; run the suite as root or leave these versions out" >&2; exit 3; }

state="$root.apt"
mkdir -p "$state"/{lists/partial,cache/archives/partial,etc} "$root"
: >"$state/status"
# The mirror of this machine.
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/\?$') || {
  echo "debian-python: apt knows no Debian mirror here" >&2; exit 3; }
echo "deb [signed-by=$keyring] $mirror sid main" >"$state/etc/sources.list"
cat >"$state/apt.conf" <<EOF
Dir::State "$state"; Dir::State::lists "$state/lists"; Dir::State::status "$state/status"; Dir::Cache "$state/cache";
Dir::Etc::sourcelist "$state/etc/sources.list"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
EOF
export APT_CONFIG="$state/apt.conf"
apt-get update -qq >&2
for version in "${versions[@]}"; do
  chroot "$root" "/usr/bin/python$version" -c '' 2>/dev/null && continue
  if ! apt-cache show "python$version" >/dev/null 2>&1; then
    echo "debian-python: Debian sid has no python$version today; left out" >&2
    continue
  fi
  rm -f "$state"/cache/archives/*.deb
  apt-get install -y -qq --download-only --no-install-recommends "python$version" "python$version-venv" ca-certificates >&2
  for package in "$state"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
  for merged in bin sbin lib lib64; do ln -sfn "usr/$merged" "$root/$merged"; done
  mkdir -p "$root"/{proc,dev,tmp,sys,suite}
done
for version in "${versions[@]}"; do
  chroot "$root" "/usr/bin/python$version" -c '' 2>/dev/null && echo "$version"
done
