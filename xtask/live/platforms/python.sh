#!/usr/bin/env bash
# Adds CPython 3.13 for musl to the root of Alpine Linux: /opt/python, built by musl-gcc from Debian's source, with zlib and
# without ctypes and ssl. No registry has a CPython for musl. Takes minutes; the result is kept. Installs nothing on the machine.
#   python.sh PYTHON ROOT
set -euo pipefail
root=$(realpath -m "${2:?usage: python.sh PYTHON ROOT}")
[ -x "$root/opt/python/bin/python3.13" ] && exit 0
for tool in musl-gcc:musl-tools make:make gcc:gcc; do
  command -v "${tool%:*}" >/dev/null || { echo "python: ${tool%:*} is missing: apt-get install ${tool#*:}" >&2; exit 3; }
done

work="$root.python"
rm -rf "$work"
bash "$(dirname "$0")/../debian-source.sh" "$work" trixie python3.13 zlib
cd "$work"
mkdir bin libraries

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
