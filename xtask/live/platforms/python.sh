#!/usr/bin/env bash
# Adds CPython 3.13 for musl to the root of Alpine Linux: /opt/python, built by musl-gcc from Debian's source, with zlib and
# without ctypes and ssl. No registry has a CPython for musl. Takes minutes; the result is kept. Installs nothing on the machine.
#   python.sh PYTHON ROOT
set -euo pipefail
root=$(realpath -m "${2:?usage: python.sh PYTHON ROOT}")
release=trixie
[ -x "$root/opt/python/bin/python3.13" ] && exit 0
for tool in musl-gcc:musl-tools make:make gcc:gcc apt-get:apt; do
  command -v "${tool%:*}" >/dev/null || { echo "python: ${tool%:*} is missing: apt-get install ${tool#*:}" >&2; exit 3; }
done

work="$root.python"
rm -rf "$work"
mkdir -p "$work"/apt/{lists/partial,cache/archives/partial,etc} "$work/bin" "$work/libraries"
: >"$work/apt/status"
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/\?$') || {
  echo "python: apt knows no Debian mirror here" >&2; exit 3; }
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$work/apt/etc/sources.list"
cat >"$work/apt.conf" <<EOF
Dir::State "$work/apt"; Dir::State::lists "$work/apt/lists"; Dir::State::status "$work/apt/status"; Dir::Cache "$work/apt/cache";
Dir::Etc::sourcelist "$work/apt/etc/sources.list"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
EOF
cd "$work"
APT_CONFIG="$work/apt.conf" apt-get update -qq >&2
APT_CONFIG="$work/apt.conf" apt-get source -qq --tar-only python3.13 zlib >&2
for archive in *.tar.*; do tar xf "$archive"; done

# The kernel's headers, which musl-gcc has not; of glibc's, none.
mkdir -p kernel
ln -s /usr/include/linux /usr/include/asm-generic /usr/include/*-linux-gnu/asm kernel
# musl-gcc answers `--print-multiarch` with glibc's directory, which CPython would search.
cat >bin/musl-cc <<EOF
#!/bin/sh
[ "\$1" != --print-multiarch ] || exit 0
exec musl-gcc -idirafter "$work/kernel" "\$@"
EOF
chmod +x bin/musl-cc
export CC="$work/bin/musl-cc" CFLAGS="-O2 -fPIC"
(cd zlib-*/ && ./configure --static --prefix="$work/libraries" && nice -n 10 make -j2 libz.a install) >zlib.log 2>&1
# Not the libraries of this machine, which are those of glibc.
export PKG_CONFIG_LIBDIR="$work/libraries/lib/pkgconfig"
export ZLIB_CFLAGS="-I$work/libraries/include" ZLIB_LIBS="$work/libraries/lib/libz.a"
(cd Python-*/ && ./configure --prefix=/opt/python --without-ensurepip --disable-test-modules) >configure.log 2>&1
(cd Python-*/ && nice -n 10 make -j2) >make.log 2>&1
(cd Python-*/ && nice -n 10 make DESTDIR="$root" altinstall) >install.log 2>&1
