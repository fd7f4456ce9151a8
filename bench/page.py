"""Compares /metrics under load with nginx and the same bytes: requests per second, CPU per request and 99th percentile.

The target is for requests per second of CPU time.  Requests per second of wall time depend on what else runs during a
turn.  Both servers have one thread, so without other work both ratios should agree.

Rows with "gzip" make the request that Prometheus makes.  nginx then sends a file that was compressed before (gzip_static, the
harder comparison), or compresses for each request (gzip on, the usual configuration)."""
import gzip
import shutil
import time

import peers

CASES = (("h200", None, "1 GPU"), ("eight-gpus", None, "8 GPUs"), ("eight-gpus", "*", "8 GPUs, all metrics"),
         ("sixty-four", None, "64 GPUs"))
ASK = ("Accept-Encoding: gzip",)


def settled(service):
    """Returns the page when it has its final length: some figures appear only after ten seconds."""
    size, same, end = 0, 0, time.monotonic() + 30
    while same < 8 and time.monotonic() < end:
        page = peers.fetch(service.url + "/metrics")
        same = same + 1 if abs(len(page) - size) < 0.002 * len(page) else 0
        size = len(page)
        time.sleep(1)
    return page, peers.fetch(service.url + "/metrics", {"Accept-Encoding": "gzip"})


def one_turn(url, pid, seconds, connections=64, headers=()):
    """Returns requests per second, requests per second of CPU time, and the 99th percentile in ns."""
    cpu, begin = peers.cpu_seconds(pid), time.monotonic()
    rate, p99 = peers.wrk(url, seconds, connections, headers)
    return rate, rate * (time.monotonic() - begin) / (peers.cpu_seconds(pid) - cpu), p99 * 1e9


def turns(ours, theirs, path, seconds, rounds, headers=()):
    """Measures gpuward and nginx in turn.  Returns {figure: (values of gpuward, values of nginx)}."""
    pairs = [[one_turn(s.url + path, s.pid, seconds, headers=headers) for s in (ours, theirs)] for _ in range(rounds)]
    return {name: ([a[i] for a, _ in pairs], [b[i] for _, b in pairs]) for i, name in enumerate(("rate", "per CPU second", "p99"))}


def compare(table, where, what, peer, t, target=None):
    table.turns(where, what, "per s", peer, *t["rate"])
    table.turns(where, "  the same, per second of CPU time", "per s", peer, *t["per CPU second"], target, "least")
    table.turns(where, "  p99", "ns", peer, *t["p99"])


def section(table, build, quick):
    seconds, rounds = (1, 3) if quick else (2, 7)
    for need in ("nginx", "wrk"):
        if not shutil.which(need):
            table.skip(need, "tools/deps bench")
            return
    for scenario, include, label in CASES:
        with peers.Service(build, scenario, env={"GPUWARD_METRICS_INCLUDE": include} if include else {}) as s:
            plain, packed = settled(s)
            bodies = {"metrics": plain, "metrics.gz": packed}
            for kind, directive, name, target in (
                    ("plain", "gzip off;", "nginx", 1.0),
                    ("gzip", "gzip_static on;", "nginx, .gz file", 1.0),
                    ("gzip", "gzip on; gzip_types *;", "nginx, gzip on", None)):
                if directive.startswith("gzip on") and label != "8 GPUs":
                    continue
                with peers.Nginx({"metrics": plain} if directive.startswith("gzip on") else bodies, directive) as n:
                    got = peers.fetch(n.url + "/metrics", {"Accept-Encoding": "gzip"} if kind == "gzip" else {})
                    if (gzip.decompress(got) if kind == "gzip" else got)[:1000] != plain[:1000] and kind == "plain":
                        raise RuntimeError("nginx does not serve the same bytes")
                    t = turns(s, n, "/metrics", seconds, rounds, ASK if kind == "gzip" else ())
                size = (len(packed) if kind == "gzip" else len(plain)) / 1000
                compare(table, "/metrics", f"{label}, {kind}, {size:.0f} kB", name, t, target)
