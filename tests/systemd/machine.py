"""Boots a separate systemd in its own namespaces, for tests/systemd/run and tests/package/deb.

Needs root, unshare and nsenter, and the caller must have its own mount namespace. The machine itself is not changed."""
import os
import pathlib
import subprocess
import tempfile
import time

INIT = "/lib/systemd/systemd"
WAIT = 60
# Units that a test machine may have, but that these tests do not need.
MASKED = """systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udev-trigger.service
    systemd-networkd.service systemd-networkd.socket systemd-resolved.service systemd-timesyncd.service getty.target
    console-getty.service systemd-remount-fs.service apt-daily.timer apt-daily-upgrade.timer""".split()
# systemd can make parts of / read-only for a unit only if / is a mount.  A chroot alone would not let users make user
# namespaces, which rootless containers need.
BOOT = """set -e
mount --rbind {root} {root}
cd {root}
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount --rbind /dev dev
mkdir run/power
echo "freeze mem" > run/power/state; echo "[s2idle]" > run/power/mem_sleep
mount --bind run/power sys/power
pivot_root . mnt
umount -l mnt
exec chroot . /usr/bin/env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin {init} --system --log-target=null
"""
HOLDER = """#!/bin/bash
# Holds this number of bytes on the simulated card.
f=/var/lib/world/held/$$; echo "$1 compute" > $f; trap 'rm -f $f; exit 0' TERM INT; while :; do sleep 0.1; done
"""


class Machine:
    """A separate systemd with the folder root as "/". Call the object to run a command in it."""

    def __init__(self, root):
        self.root = str(root)

    def write(self, path, text, mode=0o644):
        target = pathlib.Path(self.root + path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def boot(self):
        for unit in MASKED:
            link = pathlib.Path(self.root, "etc/systemd/system", unit)
            link.unlink(missing_ok=True)
            link.symlink_to("/dev/null")
        self.child = subprocess.Popen(
            ["unshare", "--pid", "--mount", "--cgroup", "--uts", "--ipc", "--net", "--fork", "--kill-child", "bash", "-c",
             BOOT.format(root=self.root, init=INIT)], stdin=subprocess.DEVNULL)
        children = f"/proc/{self.child.pid}/task/{self.child.pid}/children"
        until(lambda: open(children).read().split(), "no process was made")
        self.pid = open(children).read().split()[0]
        until(lambda: self("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"),
              "systemd does not come up")

    def inside(self, *argv):
        """Returns the command that runs argv in this machine."""
        return ["nsenter", "-t", self.pid, "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w", "--", "/usr/bin/env", "-i",
                "LANG=C.UTF-8", "HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *argv]

    def __call__(self, *argv, user=None, timeout=WAIT):
        become = ["runuser", "-u", user, "--", "env", "XDG_RUNTIME_DIR=/run/user/2001", f"HOME=/home/{user}",
                  "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/2001/bus"] if user else []
        return subprocess.run(self.inside(*become, *argv), capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL)

    def log(self):
        return self("journalctl", "-u", "gpuward", "-u", "gpuward-companion", "-o", "cat", "--no-pager", "-n", "12").stdout

    def end(self):
        self.child.kill()
        self.child.wait()


def overlay():
    """Makes a temporary copy of /. Pass the result to remove()."""
    folder = tempfile.mkdtemp(prefix="gpuward-systemd-")
    sh("mount", "-t", "tmpfs", "tmpfs", folder)
    for name in ("upper", "work", "root"):
        os.mkdir(os.path.join(folder, name))
    sh("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work",
       f"{folder}/root")
    return f"{folder}/root"


def remove(root):
    """Removes what overlay() made."""
    folder = os.path.dirname(root)
    sh("umount", "--recursive", "--lazy", folder)
    os.rmdir(folder)


def sh(*argv):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def until(true, why):
    deadline = time.monotonic() + WAIT
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(why)
        time.sleep(0.1)
