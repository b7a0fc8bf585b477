#!/usr/bin/env bash
# Makes a machine of its own and becomes its systemd: run inside fresh namespaces (machine.py).
#
#   machine.sh FOLDER [FROM TO]…     FOLDER: of the host, seen inside as /shared; FROM is bound at TO, read-only
#
# A root of its own over the host's, an empty network, cgroup v2 alone; units are ours only, so that
# nothing of the host's is started and no setting of its kernel is changed.
set -euo pipefail
shared=$1; shift
mount --make-rprivate /
root=$shared/root
mkdir -p "$root" "$shared/layers"
mount -t tmpfs tmpfs "$shared/layers"
mkdir "$shared/layers/upper" "$shared/layers/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$shared/layers/upper,workdir=$shared/layers/work" "$root"
mkdir -p "$root/shared"
mount --bind "$shared" "$root/shared"
for each in run tmp dev etc/systemd/system var/lib/systemd; do
  mkdir -p "$root/$each"
  mount -t tmpfs -o mode=755 tmpfs "$root/$each"
done
chmod 1777 "$root/tmp"
for each in null zero full random urandom tty; do
  touch "$root/dev/$each"
  mount --bind "/dev/$each" "$root/dev/$each"
done
mkdir -m 1777 "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
while [ $# -gt 0 ]; do
  mkdir -p "$root$2"
  mount --bind -o ro "$1" "$root$2"
  shift 2
done

units=$root/run/units
mkdir "$units"
for each in sysinit basic multi-user shutdown umount final network-online remote-fs; do
  printf '[Unit]\nDescription=%s\nDefaultDependencies=no\nRefuseManualStart=no\n' "$each" >"$units/$each.target"
done
printf '[Service]\nType=oneshot\nExecStart=/bin/true\n' >"$units/modprobe@.service"
cp /usr/lib/systemd/system/{systemd-journald.service,systemd-journald.socket,systemd-journald-dev-log.socket} "$units"
mkdir "$units/basic.target.wants"
ln -s ../systemd-journald.service "$units/basic.target.wants/"
printf 'Wants=basic.target\nAfter=basic.target\n' >>"$units/multi-user.target"

ip link set lo up 2>/dev/null || true
export container=lxc SYSTEMD_UNIT_PATH=/etc/systemd/system:/run/units
exec chroot "$root" /bin/sh -c \
  'exec /usr/lib/systemd/systemd --system --unit=multi-user.target --log-target=journal >/shared/systemd.log 2>&1'
