#!/usr/bin/env bash
# Unpacks packages of Debian with all of their dependencies into a separate root directory. Installs nothing on the machine: private apt
# directories, `dpkg-deb -x`. Programs of this processor run there by chroot, others under qemu-user.
#   debian-root.sh ROOT RELEASE ARCHITECTURE PACKAGE…     RELEASE `.` is that of this machine
set -euo pipefail
usage="usage: debian-root.sh ROOT RELEASE ARCHITECTURE PACKAGE…"
root=$(realpath -m "${1:?$usage}") release=${2:?$usage} architecture=${3:?$usage}
shift 3
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || { echo "debian-root: $tool is missing; this needs Debian or a derivative" >&2; exit 3; }
done
grep -qxF -- "$*" "$root/complete" 2>/dev/null && exit 0

state="$root.apt"
mkdir -p "$state"/{lists/partial,cache/archives/partial,etc} "$root"
: >"$state/status"
# The mirror of this machine.
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/\?$') || {
  echo "debian-root: apt knows no Debian mirror here" >&2; exit 3; }
[ "$release" != . ] || release=$(. /etc/os-release && echo "$VERSION_CODENAME")
echo "deb [signed-by=$keyring] $mirror $release main" >"$state/etc/sources.list"
cat >"$state/apt.conf" <<EOF
APT::Architecture "$architecture"; APT::Architectures { "$architecture"; };
Dir::State "$state"; Dir::State::lists "$state/lists"; Dir::State::status "$state/status"; Dir::Cache "$state/cache";
Dir::Etc::sourcelist "$state/etc/sources.list"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
EOF
export APT_CONFIG="$state/apt.conf"
apt-get update -qq >&2
rm -f "$state"/cache/archives/*.deb
apt-get install -y -qq --download-only --no-install-recommends "$@" >&2
for package in "$state"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
for merged in bin sbin lib lib64; do [ -e "$root/$merged" ] || ln -sfn "usr/$merged" "$root/$merged"; done
mkdir -p "$root"/{proc,dev,tmp,sys}
# A link that the installation of gcc makes.
[ ! -e "$root/usr/bin/gcc" ] || ln -sfn gcc "$root/usr/bin/cc"
echo "$*" >>"$root/complete"
