"""Tests the whole service: it starts, it continues whatever the driver does, and it ends."""
import contextlib
import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess

import pytest
import requests

import guarded
import service
import support
from service import Service


HANG = """
[[gpu]]
profile = "h200"
[[gpu]]
profile = "h200"
[[fault]]
gpu = 1
call = "nvmlDeviceGetUtilizationRates"
from = 1.0
hang = true
"""


def scenario(path, text):
    name = os.path.join(path, "scenario.toml")
    with open(name, "w") as f:
        f.write(text)
    return name


def metric(s, name):
    """Returns the samples of a metric: {labels as text: value}."""
    found = {}
    for line in s.get("/metrics").text.splitlines():
        if re.match(name + r"[ {]", line):
            labels, _, value = line[len(name):].rpartition(" ")
            found[labels] = float(value)
    return found


def test_the_service_logs_its_address_and_ends_on_sigterm():
    with Service() as s:
        assert s.url.startswith("http://127.0.0.1:")
        assert s.get("/healthz").status_code == 200
        assert s.stop() == 0
        assert "listening" in s.messages() and "stopped" in s.messages()


def test_a_log_that_nobody_reads_stops_nothing(tmp_path):
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)  # never reads
    full = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(full, True)
    fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, 4096)
    child = support.started("serve", "--simulate", "--history", "none", "--listen", "127.0.0.1:0", "--log-level", "debug",
                            env=support.environment(HOME=tmp_path), stderr=full)
    try:
        url = re.search(r"http://127\S+", child.stdout.readline())[0]
        for _ in range(100):  # more lines than the pipe holds
            assert requests.get(url + "/healthz", timeout=support.TIMEOUT).status_code == 200
        child.terminate()
        assert child.wait(support.TIMEOUT) == 0
        assert 0 < len(os.read(reader, 65536)) <= 4096
    finally:
        child.kill()
        child.wait()
        for fd in (reader, full):
            os.close(fd)


def test_a_standard_output_that_nobody_reads_stops_nothing(tmp_path):
    reader, full = os.pipe()
    fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, 4096)
    os.write(full, bytes(4096))
    child = support.started("serve", "--simulate", "--history", "none", "--listen", "127.0.0.1:0",
                            env=support.environment(HOME=tmp_path), stdout=full, stderr=subprocess.PIPE)
    try:
        line = ""
        while "msg=listening" not in line:
            line = child.stderr.readline()
            assert line
        url = re.search(r"http://127[^\s\"]+", line)[0]
        assert requests.get(url + "/healthz", timeout=support.TIMEOUT).status_code == 200
        child.terminate()
        child.stderr.read()
        assert child.wait(support.TIMEOUT) == 0
    finally:
        child.kill()
        child.wait()
        for fd in (reader, full):
            os.close(fd)


@pytest.mark.parametrize("level", ["info", "warning"])
def test_the_address_is_announced_once_if_the_log_goes_to_standard_output(tmp_path, level):
    child = support.started("serve", "--simulate", "--history", "none", "--listen", "127.0.0.1:0", "--log-level", level,
                            env=support.environment(HOME=tmp_path), stderr=subprocess.STDOUT)
    lines = []
    while not (found := re.search(r"http://127\S+", "".join(lines))):
        lines.append(child.stdout.readline())
        assert lines[-1], lines
    assert requests.get(found.group(0) + "/healthz", timeout=support.TIMEOUT).status_code == 200
    child.terminate()
    lines += child.stdout.readlines()
    assert child.wait(support.TIMEOUT) == 0
    assert sum(found.group(0) in line for line in lines) == 1, lines


def test_ctrl_c_ends_the_service():
    with Service() as s:
        assert s.stop(signal.SIGINT) == 0


def test_a_port_in_use_is_reported_with_its_address():
    with Service() as s:
        port = s.url.rsplit(":", 1)[1]
        done = support.gpuward("serve", "--simulate", "--history", "none", "--listen", f"127.0.0.1:{port}")
        assert done.returncode == 1
        assert f"127.0.0.1:{port}" in done.stderr and "another program uses" in done.stderr


def test_a_service_that_cannot_listen_leaves_no_state_folder(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = support.gpuward("serve", "--simulate", "--history", tmp_path / "state" / "history.db", "--listen",
                               f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 1 and "another program uses this port" in done.stderr, done
    assert not (tmp_path / "state").exists()


def test_a_refused_address_is_reported_once():
    done = support.gpuward("serve", "--simulate", "--history", "none", "--listen", "0.0.0.0:0")
    assert done.stderr.count("is reachable from other machines") == 1, done.stderr
    done = support.gpuward("serve", "--simulate", "--history", "none", "--listen", "99999")
    assert done.stderr == 'gpuward: --listen: "99999": the port is missing: write HOST:PORT, [IPV6]:PORT or unix:PATH\n'


def test_the_network_is_refused_without_token_and_tls():
    done = support.gpuward("serve", "--simulate", "--history", "none", "--listen", "0.0.0.0:0")
    assert done.returncode == 78
    assert "0.0.0.0" in done.stderr and "insecure" in done.stderr


@pytest.mark.parametrize("args, words", [
    (("--lisen", "x"), "did you mean"),
    (("--interval", "soon"), "interval"),
    (("--listen", "nowhere"), "nowhere"),
    (("--gpu", "0"), "--gpu"),
    (("--config", "/nonexistent.toml"), "/nonexistent.toml"),
])
def test_a_wrong_option_is_refused(args, words):
    done = support.gpuward("serve", "--simulate", "--history", "none", *args)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr


def test_require_nvml_ends_with_78(tmp_path):
    done = support.gpuward("serve", "--simulate=no-driver", "--history", "none", "--require-nvml", "--listen",
                           "127.0.0.1:0")
    assert done.returncode == 78
    assert "require_nvml = false" in done.stderr and "profile" not in done.stderr
    desktop = tmp_path / "desktop.toml"
    desktop.write_text('[guard]\nprofile = "desktop"\n')
    done = support.gpuward("serve", "--simulate=no-driver", "--history", "none", "--config", desktop, "--listen",
                           "127.0.0.1:0")
    assert done.returncode == 78
    assert "guard.profile" in done.stderr and "require_nvml = false" in done.stderr


def test_it_answers_before_the_driver_is_open():
    s = Service("slow-open")
    s.start(ready=False)
    try:
        assert s.get("/healthz").status_code == 200
        r = s.get("/api/gpu/devices")
        assert r.status_code == 200 and set(r.json()) == {"devices", "count"}
        assert s.get("/metrics").status_code == 200
    finally:
        s.__exit__()


# ---- a machine without GPUs


def test_gpus_that_cannot_be_opened_are_reported_and_tried_again(tmp_path):
    root = tmp_path / "machine"
    s = Service("two-gpus", "--root", root)
    s.start(ready=False)
    try:
        said = f"the GPUs cannot be read: the root directory {root} cannot be opened: no such file"
        s.wait(lambda: said in s.get("/readyz").json()["detail"])
        assert "gpuward tries again" in s.get("/readyz").json()["detail"]
        assert f"[-] no reading yet: {said}" in s.get("/healthz?verbose=1").text
        assert s.messages().count(said) == 1  # each attempt fails for the same cause
        root.mkdir()
        s.wait(lambda: s.get("/readyz").status_code == 200)
    finally:
        assert s.stop() == 0
        s.__exit__()


def test_enable_nvml_switches_off_nvml_alone(tmp_path):
    off = "[device]\nenable_nvml = false\n"
    with Service(None, "--root", support.FIXTURES / "amd-discrete", config=off, simulate=False) as s:
        assert s.get("/api/v1/devices").json()["devices"][0]["vendor"] == "amd"
    s = Service(None, config=off + f'nvml_library = "{support.SIMULATOR}"\n', simulate=False)
    s.start(ready=False)
    s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 1)
    assert metric(s, "gpuward_gpus") == {"": 0} and metric(s, "nvml_init_failures_total") == {"": 0}
    s.__exit__()


@pytest.mark.parametrize("name, failures", [("no-gpu", False), ("two-gpus", False), ("no-driver", True), ("version-mismatch", True)])
def test_failed_initialisations_are_counted_each_and_nothing_else(tmp_path, name, failures):
    calls = tmp_path / "calls"  # the simulator writes a line for each call
    with Service(name, config="[service]\ninterval = '100ms'\n", env={"GPUWARD_SIM_CALLS": calls}) as s:
        def tried():
            return len(re.findall(r"^nvmlInit\w*$", calls.read_text(), re.M))

        def exact():
            """Returns True if all figures are equal to the counts of the simulator."""
            before = tried()
            figures = {s.get("/api/v1/self").json()["init_failures"],
                       *(metric(s, f"{prefix}nvml_init_failures_total")[""] for prefix in ("", "gpuward_"))}
            return before == tried() and figures == {before if failures else 0}

        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 3 and tried() > (2 if failures else 0))
        s.wait(exact)


def test_the_name_of_a_gpu_is_always_a_string(tmp_path):
    text = '[[gpu]]\nprofile = "h200"\n[[fault]]\ncall = "nvmlDeviceGetName"\ncode = 999\n'
    with Service(scenario(tmp_path, text)) as s:
        [gpu] = s.get("/api/gpu/devices").json()["devices"]
        assert gpu["name"] == "unknown GPU" and gpu["total_memory_mb"] > 0
        assert s.get("/api/v1/devices").json()["devices"][0]["name"] is None  # unknown is null elsewhere


def test_a_reset_is_explained_wherever_it_is_requested():
    with Service("two-gpus", "--manage", token=True) as s:
        for method, path, body in (("GET", "reset", None), ("POST", "reset", None), ("POST", "0/reset", None),
                                   ("PUT", "0/reset", {})):
            got = s.ask(method, "/api/gpu/manage/" + path, json=body, token=True)
            assert got.status_code == 501 and got.headers["Content-Type"] == "application/problem+json", path
            assert "NVML has no call" in got.json()["detail"] and "--gpu-reset" in got.json()["remedy"]
        listed = s.get("/api/gpu/manage").json()["reset"]
        assert listed == got.json()["detail"] + ". " + got.json()["remedy"]


def test_the_environment_is_current_and_not_that_of_the_start(tmp_path):
    root = tmp_path / "root"
    shutil.copytree(support.FIXTURES / "amd-discrete", root, symlinks=True)
    (root / "proc/uptime").write_text("100.00 1.00\n")
    uptime = lambda: s.get("/api/v1/environment").json()["host"]["uptime_seconds"]
    with Service(None, "--root", root, simulate=False) as s:
        s.wait(lambda: uptime() == 100)
        (root / "proc/uptime").write_text("200.00 1.00\n")
        s.wait(lambda: uptime() == 200)


@pytest.mark.parametrize("name", ["no-gpu", "no-driver"])
def test_no_gpu_is_an_empty_list_and_not_ready(name):
    s = Service(name)
    s.start(ready=False)
    try:
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 0)
        assert s.get("/api/gpu/devices").json() == {"devices": [], "count": 0}
        driver = s.get("/api/gpu/driver")
        assert driver.status_code == 200
        assert s.get("/healthz").status_code == 200
        if name == "no-driver":
            assert driver.json()["driver_version"] is None and driver.json()["error_message"]
            assert s.get("/readyz").status_code == 503
    finally:
        s.__exit__()


def test_a_call_that_hangs_delays_no_other_gpu(tmp_path):
    s = Service(scenario(tmp_path, HANG), config="[device]\ntimeout = '500ms'\n")
    with s:
        s.wait(lambda: s.get("/readyz").status_code == 503)
        s.wait(lambda: "nvmlDeviceGetUtilizationRates" in s.get("/readyz").text)
        assert s.get("/healthz").status_code == 200
        a, b = s.get("/api/gpu/devices").json()["devices"]
        assert a["is_available"] and not b["is_available"] and b["error_message"]
        up = metric(s, "gpuward_gpu_up")
        assert sorted(up.values()) == [0, 1]
        ticks = s.get("/api/v1/self").json()["ticks"]
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > ticks + 2)  # the other GPU is still read
        threads = s.get("/api/v1/self").json()["threads"]
        s.ticks()
        assert s.get("/api/v1/self").json()["threads"] == threads
        assert s.stop() == 0  # although a call hangs


def test_while_a_call_hangs_ages_grow_and_no_gpu_counts_as_up(tmp_path):
    s = Service(scenario(tmp_path, HANG), config="[device]\ntimeout = '60s'\n")
    with s:
        def ages():
            return [d["seen_age_seconds"] for d in s.get("/api/v1/devices").json()["devices"]]
        s.wait(lambda: min(ages()) > 2.5)  # no reading for two intervals, and the call has not timed out
        assert set(metric(s, "gpuward_gpu_up").values()) == {0}
        first = ages()
        s.wait(lambda: all(b > a for a, b in zip(first, ages())))
        s.stop(signal.SIGKILL)


def test_a_stream_begins_with_a_current_tick():
    with Service() as s:
        def tick():
            with s.get("/api/v1/events?topics=tick", headers={"Accept": "text/event-stream"}, stream=True) as r:
                return json.loads(next(line for line in r.iter_lines() if line.startswith(b"data: "))[6:])["tick"]
        first = tick()
        s.ticks(3)  # without a follower
        before = s.get("/api/v1/self").json()["ticks"]
        assert first < before < tick() + 1


def test_a_stop_ends_the_streams_with_a_last_chunk():
    with Service() as s:
        streams = [s.get("/api/v1/events?topics=tick", headers={"Accept": "text/event-stream"}, stream=True) for _ in range(3)]
        lines = [r.iter_lines() for r in streams]
        for reply in lines:
            next(line for line in reply if line.startswith(b"data: "))
        assert s.stop() == 0
        for reply in lines:
            list(reply)  # fails if the reply is not complete


def test_a_service_stops_cleanly_if_tls_was_enabled_while_a_plain_stream_was_open(tmp_path):
    cert, key = support.make_certificate(tmp_path)
    with Service(config="") as s, \
            s.get("/api/v1/events", headers={"Accept": "text/event-stream"}, stream=True) as plain:
        next(line for line in plain.iter_lines() if line.startswith(b"data: "))
        with open(s.config, "w") as f:
            f.write(f'[service]\ntls_cert = "{cert}"\ntls_key = "{key}"\n')
        s.child.send_signal(signal.SIGHUP)
        https = s.url.replace("http:", "https:")
        s.wait(lambda: requests.get(https + "/livez", verify=cert, timeout=5).status_code == 200)
        assert s.stop() == 0, s.messages()


def test_a_gpu_that_hangs_from_the_start_leaves_the_others_measured(tmp_path):
    text = HANG.replace("from = 1.0\n", "")
    with Service(scenario(tmp_path, text), config="[device]\ntimeout = '500ms'\n") as s:
        def joules():
            return [d["energy_joules_total"] for d in s.get("/api/v1/devices").json()["devices"]]
        s.wait(lambda: (joules()[0] or 0) > 100)
        assert joules()[1] is None
        assert s.post("/api/v1/windows", json={"label": "x", "gpus": ["0"]}).status_code == 201


def test_a_lost_gpu_stays_listed_and_is_reported():
    with Service("lost-gpu") as s:
        s.wait(lambda: any(not d["is_available"] for d in s.get("/api/gpu/devices").json()["devices"]))
        gone = [d for d in s.get("/api/gpu/devices").json()["devices"] if not d["is_available"]]
        assert gone and all(d["error_message"] for d in gone)
        events = s.get("/api/v1/events").json()["events"]
        assert any(e["kind"] == "device-state" and e["severity"] == "error" for e in events)


def test_let_go_closes_the_driver_and_resume_opens_it():
    with Service(token=True) as s:
        assert s.post("/api/v1/let-go").status_code == 401
        r = s.post("/api/v1/let-go", token=True)
        assert r.status_code == 200, r.text
        s.wait(lambda: not any(d["is_available"] for d in s.get("/api/gpu/devices").json()["devices"]))
        assert len(s.get("/api/gpu/devices").json()["devices"]) == 2
        assert s.post("/api/v1/resume", token=True).status_code == 200
        s.wait(lambda: all(d["is_available"] for d in s.get("/api/gpu/devices").json()["devices"]))


def test_the_number_of_driver_calls_does_not_depend_on_the_number_of_clients():
    def rate(s, busy):
        """Returns the number of calls for FAST values per tick, over some ticks."""
        def now():
            x = s.get("/api/v1/self").json()
            return x["ticks"], sum(c["count"] for c in x["calls"] if c["name"] == "nvmlDeviceGetUtilizationRates")
        a = now()
        while now()[0] < a[0] + 20:
            for _ in range(100 if busy else 1):
                s.get("/metrics")
        b = now()
        return (b[1] - a[1]) / (b[0] - a[0])

    with Service("eight-gpus", config="[service]\ninterval = '100ms'\n") as s:
        # one call per GPU and tick; in addition, the meter reads every ten seconds, and a tick may be under way
        quiet, busy = rate(s, False), rate(s, True)
        assert 7 < quiet < 10 and 7 < busy < 10, (quiet, busy)


def test_sighup_reads_the_configuration_and_keeps_the_old_one_when_it_is_wrong():
    with Service(config="[log]\nlevel = 'info'\n") as s:
        with open(s.config, "w") as f:
            f.write("[log]\nlevel = 'debug'\n[service]\ninterval = '200ms'\n")
        s.child.send_signal(signal.SIGHUP)
        s.wait(lambda: "was reloaded" in s.messages())
        s.wait(lambda: s.get("/api/v1/self").json()["interval_seconds"] == 0.2)
        assert "next start" not in s.messages()
        with open(s.config, "w") as f:
            f.write("[service]\ninterval = '200ms'\n[guard]\nmode = 'dry-run'\n")
        s.child.send_signal(signal.SIGHUP)
        s.wait(lambda: "the guard uses the new configuration" in s.messages())
        assert "next start" not in s.messages()
        with open(s.config, "w") as f:
            f.write("[log]\nlevle = 'info'\n")
        s.child.send_signal(signal.SIGHUP)
        s.wait(lambda: "stays in use" in s.messages())
        assert "gpuward.toml:2:1" in s.messages() and "level" in s.messages()
        assert s.get("/api/v1/self").json()["interval_seconds"] == 0.2


def since(s):
    """Returns since when the energy of each GPU is counted, without the last digit, because the database stores a float."""
    return [d["energy_since_utc"][:-2] for d in s.get("/api/v1/devices").json()["devices"]]


def test_counts_never_fall_over_kill_9():
    with Service(config="[service]\ninterval = '100ms'\n") as s:
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 30)
        for _ in range(3):
            before = metric(s, "gpuward_energy_joules_total")
            last = s.get("/api/v1/events").json()["events"][-1]["id"]
            began = since(s)
            assert len(began) == 2 and all(began)
            s.restart(signal.SIGKILL)
            assert since(s) == began, "when the energy began to be counted"
            after = metric(s, "gpuward_energy_joules_total")
            assert before and set(before) == set(after)
            for labels, joules in before.items():
                assert after[labels] >= joules, labels
            assert s.get("/api/v1/events").json()["events"][-1]["id"] > last


def test_history_survives_a_restart():
    with Service(config="[service]\ninterval = '100ms'\n") as s:
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 30)
        s.restart(signal.SIGTERM)
        series = s.get("/api/v1/series?gpu=0&quantity=power_watts&from=-5m").json()["series"][0]
        assert len(series["time"]) >= 3 and all(w > 0 for w in series["mean"])


def test_a_file_that_is_no_database_is_moved_aside(tmp_path):
    path = tmp_path / "history.db"
    path.write_bytes(os.urandom(10000))
    with Service(state=str(path)) as s:
        assert any(n.name.startswith("history.db.corrupt") for n in tmp_path.iterdir())
        assert "corrupt" in s.messages()
        assert s.get("/api/v1/self").json()["store"]["state"] == "ok"


def test_a_folder_that_cannot_be_written_is_reported_and_it_runs(tmp_path):
    with Service(state="/proc/gpuward/history.db") as s:
        assert "/proc/gpuward" in s.messages()
        assert s.get("/api/v1/series?gpu=0&quantity=power_watts").status_code == 200


def test_systemd_is_notified(tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as n:
        n.bind(path)
        n.settimeout(support.TIMEOUT)
        with Service(env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "200000"}) as s:
            heard = ""
            while "WATCHDOG=1" not in heard or "READY=1" not in heard:
                heard += n.recv(4096).decode() + "\n"
            s.stop()
            while "STOPPING=1" not in heard:
                heard += n.recv(4096).decode() + "\n"


def test_a_socket_that_systemd_opened_is_served(tmp_path):
    with socket.socket() as given:
        given.bind(("127.0.0.1", 0))
        given.listen()
        port = given.getsockname()[1]
        s = Service(listen=None)
        # LISTEN_PID must be the pid of the service, so a program sets it and then becomes the service
        begin = ("import os, sys; os.dup2(int(sys.argv[1]), 3); "
                 "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])")
        s.argv = ["/usr/bin/python3", "-c", begin, str(given.fileno()), *s.argv]
        real = subprocess.Popen
        try:
            subprocess.Popen = lambda *a, **k: real(*a, pass_fds=[given.fileno()], **k)
            s.start()
        finally:
            subprocess.Popen = real
        try:
            assert requests.get(f"http://127.0.0.1:{port}/healthz", timeout=10).status_code == 200
        finally:
            s.__exit__()


def test_metrics_are_written_for_node_exporter(tmp_path):
    path = tmp_path / "gpuward.prom"
    with Service("two-gpus", "--textfile", str(path)) as s:
        s.wait(lambda: path.exists() and "gpuward_up 1" in path.read_text())
        s.stop()
        assert not path.exists()


def test_logs_are_json_when_asked():
    with Service("two-gpus", "--log-format", "json") as s:
        lines = [json.loads(t) for t in s.messages().splitlines()]
        assert any(x["msg"].startswith("nvml opened with 2 GPUs") for x in lines)


def log_lines(s):
    return [json.loads(t) for t in s.messages().splitlines()]


def said(s, level, words):
    """Returns the lines of the log at this level that contain these words."""
    return [x for x in log_lines(s) if x["level"] == level and words in x["msg"]]


def test_a_failing_query_is_logged_once_when_it_begins_and_once_when_it_ends(tmp_path):
    broken = tmp_path / "broken"
    text = "".join(f"""
[[fault]]
gpu = 1
call = "{call}"
code = 999
while = "{broken}"
""" for call in ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetComputeRunningProcesses_v3"))
    gpus = '[[gpu]]\nprofile = "h200"\n' * 2
    with Service(scenario(tmp_path, gpus + text), "--log-format", "json", config="[service]\ninterval = '100ms'\n") as s:
        assert not said(s, "error", "")
        broken.touch()
        for call, figure in (("nvmlDeviceGetUtilizationRates", "utilization_gpu"),
                             ("nvmlDeviceGetComputeRunningProcesses_v3", "processes")):
            s.wait(lambda: said(s, "error", call))
            [line] = said(s, "error", call)
            assert line["gpu"] == 1 and line["call"] == call and line["event"] == "query"
            assert figure in line["msg"] and line["msg"].startswith("GPU 1 (")
        s.ticks(8)
        assert len(said(s, "error", "")) == 2  # one line per failure, not one per tick
        broken.unlink()
        s.wait(lambda: len(said(s, "info", "works again after")) == 2)
        s.ticks(3)
        assert len(said(s, "error", "")) == 2 and len(said(s, "info", "works again after")) == 2


@pytest.mark.parametrize("path, reason", [("auto", "the GPUs are simulated"), ("none", "history is set to none")])
def test_the_log_says_why_history_is_in_memory_only(path, reason):
    with Service("no-gpu", "--log-format", "json", state=path) as s:
        [line] = said(s, "info", "history is kept in memory only")
        assert line["reason"] == reason


def test_a_library_that_is_missing_is_a_warning_only_with_a_gpu_of_nvidia(tmp_path):
    options = ("--log-format", "json", "--log-level", "debug")
    for gpu in (False, True):
        if gpu:
            card = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
            card.mkdir(parents=True)
            (card / "vendor").write_text("0x10de\n")
            (card / "class").write_text("0x030200\n")
        s = Service(None, *options, "--root", tmp_path, simulate=False)
        s.start(ready=False)
        try:
            s.wait(lambda: s.get("/api/v1/self").json()["init_failures"] > 1)
            warned, noted = said(s, "warning", "NVML cannot be used"), said(s, "info", "no GPU was found")
            assert (len(warned), len(noted)) == (gpu, not gpu)  # once, although it was tried again
            status = s.get("/api/v1/snapshot").json()["source"]
            assert "libnvidia-ml.so.1" in warned[0]["msg"] if gpu else noted[0]["msg"] == status["message"]
            assert status["cause"] == ("no_library" if gpu else "no_gpu")
            assert len(said(s, "debug", "no GPUs found")) == 1 and not said(s, "info", "opened with")
        finally:
            s.__exit__()
    with Service("no-gpu", *options) as s:
        s.wait(lambda: said(s, "debug", "no GPUs found"))
        assert said(s, "info", "nvml opened with 0 GPUs") and not said(s, "warning", "NVML")
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 3)
        assert not said(s, "info", "no events of the NVIDIA driver"), "a driver without a GPU has none to report"
    with Service(None, *options, "--root", support.FIXTURES / "amd-discrete", simulate=False) as s:
        assert said(s, "info", "opened with 1 GPU") and not said(s, "warning", "NVML")


def test_settings_change_only_when_enabled_and_come_back():
    with Service(token=True) as s:
        uuid = s.get("/api/v1/devices").json()["devices"][0]["uuid"]
        path = f"/api/gpu/manage/{uuid}/power-limit"
        assert s.ask("PUT", path, json={"watts": 400}).status_code == 401
        r = s.ask("PUT", path, token=True, json={"watts": 400})
        assert r.status_code == 403 and "manage" in r.text
    with Service("two-gpus", "--manage", token=True) as s:
        uuid = s.get("/api/v1/devices").json()["devices"][0]["uuid"]
        path = f"/api/gpu/manage/{uuid}/power-limit"

        def limit():
            return s.get(f"/api/v1/devices/{uuid}").json()["power_limit_watts"]

        r = s.ask("PUT", path, token=True, json={"watts": 1})
        assert r.status_code == 400 and "W" in r.text
        for several in ("all", "GPU-5"):
            r = s.ask("PUT", path.replace(uuid, several), token=True, json={"watts": 400})
            assert r.status_code == 400, r.text
        r = s.ask("PUT", path, token=True, json={"watts": 400})
        assert r.status_code == 200, r.text
        assert s.ask("DELETE", path, token=True).status_code == 200
        s.ask("PUT", path, token=True, json={"watts": 350})
        assert any(e["kind"] == "manage" for e in s.get("/api/v1/events").json()["events"])
        s.stop()
        assert "350 W" in s.messages()


@pytest.mark.parametrize("call", ["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetSamples"])
def test_a_meter_that_hangs_at_the_start_hides_no_gpu(tmp_path, call):
    text = HANG.replace("from = 1.0\n", "").replace("nvmlDeviceGetUtilizationRates", call)
    with Service(scenario(tmp_path, text), config="[device]\ntimeout = '500ms'\n") as s:
        s.wait(lambda: call in s.get("/readyz").text)
        a, b = s.get("/api/gpu/devices").json()["devices"]
        assert a["is_available"] and not b["is_available"]
        s.wait(lambda: (s.get("/api/v1/devices").json()["devices"][0]["energy_joules_total"] or 0) > 100)
        assert s.stop() == 0


def test_a_driver_that_is_unloaded_is_not_ready_and_comes_back(tmp_path):
    text = '[[gpu]]\nprofile = "h100"\n[[timeline]]\nat = 2\ndo = "reload"\nlength = 3\nversion = "580.200.01"\n'
    with Service(scenario(tmp_path, text)) as s:
        s.wait(lambda: s.get("/readyz").status_code == 503)
        driver, up = s.get("/api/gpu/driver").json(), set(metric(s, "gpuward_gpu_up").values())
        if s.get("/readyz").status_code == 503:  # the driver was unloaded during both requests above
            assert driver["driver_version"] is None and driver["error_message"]
            assert up == {0}
        s.wait(lambda: s.get("/readyz").status_code == 200)
        assert s.get("/api/gpu/driver").json()["driver_version"] == "580.200.01"


def holder(path):
    """Locks the whole file, also against readers."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
    db.execute("BEGIN EXCLUSIVE")
    db.execute("DELETE FROM count WHERE 0")
    return db


def last_event(s):
    return s.get("/api/v1/events").json()["events"][-1]["id"]


def state_of(s):
    return s.get("/api/v1/self").json()["store"]["state"]


def assert_no_less(after, before):
    assert before and set(before) == set(after)
    for labels, joules in before.items():
        assert after[labels] >= joules, labels


def test_a_database_that_is_locked_at_the_start_is_taken_up_later():
    with Service("two-gpus", "--manage", token=True, config="[service]\ninterval = '100ms'\n") as s:
        uuid = s.get("/api/v1/devices").json()["devices"][0]["uuid"]
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 20)
        r = s.ask("PUT", f"/api/gpu/manage/{uuid}/power-limit", token=True, json={"watts": 350})
        assert r.status_code == 200, r.text
        before, last, began = metric(s, "gpuward_energy_joules_total"), last_event(s), since(s)
        s.stop(signal.SIGKILL)
        db = holder(s.state)
        try:
            assert db.execute("SELECT count(*) FROM document WHERE kind='manage'").fetchone() == (1,)
            s.start()
            assert "locked by another program" in state_of(s)
            assert metric(s, "gpuward_energy_joules_total") == {}
            device = s.get(f"/api/v1/devices/{uuid}").json()
            assert device["energy_joules_total"] is None and device["state_changes_total"] is None
            assert device["energy_since_utc"] is None
            assert last_event(s) > last
            r = s.ask("PUT", f"/api/gpu/manage/{uuid}/power-limit", token=True, json={"watts": 300})
            assert r.status_code >= 400, r.text  # refused, because the old value could not be stored
            shown = last_event(s)
        finally:
            db.close()
        s.wait(lambda: metric(s, "gpuward_energy_joules_total"))
        assert_no_less(metric(s, "gpuward_energy_joules_total"), before)
        assert since(s) == began
        s.wait(lambda: state_of(s) == "ok")
        # The changes of the earlier run are restored, and nothing remains to be restored.
        with sqlite3.connect(s.state) as look:
            s.wait(lambda: look.execute("SELECT count(*) FROM document WHERE kind='manage'").fetchone() == (0,))
        assert last_event(s) > shown
        before, last = metric(s, "gpuward_energy_joules_total"), last_event(s)
        s.restart(signal.SIGTERM)
        assert_no_less(metric(s, "gpuward_energy_joules_total"), before)
        assert last_event(s) > last


def test_another_writer_of_the_database_hides_nothing():
    with Service(config="[service]\ninterval = '100ms'\n") as s:
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 20)
        before, last = metric(s, "gpuward_energy_joules_total"), last_event(s)
        s.stop()
        db = sqlite3.connect(s.state, isolation_level=None)
        db.execute("BEGIN EXCLUSIVE")
        s.start()
        assert_no_less(metric(s, "gpuward_energy_joules_total"), before)
        assert last_event(s) > last
        db.close()
        s.wait(lambda: state_of(s) == "ok")


@pytest.fixture
def small_disk(tmp_path):
    """A separate small disk, and functions that fill it and free space."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", place],
                                      capture_output=True).returncode:
        pytest.skip("needs to mount a tmpfs")

    def fill():
        with open(place / "filler", "ab", buffering=0) as f:
            try:
                while f.write(bytes(4096)):
                    pass
            except OSError:
                pass

    try:
        yield place, fill, (place / "filler").unlink
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_counts_never_fall_when_the_disk_is_full_at_the_start(small_disk, how):
    place, fill, empty = small_disk
    with Service(state=str(place / "history.db"), config="[service]\ninterval = '100ms'\n") as s:
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 20)
        before, last = metric(s, "gpuward_energy_joules_total"), last_event(s)
        s.stop(how)
        for name in place.glob("*-shm"):
            name.unlink()  # so that SQLite needs space for the index of its log
        fill()
        s.start()
        now = metric(s, "gpuward_energy_joules_total")
        assert_no_less(now, before)
        s.wait(lambda: "the disk is full" in state_of(s))
        assert last_event(s) > last
        last = last_event(s)
        empty()
        s.wait(lambda: state_of(s) == "ok")
        assert_no_less(metric(s, "gpuward_energy_joules_total"), now)
        before = metric(s, "gpuward_energy_joules_total")
        s.restart(signal.SIGTERM)
        assert_no_less(metric(s, "gpuward_energy_joules_total"), before)
        assert last_event(s) > last


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_disk_that_is_read_only_is_read(small_disk, how):
    place, _, _ = small_disk
    with Service(state=str(place / "history.db"), config="[service]\ninterval = '100ms'\n") as s:
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 20)
        before, last = metric(s, "gpuward_energy_joules_total"), last_event(s)
        s.stop(how)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        s.start()
        assert "read-only" in state_of(s)
        assert_no_less(metric(s, "gpuward_energy_joules_total"), before)
        assert last_event(s) > last
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)
        s.wait(lambda: state_of(s) == "ok")
        before, last = metric(s, "gpuward_energy_joules_total"), last_event(s)
        s.restart(signal.SIGKILL)
        assert_no_less(metric(s, "gpuward_energy_joules_total"), before)
        assert last_event(s) > last


def test_ids_grow_when_the_disk_becomes_full_and_it_is_killed(small_disk):
    place, fill, empty = small_disk
    with Service("two-gpus", state=str(place / "history.db"), token=True,
                 config="[service]\ninterval = '100ms'\n") as s:
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 20)
        kept, first = metric(s, "gpuward_energy_joules_total"), last_event(s)
        fill()
        s.wait(lambda: "the disk is full" in state_of(s))
        for what in ("let-go", "resume"):  # each is logged
            assert s.post(f"/api/v1/{what}", token=True).status_code == 200
        s.wait(lambda: last_event(s) > first)
        last = last_event(s)
        for how in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
            s.stop(how)
            fill()  # the disk stays full, also if the service freed space when it ended
            s.start()
            assert_no_less(metric(s, "gpuward_energy_joules_total"), kept)
            assert last_event(s) > last
            last = last_event(s)
        assert s.messages().count("could not be stored and are lost") == 1
        empty()
        s.wait(lambda: state_of(s) == "ok")
        assert_no_less(metric(s, "gpuward_energy_joules_total"), kept)
        assert last_event(s) >= last
        assert any(e["id"] <= first for e in s.get("/api/v1/events").json()["events"])


def test_windows_on_a_full_disk_are_answered_and_reported_as_not_stored(small_disk):
    place, fill, empty = small_disk
    with Service("two-gpus", state=str(place / "history.db"), config="[service]\ninterval = '100ms'\n") as s:
        def unstored():
            return [e["text"] for e in s.get("/api/v1/events").json()["events"]
                    if e["kind"] == "window" and "could not be stored and is lost" in e["text"]]
        good = s.post("/api/v1/windows", json={})
        assert good.status_code == 201 and "X-Gpuward-Stored" not in good.headers
        fill()
        s.wait(lambda: "the disk is full" in state_of(s))
        lost = s.post("/api/v1/windows", json={})
        assert lost.status_code == 201 and lost.headers["X-Gpuward-Stored"] == "false"
        assert len(unstored()) == 1 and lost.json()["id"] in unstored()[0]
        stopped = s.post(lost.headers["Location"] + "/stop")
        assert stopped.status_code == 200 and stopped.json()["state"] == "ended"
        assert stopped.headers["X-Gpuward-Stored"] == "false" and len(unstored()) == 2
        empty()
        s.wait(lambda: state_of(s) == "ok")
        assert "X-Gpuward-Stored" not in s.post(good.headers["Location"] + "/stop").headers
        s.restart(signal.SIGKILL)  # the queue was written when the disk had room again
        assert {w["state"] for w in s.get("/api/v1/windows").json()["windows"]} == {"ended"}
        assert len(s.get("/api/v1/windows").json()["windows"]) == 2


DEVICE = "/devices/pci0000:00/0000:01:00.0"
CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 1
UEVENTS = 15  # of netlink


@contextlib.contextmanager
def own_network():
    """Runs in a separate network namespace, because every service in the namespace receives an event of the kernel."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as before:
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip("needs the right to make a network namespace")
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


def test_an_unbound_gpu_is_closed_and_a_bound_gpu_is_found():
    with own_network(), Service("two-gpus") as s:
        s.wait(lambda: states(s) == ["ok", "ok"])
        kernel_says("unbind")
        s.wait(lambda: any("is being removed" in e["text"] for e in s.get("/api/v1/events").json()["events"]))
        s.wait(lambda: states(s) == ["closed", "closed"])
        kernel_says("bind")
        s.wait(lambda: states(s) == ["ok", "ok"])


def few_threads(first, short, **more):
    """A service that cannot create thread number `first` and later ones while the file exists."""
    short.touch()
    return Service(env={"LD_PRELOAD": str(support.BUILD / "tests" / "e2e" / "libno_threads.so"),
                        "GPUWARD_TEST_THREADS": str(first), "GPUWARD_TEST_NO_THREADS": str(short)}, **more)


@pytest.mark.parametrize("first", [1, 2])
def test_a_service_without_store_or_reader_thread_ends_with_a_sentence(first, tmp_path):
    # a rule, so that a leak check sees its memory
    s = few_threads(first, tmp_path / "short", config=guarded.rule("contend", command="train"))
    done = subprocess.run(s.argv, env=s.env, capture_output=True, text=True, timeout=support.TIMEOUT)
    assert done.returncode == 1
    assert "cannot start: out of memory or threads; " in done.stderr and "TasksMax=" in done.stderr


@pytest.mark.parametrize("first", range(3, 9))
def test_a_service_without_further_threads_names_the_problem_and_recovers(first, tmp_path):
    """The threads are those of the driver calls, the meter and the guard."""
    short = tmp_path / "short"
    s = few_threads(first, short).start(ready=False)
    try:
        s.wait(lambda: "out of memory or threads; gpuward tries again" in s.get("/readyz?verbose").text)
        assert "out of memory or threads; gpuward tries again" in s.messages()
        short.unlink()
        s.wait(lambda: s.get("/api/v1/guard").status_code == 200)
        s.wait(lambda: "[-]" not in s.get("/readyz?verbose").text)
        s.wait(lambda: s.get("/api/v1/devices").json()["devices"][0]["energy_joules_total"])
    finally:
        s.__exit__()
