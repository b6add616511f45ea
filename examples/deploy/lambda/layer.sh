#!/bin/sh
# Makes the content of a layer from the release packages: `layer.sh python|nodejs|java PACKAGES DIRECTORY`. PACKAGES has what
# `cargo xtask wheel`, `addon` and `jar` built: target/dist. Zip the content of DIRECTORY; Lambda unpacks it to /opt.
set -eu
language=$1 packages=$2 directory=$3
here=$(dirname "$0")
mkdir -p "$directory"
cp "$here/spanprof-exec" "$directory"
case $language in
python)
    # One wheel serves every Python from 3.9 on; /opt/python is on the path of each.
    pip install --quiet --no-deps --no-index --find-links "$packages" --target "$directory/python" spanprof
    cp "$here/python/spanprof_handler.py" "$directory/python"
    ;;
nodejs)
    # The package, and that of the platform if it does not hold the native module itself.
    set -- "$packages"/spanprof-[0-9]*.tgz
    for platform in "$packages"/spanprof-linux-x64-[0-9]*.tgz; do
        if [ -e "$platform" ]; then set -- "$@" "$platform"; fi
    done
    npm install --silent --no-audit --no-fund --prefix "$directory/nodejs" "$@"
    cp "$here/nodejs/spanprof_handler.mjs" "$directory/nodejs"
    ;;
java)
    jar=$(ls "$packages"/spanprof-*[0-9].jar)
    mvn --quiet --batch-mode -f "$here/java" package "-DbuildDirectory=$(realpath "$directory").build" "-Dspanprof.jar=$(realpath "$jar")"
    mkdir -p "$directory/java/lib"
    cp "$directory.build/spanprof-lambda.jar" "$directory/java/lib"
    cp "$jar" "$directory/java/lib/spanprof.jar"
    ;;
*)
    echo "unknown language \`$language\`; the languages are python, nodejs, java" >&2
    exit 2
    ;;
esac
# The runtime's user is not the owner.
chmod -R a+rX "$directory"
