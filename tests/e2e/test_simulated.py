"""Tests that every document with a figure of a simulated GPU says that the GPU is simulated: the routes of /openapi.json, the
streams, and events of the past.  The two routes with fixed keys (/api/gpu) say so in a header."""
import json
import re
import time

import pytest
import requests

import guarded
import openapi_check
import support
from service import Service

HEADER = "X-Gpuward-Simulated"
FIXED = ("/api/gpu/devices", "/api/gpu/driver")  # their keys never change
WINDOW = "/api/v1/windows"
WORKER = "/api/v1/guard/workers/ollama"


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    with guarded.service(tmp_path_factory.mktemp("guard")) as s:
        yield guarded.ready(s)


def is_marked(doc):
    """Returns True if the document says that its figures are simulated."""
    return doc.get("simulated") is True or doc.get("source", {}).get("simulated") is True


def gets(s):
    """Returns every GET route that answers 200 with JSON, with values for its parameters."""
    known = {"uuid": "0", "worker": "ollama",
             "id": s.post(WINDOW, token=True, json={"label": "x"}).json()["id"],
             "operation": s.post(WORKER + "/hold", token=True, json={"ttl_s": 1}).headers["Location"].rpartition("/")[2]}
    for path, method, operation in openapi_check.operations(s.get("/openapi.json").json()):
        content = operation["responses"].get("200", {}).get("content", {})
        # the fleet comes from Prometheus, which this service does not use (test_fleet.py)
        if method == "get" and "application/json" in content and path not in ("/openapi.json", "/api/v1/fleet"):
            filled = re.sub(r"{(\w+)}", lambda m: known[m[1]], path)
            yield filled + ("?bytes=1" if path.endswith("/fit") else "")


def test_every_route_says_that_its_gpus_are_simulated(watched):
    seen = 0
    for path in gets(watched):
        got = watched.get(path)
        assert got.status_code == 200, (path, got.text)
        assert got.headers.get(HEADER) == "true", path
        if path in FIXED:
            assert "simulated" not in got.text, path
        else:
            assert is_marked(got.json()), path
            seen += 1
    assert seen > 20
    assert 'simulated="true"' in watched.get("/metrics").text and watched.get("/metrics").headers[HEADER] == "true"


def test_the_answers_to_changes_say_so_too(watched):
    window = watched.post(WINDOW, token=True, json={"label": "x"}).headers["Location"]
    for path, body in ((window + "/marks", {"label": "a"}), (window + "/stop", None),
                       ("/api/v1/guard/simulate", {"processes": [{"name": "game"}]}),
                       ("/api/v1/guard/reservations", {"bytes": 1, "ttl_s": 1}),
                       (WORKER + "/release", None)):
        got = watched.post(path, token=True, json=body)
        assert got.status_code < 300 and is_marked(got.json()) and got.headers[HEADER] == "true", (path, got.text)
    got = watched.post("/api/v1/guard/reservations", token=True, json={"bytes": 1 << 50})
    assert got.status_code == 409 and is_marked(got.json())  # a problem document that has figures


def test_refusals_say_so_too(watched):
    for got, status in ((watched.get("/nowhere"), 404), (watched.get("/api/v1/windows/w0"), 404),
                        (requests.delete(watched.url + "/api/v1/snapshot", timeout=support.TIMEOUT), 405),
                        (requests.post(watched.url + "/api/v1/let-go", timeout=support.TIMEOUT), 401),
                        (requests.get(watched.url, headers={"Host": "example.org"}, timeout=support.TIMEOUT), 421)):
        assert got.status_code == status and got.headers.get(HEADER) == "true", (got.url, got.text)


def messages(s, path, topics):
    """Reads a stream until each topic has come once: {topic: data}."""
    got, name = {}, None
    with requests.get(s.url + path, headers={"Accept": "text/event-stream"}, stream=True, timeout=support.TIMEOUT) as r:
        assert r.headers[HEADER] == "true"
        s.post(WINDOW, token=True, json={"label": "x"})
        s.post(WORKER + "/hold", token=True, json={"ttl_s": 1})
        end = time.monotonic() + support.TIMEOUT
        for line in r.iter_lines(decode_unicode=True):
            assert time.monotonic() < end, f"{path}: only {set(got)}"
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                doc = json.loads(line[6:])
                got.setdefault("guard" if doc.get("kind") == "guard" else name, doc)
            if topics <= set(got):
                return got


@pytest.mark.parametrize("path, topics", [("/api/v1/events", {"tick", "event", "window", "guard"}),
                                          ("/api/v1/guard/events", {"guard"})])
def test_every_message_of_a_stream_says_so(watched, path, topics):
    for name, doc in messages(watched, path, topics).items():
        assert doc["simulated"] is True, (name, doc)


def test_an_event_remembers_whether_its_gpus_were_simulated(tmp_path):
    state = str(tmp_path / "history.db")
    with Service("two-gpus", state=state) as s:
        s.wait(lambda: any(e["text"].endswith(" found") for e in s.get("/api/v1/events").json()["events"]))
    s = Service(None, "--backend", "none", state=state, simulate=False)  # no GPU at all, and the same history
    s.start(ready=False)
    try:
        s.wait(lambda: s.get("/api/v1/self").json()["ticks"] > 0)
        doc = s.get("/api/v1/events")
        assert HEADER not in doc.headers and doc.json()["simulated"] is False
        events = doc.json()["events"]
        assert [e for e in events if e["text"].endswith(" found") and e["simulated"]]
        assert not [e for e in events if e["text"].endswith(" found") and not e["simulated"]]
        assert not events[-1]["simulated"]
    finally:
        s.__exit__()
