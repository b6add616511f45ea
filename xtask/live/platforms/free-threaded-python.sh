#!/usr/bin/env bash
# Builds a free-threaded CPython once from Debian's source of 3.13 (no registry has one): in 2026, Debian packages none, and its mirrors
# serve no source of later versions.
#   free-threaded-python.sh DIRECTORY     the interpreter is DIRECTORY/python
set -euo pipefail
directory=$(realpath -m "${1:?usage: free-threaded-python.sh DIRECTORY}")
[ ! -e "$directory/complete" ] || exit 0
for tool in gcc make; do
  command -v "$tool" >/dev/null || { echo "free-threaded-python: $tool is missing" >&2; exit 3; }
done
rm -rf "$directory" "$directory.source"
bash "$(dirname "$0")/../debian-source.sh" "$directory.source" trixie python3.13
mv "$directory.source"/Python-* "$directory"
cd "$directory"
echo "building the free-threaded CPython 3.13: some minutes the first time"
./configure --disable-gil --disable-test-modules OPT=-O1 >configure.log
nice -n 10 make --jobs "$(nproc)" >make.log 2>&1 || { tail make.log >&2; exit 1; }
touch complete
