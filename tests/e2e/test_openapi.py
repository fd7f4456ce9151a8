"""Tests /openapi.json of the running service: it is consistent, and each path, status and example in it is real.  A status
that no case here causes may not be documented."""
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import guarded
import openapi_check
from service import EVERY_METRIC, Service
from support import TOP

# The group "profiling" would add keys to the documents of the devices.
ALL_OF_COMMON_TIERS = {**EVERY_METRIC, "GPUWARD_METRICS_EXCLUDE": "profiling"}

SLOW_OPENING = """
[[gpu]]
profile = "h200"
[[fault]]
call = "nvmlInit_v2"
delay = 60
"""
FAILS = """
[[gpu]]
profile = "h200"
[[fault]]
call = "nvmlDeviceSetPowerManagementLimit_v2"
code = 999
"""
HANGS = """
[[gpu]]
profile = "h200"
[[fault]]
call = "nvmlDeviceGetUtilizationRates"
from = 3
hang = true
"""


@pytest.fixture(scope="module")
def live():
    with Service("two-gpus", token=True, env=ALL_OF_COMMON_TIERS) as s:
        yield s


@contextlib.contextmanager
def opening(folder):
    """A service that is opening the driver for a minute."""
    scenario = folder / "slow.toml"
    scenario.write_text(SLOW_OPENING)
    s = Service(scenario, token=True, config="[device]\ntimeout = \"60s\"\n")
    s.start(ready=False)
    yield s
    s.stop(signal.SIGKILL)  # how it ends with such a driver is in test_service.py
    s.__exit__()


@pytest.fixture(scope="module")
def early(tmp_path_factory):
    with opening(tmp_path_factory.mktemp("early")) as s:
        yield s


@pytest.fixture(scope="module")
def stuck(tmp_path_factory):
    """A service in which a driver call has not returned."""
    scenario = tmp_path_factory.mktemp("stuck") / "hangs.toml"
    scenario.write_text(HANGS)
    with Service(scenario, token=True, config="[device]\ntimeout = \"0.5s\"\n") as s:
        s.wait(lambda: s.get("/readyz").status_code == 503)
        yield s
        s.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A service with a guard."""
    with guarded.service(tmp_path_factory.mktemp("guard"), env=ALL_OF_COMMON_TIERS) as s:
        yield guarded.ready(s)


@pytest.fixture(scope="module")
def document(live):
    return live.get("/openapi.json").json()


def test_the_openapi_document_is_consistent(document):
    assert openapi_check.check(document) > 25


def test_openapi_check_detects_mistakes(document):
    """openapi_check reports each mistake that it was written for."""
    def broken(change):
        doc = json.loads(json.dumps(document))
        change(doc)
        with pytest.raises((AssertionError, KeyError)):
            openapi_check.check(doc)

    broken(lambda d: d["components"]["schemas"].pop("window"))
    broken(lambda d: d["paths"]["/api/v1/windows/{id}"]["get"].update(parameters=[]))
    broken(lambda d: d["paths"]["/livez"]["get"].update(operationId="getHealthz"))
    form = lambda d: d["paths"]["/api/gpu/devices"]["get"]["responses"]["200"]["content"]["application/json"]
    broken(lambda d: form(d)["example"].update(count="two"))
    broken(lambda d: form(d).pop("example"))


@pytest.fixture(scope="module")
def validators(document, tmp_path_factory):
    """A folder with the document and with validators from npm."""
    if not shutil.which("npm"):
        pytest.skip("npm is not there")
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(TOP / "tests/e2e/node" / name, folder)
    got = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
                         cwd=folder, capture_output=True, text=True, timeout=120)
    if got.returncode != 0:
        pytest.skip("npm could not fetch the validators")
    (folder / "openapi.json").write_text(json.dumps(document))
    return folder


def validate(folder, script, *args):
    return subprocess.run(["node", "node_modules/" + script, *args], cwd=folder, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "REDOCLY_TELEMETRY": "off", "CI": "true"})


def test_another_validator_accepts_the_document(validators):
    done = validate(validators, "@seriousme/openapi-schema-validator/bin/validate-api-cli.js", "openapi.json")
    assert '"valid": true' in done.stdout, done.stdout + done.stderr


def lint(folder, name):
    """Returns the errors and warnings of Redocly with its recommended rules."""
    done = validate(folder, "@redocly/cli/bin/cli.js", "lint", "--format=json", name)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    return json.loads(done.stdout)["problems"]


def test_redocly_finds_nothing(document, validators):
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 20:
        pytest.skip("redocly needs Node.js 20, here is " + version)
    assert lint(validators, "openapi.json") == []
    broken = json.loads(json.dumps(document))  # the check itself works
    form = broken["paths"]["/api/gpu/devices"]["get"]["responses"]["200"]["content"]["application/json"]
    del form["example"]["count"]
    (validators / "broken.json").write_text(json.dumps(broken))
    assert [p["ruleId"] for p in lint(validators, "broken.json")] == ["no-invalid-media-type-examples"]


def opened(s, label="x"):
    return "/api/v1/windows/" + s.post("/api/v1/windows", token=True, json={"label": label}).json()["id"]


def ended(s):
    path = opened(s)
    assert s.post(path + "/stop", token=True).status_code == 200
    return path


def once_more(s):
    key = {"Idempotency-Key": "the same"}
    first = s.post("/api/v1/windows", token=True, json={"label": "k"}, headers=key)
    again = s.post("/api/v1/windows", token=True, json={"label": "k"}, headers=key)
    assert first.json()["id"] == again.json()["id"]
    return again


def key_reused(s):
    key = {"Idempotency-Key": "another"}
    s.post("/api/v1/windows", token=True, json={"label": "a"}, headers=key)
    return s.post("/api/v1/windows", token=True, json={"label": "b"}, headers=key)


def too_many(s):
    paths = []
    while True:
        got = s.post("/api/v1/windows", token=True)
        if got.status_code != 201:
            break
        paths.append(got.headers["Location"])
    for path in paths:
        assert s.ask("DELETE", path, token=True).status_code == 204
    assert len(paths) <= 64 and "Retry-After" in got.headers
    return got


def too_many_marks(s):
    path = opened(s)
    for i in range(300):
        got = s.post(path + "/marks", token=True, json={"label": str(i)})
        if got.status_code != 201:
            break
    s.ask("DELETE", path, token=True)
    return got


WORKER = "/api/v1/guard/workers/ollama"
ROOMS = "/api/v1/guard/reservations"
GAMES = "/api/v1/guard/games"


def wished(s, verb, *before, **kw):
    """Releases the worker, sends the request `before`, and then the request under test."""
    assert s.post(WORKER + "/release", token=True).status_code == 202
    for word, body in before:
        assert s.post(f"{WORKER}/{word}", token=True, json=body).status_code == 202
    return s.post(f"{WORKER}/{verb}", token=True, **kw)


def keyed_room(s, body):
    """Reserves with a key that was used before with {"bytes": 1, "ttl_s": 60}."""
    key = {"Idempotency-Key": str(time.monotonic())}
    assert s.post(ROOMS, token=True, headers=key, json={"bytes": 1, "ttl_s": 60}).status_code == 201
    return s.post(ROOMS, token=True, headers=key, json=body)


def too_many_rooms(s):
    paths = []
    while True:
        got = s.post(ROOMS, token=True, json={"bytes": 1})
        if got.status_code != 201:
            break
        paths.append(got.headers["Location"])
    for path in paths:
        assert s.ask("DELETE", path, token=True).status_code == 204
    return got


def given_back(s, **kw):
    path = s.post(ROOMS, token=True, json={"bytes": 1}).headers["Location"]
    return s.ask("DELETE", path + kw.pop("query", ""), **kw)


def too_many_games(s):
    """Starts processes and registers each as a game, until the service refuses one. Returns the refusal."""
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            child = stack.enter_context(subprocess.Popen(["/bin/sleep", "600"]))
            stack.callback(child.kill)
            got = s.post(GAMES, token=True, json={"pid": child.pid})
            if got.status_code != 201:
                return got
    raise AssertionError("the service accepts any number of games")


def played(s, **kw):
    path = s.post(GAMES, token=True, json={"pid": os.getpid()}).headers["Location"]
    return s.ask("DELETE", path + kw.pop("query", ""), **kw)


NOT_JSON = {"Content-Type": "text/plain"}
GETS = {  # operation: path that answers 200
    "getGpuDevices": "/api/gpu/devices",
    "getGpuDriver": "/api/gpu/driver",
    "getSnapshot": "/api/v1/snapshot",
    "getDevices": "/api/v1/devices",
    "getDevice": "/api/v1/devices/0",
    "getDeviceSeries": "/api/v1/devices/1/series",
    "getSeries": "/api/v1/series",
    "getProcesses": "/api/v1/processes",
    "getProcessesHistory": "/api/v1/processes/history",
    "getWorkloads": "/api/v1/workloads",
    "getWorkloadsHistory": "/api/v1/workloads/history?running=with",
    "getModels": "/api/v1/models",
    "getEnvironment": "/api/v1/environment",
    "getSensors": "/api/v1/sensors",
    "getWindows": "/api/v1/windows",
    "getEvents": "/api/v1/events",
    "getSelf": "/api/v1/self",
    "getHealthz": "/healthz",
    "getLivez": "/livez",
    "getHealthy": "/-/healthy",
    "getReadyz": "/readyz",
    "getReady": "/-/ready",
    "getMetrics": "/metrics",
    "getOpenapi": "/openapi.json",
    "getDocs": "/docs",
    "getPage": "/",
    "getManage": "/api/gpu/manage",
}
NOT_FOUND = {
    "getFleet": "/api/v1/fleet",
    "getSnapshot": "/api/v1/snapshot?gpu=99",
    "getDevices": "/api/v1/devices?gpu=GPU-ffffffff",
    "getDevice": "/api/v1/devices/99",
    "getDeviceSeries": "/api/v1/devices/99/series",
    "getSeries": "/api/v1/series?quantity=power_wats",
    "getProcesses": "/api/v1/processes?gpu=99",
    "getProcessesHistory": "/api/v1/processes/history?gpu=99",
    "getWorkloads": "/api/v1/workloads?gpu=99",
    "getEnvironment": "/api/v1/environment?gpu=99",
    "getDocsAsset": "/docs/none.js",
    "getPageAsset": "/assets/none.js",
}
CHANGES = {  # (operation, status): how
    ("openWindow", 201): lambda s: s.post("/api/v1/windows", json={"label": "x", "gpus": [0]}, token=True),
    ("openWindow", 200): once_more,
    ("openWindow", 400): lambda s: s.post("/api/v1/windows", json={"labl": "x"}, token=True),
    ("openWindow", 401): lambda s: s.post("/api/v1/windows"),
    ("openWindow", 415): lambda s: s.post("/api/v1/windows", data="{}", headers=NOT_JSON, token=True),
    ("openWindow", 422): key_reused,
    ("openWindow", 429): too_many,
    ("getWindow", 200): lambda s: s.get(opened(s)),
    ("getWindow", 400): lambda s: s.get(opened(s) + "?x=1"),
    ("getWindow", 404): lambda s: s.get("/api/v1/windows/w0"),
    ("forgetWindow", 204): lambda s: s.ask("DELETE", opened(s), token=True),
    ("forgetWindow", 400): lambda s: s.ask("DELETE", opened(s) + "?x=1", token=True),
    ("forgetWindow", 401): lambda s: s.ask("DELETE", opened(s)),
    ("forgetWindow", 404): lambda s: s.ask("DELETE", "/api/v1/windows/w0", token=True),
    ("markWindow", 201): lambda s: s.post(opened(s) + "/marks", json={"label": "a"}, token=True),
    ("markWindow", 400): lambda s: s.post(opened(s) + "/marks", json={}, token=True),
    ("markWindow", 401): lambda s: s.post(opened(s) + "/marks"),
    ("markWindow", 404): lambda s: s.post("/api/v1/windows/w0/marks", json={"label": "a"}, token=True),
    ("markWindow", 409): lambda s: s.post(ended(s) + "/marks", json={"label": "a"}, token=True),
    ("markWindow", 415): lambda s: s.post(opened(s) + "/marks", data="{}", headers=NOT_JSON, token=True),
    ("markWindow", 429): too_many_marks,
    ("stopWindow", 200): lambda s: s.post(opened(s) + "/stop", token=True),
    ("stopWindow", 400): lambda s: s.post(opened(s) + "/stop?x=1", token=True),
    ("stopWindow", 401): lambda s: s.post(opened(s) + "/stop"),
    ("stopWindow", 404): lambda s: s.post("/api/v1/windows/w0/stop", token=True),
    ("letGo", 200): lambda s: s.post("/api/v1/let-go", token=True),
    ("letGo", 400): lambda s: s.post("/api/v1/let-go?x=1", token=True),
    ("letGo", 401): lambda s: s.post("/api/v1/let-go"),
    ("resume", 200): lambda s: s.post("/api/v1/resume", token=True),
    ("resume", 400): lambda s: s.post("/api/v1/resume?x=1", token=True),
    ("resume", 401): lambda s: s.post("/api/v1/resume"),
}
# Paths of the guard that answer 200 if the guard knows a worker, and 503 before the guard has begun.
GUARD_GETS = {
    "getGuard": "/api/v1/guard",
    "getGuardGpu": "/api/v1/guard/gpus/0",
    "getGuardWorker": WORKER,
    "explainGuard": "/api/v1/guard/explain",
    "getGuardEvents": "/api/v1/guard/events",
    "getGuardGames": GAMES,
    "getHealth": "/api/v1/health",
    "getHealthGpu": "/api/v1/health/gpus/0",
    "getCapacity": "/api/v1/capacity",
    "getCapacityFit": "/api/v1/capacity/fit?bytes=1",
}
GUARD_NOT_FOUND = {
    "getGuardGpu": "/api/v1/guard/gpus/99",
    "getGuardWorker": "/api/v1/guard/workers/none",
    "explainGuard": "/api/v1/guard/explain?worker=none",
    "getHealth": "/api/v1/health?gpu=99",
    "getHealthGpu": "/api/v1/health/gpus/99",
    "getCapacity": "/api/v1/capacity?gpu=99",
    "getCapacityFit": "/api/v1/capacity/fit?bytes=1&gpu=99",
}
VERBS = ("evict", "resume", "hold", "release")
HELD = {"evict": "active", "resume": "evicted"}  # verb: the hold that refuses it
MODE = "/api/v1/guard/mode"
SIMULATE = "/api/v1/guard/simulate"
CLEAR = "/api/v1/health/gpus/0/clear"
GUARD_CHANGES = {
    ("getGuardOperation", 200): lambda s: s.get(wished(s, "evict", ("release", {})).headers["Location"]),
    ("getGuardOperation", 400): lambda s: s.get("/api/v1/guard/operations/0?no-such-parameter=1"),
    ("getGuardOperation", 404): lambda s: s.get("/api/v1/guard/operations/0"),
    ("simulateGuard", 200): lambda s: s.post(SIMULATE, json={"processes": [{"name": "game"}]}, token=True),
    ("simulateGuard", 400): lambda s: s.post(SIMULATE, json={"processes": [{"nam": "game"}]}, token=True),
    ("simulateGuard", 401): lambda s: s.post(SIMULATE, json={}),
    ("simulateGuard", 415): lambda s: s.post(SIMULATE, data="{}", headers=NOT_JSON, token=True),
    ("setGuardMode", 200): lambda s: s.ask("PUT", MODE, json={"mode": "enforce"}, token=True),
    ("setGuardMode", 400): lambda s: s.ask("PUT", MODE, json={"mode": "on"}, token=True),
    ("setGuardMode", 401): lambda s: s.ask("PUT", MODE, json={"mode": "enforce"}),
    ("setGuardMode", 415): lambda s: s.ask("PUT", MODE, data="{}", headers=NOT_JSON, token=True),
    ("resetGuardMode", 200): lambda s: s.ask("DELETE", MODE, token=True),
    ("resetGuardMode", 400): lambda s: s.ask("DELETE", MODE + "?x=1", token=True),
    ("resetGuardMode", 401): lambda s: s.ask("DELETE", MODE),
    ("reserveMemory", 201): lambda s: s.post(ROOMS, json={"bytes": 1, "ttl_s": 1}, token=True),
    ("reserveMemory", 200): lambda s: keyed_room(s, {"bytes": 1, "ttl_s": 60}),
    ("reserveMemory", 422): lambda s: keyed_room(s, {"bytes": 2, "ttl_s": 60}),
    ("reserveMemory", 400): lambda s: s.post(ROOMS, json={}, token=True),
    ("reserveMemory", 401): lambda s: s.post(ROOMS, json={"bytes": 1}),
    ("reserveMemory", 409): lambda s: s.post(ROOMS, json={"bytes": 1 << 50}, token=True),
    ("reserveMemory", 415): lambda s: s.post(ROOMS, data="{}", headers=NOT_JSON, token=True),
    ("reserveMemory", 429): too_many_rooms,
    ("releaseMemory", 204): lambda s: given_back(s, token=True),
    ("releaseMemory", 400): lambda s: given_back(s, token=True, query="?x=1"),
    ("releaseMemory", 401): lambda s: given_back(s),
    ("releaseMemory", 404): lambda s: s.ask("DELETE", ROOMS + "/0", token=True),
    ("clearHealth", 200): lambda s: s.post(CLEAR, json={"reason": "seen to"}, token=True),
    ("clearHealth", 400): lambda s: s.post(CLEAR, json={"no": 1}, token=True),
    ("clearHealth", 401): lambda s: s.post(CLEAR, json={}),
    ("clearHealth", 404): lambda s: s.post("/api/v1/health/gpus/99/clear", json={}, token=True),
    ("clearHealth", 415): lambda s: s.post(CLEAR, data="{}", headers=NOT_JSON, token=True),
    ("beginGame", 201): lambda s: s.post(GAMES, json={"pid": os.getpid(), "ttl_s": 1}, token=True),
    ("beginGame", 400): lambda s: s.post(GAMES, json={}, token=True),
    ("beginGame", 401): lambda s: s.post(GAMES, json={"pid": 1}),
    ("beginGame", 415): lambda s: s.post(GAMES, data="{}", headers=NOT_JSON, token=True),
    ("beginGame", 429): too_many_games,
    ("endGame", 204): lambda s: played(s, token=True),
    ("endGame", 400): lambda s: played(s, token=True, query="?x=1"),
    ("endGame", 401): lambda s: played(s),
    ("endGame", 404): lambda s: s.ask("DELETE", GAMES + "/1", token=True),
    ("holdWorker", 202): lambda s: wished(s, "hold", json={"ttl_s": 1, "state": "active"}),
    **{(v + "Worker", 202): lambda s, v=v: wished(s, v, ("hold", {"ttl_s": 1, "state": "evicted"}),
                                                  ("release", {})) for v in ("evict", "resume", "release")},
    **{(v + "Worker", 400): lambda s, v=v: wished(s, v, json={"no": 1}) for v in VERBS},
    **{(v + "Worker", 401): lambda s, v=v: s.post(f"{WORKER}/{v}") for v in VERBS},
    **{(v + "Worker", 404): lambda s, v=v: s.post(f"/api/v1/guard/workers/none/{v}", token=True) for v in VERBS},
    **{(v + "Worker", 409): lambda s, v=v, h=h: wished(s, v, ("hold", {"ttl_s": 60, "state": h}),
                                                       json={})
       for v, h in HELD.items()},
    **{(v + "Worker", 415): lambda s, v=v: wished(s, v, data="{}", headers=NOT_JSON) for v in VERBS},
}
# Operations that answer 503 while there is no reading.
EARLY = ("getSnapshot", "getDevices", "getDevice", "getDeviceSeries", "getSeries", "getProcesses", "getProcessesHistory",
         "getWorkloads", "getWorkloadsHistory",
         "getModels", "getEnvironment", "getSensors", "getReadyz", "getReady")
# Routes of the page, which a build may lack. Its files, and the management of GPUs, have their own tests.
PAGE = {"getDocs", "getPage"}
# 429 and 403 are for users on the UNIX socket; tests/unit/test_api_guard.c and test_peer_process.c test them.
ELSEWHERE = {("getDocs", 404), ("getPage", 404), ("getDocsAsset", 200), ("getPageAsset", 200),
             ("evictWorker", 429), ("holdWorker", 429), ("beginGame", 403), ("endGame", 403),
             ("clearHealth", 409),  # tests/e2e/test_guard_faults.py
             ("getFleet", 200), ("getFleet", 400), ("getFleet", 503)}  # tests/e2e/test_fleet.py
MANAGE = {"getManage", "clearEcc", "setSetting", "restoreSetting"}


def guard_cases(early, watched):
    for (name, status), how in GUARD_CHANGES.items():
        yield name, status, lambda how=how: how(watched)
    for name, path in GUARD_GETS.items():
        yield name, 200, lambda path=path: watched.get(path)
        yield name, 400, lambda path=path: watched.get(path.partition("?")[0] + "?no-such-parameter=1")
        yield name, 503, lambda path=path: early.get(path)
    for name, path in GUARD_NOT_FOUND.items():
        yield name, 404, lambda path=path: watched.get(path)
    for verb in VERBS:
        yield verb + "Worker", 503, lambda verb=verb: early.post(f"{WORKER}/{verb}", token=True)
    yield "reserveMemory", 503, lambda: early.post(ROOMS, token=True, json={"bytes": 1})
    yield "beginGame", 503, lambda: early.post(GAMES, token=True, json={"pid": 1})
    yield "clearHealth", 503, lambda: early.post(CLEAR, token=True, json={})
    yield "endGame", 503, lambda: early.ask("DELETE", GAMES + "/1", token=True)
    yield "getGuardOperation", 503, lambda: early.get("/api/v1/guard/operations/1")
    yield "simulateGuard", 503, lambda: early.post(SIMULATE, token=True, json={})
    yield "setGuardMode", 503, lambda: early.ask("PUT", MODE, token=True, json={"mode": "enforce"})
    yield "resetGuardMode", 503, lambda: early.ask("DELETE", MODE, token=True)
    yield "releaseMemory", 503, lambda: early.ask("DELETE", ROOMS + "/1", token=True)


def cases(document, live, early, stuck, watched):
    """Returns (operation, status, how) of each documented answer that is tested here."""
    documented = {(o["operationId"], int(status)) for _, _, o in openapi_check.operations(document)
                  for status in o["responses"]}
    for (name, status), how in CHANGES.items():
        yield name, status, lambda how=how: how(live)
    for name, path in GETS.items():
        yield name, 200, lambda path=path: live.get(path)
        if (name, 400) in documented:
            yield name, 400, lambda path=path: live.get(path + "?no-such-parameter=%00")
    for name, path in NOT_FOUND.items():
        yield name, 404, lambda path=path: live.get(path)
    for name in EARLY:
        yield name, 503, lambda path=GETS[name]: early.get(path)
    yield "openWindow", 503, lambda: early.post("/api/v1/windows", token=True)
    yield "letGo", 409, lambda: stuck.post("/api/v1/let-go", token=True)
    yield from guard_cases(early, watched)


def judge(document, operations, name, status, got):
    """Checks that the document describes the answer."""
    operation = operations[name]
    assert got.status_code == status, f"{name}: {got.status_code}, not {status}: {got.text[:300]}"
    promised = openapi_check.whole(document, operation["responses"][str(status)])
    kind = got.headers.get("Content-Type", "").split(";")[0]
    if "content" not in promised:
        assert not got.content, name
        return
    form = promised["content"].get(kind) or promised["content"]["*/*"]
    if kind.endswith("json"):
        openapi_check.validate(document, form["schema"], got.json(), f"{name} {status}")
        if name != "getOpenapi":  # OpenAPI itself describes its form
            assert list(openapi_check.unnamed(document, form["schema"], got.json())) == [], f"{name} {status}"
    if status >= 400:
        assert got.json()["status"] == status and len(got.json()["detail"]) > 10


def test_every_promised_status_is_real(document, live, stuck, watched, early):
    operations = {o["operationId"]: o for _, _, o in openapi_check.operations(document)}
    seen = set(ELSEWHERE)
    with concurrent.futures.ThreadPoolExecutor() as pool:  # these wait until their time limit
        waiting = {("letGo", 503): pool.submit(early.post, "/api/v1/let-go", token=True),
                   ("resume", 503): pool.submit(early.post, "/api/v1/resume", token=True)}
        # Cases that need a service without readings come first, because `early` has its first reading after a minute.
        for name, status, how in sorted(cases(document, live, early, stuck, watched), key=lambda c: c[1] != 503):
            if name not in operations or (name in MANAGE and str(status) not in operations[name]["responses"]):
                continue
            got = how()
            without = name in PAGE and got.status_code == 404
            judge(document, operations, name, 404 if without else status, got)
            seen.add((name, status))
        for (name, status), got in waiting.items():
            judge(document, operations, name, status, got.result())
            seen.add((name, status))
    with Service() as untrusting:  # without a token nothing can be changed
        for path, method, o in openapi_check.operations(document):
            if "403" in o["responses"]:
                got = untrusting.ask(method.upper(), re.sub(r"{\w+}", "0", path))
                judge(document, operations, o["operationId"], 403, got)
                assert got.json()["type"].endswith(":read-only"), got.text
                seen.add((o["operationId"], 403))
    documented = {(name, int(s)) for name, o in operations.items() for s in o["responses"]
                  if name not in MANAGE}
    assert documented - seen == set(), "documented, and no case provokes it"


def driver_fails(tmp_path):
    scenario = tmp_path / "fails.toml"
    scenario.write_text(FAILS)
    with Service(scenario, "--manage", token=True) as s:
        return s.ask("PUT", "/api/gpu/manage/0/power-limit", json={"watts": 500}, token=True)


def driver_opens(tmp_path):
    with opening(tmp_path) as s:
        return s.get("/api/v1/snapshot")


def test_the_example_of_each_error_is_a_real_reply(document, live, tmp_path):
    real = {
        "problem400": live.get("/api/v1/series?quantiti=power_watts"),
        "problem401": live.post("/api/v1/let-go"),
        "problem403": live.ask("PUT", "/api/gpu/manage/0/power-limit", json={"watts": 500}, token=True),
        "problem404": live.get("/api/v1/windows/w1"),
        "problem409": live.post(ended(live) + "/marks", token=True, json={"label": "a"}),
        "problem415": live.post("/api/v1/windows", data="{}", headers=NOT_JSON, token=True),
        "problem422": key_reused(live),
        "problem429": too_many(live),
        "problem500": driver_fails(tmp_path),
        "problem501": live.get("/api/gpu/manage/reset"),
        "problem503": driver_opens(tmp_path),
    }
    for name, response in document["components"]["responses"].items():
        got = real.pop(name)
        assert got.status_code == int(name[-3:]) and got.headers["Content-Type"] in response["content"], name
        text = re.sub(r"\bw[0-9a-f]{16}\b", "w0123456789abcdef", got.text)
        assert response["content"]["application/problem+json"]["example"] == json.loads(text), name
    assert not real, "these errors are not documented"


def test_head_is_get_without_a_body(live, watched):
    for s, path in [*((live, p) for p in GETS.values()), *((watched, p) for p in GUARD_GETS.values())]:
        got, head = s.get(path), s.ask("HEAD", path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert head.headers["Content-Type"] == got.headers["Content-Type"], path


def test_a_method_that_a_path_lacks_is_405_and_names_the_allowed_ones(document, live):
    for path, item in document["paths"].items():
        if "{" in path or "put" in item:
            continue
        got = live.ask("PUT", path, token=True, data="{}", headers={"Content-Type": "application/json"})
        assert got.status_code == 405, path
        assert {m.upper() for m in item} <= set(got.headers["Allow"].replace(" ", "").split(",")), path
