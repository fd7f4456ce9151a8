"""Tests suspend: when logind announces it on the system bus, the service closes the drivers, and opens them again afterwards."""
import os
import signal
import socket

import pytest

from logind import Bus, Client, Logind
from service import Service


@pytest.fixture
def bus(tmp_path):
    with Bus(tmp_path) as b:
        yield b


def on(bus):
    return Service("two-gpus", token=True, env={"DBUS_SYSTEM_BUS_ADDRESS": bus.address})


def let_go(s):
    return "gpuward_let_go 1" in s.get("/metrics").text


def after_ticks(s, n):
    def ticks():
        return s.get("/api/v1/self").json()["ticks"]

    first = ticks()
    s.wait(lambda: ticks() >= first + n)


def reported(s):
    return [e["text"] for e in s.get("/api/v1/events").json()["events"]]


def test_drivers_are_released_before_a_suspend_and_opened_after_it(bus):
    with Logind(bus) as logind, on(bus) as s:
        s.wait(lambda: logind.held() == 1)
        for times in (1, 2):
            logind.signal(True)
            s.wait(lambda: logind.held() == 0)
            assert let_go(s), "logind waits until it is done"
            assert s.get("/api/v1/snapshot").json()["devices"][0]["power_watts"] is None
            logind.signal(False)
            s.wait(lambda: not let_go(s) and logind.held() == 1)
            s.wait(lambda: s.get("/api/v1/snapshot").json()["devices"][0]["power_watts"] is not None)
        assert reported(s).count("the machine suspends; the drivers are released") == 2
        assert reported(s).count("the machine resumed; the drivers are opened again") == 2


def test_after_a_suspend_that_did_not_wait_the_lock_is_held_again(bus):
    with Logind(bus) as logind, on(bus) as s:
        s.wait(lambda: logind.held() == 1)
        logind.signal(True)
        logind.signal(False)  # logind did not wait for us
        s.wait(lambda: any("the machine resumed" in t for t in reported(s)))
        after_ticks(s, 3)
        assert logind.held() == 1 and not let_go(s)
        assert not any("suspends" in t for t in reported(s))


def test_a_suspend_during_the_reopening_of_drivers_releases_them_again(bus):
    with Logind(bus) as logind, on(bus) as s:
        s.wait(lambda: logind.held() == 1)
        logind.signal(True)
        s.wait(lambda: logind.held() == 0)
        logind.signal(False)
        logind.signal(True)
        after_ticks(s, 3)
        assert let_go(s) and logind.held() == 0
        logind.signal(False)
        s.wait(lambda: not let_go(s) and logind.held() == 1)


def test_drivers_that_were_released_before_stay_released(bus):
    with Logind(bus) as logind, on(bus) as s:
        s.wait(lambda: logind.held() == 1)
        assert s.post("/api/v1/let-go", token=True).status_code == 200
        logind.signal(True)
        s.wait(lambda: logind.held() == 0)
        logind.signal(False)
        s.wait(lambda: logind.held() == 1)
        assert let_go(s)


def test_only_logind_can_announce_a_suspend(bus):
    with Logind(bus) as logind, on(bus) as s:
        s.wait(lambda: logind.held() == 1)
        stranger = Client(bus)
        stranger.signal(True)
        stranger.signal(True, destination=logind.who)
        stranger.settle()
        logind.signal(False)  # comes after the stranger's signals; then the service asks for a new lock
        s.wait(lambda: len(logind.locks) == 2 and logind.held() == 1)
        assert not let_go(s) and not any("the machine" in t for t in reported(s))


def test_if_logind_ends_during_a_suspend_drivers_are_opened_and_the_next_is_used(bus):
    with on(bus) as s:
        with Logind(bus) as logind:
            s.wait(lambda: logind.held() == 1)
            logind.signal(True)
            s.wait(lambda: let_go(s))
        s.wait(lambda: not let_go(s))
        with Logind(bus) as logind:
            s.wait(lambda: logind.held() == 1)
            logind.signal(True)
            s.wait(lambda: logind.held() == 0)
            assert let_go(s)


def test_drivers_are_opened_again_if_the_bus_dies_during_a_suspend(bus):
    with Logind(bus) as logind, on(bus) as s:
        s.wait(lambda: logind.held() == 1)
        logind.signal(True)
        s.wait(lambda: let_go(s))
        bus.child.send_signal(signal.SIGKILL)
        s.wait(lambda: not let_go(s))


def test_no_bus_and_a_bus_of_garbage_delay_nothing(tmp_path):
    for address in (f"unix:path={tmp_path}/none", "tcp:host=localhost,port=1", "unix:path=" + "x" * 300, "garbage"):
        with Service("two-gpus", env={"DBUS_SYSTEM_BUS_ADDRESS": address}) as s:
            assert s.stop() == 0


@pytest.mark.parametrize("said", [b"REJECTED EXTERNAL\r\n", b"OK 1\r\nAGREE_UNIX_FD\r\n" + b"\xff" * 64,
                                  b"OK 1\r\nAGREE_UNIX_FD\r\nl\4\0\1" + b"\xff" * 12, b"O" * 70000],
                         ids=["refused", "garbage", "too-large", "endless"])
def test_a_bus_that_sends_garbage_is_disconnected(tmp_path, said):
    path = os.path.join(tmp_path, "bus")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with Service("two-gpus", env={"DBUS_SYSTEM_BUS_ADDRESS": "unix:path=" + path}) as s:
            peer = listener.accept()[0]
            peer.settimeout(60)
            assert b"AUTH EXTERNAL" in peer.recv(4096)
            peer.sendall(said)
            try:
                assert peer.recv(4096) == b"", "the service closes the connection"
            except ConnectionResetError:
                pass
            assert s.get("/readyz").status_code == 200
            assert s.stop() == 0
