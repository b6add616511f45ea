#!/usr/bin/env bash
# Builds a free-threaded CPython once from Debian's source of 3.13 (no registry has one): in 2026, Debian packages none, and its mirrors
# serve no source of later versions.
#   free-threaded-python.sh DIRECTORY     the interpreter is DIRECTORY/python
set -euo pipefail
directory=$(realpath -m "${1:?usage: free-threaded-python.sh DIRECTORY}")
[ ! -e "$directory/complete" ] || exit 0
for tool in apt-get gcc make xz; do
  command -v "$tool" >/dev/null || { echo "free-threaded-python: $tool is missing" >&2; exit 3; }
done
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
state="$directory.apt"
mkdir -p "$state"/{lists/partial,cache/archives/partial} "$directory"
: >"$state/status"
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/\?$') || {
  echo "free-threaded-python: apt knows no Debian mirror here" >&2; exit 3; }
echo "deb-src [signed-by=$keyring] $mirror trixie main" >"$state/sources.list"
cat >"$state/apt.conf" <<CONF
Dir::State "$state"; Dir::State::lists "$state/lists"; Dir::State::status "$state/status"; Dir::Cache "$state/cache";
Dir::Etc::sourcelist "$state/sources.list"; Dir::Etc::sourceparts "/dev/null"; APT::Sandbox::User "root";
CONF
export APT_CONFIG="$state/apt.conf"
cd "$directory"
apt-get update -qq >&2
apt-get source --tar-only -qq python3.13 >&2
tar --extract --strip-components=1 --file python3.13_*.orig.tar.xz
rm python3.13_*.orig.tar.xz
echo "building the free-threaded CPython 3.13: some minutes the first time"
./configure --disable-gil --disable-test-modules OPT=-O1 >configure.log
nice -n 10 make --jobs "$(nproc)" >make.log 2>&1 || { tail make.log >&2; exit 1; }
touch complete
