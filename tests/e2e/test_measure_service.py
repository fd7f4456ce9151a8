"""Tests gpuward measure --service: the running service measures, and the command opens no driver."""
import http.server
import json
import pathlib
import signal
import subprocess
import threading
import time

import pytest

import support
from service import Service
from support import CONSTANT, FAILED, NO_GPU, OK, USAGE, WATTS

NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def s(tmp_path_factory):
    """A service with two GPUs that draw constant power."""
    scenario = tmp_path_factory.mktemp("constant") / "two.toml"
    scenario.write_text(CONSTANT + CONSTANT.partition("begin = 30\n")[2])
    with Service(scenario, token=True) as service:
        service.scenario = scenario
        yield service


def environment(service):
    """The environment of a user without a driver."""
    return support.environment(HOME=service.path, GPUWARD_NVML_LIBRARY="/nonexistent")


def words(service, out, *options, command):
    token = ["--token-file", service.token_file] if hasattr(service, "token_file") else []
    return ["measure", "--service", "--address", service.url, *token, "-o", out, *options, "--", *command]


def measure(service, tmp_path, *options, command=("true",)):
    out = tmp_path / "result.json"
    done = support.gpuward(*words(service, out, *options, command=command), env=environment(service))
    doc = json.loads(out.read_text()) if out.exists() else None
    if doc:
        support.check("measure", doc)
    return done, doc


def start(service, tmp_path, *options, then="exit 0"):
    """Starts gpuward measure and waits until the command runs.  The command ends when the file `go` exists."""
    script = f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; " \
             f"while ! [ -e {tmp_path}/go ]; do sleep 0.02; done; {then}"
    argv = words(service, tmp_path / "result.json", *options, command=["sh", "-c", script])
    child = subprocess.Popen([str(support.PROGRAM), *map(str, argv)], env=environment(service), stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    Service.wait((tmp_path / "pid").exists)
    return child


def end(child, tmp_path, go=True):
    """Waits for the end of gpuward. go=False: the caller ends the command in another way."""
    if go:
        (tmp_path / "go").touch()
    errors = child.communicate(timeout=support.TIMEOUT)[1]
    out = tmp_path / "result.json"
    return child.returncode, errors, json.loads(out.read_text()) if out.exists() else None


def windows(service):
    return service.get("/api/v1/windows").json()


def labels(service):
    return [w["label"] for w in windows(service)["windows"]]


def test_a_measurement_through_the_service_agrees_with_a_direct_one(s, tmp_path):
    done, doc = measure(s, tmp_path, "--label", "through", command=["sleep", "1"])
    assert done.returncode == OK, done.stderr
    alone = json.loads(support.gpuward("measure", f"--simulate={s.scenario}", "--json", "-q", "--", "sleep", "1").stdout)
    for d in (doc, alone):
        run = d["runs"][0]
        seconds = run["window_seconds"] or run["seconds"]
        assert [g["energy_joules"]["best"] / seconds for g in run["devices"]] == pytest.approx([WATTS] * 2, rel=0.03)
        assert run["energy_joules"]["best"] == pytest.approx(2 * WATTS * seconds, rel=0.03)
    assert (doc["service"], alone["service"]) == (s.url.partition("//")[2], None)
    assert "Measured by" in done.stderr and "longer than the command" in done.stderr


def test_a_device_is_described_as_by_a_run_without_the_service(s, tmp_path):
    doc = measure(s, tmp_path, "--gpu", "1", command=["sleep", "0.3"])[1]
    alone = json.loads(support.gpuward("measure", f"--simulate={s.scenario}", "--gpu", "1", "--json", "-q", "--",
                                       "sleep", "0.3").stdout)
    (here,), (there,) = doc["runs"][0]["devices"], alone["runs"][0]["devices"]
    assert here.keys() == there.keys()
    for key in ("index", "uuid", "name", "provenance", "driver_version", "power_limit_watts", "rung", "sensor"):
        assert here[key] == there[key], key
    assert here["samples"]["collected"] > 10 and here["power_watts"]["mean"] == pytest.approx(WATTS, rel=0.03)
    assert here["series"]["power"]["watts"] == [] and len(there["series"]["power"]["watts"]) > 0
    evidence = {c["code"]: c["evidence"] for c in doc["runs"][0]["codes"]}
    assert "s" in evidence["short"]  # also in a window of the service
    assert doc["environment"]["devices"][0]["uuid"] == here["uuid"] and len(doc["environment"]["devices"]) == 1


def test_what_a_slow_service_counts_too_much_is_in_the_interval(tmp_path):
    """The request to end the window arrives while the service is stopped, so the window is longer than the command."""
    scenario = tmp_path / "one.toml"
    scenario.write_text(CONSTANT)
    with Service(scenario) as service:
        child = start(service, tmp_path)
        service.child.send_signal(signal.SIGSTOP)
        (tmp_path / "go").touch()
        Service.wait(lambda: not pathlib.Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists())
        time.sleep(0.5)  # a duration: the window continues for this time after the command
        service.child.send_signal(signal.SIGCONT)
        status, errors, doc = end(child, tmp_path)
    run = doc["runs"][0]
    assert status == OK and run["window_seconds"] > run["seconds"] + 0.4
    for interval in run["energy_joules"], run["energy_relative_joules"]:
        assert interval["low"] < WATTS * run["seconds"] < interval["best"]
    assert run["validity"] != "valid"
    assert "late-edges: the window is longer than the run time of the program; by 0." in " ".join(errors.split())  # wrapped


def test_no_driver_is_opened(s, tmp_path):
    count = ["sh", "-c", "grep -c nvidia-ml /proc/$PPID/maps; true"]
    done, _ = measure(s, tmp_path, command=count)
    assert (done.returncode, done.stdout) == (OK, "0\n")
    alone = support.gpuward("measure", f"--simulate={s.scenario}", "--", *count)
    assert int(alone.stdout) > 0  # an opened driver would be counted here


def test_several_runs_a_warm_up_marks_and_counts(s, tmp_path):
    script = "for i in 1 2 3; do echo iteration; done >&$GPUWARD_MARK_FD; echo begin a >&$GPUWARD_MARK_FD; " \
             f"echo x >> {tmp_path}/made; sleep 0.1; echo end a >&$GPUWARD_MARK_FD"
    done, doc = measure(s, tmp_path, "--trials", "2", "--warmup", "1", "--label", "several",
                        "--count-cmd", f"wc -l < {tmp_path}/made", command=["sh", "-c", script])
    assert done.returncode == OK, done.stderr
    assert len(doc["runs"]) == 2 and labels(s).count("several") == 2  # the warm-up has no window
    for run in doc["runs"]:
        assert (run["iterations"], run["tokens"]) == (3, 1)
        assert run["energy_per_iteration_joules"]["best"] == pytest.approx(run["energy_joules"]["best"] / 3)
        (part,) = run["windows"]
        assert part["label"] == "a" and 0 < part["seconds"] <= run["seconds"] and part["devices"] == []
        assert run["window_seconds"] > run["seconds"] > 0.1
    assert "marked 1 part" in done.stderr
    done, _ = measure(s, tmp_path, command=["sh", "-c", script])
    assert "energy unknown: the service measures only the whole run" in " ".join(done.stderr.split())


def test_the_energy_of_this_host_is_not_that_of_another(s, tmp_path):
    assert measure(s, tmp_path)[1]["runs"][0]["host"]["absence"] != "not_read"
    other = tmp_path / "root/proc/sys/kernel/random"
    other.mkdir(parents=True)
    (other / "boot_id").write_text("11111111-2222-4333-8444-555555555555\n")
    with Service("h200", "--root", tmp_path / "root") as there:
        doc = measure(there, tmp_path)[1]
    assert doc["environment"]["host"]["boot_id"].startswith("11111111")
    assert doc["runs"][0]["host"] == {"joules": None, "absence": "not_read", "remedy": None, "domains": []}


def test_compare_report_and_diff_take_the_result(s, tmp_path):
    measure(s, tmp_path, "--label", "one", command=["sleep", "0.2"])
    one = (tmp_path / "result.json").rename(tmp_path / "one.json")
    measure(s, tmp_path, "--label", "two", command=["sleep", "0.2"])
    two = tmp_path / "result.json"
    assert "one" in support.gpuward("compare", one, two).stdout
    assert "No course" not in support.gpuward("diff", one, two).stderr
    assert support.gpuward("report", "-o", tmp_path / "report.html", one, two).returncode == OK


@pytest.mark.parametrize("script, status", [("exit 7", 7), ("kill -9 $$", 137)])
def test_the_status_of_the_command_is_passed_on(s, tmp_path, script, status):
    done, doc = measure(s, tmp_path, command=["sh", "-c", script])
    assert done.returncode == status
    assert doc["runs"][0]["codes"][-1]["code"] == "child-failed"


def test_a_command_that_is_not_there_leaves_no_window(s, tmp_path):
    done, doc = measure(s, tmp_path, "--label", "nowhere", command=["no-such-command"])
    assert (done.returncode, doc) == (127, None)
    assert "no such command" in done.stderr
    assert "nowhere" not in labels(s) and windows(s)["open"] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_window_and_keeps_the_result(s, tmp_path, number):
    child = start(s, tmp_path, "--label", "signalled")
    assert windows(s)["open"] == 1
    child.send_signal(number)
    code, errors, doc = end(child, tmp_path, go=False)
    assert code == 128 + number, errors
    assert doc["runs"][0]["exit_signal"] == number and doc["runs"][0]["energy_joules"]["best"] > 0
    assert windows(s)["open"] == 0 and windows(s)["windows"][0]["ended_by"] == "request"


def test_a_run_waits_until_the_gpus_of_the_service_are_cool(s, tmp_path):
    argv = words(s, tmp_path / "result.json", "--cooldown-to", "1", "--gpu", "1", command=touch(tmp_path))
    child = subprocess.Popen([str(support.PROGRAM), *map(str, argv)], env=environment(s), stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    now = s.get("/api/v1/devices").json()["devices"][1]["temperature_gpu_celsius"]
    assert f"GPU 1 is at {now:.0f} °C, waiting for 1 °C" in child.stderr.readline()
    child.send_signal(signal.SIGINT)
    code = end(child, tmp_path)[0]
    assert code == 128 + signal.SIGINT and not (tmp_path / "ran").exists()
    assert windows(s)["open"] == 0


def refused(done, tmp_path, code):
    assert done.returncode == code, done.stderr
    assert "nothing was measured" in done.stderr
    assert not (tmp_path / "ran").exists() and not (tmp_path / "result.json").exists()


def touch(tmp_path):
    return ["touch", tmp_path / "ran"]


def test_without_a_service_nothing_is_run(tmp_path):
    done = support.gpuward("measure", "--service", "--address", NOWHERE, "--warmup", "1", "--", *touch(tmp_path))
    refused(done, tmp_path, FAILED)
    assert "no service listens" in done.stderr and "gpuward serve" in done.stderr


def test_without_its_token_nothing_is_run(tmp_path):
    with Service("h200", token=True) as s:
        argv = words(s, tmp_path / "result.json", "--warmup", "1", command=touch(tmp_path))
        at = argv.index("--token-file")
        done = support.gpuward(*argv[:at], *argv[at + 2:], env=environment(s))
        refused(done, tmp_path, FAILED)
        assert "the service refuses" in done.stderr and "--token-file" in done.stderr
        assert support.gpuward(*argv, env=environment(s)).returncode == OK
        assert (tmp_path / "ran").exists()


def test_measuring_with_a_service_without_gpus_is_refused(tmp_path):
    with Service("", "--backend=none", simulate=False) as s:
        done, _ = measure(s, tmp_path, command=touch(tmp_path))
        refused(done, tmp_path, NO_GPU)


def test_a_gpu_that_the_service_does_not_have_is_refused(s, tmp_path):
    done, _ = measure(s, tmp_path, "--gpu", "7", command=touch(tmp_path))
    refused(done, tmp_path, NO_GPU)
    assert '"7"' in done.stderr


def test_a_measurement_beyond_the_services_limit_of_windows_is_refused(s, tmp_path):
    ids = []
    while (got := s.post("/api/v1/windows", token=True)).status_code == 201:
        ids.append(got.json()["id"])
    try:
        done, _ = measure(s, tmp_path, command=touch(tmp_path))
    finally:
        for i in ids:
            s.ask("DELETE", f"/api/v1/windows/{i}", token=True)
    refused(done, tmp_path, FAILED)
    assert "64 windows are open" in done.stderr and len(ids) == 64


@pytest.mark.parametrize("then, status", [("exit 0", FAILED), ("exit 7", 7)])
def test_a_service_that_is_killed_takes_the_energy_with_it(tmp_path, then, status):
    with Service("h200") as s:
        child = start(s, tmp_path, then=then)
        s.stop(signal.SIGKILL)
        code, errors, doc = end(child, tmp_path)
    assert (code, doc) == (status, None)
    assert "no service listens" in errors and "the energy of this run is lost" in errors


def test_a_killed_measurement_leaves_a_window_that_ends_with_its_lease(tmp_path):
    with Service("h200") as s:
        child = start(s, tmp_path)
        child.kill()
        end(child, tmp_path)
        assert windows(s)["windows"][0]["lease_seconds"] == 600


def test_a_service_that_was_restarted_does_not_know_the_window(tmp_path):
    with Service("h200") as s:
        child = start(s, tmp_path)
        s.restart()
        code, errors, doc = end(child, tmp_path)
        assert windows(s)["open"] == 0
    assert (code, doc) == (FAILED, None)
    assert "restarted" in errors and "lost" in errors


def sampled(service):
    return windows(service)["windows"][0]["devices"][0]["samples"]["collected"] > 5


def test_a_service_that_ends_and_comes_back_has_the_beginning(tmp_path):
    with Service("h200") as s:
        child = start(s, tmp_path)
        s.wait(lambda: sampled(s))
        s.restart(signal.SIGTERM)
        code, errors, doc = end(child, tmp_path)
    assert code == FAILED and "before the command ended" in errors, errors
    support.check("measure", doc)
    run = doc["runs"][0]
    assert run["validity"] == "invalid" and 0 < run["window_seconds"] < run["seconds"]
    assert "before the command ended" in {c["code"]: c["evidence"] for c in run["codes"]}["truncated"]
    assert run["energy_joules"]["best"] > 0 and "the first" in errors


def test_a_driver_that_is_let_go_is_a_gpu_that_went_away(tmp_path):
    with Service("h200", token=True) as s:
        child = start(s, tmp_path)
        s.wait(lambda: sampled(s))
        assert s.post("/api/v1/let-go", token=True).status_code == 200
        code, errors, doc = end(child, tmp_path)
    assert code == OK, errors  # the exit code of the command, as in a measurement without the service
    run = doc["runs"][0]
    assert run["validity"] == "invalid" and {"gpu-lost", "truncated"} <= {c["code"] for c in run["codes"]}


@pytest.mark.parametrize("options", [
    ["--simulate"], ["--backend", "nvml"], ["--nvml-library", "/x"], ["--wake"], ["--timeout", "1s"], ["--root", "/"],
    ["--bundle", "b"], ["--calibrate", "t.csv"], ["--part", "p"], ["--progress"], ["--interval", "1s"],
    ["--baseline"], ["--baseline=kept"], ["--require-exclusive"], ["--clean-room"],
    ["--gpu", "visible"], ["--gpu", "cuda:0"],
], ids=lambda o: " ".join(o))
def test_options_that_service_does_not_support_are_refused_before_the_run(tmp_path, options):
    done = support.gpuward("measure", "--service", "--address", NOWHERE, *options, "--", *touch(tmp_path), cwd=tmp_path)
    assert done.returncode == USAGE, done.stderr
    assert options[0].partition("=")[0] in done.stderr and "leave out --service" in done.stderr
    assert list(pathlib.Path(tmp_path).iterdir()) == []


def test_an_address_needs_the_service():
    done = support.gpuward("measure", "--address", NOWHERE, "--", "true")
    assert done.returncode == USAGE and "--service or --clean-room" in done.stderr


@pytest.mark.parametrize("begin, end, sentence", [
    ((500, {"detail": "no\x1b]0;title\x07\u009b31m"}), None, "the service replied 500: no?]0;title??31m; nothing was measured"),
    ((201, {"id": "w1"}), (200, ["not", "a", "window"]), "is not a gpuward service; the energy of this run is lost"),
    ((201, {"id": "w1"}), (500, {"detail": "\x1b[31m"}), "the service replied 500: ?[31m; the energy of this run is lost"),
])
def test_a_foreign_server_is_reported_and_cannot_act_on_the_terminal(tmp_path, begin, end, sentence):
    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = end if self.path.endswith("/stop") else begin
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = support.gpuward("measure", "--service", "--address", f"127.0.0.1:{server.server_port}", "--", "true",
                               env=support.environment(HOME=tmp_path))
        server.shutdown()
    assert done.returncode == FAILED and done.stderr.strip().endswith(sentence)
