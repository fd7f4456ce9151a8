"""A GPU is taken away, or comes back: what the kernel says of it, to a service that holds the driver.

What is said here would be heard by every service on the machine: it is said in a network of its own.
"""
import contextlib
import ctypes
import fcntl
import socket
import struct

import pytest

from service import Service

DEVICE = "/devices/pci0000:00/0000:01:00.0"
CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 1
UEVENTS = 15  # of netlink


@contextlib.contextmanager
def own_network():
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as before:
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip("only who may configure the network can speak in the kernel's stead")
        try:
            with socket.socket() as s:
                fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
            yield
        finally:
            assert libc.setns(before.fileno(), CLONE_NEWNET) == 0


def kernel_says(action):
    text = f"{action}@{DEVICE}\0ACTION={action}\0DEVPATH={DEVICE}\0SUBSYSTEM=pci\0PCI_CLASS=30200\0"
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, UEVENTS) as s:
        s.sendto(text.encode(), (0, 1))


def states(s):
    return [d["state"] for d in s.get("/api/v1/snapshot").json()["devices"]]


def test_a_gpu_that_is_unbound_is_not_held_and_one_that_is_bound_is_found():
    with own_network(), Service("two-gpus") as s:
        s.wait(lambda: states(s) == ["ok", "ok"])
        kernel_says("unbind")
        s.wait(lambda: any("is being removed" in e["text"] for e in s.get("/api/v1/events").json()["events"]))
        s.wait(lambda: states(s) == ["closed", "closed"])
        kernel_says("bind")
        s.wait(lambda: states(s) == ["ok", "ok"])
