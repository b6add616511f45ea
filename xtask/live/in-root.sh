#!/bin/sh
# Runs a program of another root directory in it. The work tree, /tmp, /dev, Maven's repository and the directory of the call have the same
# paths there, and the network is that of this machine. In a mount namespace of its own; without root also in a user namespace.
#   in-root.sh ROOT TREE PROGRAM [ARGUMENT…]
if [ "$IN_ROOT" != mounts ]; then
  [ "$(id -u)" = 0 ] || user=--map-root-user
  IN_ROOT=mounts exec unshare $user --mount sh "$0" "$@"
fi
set -e
unset IN_ROOT
root=$1 tree=$2
shift 2
mkdir -p "$root$tree" "$root/etc/ssl" "$root$HOME/.m2"
touch "$root/etc/hosts" "$root/etc/resolv.conf"
for shared in /proc /dev /sys /tmp /etc/ssl /etc/hosts /etc/resolv.conf "$HOME/.m2" "$tree"; do
  [ ! -e "$shared" ] || mount --rbind "$shared" "$root$shared"
done
exec unshare --root "$root" --wd "$PWD" "$@"
