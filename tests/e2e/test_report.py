"""Tests report and plot: each writes one well-formed file that shows the content of the results."""
import re
import subprocess
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from support import FAILED, OK, PROGRAM, TOP, USAGE, environment, gpuward
from synthetic import needs_reader, result, save

pytestmark = needs_reader

VOID = {"meta"}
SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>alert('x')</script> & \"quoted\" ]]> \u2028 \u202e"


def run(command, *args, code=OK):
    done = gpuward(command, *args)
    assert done.returncode == code, done.stderr
    return done


class Page(HTMLParser):
    """A parsed page. Checks that tags open and close in order, and keeps what the tests compare."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text, self.attrs = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attrs.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attrs.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    def words(self):
        return " ".join(self.text)


@pytest.fixture
def pair(tmp_path):
    return [
        save(tmp_path, "a.json", result("fp32", power=400, trials=2, spread=0.01)),
        save(tmp_path, "b.json", result("fp16", power=300, codes=("throttle-power",))),
    ]


def test_the_page_is_whole_and_needs_nothing_else(tmp_path, pair):
    out = tmp_path / "report.html"
    done = run("report", *pair, "-o", out)
    assert done.stdout == "" and done.stderr == ""
    text = out.read_text()
    page = Page(text)
    assert "script" not in page.tags and "link" not in page.tags and "img" not in page.tags
    for tag, attrs in page.attrs:
        assert not {"src", "href", "onload", "onclick"} & set(attrs), tag
    assert not re.search(r"url\(|@import", text)
    assert "default-src 'none'" in text
    for media in ("prefers-color-scheme:dark", "@media print", "max-width:40rem"):
        assert media in text


def test_a_change_has_a_colour_where_its_runs_allow_one(tmp_path):
    """Nothing is green if each row has one run, because it is unknown how much runs vary, or if the trials vary widely."""
    b = save(tmp_path, "b.json", result("fp16", power=300))
    for more, green in (({}, False), ({"trials": 4, "spread": 0.3}, False), ({"trials": 4, "spread": 0.001}, True)):
        page = run("report", save(tmp_path, "a.json", result("fp32", power=400, **more)), b, "-o", "-").stdout
        assert ("i good" in page) == green, more
        assert ("Each row has one run, so the variation between runs is unknown" in page) == (not more)


def test_a_sum_over_gpus_is_called_a_sum(tmp_path):
    words = Page(run("report", save(tmp_path, "two.json", result("two", gpus=2))).stdout).words()
    assert "2; power and energy are sums over them" in words


def test_the_report_shows_how_the_numbers_were_measured(pair):
    words = Page(run("report", *pair).stdout).words()
    for part in ("fp32", "fp16", "agree", "NVIDIA H200", "580.159.04",
                 "throttle-power", "the power limit slowed the clocks", "24.8 %", "no-context",
                 "coverage", "100.0 %", "assumed", "6.1.0", "prefill", "Trial 2",
                 "Environment: the same as that of", "3.750 J"):
        assert part in words, part
    assert "counter; measured with: energy counter and the driver's ring buffer of power samples" in words
    assert "rung" not in words


def test_the_report_says_that_samples_are_scaled_to_the_counter(tmp_path):
    doc = result("a")
    assert "multiplied by" not in Page(run("report", save(tmp_path, "a.json", doc)).stdout).words()
    doc["runs"][0]["devices"][0].update(meter="samples", anchor_ratio=1.0025)
    words = Page(run("report", save(tmp_path, "a.json", doc)).stdout).words()
    assert ("the energy of the samples is multiplied by 1.0025, the ratio of counter to samples in a longer time around "
            "or before the window") in words


def test_the_sensor_is_one_short_line_about_the_source_that_was_used(tmp_path):
    doc = result("a")
    device = doc["runs"][0]["devices"][0]
    words = Page(run("report", save(tmp_path, "a.json", doc)).stdout).words()
    assert ("sensor not characterised, ring, new value every 20 ms, averaged over 13.5 ms, delay 17 ms, "
            "counter every 99 ms") in words
    assert "vbios" not in words and "lowpass" not in words
    device["rung"] = "counter+polled"
    device["sensor"]["counter"]["tick_seconds"] = None
    words = Page(run("report", save(tmp_path, "a.json", doc)).stdout).words()
    assert "sensor not characterised, instant, new value every 100 ms, averaged over 25 ms, delay 12.5 ms" in words
    assert "counter every" not in words


def shaded(svg):
    """Returns the position of the shaded part as a time on the axis, and the labels of the axis there."""
    root = ET.fromstring(svg.encode())
    ticks = sorted((float(t.get("x")), float(t.text)) for t in root.iter(SVG + "text")
                   if t.get("text-anchor") == "middle" and re.fullmatch(r"-?[\d.]+", t.text or ""))
    (x0, t0), (x1, t1) = ticks[0], ticks[-1]
    rect = [r for r in root.iter(SVG + "rect") if r.get("class") == "win"][0]
    at = lambda x: t0 + (x - x0) * (t1 - t0) / (x1 - x0)
    left = float(rect.get("x"))
    return at(left), at(left + float(rect.get("width")))


@pytest.mark.parametrize("zero", [0.0, 4.0])
def test_a_part_is_what_is_shaded_and_begins_at_zero(tmp_path, zero):
    """Series and windows of a file have the same zero: the beginning of the command or of the part."""
    doc = result("a", seconds=12.0)
    one = doc["runs"][0]
    one["part"], one["seconds"] = "inference", 5.0
    one["windows"] = [
        {"label": "load", "begin_seconds": 0.5 - zero, "seconds": 3.0, "devices": []},
        {"label": "inference", "begin_seconds": 4.0 - zero, "seconds": 5.0, "devices": []},
        {"label": "inference", "begin_seconds": 10.0 - zero, "seconds": 1.0, "devices": []}]
    watts = [300.0 if 4 <= i * 0.1 < 9 else 100.0 for i in range(120)]
    one["devices"][0]["series"]["power"] = {
        "t_seconds": [round(i * 0.1, 6) for i in range(120)], "watts": watts,
        "begin_seconds": -zero}
    path = save(tmp_path, "a.json", doc)
    svg = run("plot", path).stdout
    begin, end = shaded(svg)
    assert begin == pytest.approx(0, abs=0.05) and end == pytest.approx(5, abs=0.05)
    kept, _ = points(svg)
    rise = min(x for x, y in kept if y < min(p[1] for p in kept) + 1)
    rect = [r for r in ET.fromstring(svg.encode()).iter(SVG + "rect")
            if r.get("class") == "win"][0]
    assert rise == pytest.approx(float(rect.get("x")), abs=2)
    words = " ".join(Page(run("report", path).stdout).words().split())
    assert "Trial 1 (inference)" in words
    assert "load -3.500 s 3.000 s" in words and "inference 0.000 s 5.000 s" in words


def test_charts_and_tables_have_texts_for_screen_readers(pair):
    page = Page(run("report", *pair).stdout)
    svgs = [a for t, a in page.attrs if t == "svg"]
    # energy once, power and temperature for each of three runs, each for screen and phone
    assert len(svgs) == 2 * (1 + 2 * 3)
    assert all(a.get("role") == "img" for a in svgs)
    assert page.tags.count("desc") == len(svgs)
    assert page.tags.count("figcaption") == page.tags.count("figure") == 4
    assert all("scope" in a for t, a in page.attrs if t == "th")
    assert [a.get("lang") for t, a in page.attrs if t == "html"] == ["en"]


def test_no_text_of_a_result_becomes_markup(tmp_path):
    doc = result(EVIL, codes=("short",), simulated=True)
    doc["tags"] = {EVIL: EVIL}
    doc["command_name"] = EVIL
    doc["environment"]["host"]["kernel"] = EVIL
    doc["runs"][0]["codes"][0]["evidence"] = EVIL
    doc["runs"][0]["windows"][0]["label"] = EVIL
    for key in ("name", "uuid", "meter", "rung", "verdict", "driver_version", "provenance"):
        doc["runs"][0]["devices"][0][key] = EVIL
    doc["runs"][0]["devices"][0]["sensor"] = {EVIL: EVIL, "origin": EVIL}
    doc["runs"][0]["part"] = EVIL
    ticks = doc["runs"][0]["devices"][0]["series"]["ticks"]
    ticks["throttle"] = [EVIL] * len(ticks["t_seconds"])
    path = save(tmp_path, "a.json", doc)
    page = Page(run("report", path, "--title", EVIL).stdout)
    assert "script" not in page.tags
    assert EVIL in page.words()
    ET.fromstring(run("plot", path, "--title", EVIL).stdout.encode())


def test_bytes_that_are_no_text_are_replaced(tmp_path):
    path = save(tmp_path, "a.json", result("a\u0001b\u007f"))
    for command in ("report", "plot"):
        done = subprocess.run([PROGRAM, command, path, "--title", b"x\xff\xc3<\x1by"],
                              capture_output=True, env=environment())
        assert done.returncode == OK
        text = done.stdout.decode("utf-8")  # raises if it is not UTF-8
        assert "x\ufffd\ufffd&lt;\ufffdy" in text
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", text)
    ET.fromstring(done.stdout)


def points(svg, line=0):
    root = ET.fromstring(svg.encode())
    paths = [p for p in root.iter(SVG + "path") if p.get("class", "").startswith("line")]
    numbers = re.findall(r"[ML]([\d.-]+) ([\d.-]+)", paths[line].get("d"))
    return [(float(x), float(y)) for x, y in numbers], root


def with_power(watts, step=0.02, seconds=None):
    doc = result("a")
    run_ = doc["runs"][0]
    run_["seconds"] = seconds or len(watts) * step
    run_["devices"][0]["series"]["power"] = {
        "t_seconds": [i * step for i in range(len(watts))], "watts": watts, "begin_seconds": 0,
    }
    return doc


def test_a_single_sample_in_a_day_of_them_stays_visible(tmp_path):
    watts = [100.0] * 200000
    watts[123456] = 650.0
    watts[60000] = 2.0
    svg = run("plot", save(tmp_path, "a.json", with_power(watts))).stdout
    kept, _ = points(svg)
    ys = [y for _, y in kept]
    usual = sorted(ys)[len(ys) // 2]
    assert min(ys) < usual - 100 and max(ys) > usual + 20
    peak = min(kept, key=lambda p: p[1])[0]
    left, right = kept[0][0], kept[-1][0]
    assert (peak - left) / (right - left) == pytest.approx(123456 / 199999, abs=0.002)
    assert len(svg) < 100000


def test_short_series_are_drawn_point_by_point(tmp_path):
    watts = [100.0, 300.0, 200.0, 250.0]
    kept, _ = points(run("plot", save(tmp_path, "a.json", with_power(watts, step=1))).stdout)
    assert len(kept) == 4
    ys = [y for _, y in kept]
    assert [sorted(ys, reverse=True).index(y) for y in ys] == [0, 3, 1, 2]


def test_a_hole_is_not_bridged(tmp_path):
    doc = with_power([100.0] * 100, step=0.1)
    power = doc["runs"][0]["devices"][0]["series"]["power"]
    power["t_seconds"] = [t if t < 5 else t + 50 for t in power["t_seconds"]]
    power["watts"][20] = None
    svg = run("plot", save(tmp_path, "a.json", doc)).stdout
    root = points(svg)[1]
    line = [p for p in root.iter(SVG + "path") if p.get("class", "").startswith("line")][0]
    assert line.get("d").count("M") == 3


def test_trials_share_a_colour_and_labels_do_not_overlap(tmp_path):
    paths = [
        save(tmp_path, f"{i}.json", result(f"label {i}", power=300 + i / 10, trials=2))
        for i in range(9)
    ]
    _, root = points(run("plot", *paths).stdout)
    classes = [p.get("class") for p in root.iter(SVG + "path")]
    assert sum(c.startswith("line") for c in classes) == 18
    texts = [t for t in root.iter(SVG + "text") if "".join(t.itertext()).count("label") > 0]
    assert len(texts) == 9
    ys = sorted(float(t.get("y")) for t in texts)
    assert all(b - a >= 12 for a, b in zip(ys, ys[1:]))


def test_axis_numbers_do_not_overlap(tmp_path):
    for seconds in (0.005, 1, 12.5, 700, 90000):
        doc = with_power([100.0, 200.0, 300.0], step=seconds / 2, seconds=seconds)
        _, root = points(run("plot", save(tmp_path, "a.json", doc)).stdout)
        middle = [t for t in root.iter(SVG + "text") if t.get("text-anchor") == "middle"]
        assert 3 <= len(middle) <= 20
        spans = [(float(t.get("x")), 3.5 * len(t.text)) for t in middle]
        for (a, wa), (b, wb) in zip(spans, spans[1:]):
            assert a + wa < b - wb


def test_a_plot_of_simulated_results_is_marked_in_the_picture(tmp_path):
    real = save(tmp_path, "real.json", result("real", simulated=False))
    made = save(tmp_path, "made.json", result("made", simulated=True))
    for paths, mark in (((real,), []), ((made,), ["SIMULATED"]), ((real, made), ["PARTLY SIMULATED"])):
        _, root = points(run("plot", *paths).stdout)
        assert [t.text for t in root.iter(SVG + "text") if t.get("class") == "mark"] == mark
        description = root.find(SVG + "desc").text
        assert ("simulated" in description) == bool(mark)


def test_strips_of_a_plot_have_other_colours_than_lines():
    style = (TOP / "src/cli/plot.c").read_text()
    lines = set(re.findall(r"--c\d:(#\w+)", style))
    strips = re.findall(r"--(?:held|hot):(#\w+)", style)
    assert len(lines) > 7 and len(strips) == 6 and not lines & set(strips)


def test_throttling_is_a_strip_below(tmp_path):
    held = save(tmp_path, "a.json", result("a", codes=("throttle-power",)))
    free = save(tmp_path, "b.json", result("b"))
    for path, count in ((held, 1), (free, 0)):
        _, root = points(run("plot", path).stdout)
        rects = [r for r in root.iter(SVG + "rect") if r.get("class") == "held"]
        assert len(rects) == count
    doc = result("c")
    ticks = doc["runs"][0]["devices"][0]["series"]["ticks"]
    n = 50000
    ticks["t_seconds"] = [i * 12.5 / n for i in range(n)]
    ticks["throttle"] = ["power_cap" if i % 3 else "" for i in range(n)]
    svg = run("plot", save(tmp_path, "c.json", doc)).stdout
    assert svg.count('class="held"') < 1000


@pytest.mark.parametrize("command", ["report", "plot"])
def test_output_that_cannot_be_written_is_reported(command, tmp_path, pair):
    done = run(command, pair[0], "-o", "/dev/full", code=FAILED)
    assert done.stderr == "gpuward: /dev/full cannot be written: No space left on device\n"
    old = tmp_path / "old.html"
    old.write_text("old")
    run(command, pair[0], "-o", old)
    assert "<svg" in old.read_text()
    assert [p.name for p in tmp_path.iterdir() if "old" in p.name] == ["old.html"]
    run(command, pair[0], "-o", pair[0], code=USAGE)


def test_nothing_to_plot_is_reported(tmp_path):
    path = save(tmp_path, "a.json", result("a", series=False))
    assert "nothing to plot" in run("plot", path, code=FAILED).stderr
    assert "no samples over time" in Page(run("report", path).stdout).words()


def test_report_of_different_gpus_needs_to_be_asked_for(tmp_path, pair):
    other = save(tmp_path, "c.json", result("c", name="NVIDIA L4", uuid="GPU-x"))
    run("report", *pair, other, code=USAGE)
    assert "do not cancel" in run("report", *pair, other, "--across-gpus").stdout
    run("plot", *pair, other)  # plot draws the runs over each other and does not compare them


def test_every_picture_of_a_report_marks_simulated_results(tmp_path):
    made, real = (save(tmp_path, f"{n}.json", result(n, simulated=n == "made")) for n in ("made", "real"))
    for args, pictures in (((made,), [">SIMULATED<"]), ((real,), [None]), ((made, real), [">PARTLY SIMULATED<", ">SIMULATED<", None])):
        drawn = re.findall(r"<svg.*?</svg>", run("report", *args).stdout, re.S)
        marks = {m[0] if (m := re.search(r">[A-Z ]*SIMULATED<", svg)) else None for svg in drawn}
        assert drawn and marks == set(pictures), args


def test_a_report_of_simulated_gpus_begins_with_the_mark(tmp_path):
    words = Page(run("report", save(tmp_path, "a.json", result("a", simulated=True))).stdout).words()
    assert words.index("The GPUs of this page are not real") < words.index("Comparison")


def test_a_report_is_not_wider_than_a_phone(tmp_path):
    from test_page import Page as Browsed, browser  # skips this test if there is no Chromium
    doc = result("a")
    doc["environment"]["host"]["kernel_command_line_of_this_machine"] = "/boot/vmlinuz-" + "x" * 60
    path = tmp_path / "report.html"
    path.write_text(run("report", save(tmp_path, "a.json", doc)).stdout)
    with browser() as driver:
        page = Browsed(driver)
        page.cdp("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
        driver.get(path.as_uri())
        assert page.js("document.documentElement.scrollWidth") <= 390


def test_a_report_of_long_runs_stays_small(tmp_path):
    doc = with_power([300.0 + (i * 7919 % 100) for i in range(300000)])
    assert len(run("report", save(tmp_path, "a.json", doc)).stdout) < 150000


def test_the_report_shows_which_workers_were_held_evicted_and_whether_that_lasted(tmp_path):
    def room(broken):
        return {"kept": broken is None, "waited_seconds": 1.0, "workers": [
            {"name": "ollama <1>", "state_before": "active", "hold_before": "none",
             "hold_before_seconds": None, "held_by": "measurement", "broken": None},
            {"name": "vllm", "state_before": "evicted", "hold_before": "evicted",
             "hold_before_seconds": None, "held_by": "others", "broken": broken}]}

    paths = []
    for name, broken in (("a", None), ("b", "it came back after 4 s"), ("c", "")):
        doc = result(name, series=False)
        if name != "c":
            doc["clean_room"] = room(broken)
        paths.append(save(tmp_path, f"{name}.json", doc))
    page = Page(run("report", *paths).stdout)
    words = " ".join(page.words().split())
    badges = [t for t in page.text if t in ("clean room", "clean room lost", "no clean room")]
    assert badges == ["clean room", "clean room lost", "no clean room"]
    assert "Clean room, kept: ollama <1> was kept off the GPUs; vllm was kept off the GPUs (someone else already held it)." in words
    assert ("Clean room, not kept: ollama <1> was kept off the GPUs; "
            "vllm was kept off the GPUs (someone else already held it), but it came back after 4 s.") in words
    assert "(a: 1 of 1, b: 0 of 1, c: 0 of 1)" in words
    plain = Page(run("report", paths[2]).stdout).words().lower()
    assert "clean room" not in plain
