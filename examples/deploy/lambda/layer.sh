#!/bin/sh
# Makes the content of a layer from the release packages: `layer.sh python|nodejs|java PACKAGES DIRECTORY [x86_64|arm64]`. PACKAGES has
# what `cargo xtask wheel`, `addon` and `jar` built: target/dist. Zip the content of DIRECTORY; Lambda unpacks it to /opt.
set -eu
language=$1 packages=$2 directory=$3 architecture=${4:-x86_64}
here=$(dirname "$0")
# As wheels and npm packages call the architecture.
case $architecture in
x86_64) wheel=x86_64 node=x64 ;;
arm64) wheel=aarch64 node=arm64 ;;
*)
    echo "unknown architecture \`$architecture\`; the architectures are x86_64, arm64" >&2
    exit 2
    ;;
esac
mkdir -p "$directory"
cp "$here/spanprof-exec" "$directory"
case $language in
python)
    # One wheel serves every Python from 3.9 on; /opt/python is on the path of each.
    pip install --quiet --no-deps --no-index --find-links "$packages" --only-binary :all: --platform "manylinux2014_$wheel" \
        --platform "linux_$wheel" --target "$directory/python" spanprof
    cp "$here/python/spanprof_handler.py" "$directory/python"
    ;;
nodejs)
    # The package, and that of the platform if it does not hold the native module itself.
    set -- "$packages"/spanprof-[0-9]*.tgz
    for platform in "$packages/spanprof-linux-$node"-[0-9]*.tgz; do
        if [ -e "$platform" ]; then set -- "$@" "$platform"; fi
    done
    # --force: the platform may be another one than that of this machine.
    npm install --force --silent --no-audit --no-fund --prefix "$directory/nodejs" "$@"
    cp "$here/nodejs/spanprof_handler.mjs" "$directory/nodejs"
    ;;
java)
    # The JAR has the libraries of both architectures.
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
