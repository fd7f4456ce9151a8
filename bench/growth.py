"""Measures what 1 to 64 GPUs and 1 to 1000 clients cost.  Writes rows of the table, growth.csv, and two pictures.

GPUs: gpuward, the Python exporter and nvidia-smi started for each scrape, as in exporters.py.  Clients: connections that request
/metrics of 8 GPUs (gzip) without a pause from gpuward, from nginx with the same bytes in a file, and from the Python exporter;
and clients of event streams."""
import contextlib
import csv
import math
import os
import shutil
import statistics

import exporters
import page
import peers
import service

GPUS = (1, 2, 4, 8, 16, 32, 64)
CLIENTS = (1, 10, 100, 1000)
NAMES = {"gpuward": "gpuward", "Python": "Python exporter", "nvidia-smi method": "nvidia-smi per scrape", "nginx": "nginx, same bytes"}
COLOURS = {"gpuward": "#1f6feb", "Python": "#d1690e", "nvidia-smi method": "#6e7781", "nginx": "#1a7f37"}
# Each row: name of the figure, title and unit of its panel, and the factor from the measured value to that unit.
GPU_PANELS = (("share", "CPU, one scrape/s", "% of a core", 100), ("memory", "Memory", "MiB", 2**-20),
              ("p50", "Time of a scrape, median", "ms", 1e-6))
CLIENT_PANELS = (("rate", "Requests per second", "", 1), ("per_cpu", "Requests per second of CPU time", "", 1),
                 ("p99", "Slowest hundredth", "ms", 1e-6), ("memory", "Memory, all clients asking", "MiB", 2**-20),
                 ("stream_share", "CPU, event streams", "% of a core", 100), ("stream_memory", "Memory, event streams", "MiB", 1))


def by_gpus(build, quick):
    """Returns {program: {figure: [(GPUs, value)]}}."""
    out = {}
    for gpus in GPUS:
        result = exporters.measured(build, gpus, *((1, 2, 10) if quick else (3, 5, 25)))
        for name, figures in result.items():
            for key, *_ in GPU_PANELS:
                out.setdefault(name, {}).setdefault(key, []).append((gpus, statistics.median(figures[key])))
    return out


def by_clients(table, build, quick):
    """Returns {program: {figure: [(clients, value)]}}."""
    seconds, rounds = (1, 1) if quick else (2, 5)
    out = {}

    def note(name, key, clients, value):
        out.setdefault(name, {}).setdefault(key, []).append((clients, value))

    with exporters.all_of(build, 8) as found, contextlib.ExitStack() as stack:
        url = {e.name: f"http://127.0.0.1:{e.connection.port}" for e in found if isinstance(e, exporters.Server)}
        pid = {e.name: e.pid for e in found if isinstance(e, exporters.Server)}
        plain, packed = (peers.fetch(url["gpuward"] + "/metrics", h) for h in ({}, {"Accept-Encoding": "gzip"}))
        nginx = stack.enter_context(peers.Nginx({"metrics": plain, "metrics.gz": packed}, "gzip_static on;"))
        url["nginx"], pid["nginx"] = nginx.url, nginx.pid
        for clients in CLIENTS:
            got = {n: [] for n in url}
            for _ in range(rounds):  # in turns
                for n in url:
                    got[n].append(page.one_turn(url[n] + "/metrics", pid[n], seconds, clients, page.ASK))
            for n, turns in got.items():
                for key, values in zip(("rate", "per_cpu", "p99"), zip(*turns)):
                    if n != "Python" or key != "p99":  # most clients of the Python exporter get no answer within a turn
                        note(n, key, clients, statistics.median(values))
                note(n, "memory", clients, peers.pss_bytes(pid[n]))
    for clients in CLIENTS:
        share, memory, _ = service.stream_cost(build, clients, 3 if quick else 10, "eight-gpus")
        note("gpuward", "stream_share", clients, share)
        note("gpuward", "stream_memory", clients, memory)
    return out


# ---- the picture: one panel per figure, both axes logarithmic

WIDE, HIGH, LEFT, TOP, BOTTOM, GAP = 300, 190, 52, 34, 34, 16


def ticks(low, high):
    """Returns the marks of an axis: 1, 2 and 5 times each power of ten; fewer per power if the axis has many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if len(decades) > 4 else (1, 3) if len(decades) > 3 else (1, 2, 5)
    return [m * 10.0**d for d in decades for m in steps if low * 0.999 <= m * 10.0**d <= high * 1.001]


def spell(value):
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def panel(title, unit, x_label, lines):
    """Returns the SVG of one panel at the origin.  lines is {program: [(x, y)]}."""
    xs = sorted({x for points in lines.values() for x, _ in points})
    ys = [y for points in lines.values() for _, y in points]
    low, high = min(ys) / 1.25, max(ys) * 1.25
    if high / low < 12:  # at least one decade, so that a small change looks small
        low, high = math.sqrt(low * high / 12), math.sqrt(low * high * 12)

    def x_at(x):
        return LEFT + (math.log(x / xs[0]) / math.log(xs[-1] / xs[0])) * (WIDE - LEFT - 10)

    def y_at(y):
        return HIGH - BOTTOM - math.log(y / low) / math.log(high / low) * (HIGH - BOTTOM - TOP)

    out = [f'<text x="{LEFT}" y="18" class="title">{title}{", " + unit if unit else ""}</text>']
    for y in ticks(low, high):
        out.append(f'<path class="grid" d="M{LEFT} {y_at(y):.1f}H{WIDE - 10}"/>'
                   f'<text class="y" x="{LEFT - 6}" y="{y_at(y) + 4:.1f}">{spell(y)}</text>')
    for x in xs:
        out.append(f'<text class="x" x="{x_at(x):.1f}" y="{HIGH - BOTTOM + 16}">{x}</text>')
    out.append(f'<text class="x" x="{(LEFT + WIDE - 10) / 2}" y="{HIGH - 4}">{x_label}</text>')
    for name, points in lines.items():
        at = [f"{x_at(x):.1f} {y_at(y):.1f}" for x, y in points]
        out.append(f'<path d="M{"L".join(at)}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        out.extend(f'<circle cx="{a.split()[0]}" cy="{a.split()[1]}" r="2.6" fill="{COLOURS[name]}"/>' for a in at)
    return "".join(out)


def picture(path, x_label, panels, data):
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = columns * (WIDE + GAP), 30 + rows * (HIGH + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="11"><style>text{fill:#24292f}.title{font-size:13px;font-weight:bold}'
           '.x{text-anchor:middle}.y{text-anchor:end}.grid{stroke:#d8dee4;stroke-width:1}</style>'
           f'<rect width="{width}" height="{height}" fill="#fff"/>']
    x = LEFT
    for name in data:
        out.append(f'<path d="M{x} 18h18" stroke="{COLOURS[name]}" stroke-width="3"/><text x="{x + 24}" y="22">{NAMES[name]}</text>')
        x += 44 + 7 * len(NAMES[name])
    for i, (key, title, unit, factor) in enumerate(panels):
        lines = {n: [(a, b * factor) for a, b in figures[key] if b > 0] for n, figures in data.items() if figures.get(key)}
        out.append(f'<g transform="translate({i % columns * (WIDE + GAP)} {30 + i // columns * (HIGH + GAP)})">'
                   f'{panel(title, unit, x_label, lines)}</g>')
    with open(path, "w") as f:
        f.write("".join(out) + "</svg>\n")


def write(folder, sets):
    """Writes growth.csv and the pictures.  sets has rows (axis, label of the axis, panels, data)."""
    with open(os.path.join(folder, "growth.csv"), "w", newline="") as f:
        rows = csv.writer(f, lineterminator="\n")
        rows.writerow(("axis", "count", "program", "figure", "unit", "value"))
        for axis, label, panels, data in sets:
            for name, figures in data.items():
                for key, title, unit, factor in panels:
                    rows.writerows((axis, x, NAMES[name], title, unit, f"{y * factor:.4g}") for x, y in figures.get(key, ()))
    for axis, label, panels, data in sets:
        picture(os.path.join(folder, f"growth-{axis}.svg"), label, panels, data)


def section(table, build, quick, folder):
    if not shutil.which("nginx") or not shutil.which("wrk"):
        table.skip("nginx and wrk", "tools/deps bench")
        return
    sets = (("gpus", "GPUs", GPU_PANELS, by_gpus(build, quick)), ("clients", "clients", CLIENT_PANELS, by_clients(table, build, quick)))
    if "Python" not in sets[0][3]:
        table.skip("Python exporter: no pynvml with prometheus_client", peers.REMEDY)
    write(folder, sets)
    for axis, label, panels, data in sets:
        for key, title, unit, factor in panels:
            ours = data["gpuward"][key]
            peer = next((n for n in ("Python", "nginx") if data.get(n, {}).get(key)), None)
            for x, value in (ours[0], ours[-1]):
                theirs = dict(data[peer][key])[x] if peer else None
                shown = {"%": ("share", 1), "MiB": ("bytes", factor * 2**20), "ms": ("ns", 1)}.get(unit[:3].rstrip(" o"), ("per s", 1))
                table.row("growth", f"{title}, {x} {label}", value * shown[1], shown[0], peer, theirs and theirs * shown[1])
