#!/usr/bin/env bash
# Runs a program on a kernel for arm64 in a virtual machine (qemu-system): boots, runs JOB/run as root with ROOT as the root directory and JOB
# as /job, prints the console and powers off. Fails unless the program succeeds. KERNEL is a root directory with Debian's packages
# linux-image-* and busybox-static. Changes nothing in the directories; an image of ROOT is kept beside it.
#   arm64-system.sh KERNEL ROOT JOB SECONDS
set -euo pipefail
usage="usage: arm64-system.sh KERNEL ROOT JOB SECONDS"
kernel=$(realpath "${1:?$usage}") root=$(realpath "${2:?$usage}") job=$(realpath "${3:?$usage}") seconds=${4:?$usage}
for tool in qemu-system-aarch64:qemu-system-arm qemu-aarch64-static:qemu-user-static mke2fs:e2fsprogs; do
  command -v "${tool%:*}" >/dev/null || { echo "arm64-system: ${tool%:*} is missing: apt-get install ${tool#*:}" >&2; exit 3; }
done

# The disks need these of its drivers, unless they are built in.
initial="$kernel.initial"
rm -rf "$initial"
mkdir -p "$initial"/{bin,proc,dev,modules,disk}
cp "$kernel/bin/busybox" "$initial/bin/busybox"
modules="virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk
  crc16 crc32c_generic libcrc32c mbcache jbd2 ext4"
for module in $modules; do find "$kernel/lib/modules/" -name "$module.ko*" -exec cp {} "$initial/modules" \;; done
cat >"$initial/init" <<EOF
#!/bin/busybox sh
export PATH=/usr/bin:/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in $(echo $modules); do
  [ ! -e /modules/\$module.ko.xz ] || unxz /modules/\$module.ko.xz
  [ ! -e /modules/\$module.ko ] || insmod /modules/\$module.ko
done
mount -t ext4 /dev/vda /disk && mount -t ext4 /dev/vdb /disk/job
mount -t proc proc /disk/proc && mount -t sysfs sys /disk/sys && mount -t devtmpfs dev /disk/dev && mount -t tmpfs tmp /disk/tmp
ip link set lo up
chroot /disk /job/run
echo "arm64-system: the program ended with status \$?"
poweroff -f
EOF
chmod +x "$initial/init"
(cd "$initial" && find . | qemu-aarch64-static bin/busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$initial.cpio.gz"

image() { # DIRECTORY FILE
  local mebibytes=$(($(du -sm "$1" | cut -f1) * 5 / 4 + 96))
  rm -f "$2"
  truncate -s "${mebibytes}M" "$2"
  mke2fs -q -t ext4 -O ^has_journal -d "$1" "$2"
}
[ "$root.ext4" -nt "$root/complete" ] || { mkdir -p "$root/job" && image "$root" "$root.ext4"; }
image "$job" "$job.ext4"

log="$job.console"
timeout "$seconds" qemu-system-aarch64 -M virt -cpu max,pauth-impdef=on -accel tcg,thread=multi -smp 2 -m 2048 \
  -kernel "$kernel"/boot/vmlinuz-* -initrd "$initial.cpio.gz" -append "quiet panic=-1 console=ttyAMA0" \
  -drive "file=$root.ext4,format=raw,if=virtio,snapshot=on" -drive "file=$job.ext4,format=raw,if=virtio,snapshot=on" \
  -nographic -no-reboot -nic none </dev/null | sed -u 's/\r$//' | tee "$log" || true
rm -f "$job.ext4"
grep -qx "arm64-system: the program ended with status 0" "$log" || { echo "arm64-system: see $log" >&2; exit 1; }
