#!/usr/bin/env bash
# Unpacks the upstream sources of packages of a release of Debian below DIRECTORY. Installs nothing on the machine.
#   debian-source.sh DIRECTORY RELEASE PACKAGE…
set -euo pipefail
usage="usage: debian-source.sh DIRECTORY RELEASE PACKAGE…"
directory=$(realpath -m "${1:?$usage}") release=${2:?$usage}
shift 2
for tool in apt-get tar xz; do
  command -v "$tool" >/dev/null || { echo "debian-source: $tool is missing; this needs Debian or a derivative" >&2; exit 3; }
done
state="$directory.apt"
mkdir -p "$state"/{lists/partial,cache/archives/partial} "$directory"
: >"$state/status"
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/\?$') || {
  echo "debian-source: apt knows no Debian mirror here" >&2; exit 3; }
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$state/sources.list"
cat >"$state/apt.conf" <<EOF
Dir::State "$state"; Dir::State::lists "$state/lists"; Dir::State::status "$state/status"; Dir::Cache "$state/cache";
Dir::Etc::sourcelist "$state/sources.list"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
EOF
export APT_CONFIG="$state/apt.conf"
cd "$directory"
apt-get update -qq >&2
apt-get source --tar-only -qq "$@" >&2
for archive in *.tar.*; do
  tar --extract --file "$archive"
  rm "$archive"
done
