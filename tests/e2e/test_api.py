"""Tests the answers of the service over HTTP: routes, energy windows, the event stream."""
import concurrent.futures
import json
import signal
import time

import pytest
import requests

from service import Service
from support import TIMEOUT, check

DEVICE_KEYS = {"index", "name", "total_memory_mb", "free_memory_mb", "used_memory_mb",
               "utilization_percent", "temperature_c", "is_available", "error_message"}
DRIVER_KEYS = {"driver_version", "cuda_driver_version", "nvml_version"}


@pytest.fixture(scope="module")
def live():
    with Service("two-gpus", token=True) as s:
        yield s


def test_devices_have_exactly_the_original_keys_and_types(live):
    doc = live.get("/api/gpu/devices").json()
    assert set(doc) == {"devices", "count"} and doc["count"] == len(doc["devices"]) == 2
    for d in doc["devices"]:
        assert set(d) == DEVICE_KEYS
        assert d["is_available"] is True and d["error_message"] is None
        numbers = [d[k] for k in DEVICE_KEYS - {"name", "is_available", "error_message"}]
        assert all(type(n) is int for n in numbers), d
        assert abs(d["free_memory_mb"] + d["used_memory_mb"] - d["total_memory_mb"]) < 1024


def test_a_lost_gpu_stays_in_the_list():
    with Service("lost-gpu") as s:
        s.wait(lambda: not all(d["is_available"] for d in s.get("/api/gpu/devices").json()["devices"]))
        doc = s.get("/api/gpu/devices").json()
        bad = [d for d in doc["devices"] if not d["is_available"]]
        assert doc["count"] == len(doc["devices"])
        assert all(d["error_message"] and d["utilization_percent"] is None for d in bad)
        assert s.get("/healthz").status_code == 200


@pytest.mark.parametrize("scenario", ["no-driver", "version-mismatch", "stub"])
def test_without_a_driver_lists_are_empty_and_only_readiness_is_red(scenario):
    with Service(scenario) as s:
        assert s.get("/api/gpu/devices").json() == {"devices": [], "count": 0}
        driver = s.get("/api/gpu/driver").json()
        assert all(driver[k] is None for k in DRIVER_KEYS) and driver["error_message"]
        assert s.get("/healthz").status_code == s.get("/livez").status_code == 200
        ready = s.get("/readyz")
        assert ready.status_code == 503 and ready.json()["detail"] == driver["error_message"]
        assert "Retry-After" in ready.headers
        window = s.post("/api/v1/windows")
        assert window.status_code == 503 and window.json()["remedy"]


def test_a_driver_without_a_gpu_is_ready():
    with Service("no-gpu") as s:
        assert s.get("/api/gpu/devices").json() == {"devices": [], "count": 0}
        assert s.get("/readyz").status_code == 200


def test_many_clients_may_request_the_driver_document_at_once(live):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        docs = [f.result().json() for f in [pool.submit(live.get, "/api/gpu/driver") for _ in range(100)]]
    assert all(d == docs[0] for d in docs) and set(docs[0]) == DRIVER_KEYS


def test_snapshot_and_environment_are_the_documents_of_the_commands(live):
    check("snapshot", live.get("/api/v1/snapshot").json())
    check("env", live.get("/api/v1/environment").json())


def test_a_gpu_is_found_by_each_of_its_names(live):
    d = live.get("/api/v1/devices").json()["devices"][1]
    for name in ("1", d["uuid"], d["uuid"][:12], d["pci_bus_id"]):
        assert live.get(f"/api/v1/devices/{name}").json()["uuid"] == d["uuid"], name
    missing = live.get("/api/v1/devices/7").json()
    assert d["uuid"] in missing["detail"] and missing["remedy"]


def test_a_filter_shows_the_gpus_it_names(live):
    doc = live.get("/api/v1/snapshot?gpu=1&processes=0").json()
    assert [d["index"] for d in doc["devices"]] == [1] and "processes" not in doc


def test_a_wrong_parameter_is_named_with_the_right_one(live):
    got = live.get("/api/v1/series?quantiti=power_watts")
    assert got.status_code == 400 and 'did you mean "quantity"' in got.json()["detail"]
    got = live.get("/api/v1/series?quantity=power_wats")
    assert got.status_code == 404 and 'did you mean "power_watts"' in got.json()["detail"]


def test_series_have_the_readings_since_the_start(live):
    query = "/api/v1/series?gpu=0&quantity=power_watts,temperature_gpu_celsius&from=-5m"
    live.wait(lambda: len(live.get(query).json()["series"][0]["time"]) >= 3)
    doc = live.get(query).json()
    assert [b["quantity"] for b in doc["series"]] == ["power_watts", "temperature_gpu_celsius"]
    for b in doc["series"]:
        assert len(b["time"]) == len(b["mean"]) == len(b["min"]) == len(b["max"])
        assert b["time"] == sorted(b["time"]) and abs(b["time"][-1] - time.time()) < 60
        assert all(low <= mean <= high for low, mean, high in zip(b["min"], b["mean"], b["max"]))


def test_a_window_gives_the_energy_of_its_parts(live):
    made = live.post("/api/v1/windows", token=True,
                     json={"label": "run", "gpus": ["0"], "tags": {"model": "m"}})
    assert made.status_code == 201
    path = made.headers["Location"]

    def more(samples=40):
        """Waits until the window has this many more samples."""
        def collected():
            return live.get(path).json()["devices"][0]["samples"]["collected"]
        before = collected()
        live.wait(lambda: collected() >= before + samples)
    for label in ("prefill", "decode"):
        more()
        assert live.post(path + "/marks", token=True, json={"label": label}).status_code == 201
    more()
    doc = live.post(path + "/stop", token=True).json()
    assert doc["state"] == "ended" and doc["simulated"] and doc["tags"] == {"model": "m"}
    assert [p["label"] for p in doc["parts"]] == [None, "prefill", "decode"]
    assert [d["index"] for d in doc["devices"]] == [0]
    best = doc["energy_joules"]["best"]
    parts = sum(p["devices"][0]["energy_joules"]["best"] for p in doc["parts"])
    assert best > 0 and abs(parts / best - 1) < 0.1
    assert abs(sum(p["seconds"] for p in doc["parts"]) - doc["seconds"]) < 1e-6
    mean = doc["devices"][0]["power_watts"]["mean"]
    assert abs(mean * doc["seconds"] / best - 1) < 0.2
    assert live.get(path).json() == doc
    assert live.post(path + "/stop", token=True).json() == doc


def test_windows_that_ended_outlive_the_service():
    with Service("two-gpus") as s:
        path = s.post("/api/v1/windows", json={"label": "kept"}).headers["Location"]
        doc = s.post(path + "/stop").json()
        s.restart(signal.SIGKILL)
        s.wait(lambda: s.get(path).status_code == 200)
        assert s.get(path).json() == doc
        assert s.ask("DELETE", path).status_code == 204
        assert s.get(path).status_code == 404
        other = s.post("/api/v1/windows").headers["Location"]
        assert s.ask("DELETE", other).status_code == 204
        s.restart(signal.SIGKILL)
        s.ticks()
        assert s.get(path).status_code == s.get(other).status_code == 404


def test_a_large_window_outlives_the_service_whole():
    with Service("eight-gpus") as s:
        path = s.post("/api/v1/windows", json={"label": "large"}).headers["Location"]
        with requests.Session() as session:
            for i in range(256):
                mark = session.post(s.url + path + "/marks", json={"label": f"step {i}"}, timeout=TIMEOUT)
                assert mark.status_code == 201 and mark.json()["marks"] == i + 1 and len(mark.content) < 500
        doc = s.post(path + "/stop").json()
        assert len(doc["parts"]) == 257 and not doc["parts_left_out"] and len(doc["devices"]) == 8
        listed = s.get("/api/v1/windows").json()["windows"][0]
        short = {k: v for k, v in doc.items() if k != "details"}
        assert len(doc["details"]) == 8 and listed == {**short, "parts_left_out": True, "parts": []}
        s.kept(doc["id"], doc["end_time"])
        s.restart(signal.SIGKILL)
        s.wait(lambda: s.get(path).status_code == 200)
        assert s.get(path).json() == doc


def test_a_window_too_large_for_its_parts_has_its_result():
    with Service("sixty-four") as s:
        path = s.post("/api/v1/windows").headers["Location"]
        with requests.Session() as session:
            for i in range(256):
                assert session.post(s.url + path + "/marks", json={"label": "m"}, timeout=TIMEOUT).status_code == 201
        s.wait(lambda: s.get(path).json()["energy_joules"])
        doc = s.post(path + "/stop").json()
        assert doc["parts_left_out"] and doc["parts"] == [] and doc["marks"] == 256
        assert doc["energy_joules"]["best"] > 0 and len(doc["devices"]) == len(doc["details"]) == 64


def test_a_window_that_was_open_at_kill_9_is_reported():
    with Service("two-gpus") as s:
        doc = s.post("/api/v1/windows", json={"label": "cut short"}).json()
        path = "/api/v1/windows/" + doc["id"]
        for _ in range(2):  # the second restart changes nothing
            s.restart(signal.SIGKILL)
            s.wait(lambda: s.get(path).status_code == 200)
            now = s.get(path).json()
            assert now["state"] == "ended" and now["ended_by"] == "crash" and now["validity"] == "no-result"
            assert [now[k] for k in ("label", "begin_time", "simulated")] == ["cut short", doc["begin_time"], True]
            assert now["end_time"] is None and now["seconds"] is None and now["energy_joules"] is None
            assert now in s.get("/api/v1/windows").json()["windows"]
            said = [e for e in s.get("/api/v1/events").json()["events"] if "when the service crashed" in e["text"]]
            assert len(said) == 1 and doc["id"] in said[0]["text"] and said[0]["severity"] == "warning"


@pytest.mark.parametrize("by, seconds", [("limit", 1), ("lease", 2)])
def test_a_window_ends_at_its_limit_or_with_its_lease_which_lists_do_not_renew(by, seconds):
    with Service("two-gpus") as s:
        path = s.post("/api/v1/windows", json={f"{by}_seconds": seconds}).headers["Location"]
        s.wait(lambda: s.get("/api/v1/windows?state=open").json()["windows"] == [])
        doc = s.get(path).json()
        assert (doc["state"], doc["ended_by"]) == ("ended", by) and abs(doc["seconds"] - seconds) < 1e-6


def test_with_a_token_configured_windows_need_it(live):
    got = live.post("/api/v1/windows")
    assert got.status_code == 401 and "Bearer" in got.headers["WWW-Authenticate"]


def messages(response):
    """Yields (name, id, data) of the messages of a stream for a limited time."""
    name = number = None
    end = time.monotonic() + TIMEOUT
    for line in response.iter_lines(decode_unicode=True, chunk_size=1):
        assert time.monotonic() < end, "the message did not come in time"
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("id:"):
            number = int(line[3:])
        elif line.startswith("data:"):
            yield name, number, json.loads(line[5:])
            name = number = None


def test_the_stream_has_ticks_events_and_windows(live):
    with live.get("/api/v1/events", headers={"Accept": "text/event-stream"}, stream=True) as r:
        assert r.headers["Content-Type"].startswith("text/event-stream")
        path = live.post("/api/v1/windows", token=True, json={"label": "seen"}).headers["Location"]
        live.post(path + "/stop", token=True)
        seen = {}
        for name, number, data in messages(r):
            seen.setdefault(name, []).append((number, data))
            states = [d["state"] for _, d in seen.get("window", []) if d["label"] == "seen"]
            if "tick" in seen and "event" in seen and states[-1:] == ["ended"]:
                break
    assert states == ["open", "ended"]
    tick = seen["tick"][0][1]
    assert tick["ready"] is True and {d["index"] for d in tick["devices"]} == {0, 1}
    assert all(d["power_watts"] > 0 for d in tick["devices"])
    assert any("seen ended" in d["text"] for _, d in seen["event"])


def test_a_client_that_comes_back_gets_what_it_missed(live):
    path = live.post("/api/v1/windows", token=True, json={"label": "missed"}).headers["Location"]
    live.post(path + "/stop", token=True)
    listed = live.get("/api/v1/events?limit=2").json()["events"]
    assert [e["kind"] for e in listed] == ["window", "window"]
    before = {"Accept": "text/event-stream", "Last-Event-ID": str(listed[0]["id"])}
    with live.get("/api/v1/events?topics=event", headers=before, stream=True) as r:
        name, number, data = next(messages(r))
    assert (name, number) == ("event", listed[1]["id"]) and data == listed[1]


def test_letting_go_closes_and_resuming_opens_again():
    with Service("two-gpus", token=True) as s:
        doc = s.post("/api/v1/let-go", token=True).json()
        assert doc["let_go"] is True and {d["state"] for d in doc["devices"]} == {"closed"}
        assert "released" in s.get("/readyz").json()["detail"]
        assert s.post("/api/v1/windows", token=True).json()["type"].endswith("let-go")
        assert not any(d["is_available"] for d in s.get("/api/gpu/devices").json()["devices"])
        assert s.post("/api/v1/let-go", token=True).status_code == 200  # the same again
        assert s.post("/api/v1/resume", token=True).json()["let_go"] is False
        s.wait(lambda: s.get("/readyz").status_code == 200)
        assert s.post("/api/v1/windows", token=True).status_code == 201


def test_a_driver_call_that_hangs_is_named_and_nothing_else_stops(tmp_path):
    scenario = tmp_path / "hang.toml"
    scenario.write_text('[[gpu]]\nprofile = "h200"\ncount = 2\n[[fault]]\nfrom = 3\ngpu = 1\n'
                        'call = "nvmlDeviceGetUtilizationRates"\nhang = true\n')
    with Service(scenario, config='[device]\ntimeout = "0.5s"\n') as s:
        s.wait(lambda: s.get("/readyz").status_code == 503)
        s.wait(lambda: "nvmlDeviceGetUtilizationRates" in s.get("/readyz").json()["detail"])
        verbose = s.get("/readyz?verbose")
        assert verbose.status_code == 503 and "[-] GPU 1 stalled" in verbose.text
        for path in ("/healthz", "/metrics", "/api/gpu/devices", "/api/v1/snapshot"):
            assert s.get(path, timeout=5).status_code == 200
        doc = s.get("/api/gpu/devices").json()
        assert [d["is_available"] for d in doc["devices"]] == [True, False]
