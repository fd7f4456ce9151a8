"""A system bus for tests: a real dbus-daemon, and a fake logind that knows only the necessary messages.

    with Bus(tmp_path) as bus, Logind(bus) as logind:
        ... DBUS_SYSTEM_BUS_ADDRESS=bus.address ...
        logind.sleep(True)
"""
import os
import re
import select
import socket
import struct
import subprocess
import threading

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "busconfig.dtd">
<busconfig>
  <listen>unix:path={path}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*"/> <allow receive_sender="*"/> <allow own="*"/>
  </policy>
</busconfig>
"""
NAME, PATH, MANAGER = "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager"
CALL, REPLY, SIGNAL = 1, 2, 4
FIELDS = {"path": (1, "o"), "interface": (2, "s"), "member": (3, "s"), "reply_to": (5, "u"), "destination": (6, "s"),
          "signature": (8, "g"), "unix_fds": (9, "u")}


def pad(b, to):
    return b + b"\0" * (-len(b) % to)


def text(s):
    return struct.pack("<I", len(s)) + s.encode() + b"\0"


def message(kind, serial, body=b"", **fields):
    head = b""
    for name, value in fields.items():
        code, how = FIELDS[name]
        head = pad(head, 8) + struct.pack("<BB2s", code, 1, how.encode() + b"\0")
        if how == "u":
            head = pad(head, 4) + struct.pack("<I", value)
        elif how == "g":
            head += bytes([len(value)]) + value.encode() + b"\0"
        else:
            head = pad(head, 4) + text(value)
    return pad(struct.pack("<4sIII", b"l" + bytes([kind, 0, 1]), len(body), serial, len(head)) + head, 8) + body


class Bus:
    def __init__(self, folder):
        self.path = os.path.join(folder, "bus")
        self.address = "unix:path=" + self.path
        self.config = os.path.join(folder, "bus.conf")
        with open(self.config, "w") as f:
            f.write(CONFIG.format(path=self.path))

    def __enter__(self):
        self.child = subprocess.Popen(["dbus-daemon", "--nofork", "--print-address", "--config-file=" + self.config],
                                      stdout=subprocess.PIPE)
        assert self.child.stdout.readline(), "dbus-daemon has not started"
        return self

    def __exit__(self, *args):
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()
        os.path.exists(self.path) and os.unlink(self.path)


class Client:
    """A client of the bus that sends any message."""

    def __init__(self, bus):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(bus.path)
        uid = str(os.geteuid()).encode().hex()
        self.socket.sendall(f"\0AUTH EXTERNAL {uid}\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n".encode())
        self.serial = 0
        self.bus("Hello")

    def say(self, kind, body=b"", fds=(), **fields):
        self.serial += 1
        socket.send_fds(self.socket, [message(kind, self.serial, body, **fields)], list(fds))

    def bus(self, member, body=b"", **fields):
        self.say(CALL, body, path="/org/freedesktop/DBus", destination="org.freedesktop.DBus",
                 interface="org.freedesktop.DBus", member=member, **fields)

    def signal(self, going, **fields):
        self.say(SIGNAL, struct.pack("<I", going), path=PATH, interface=MANAGER, member="PrepareForSleep",
                 signature="b", **fields)


    def settle(self):
        """Waits until the bus has delivered all earlier messages."""
        said = b""
        self.bus("GetId")
        while not re.search(rb"[0-9a-f]{32}\0", said):
            said += self.socket.recv(4096)


class Logind(Client):
    """A fake logind. locks has the read ends of the pipes that it gave to clients. A client has released its lock when the
    pipe is at its end."""

    def __init__(self, bus):
        super().__init__(bus)
        self.locks, self.who = [], None
        self.bus("RequestName", text(NAME) + b"\0" * (-len(text(NAME)) % 4) + struct.pack("<I", 0), signature="su")
        threading.Thread(target=self.run, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.socket.shutdown(socket.SHUT_RDWR)

    def run(self):
        data = b""
        while True:
            try:
                more = self.socket.recv(4096)
            except OSError:
                return
            if not more:
                return
            data += more
            while data[:1] in (b"O", b"A") and b"\r\n" in data:
                data = data.split(b"\r\n", 1)[1]
            while len(data) >= 16 and data[:1] == b"l":
                body, serial, fields = struct.unpack("<III", data[4:16])
                size = 16 + (fields + 7 & ~7) + body
                if len(data) < size:
                    break
                self.heard(data[:size], serial)
                data = data[size:]

    def heard(self, m, serial):
        if m[1] != CALL or b"Inhibit\0" not in m:
            return
        sender = m[m.rindex(b"\x07\x01s\0"):][8:].split(b"\0")[0].decode()
        assert all(part in m for part in (b"sleep\0", b"delay\0", b"gpuward\0"))
        mine, theirs = os.pipe()
        self.who = sender
        self.locks.append(mine)
        self.say(REPLY, struct.pack("<I", 0), fds=[theirs], destination=sender, reply_to=serial, signature="h", unix_fds=1)
        os.close(theirs)

    def held(self):
        """Returns the number of locks that clients have not released."""
        return sum(not select.select([fd], [], [], 0)[0] for fd in self.locks)
