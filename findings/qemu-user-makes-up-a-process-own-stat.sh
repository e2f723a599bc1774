#!/usr/bin/env bash
# Under qemu-user, as containers of another architecture run, a process that reads /proc/PID/stat of its own gets a line
# that the emulator makes up: the state is 0, which is no state, the start is that of the emulator, often a tick of 10 ms
# after the one that others read there, and the rest is zeros. /proc/PID/task/PID/stat is the kernel's. So a pid and its
# start, by which programs tell a process from a later one with its pid, may differ inside and outside: each then takes
# the other for one that has ended.
#
# Needs: Debian 12 on x86-64 with apt-get; qemu-user-static 1:7.2+dfsg-7+deb12u18+b3 and busybox-static
# 1:1.35.0-4+deb12u1+b1, unpacked in a temporary folder. Seen: qemu 7.2.22. Guess before the run: the kernel's line.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work"
chmod 755 .
apt-get download -q qemu-user-static=1:7.2+dfsg-7+deb12u18+b3 busybox-static=1:1.35.0-4+deb12u1+b1
for package in *.deb; do dpkg -x "$package" root; done
root/usr/bin/qemu-x86_64-static --version | head -1
# Words 3 and 22 of the line are the state and the start; busybox's name has no blank.
root/usr/bin/qemu-x86_64-static root/bin/busybox sh -c '
  words() { echo "$2: state $5, start ${24}"; }
  read line < /proc/$$/stat; words x own $line
  read line < /proc/$$/task/$$/stat; words x thread $line' | tee seen
grep -q '^own: state 0, start [1-9]' seen && grep -q '^thread: state [RS], start [1-9]' seen ||
  { echo "the behaviour has changed"; exit 1; }
