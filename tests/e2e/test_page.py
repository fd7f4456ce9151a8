"""Tests the web page in a real Chromium: what people see, hear and type.

The service is `gpuward serve` if the program has it, else mock_service.py; PAGE_SERVICE=mock
selects the latter.  No test asserts a time: wait() only keeps a hang from blocking the run.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import requests

import machine_tree
import support
from support import wait

selenium = pytest.importorskip("selenium", reason="python3-selenium is not installed")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service as Driver  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

if not shutil.which("chromium") or not shutil.which("chromedriver"):
    pytest.skip("chromium and chromium-driver are not installed", allow_module_level=True)
if '"/assets/uplot.js"' not in (support.BUILD / "web" / "assets.c").read_text():
    pytest.skip("the page is built without charts: npm could not download its packages; run make build with a network",
                allow_module_level=True)

SIXTEEN = """
[[gpu]]
profile = "h100"
count = 16
[[gpu.load]]
kind = "square"
high = 0.9
period = 14
"""
TOKEN = "a-token-for-this-test-of-some-length"


def has_serve():
    return os.environ.get("PAGE_SERVICE") != "mock" and \
        support.gpuward("serve", "--help").returncode == support.OK


needs_daemon = pytest.mark.skipif(not has_serve(), reason="the mock has no marks and no history")


class Service:
    """A service that can be killed and started again at the same address.  If even energy windows
    need a token, it is always the mock, because gpuward serve lets every user of this machine measure."""

    def __init__(self, folder, simulate, token=None, history=None, mock=(), ready=True, env=None):
        self.folder, self.simulate, self.token, self.env = folder, simulate, token, env or {}
        self.good = b" 200 " if ready else b"HTTP"
        self.history, self.mock = history or str(folder / "history.db"), list(mock)
        self.port = support.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.child = None
        self.start()

    def command(self):
        if self.token or self.mock or not has_serve():
            mock = support.TOP / "tests" / "e2e" / "mock_service.py"
            token = ["--token", self.token] if self.token else []
            return [sys.executable, str(mock), "--port", str(self.port),
                    "--simulate", self.simulate, *token, *self.mock]
        return [str(support.PROGRAM), "serve", f"--simulate={self.simulate}", "--listen",
                f"127.0.0.1:{self.port}", "--history", self.history]

    def start(self):
        self.child = subprocess.Popen(
            self.command(), env=support.environment(HOME=str(self.folder), **self.env),
            stdout=subprocess.DEVNULL, stderr=open(self.folder / "service.log", "a"),
            start_new_session=True)
        wait(self.answers, f"{self.command()} to answer")

    def answers(self):
        assert self.child.poll() is None, (self.folder / "service.log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as s:
                s.sendall(f"GET /api/v1/snapshot HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
                          "Connection: close\r\n\r\n".encode())
                return self.good in s.recv(64)
        except OSError:
            return False

    def stop(self):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    running = []

    def start(simulate="demo", **more):
        running.append(Service(tmp_path_factory.mktemp("service"), simulate, **more))
        return running[-1]

    yield start
    for s in running:
        s.stop()


@pytest.fixture(scope="module")
def demo(service):
    return service()


# Collects requests that the browser refused, texts that a canvas cut off, and notifications. Notifications are not
# really shown unless Page.alerts() was called.
WATCH = """
window.violations = []; window.clipped = []; window.notified = [];
addEventListener('securitypolicyviolation', e => window.violations.push(e.violatedDirective + ' ' + e.blockedURI));
const draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const m = this.measureText(text), t = this.getTransform(), c = this.canvas;
    const across = [x - m.actualBoundingBoxLeft, x + m.actualBoundingBoxRight].map(v => t.a * v + t.e);
    const down = [y - m.actualBoundingBoxAscent, y + m.actualBoundingBoxDescent].map(v => t.d * v + t.f);
    if (across[0] < -1 || down[0] < -1 || across[1] > c.width + 1 || down[1] > c.height + 1)
        window.clipped.push(`${text} at ${[...across, ...down].map(Math.round)} of ${c.width} x ${c.height}`);
    return draw.call(this, text, x, y);
};
const Shown = window.Notification;
window.Notification = sessionStorage.shown ? class extends Shown {
    constructor(title, options) {
        super(title, options);
        this.addEventListener('show', () => window.notified.push(`${title}: ${options.body}`));
    }
} : class {
    static permission = sessionStorage.permission || 'default';
    static async requestPermission() { return this.permission = sessionStorage.permission = 'granted'; }
    constructor(title, options) { window.notified.push(`${title}: ${options.body}`); }
    close() {}
};
"""


class Page:
    watched = set()  # drivers that have WATCH

    def __init__(self, driver):
        self.driver = driver

    def alerts(self, *kinds):
        """Turns on notifications of these kinds in the open page.  The browser has given the permission and really shows them."""
        origin = self.js("location.origin")
        self.cdp("Browser.grantPermissions", origin=origin, permissions=["notifications"])
        self.driver.execute_script("sessionStorage.shown = 1; localStorage.alerts = JSON.stringify({on: true, kinds: arguments[0]})", kinds)
        self.driver.refresh()
        self.live()
        wait(lambda: self.js("document.querySelector('#alerts-button').classList.contains('set')"), "the notifications to be on")
        return self

    def open(self, url, width=1920, height=1080, scheme="dark", path="/"):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=width < 500)
        self.cdp("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": scheme}])
        if self.driver.session_id not in self.watched:
            self.watched.add(self.driver.session_id)
            self.cdp("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        self.driver.get(url + path)
        self.driver.execute_script("localStorage.clear(); sessionStorage.clear()")
        self.driver.get_log("browser")
        self.driver.get(url + path)
        return self

    def live(self):
        wait(lambda: self.text("#status-word") == "Live" and self.count("tr.gpu"), "Live")
        return self

    def cdp(self, name, **args):
        return self.driver.execute_cdp_cmd(name, args)

    def js(self, text, *args):
        return self.driver.execute_script("return " + text, *args)

    def text(self, selector):
        return self.js("document.querySelector(arguments[0])?.textContent", selector)

    def count(self, selector):
        return self.js("document.querySelectorAll(arguments[0]).length", selector)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def key(self, *keys):
        self.driver.switch_to.active_element.send_keys(*keys)

    def shown(self, selector):
        return self.find(selector).is_displayed()

    def complaints(self):
        """Returns the messages of the console, except those that follow from a stopped service."""
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]


@contextlib.contextmanager
def browser():
    options = webdriver.ChromeOptions()
    for a in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
              "--hide-scrollbars"):
        options.add_argument(a)
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(service=Driver(shutil.which("chromedriver")), options=options)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def chromium():
    with browser() as driver:
        yield driver


@pytest.fixture
def page(chromium):
    return Page(chromium)


def open_first(page):
    page.js("document.querySelector('.opener').focus()")
    if page.js("document.querySelector('.opener').ariaExpanded") != "true":
        page.key(Keys.ENTER)
    wait(lambda: page.count(".plot canvas") == 4, "four charts")


def test_the_values_of_the_page_change(page, demo):
    page.open(demo.url).live()
    assert page.count("tr.gpu") == 2
    assert page.text("#total-gpus") == "2"
    assert re.fullmatch(r"\d+ W of \d+ W", page.text("#total-power"))
    wait(lambda: re.match(" since .*:", page.text("#energy-since:not(.later)") or ""), "since when energy is counted")
    before = page.text("#rows")
    wait(lambda: page.text("#rows") != before, "a figure to change")


def test_simulated_gpus_are_unmistakably_marked(page, demo):
    page.open(demo.url).live()
    wait(lambda: page.shown("#simulated"), "the banner")
    assert page.text("#simulated") == "SIMULATED GPUs: no value is real"


def test_no_complaint_no_violation_no_other_host(page, demo):
    page.driver.get_log("performance")
    page.open(demo.url).live()
    open_first(page)
    assert page.complaints() == []
    assert page.js("window.violations") == []
    messages = [json.loads(e["message"])["message"] for e in page.driver.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages
             if m["method"] == "Network.requestWillBeSent" and m["params"]["documentURL"].startswith(demo.url)]
    assert len(asked) > 10
    assert [u for u in asked if not u.startswith((demo.url, "data:"))] == []


def test_charts_are_drawn_and_have_a_text_for_screen_readers(page, demo):
    page.open(demo.url).live()
    open_first(page)

    def columns(i, hue):
        """Returns the columns of pixels that have the colour of the line."""
        return page.driver.execute_script(
            "const c = document.querySelectorAll('.plot canvas')[arguments[0]];"
            "const hex = getComputedStyle(document.documentElement).getPropertyValue(arguments[1]);"
            "const want = [1, 3, 5].map(n => parseInt(hex.trim().slice(n, n + 2), 16));"
            "const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "const seen = new Set(); for (let n = 0; n < p.length; n += 4)"
            "if (p[n + 3] > 200 && want.every((v, k) => Math.abs(v - p[n + k]) < 12))"
            "seen.add(n / 4 % c.width); return seen.size;", i, hue)

    for i, hue in enumerate(("--power", "--heat", "--use", "--memory")):
        wait(lambda: columns(i, hue) > 3, f"a line in chart {i}")
    for i, unit in enumerate(("W", "°C", "%", "GiB")):
        summary = page.js("document.querySelectorAll('.chart .unseen')[arguments[0]].textContent", i)
        assert re.search(rf" of the last 5 min: .* {unit} to .* {unit}\.", summary), summary


def test_ranges_are_chosen_by_key_and_kept(page, demo):
    page.open(demo.url).live()
    open_first(page)
    for key, label in (("3", "1 h"), ("7", "30 d"), ("1", "5 min")):
        page.key(key)
        pressed = "document.querySelector('.ranges [aria-pressed=true]').textContent"
        assert page.js(pressed) == label
        wait(lambda: f"of the last {label}:" in page.text(".chart .unseen"), f"charts of {label}")


PAST = """
const done = arguments[arguments.length - 1];
import('/assets/past.js').then(({ Past }) => {
    const key = 'power_watts', point = (t) => ({ [key]: t });
    const column = (time) => ({ quantity: key, step_seconds: 10, time, mean: time, min: time, max: time });
    const p = new Past(10).load([column([0, 10, 20, 100, 110])]);
    const loaded = [...p.column(key).mean];
    p.add(121, point(121), 1000);
    p.add(125, point(125), 1000);
    const more = [p.column(key).mean.at(-1), p.column(key).min.at(-1), p.column(key).max.at(-1)];
    p.add(300, point(300), 1000);
    const hole = p.column(key).mean.slice(-3);
    p.add(310, point(310), 60);
    const slow = new Past(1).load([column([0, 10, 20, 30])]);
    done({ loaded, more, hole, left: p.time.length, slow: slow.column(key).mean });
}).catch((e) => done(String(e)));
"""


def test_holes_stay_holes_and_readings_are_gathered_into_steps(page, demo):
    page.open(demo.url).live()
    got = page.driver.execute_async_script(PAST)
    assert got["loaded"] == [0, 10, 20, None, 100, 110]
    assert got["more"] == [123, 121, 125]
    assert got["hole"] == [123, None, 300]
    assert got["left"] == 2, "readings that are older than the range are removed"
    assert got["slow"] == [0, 10, 20, 30], "a service that reads every 10 s has no holes"


# Gives the charts of the first GPU 300 s of readings: one per second, but every 10 s from second 100 to 200.  Returns the part of
# the columns of pixels in which the line of the power is drawn, for a watched and for the unwatched time.
UNWATCHED = """
const done = arguments[arguments.length - 1];
Promise.all([import('/assets/rows.js'), import('/assets/past.js')]).then(([{ rows }, { Past }]) => {
    const d = [...rows.values()][0].detail, end = Math.floor(d.shown()[1]), begin = end - 300, time = [];
    for (let t = begin; t <= end; t += t >= begin + 100 && t < begin + 200 ? 10 : 1)
        time.push(t);
    const flat = time.map(() => 317), column = { quantity: 'power_watts', step_seconds: 1, time, mean: flat, min: flat, max: flat };
    d.tick = d.load = () => {};
    d.past = new Past(1, ['power_watts']).load([column]);
    d.draw();
    requestAnimationFrame(() => requestAnimationFrame(() => {
        const u = d.charts[0].plot, hex = getComputedStyle(document.documentElement).getPropertyValue('--power').trim();
        const want = [1, 3, 5].map((n) => parseInt(hex.slice(n, n + 2), 16)), y = Math.round(u.valToPos(317, 'y', true));
        const drawn = (from, to) => {
            const x = (t) => Math.round(u.valToPos(begin + t, 'x', true)), wide = x(to) - x(from);
            const p = u.ctx.getImageData(x(from), y - 2, wide, 5).data;
            let n = 0;
            for (let c = 0; c < wide; c++)
                n += [0, 1, 2, 3, 4].some((r) => want.every((v, k) => Math.abs(v - p[4 * (r * wide + c) + k]) < 24));
            return n / wide;
        };
        const rows = d.past.csv().trim().split('\\n').length - 1;
        done({ watched: drawn(20, 80), unwatched: drawn(105, 195), note: !d.unwatched.hidden, rows, readings: time.length,
            pairs: d.past.unwatched(d.past.column('power_watts').mean).length });
    }));
}).catch((e) => done(String(e)));
"""


def test_readings_of_an_unwatched_time_are_not_joined_by_a_solid_line(page, service):
    page.open(service("two-gpus").url).live()
    wait(lambda: page.count(".plot canvas") == 4, "four charts")
    wait(lambda: page.js("Boolean(document.querySelector('.chart .unseen').textContent)"), "drawn charts")
    got = page.driver.execute_async_script(UNWATCHED)
    assert got["watched"] == 1, got
    assert 0.02 < got["unwatched"] < 0.9, f"a dot per reading, and not a solid line: {got}"
    assert got["pairs"] == 10 and got["note"], got
    assert got["rows"] == got["readings"], "the file has only readings"


FORMAT = """
const done = arguments[arguments.length - 1];
import('/assets/format.js').then((f) => done({
    joules: [0, 0.4, 9.6, 999.4, 999.6, 3000, 3160, 38000, 38040, 99960, 999600, 1e6].map(f.joules),
    wattHours: [3600, 19008, 0.00036].map(f.wattHours),
    cost: [1e-4, 360, 3.6e6, 1e12].map((j) => f.cost(j, { price_per_kwh: 0.3, price_currency: 'EUR' })),
    seconds: [2e-10, 3, 3.25].map(f.seconds),
})).catch((e) => done(String(e)));
"""


def test_numbers_have_the_same_digits_and_no_exponent(page, demo):
    page.open(demo.url).live()
    got = page.driver.execute_async_script(FORMAT)
    assert got["joules"] == ["0 J", "0 J", "10 J", "999 J", "1.00 kJ", "3.00 kJ", "3.16 kJ", "38.0 kJ", "38.0 kJ",
                             "100 kJ", "1.00 MJ", "1.00 MJ"]
    assert got["wattHours"] == ["1.00 Wh", "5.28 Wh", "0.000000100 Wh"]
    assert got["cost"] == ["0.0000000000278 kWh, 0.00000000000833 EUR", "0.000100 kWh, 0.0000300 EUR",
                           "1.00 kWh, 0.300 EUR", "277778 kWh, 83333 EUR"]
    assert got["seconds"] == ["0.00020 µs", "3 s", "3.25 s"]


PLACES = """(() => [...document.querySelectorAll('.totals > div, .ranges, tr.gpu')].map((e) => {
    const r = e.getBoundingClientRect(); return [e.className, e.className === 'ranges' && Math.round(r.x), Math.round(r.y + scrollY)]; }))()"""


@needs_daemon
@pytest.mark.parametrize("width", [1280, 1366, 1920])
def test_nothing_moves_when_the_begin_of_the_count_arrives(page, demo, width):
    page.cdp("Network.enable")
    page.cdp("Network.setBlockedURLs", urls=["*/api/v1/devices"])
    try:
        page.open(demo.url, width=width).live()
        open_first(page)
        wait(lambda: page.count(".counted.later") == 1 and page.count("#energy-since.later") == 1, "places for both times")
        before = page.js(PLACES)
        page.cdp("Network.setBlockedURLs", urls=[])
        wait(lambda: page.count(".counted:not(.later)") == 1 and page.count("#energy-since:not(.later)") == 1, "both times")
        after = page.js(PLACES)
    finally:
        page.cdp("Network.setBlockedURLs", urls=[])
    assert before == after


ALONE = """
[[gpu]]
profile = "h100"
[[gpu.load]]
kind = "square"
high = 0.9
period = 4
[[gpu.process]]
name = "train"
memory = "8 GiB"
"""
# Collects each pair of powers that the page shows, and the text that it shows if the utilisation of the process is
# unknown.
PAIRS = """
window.pairs = []; window.unknowns = [];
const look = () => {
    const gpu = document.querySelector('tr.gpu .m-power .v'), row = document.querySelector('#processes tbody tr');
    const power = row?.querySelector('[data-name=Power]:not([hidden])'), sm = row?.querySelector('[data-name=SM]');
    if (sm?.dataset.unknown) window.unknowns.push(sm.title);
    if (gpu && power && !power.dataset.unknown) window.pairs.push(gpu.textContent + ' and ' + power.textContent);
};
new MutationObserver(look).observe(document.querySelector('main'), { subtree: true, childList: true, characterData: true });
"""


@needs_daemon
def test_a_process_and_its_gpu_show_the_same_moment(page, service, scenario_file):
    """The process is alone on the GPU, so that both have the same power, however fast the load changes."""
    page.open(service(scenario_file(ALONE)).url)
    page.driver.execute_script(PAIRS)
    page.live()
    wait(lambda: len(set(page.js("window.pairs"))) >= 6, "several readings")
    # the share of the process can be rounded to the watt below or above
    powers = [[int(w.split()[0]) for w in p.split(" and ")] for p in page.js("window.pairs")]
    assert [p for p in powers if abs(p[0] - p[1]) > 1] == []
    assert set(page.js("window.unknowns")) <= {"first reading"}


def test_sparklines_have_a_line(page, demo):
    page.open(demo.url).live()
    wait(lambda: page.js(
        "[...document.querySelectorAll('canvas.spark')].every(c => c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data.some(v => v))"), "sparklines")


def test_an_unknown_figure_shows_its_reason(page, service):
    page.open(service("mixed").url).live()
    open_first(page)
    page.key("/")
    page.key("fan speed")
    cell = ".figures div:not([hidden]) dd"
    wait(lambda: page.count(cell) == 2, "the search to leave two figures")
    assert page.text(cell) == "–unknown: this device does not have it"
    assert page.js(f"document.querySelector('{cell}').title") == "this device does not have it"


def test_the_health_panel_shows_the_limit_of_a_gpu_without_a_margin(page, service):
    page.open(service(history="none", simulate="mixed").url).live()
    page.js("document.querySelector('#health-all').click()")
    cells = "[...document.querySelectorAll('#health tbody tr')].map(r => r.cells[2].textContent)"
    wait(lambda: any(re.search(r"below 85.°C", c) for c in page.js(cells)), "the limit of the A100, which reports no margin")


def test_a_lost_gpu_stays_on_the_page_and_is_marked(page, service):
    page.open(service("lost-gpu").url).live()
    wait(lambda: page.text("tr.gpu.down .badge") == "lost", "the second GPU to be lost")
    assert page.count("tr.gpu") == 2
    assert "unknown: " in page.text("tr.gpu.down .m-power .v")
    assert page.text("#total-gpus") == "2 (1 not ok)"
    wait(lambda: page.js(INDICES) == [1, 0], "the lost GPU to come first")
    wait(lambda: "fell off the bus" in page.text("tr.gpu.down + .trouble .what"), "the cause in its row")
    assert "reset" in page.text("tr.gpu.down + .trouble .remedy")
    assert page.js("[...document.querySelectorAll('.trouble')].map(r => r.hidden)") == [False, True]


def test_one_gpu_is_open_from_the_start(page, service):
    page.open(service("idle-h200").url).live()
    assert page.js("document.querySelector('.opener').ariaExpanded") == "true"
    wait(lambda: page.count(".plot canvas") == 4, "four charts")


def expanded(page):
    return page.js("[...document.querySelectorAll('.opener')].map(b => b.ariaExpanded)")


def test_the_first_of_few_gpus_is_open_and_the_choice_is_kept(page, demo):
    page.open(demo.url).live()
    assert expanded(page) == ["true", "false"]
    page.js("document.querySelectorAll('.opener').forEach(b => b.click())")
    assert expanded(page) == ["false", "true"]
    page.driver.get(demo.url)
    page.live()
    assert expanded(page) == ["false", "true"]


def test_a_view_can_be_shared(page, demo):
    page.open(demo.url, path="/#gpu=1&range=6h")
    page.driver.refresh()
    page.live()
    assert expanded(page) == ["false", "true"]
    pressed = "document.querySelector('.ranges [aria-pressed=true]').textContent"
    assert page.js(pressed) == "6 h"
    page.key("2")
    assert page.js("location.hash") == "#gpu=1&range=15m"


def test_charts_of_a_new_service_show_when_its_history_begins(page, service):
    page.open(service("two-gpus").url).live()
    wait(lambda: page.count(".plot canvas") == 4, "four charts")
    page.key("5")
    wait(lambda: "of the last 24 h:" in page.text(".chart .unseen"), "charts of a day")
    since = ("import('/assets/rows.js').then(({ rows }) =>"
             "arguments[0]([...rows.values()][0].detail.since()))")
    assert abs(page.driver.execute_async_script(since) - time.time()) < 3600
    dots = ("const c = document.querySelector('.plot canvas'), g = c.getContext('2d');"
            "const p = g.getImageData(c.width * 0.9, 0, c.width * 0.1, c.height).data;"
            "const hex = getComputedStyle(document.documentElement).getPropertyValue('--power');"
            "const want = [1, 3, 5].map(n => parseInt(hex.trim().slice(n, n + 2), 16));"
            "let n = 0; for (let i = 0; i < p.length; i += 4)"
            "n += want.every((v, k) => Math.abs(v - p[i + k]) < 12); return n;")
    wait(lambda: page.driver.execute_script(dots) > 8, "the lone point")


def test_the_head_of_a_chart_shows_the_current_value(page, demo):
    page.open(demo.url).live()
    open_first(page)
    page.key("5")
    wait(lambda: "of the last 24 h:" in page.text(".chart .unseen"), "charts of a day")
    same = ("document.querySelector('.legend').textContent.includes("
            "'power ' + document.querySelector('.m-power .v').textContent)")
    wait(lambda: page.js(same), "the figure of the row")


def test_dragging_zooms_and_a_double_click_resets(page, service):
    page.open(service(mock=("--past", "3600")).url).live()
    open_first(page)
    page.key("2")
    wait(lambda: "of the last 15 min:" in page.text(".chart .unseen"), "charts of 15 min")
    over = page.find(".plot .u-over")
    ActionChains(page.driver).move_to_element_with_offset(over, -40, 0).click_and_hold() \
        .move_by_offset(80, 0).release().perform()
    wait(lambda: re.search(r"Power from \S+ to \S+: ", page.text(".chart .unseen")), "the part")
    assert page.shown(".choose .small")
    page.driver.execute_script("arguments[0].dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))", over)
    wait(lambda: "of the last 15 min:" in page.text(".chart .unseen"), "the whole again")


def test_a_series_can_be_downloaded_as_csv(page, service):
    page.open(service(mock=("--past", "3600")).url).live()
    open_first(page)
    csv = ("const done = arguments[0]; const make = URL.createObjectURL;"
           "URL.createObjectURL = b => { b.text().then(done); return make(b); };"
           "HTMLAnchorElement.prototype.click = () => {};"
           "document.querySelector('.choose > button:last-child').click()")
    lines = page.driver.execute_async_script(csv).splitlines()
    assert lines[0].startswith("time_utc,power_watts_mean,power_watts_min,power_watts_max,")
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z,[\d.]+,", lines[5])
    assert len({line.count(",") for line in lines}) == 1


MANY = """
[[gpu]]
profile = "h100"
count = 12
[[gpu.load]]
kind = "square"
high = 0.9
period = 14
[[gpu]]
profile = "a100"
[[gpu]]
profile = "h100"
[[timeline]]
at = 1
do = "lose"
gpu = 13
"""


@pytest.fixture(scope="module")
def many(service, tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "many.toml"
    path.write_text(MANY)
    return service(str(path))


INDICES = "[...document.querySelectorAll('tr.gpu:not([hidden]) .index')].map(e => +e.textContent)"


def test_many_gpus_are_sorted_by_their_heads(page, many):
    page.open(many.url).live()
    wait(lambda: page.text("tr.gpu.down .badge") == "lost", "the last GPU to be lost")
    page.js("document.querySelector('#attention').click()")
    assert page.js(INDICES) == list(range(14))
    head = "document.querySelector('[data-sort={}]')"
    page.js(head.format("index") + ".firstChild.click()")
    assert page.js(INDICES) == list(range(13, -1, -1))
    assert page.js(head.format("index") + ".ariaSort") == "descending"
    page.js(head.format("power") + ".firstChild.click()")
    assert page.js(head.format("power") + ".ariaSort") == "descending"
    wait(lambda: page.text("tr.gpu.down .badge") == "lost", "the last GPU to be lost")
    wait(lambda: page.js(INDICES)[-1] == 13, "unknown to be last")


def test_gpus_that_need_attention_come_first(page, many):
    page.open(many.url).live()
    wait(lambda: page.text("tr.gpu.down .badge") == "lost", "the last GPU to be lost")
    wait(lambda: page.js(INDICES) == [13, *range(13)], "the lost GPU to come first")
    page.find("#attention").click()
    assert page.js(INDICES) == list(range(14))
    page.find("#attention").click()
    assert page.js(INDICES) == [13, *range(13)]
    assert page.count("#health tbody tr") == 1
    assert page.text("#health-count") == "1 of 14 GPUs need attention"
    page.find("#health-all").click()
    assert page.count("#health tbody tr") == 14


def test_many_gpus_are_filtered(page, many):
    page.open(many.url).live()
    wait(lambda: page.text("tr.gpu.down .badge") == "lost", "the last GPU to be lost")
    for words, want in (("2-4", [2, 3, 4]), ("lost", [13]), ("A100", [12]), ("h100 1", [1])):
        page.find("#filter").clear()
        page.find("#filter").send_keys(words)
        assert page.js(INDICES) == want
    assert page.text("#filter-count") == "1 of 14 shown"
    page.find("#filter").send_keys(" nothing-like-it")
    assert page.shown("#none-match")


def test_a_total_without_a_lost_gpu_is_shown_as_a_minimum(page, many):
    page.open(many.url).live()
    wait(lambda: page.text("tr.gpu.down .badge") == "lost", "the last GPU to be lost")
    wait(lambda: re.fullmatch(r"at least [\d.]+ k?W \(1 GPU unknown\)", page.text("#total-power")),
         "what is known of the power")
    assert re.fullmatch(r"at least [\d.]+ GiB \(1 GPU unknown\)", page.text("#total-memory"))


@needs_daemon
def test_energy_has_a_cost_only_where_one_is_configured(page, service, demo):
    page.open(demo.url).live()
    assert page.text("#total-cost") == ""
    priced = service(env={"GPUWARD_ENERGY_PRICE_PER_KWH": "0.31", "GPUWARD_ENERGY_PRICE_CURRENCY": "EUR",
                          "GPUWARD_ENERGY_GCO2_PER_KWH": "380"})
    page.open(priced.url)
    shown = r"[\d.e-]+ kWh, [\d.e-]+ EUR, [\d.e-]+ g CO2"
    wait(lambda: re.fullmatch(shown, page.text("#total-cost")), "the cost")


def test_sixteen_gpus_fit_without_scrolling(page, service, scenario_file):
    page.open(service(scenario_file(SIXTEEN)).url).live()
    assert page.count("tr.gpu") == 16
    assert page.js("document.querySelector('#gpus').getBoundingClientRect().bottom") < 940


def test_rows_of_many_gpus_are_low_on_a_phone(page, many):
    page.open(many.url, width=390, height=844).live()
    assert page.js("document.querySelector('tr.gpu').getBoundingClientRect().height") < 70
    assert page.js("document.documentElement.scrollWidth") <= 390


def test_lists_keep_their_columns_on_a_phone(page, demo):
    page.open(demo.url, width=390, height=844).live()
    wait(lambda: page.count("#processes tbody tr") >= 3, "processes")
    right = ("[...document.querySelectorAll('#processes td:not([hidden])')]"
             ".map(c => c.getBoundingClientRect().right)")
    assert max(page.js(right)) <= 390
    memory = "document.querySelector('#processes [data-name=Memory]')"
    assert page.js(f"getComputedStyle({memory}, '::before').content") == '"Memory"'


@pytest.mark.parametrize("width", [400, 1200, 1400])
def test_names_of_a_few_gpus_are_whole(page, service, width):
    page.open(service("mixed").url, width=width, height=780).live()
    assert "GeForce RTX 4090" in page.text("#rows")
    assert page.js("[...document.querySelectorAll('tr.gpu .name')].filter(e => e.scrollWidth > e.clientWidth "
                   "|| e.scrollHeight > e.clientHeight + 1).map(e => e.textContent)") == []


@pytest.mark.parametrize("width", [390, 762, 800, 1000, 1200, 1600])
def test_figures_with_a_limit_are_whole_and_have_a_unit(page, demo, width):
    page.open(demo.url, width=width, height=780).live()
    shown = page.js("[...document.querySelectorAll('tr.gpu:first-child .pair')].map(e => e.innerText.replace(/\\s+/g, ' '))")
    assert re.fullmatch(r"\d+ / 700 W, \d+ / 87 °C, \d+ %, [\d.]+ / 140 GiB", ", ".join(shown))
    assert page.js("[...document.querySelectorAll('tr.gpu .pair')].filter(e => e.scrollWidth > e.clientWidth).length") == 0


@pytest.mark.parametrize("width", [762, 800, 1000])
def test_reasons_and_health_are_not_cut(page, demo, width):
    page.open(demo.url, width=width, height=780).live()
    wait(lambda: page.count("#health tbody tr") == 2 and "power limit" in page.text("tr.gpu .reasons"), "a GPU at its power limit")
    cell = "document.querySelector('tr.gpu .reasons')"
    assert page.js(f"[...{cell}.children].every(e => e.getBoundingClientRect().right <= {cell}.getBoundingClientRect().right - 8)")
    assert page.js(f"{cell}.scrollWidth <= {cell}.clientWidth") and page.js(f"{cell}.title") == "power limit"
    scroll = "document.querySelector('#health').parentElement"
    assert width < 800 or page.js(f"{scroll}.scrollWidth <= {scroll}.clientWidth")
    # A list that is wider than the window has a shadow at that edge, and a cover that scrolls away.
    assert page.js(f"getComputedStyle({scroll}).backgroundAttachment") == "local, local, scroll, scroll"


def test_the_temperature_and_its_margin_are_of_the_same_moment(page, service):
    page.open(service("thermal-throttle").url).live()
    page.driver.execute_script("""
        window.sums = {};
        const value = title => parseInt([...document.querySelectorAll('.figures dt')].find(e => e.textContent === title)?.nextSibling.textContent);
        new MutationObserver(() => { const t = value('Temperature GPU'); if (t) window.sums[t] = t + value('Temperature margin'); })
            .observe(document.querySelector('#rows'), { subtree: true, childList: true, characterData: true });""")
    wait(lambda: len(page.js("window.sums")) >= 5, "five temperatures")
    assert set(page.js("window.sums").values()) == {87}


@pytest.mark.parametrize("width", [320, 360, 760, 1024, 1280])
def test_nothing_is_wider_than_the_screen(page, demo, width):
    page.open(demo.url, width=width, height=780).live()
    open_first(page)
    page.key("c")
    wait(lambda: page.count(".plot canvas") == 5, "the chart of all GPUs")
    for key, label in (("6", "7 d"), ("2", "15 min")):
        page.key(key)
        wait(lambda: f"of the last {label}:" in page.text(".charts .unseen"), f"charts of {label}")
    assert page.js("window.clipped") == []
    assert page.js("document.documentElement.scrollWidth") <= width
    right = ("Math.max(...[...document.querySelectorAll(arguments[0])]"
             ".map(c => c.getBoundingClientRect().right))")
    if width > 760:
        assert abs(page.js(right, ".gpu > *") - page.js(right, ".detail > *")) < 2


def test_processes_can_be_sorted(page, demo):
    page.open(demo.url).live()
    wait(lambda: page.count("#processes tbody tr") >= 3, "processes")
    pids = "[...document.querySelectorAll('#processes tbody tr')].map(r => +r.cells[1].textContent)"
    button = "[...document.querySelectorAll('#processes button')].find(b => b.textContent === 'PID')"
    page.js(button + ".click()")
    assert page.js(pids) == sorted(page.js(pids), reverse=True)
    page.js(button + ".click()")
    assert page.js(pids) == sorted(page.js(pids))
    assert page.js(button + ".parentElement.ariaSort") == "ascending"


@needs_daemon
def test_processes_have_their_energy_and_a_line_of_their_recent_power(page, demo):
    page.open(demo.url).live()
    cell = "document.querySelector('#processes tbody [data-name=\"{}\"]')?.textContent || ''"
    wait(lambda: re.fullmatch(r"[\d.]+ k?J", page.js(cell.format("Energy"))), "energy")
    wait(lambda: re.fullmatch(r"\d+ W", page.js(cell.format("Power"))), "power, which needs a second reading")
    wait(lambda: re.fullmatch(r"\d+ %", page.js(cell.format("SM"))), "utilisation")
    wait(lambda: "L" in (page.js("document.querySelector('#processes .past path')?.getAttribute('d')") or ""), "a line")
    assert re.search(r"power of .*: \d+ W to \d+ W", page.js(cell.format("Recent power")))


@needs_daemon
def test_the_past_of_one_process_is_shown(page, demo):
    page.open(demo.url).live()
    wait(lambda: page.count("#processes .opens") >= 3, "processes with a past")
    name = page.text("#processes .opens")
    page.js("document.querySelector('#processes .opens').focus()")
    page.key(Keys.ENTER)
    wait(lambda: page.count("#process-charts canvas") == 3, "three charts")
    assert page.text("#process-title") == name and "PID 40000" in page.text("#process-facts")
    legends = "[...document.querySelectorAll('#process .legend')].map(e => e.textContent)"
    wait(lambda: all(re.match(r"\d+ (s|min.*): [\d.]+ (W|%|GiB)", t) for t in page.js(legends)), "their values")
    assert page.js("window.clipped") == [] and page.complaints() == []
    page.key(Keys.ESCAPE)
    assert not page.js("document.querySelector('#process').open")


@needs_daemon
def test_workloads_and_those_that_ended_are_shown(page, demo, tmp_path):
    page.open(demo.url).live()
    assert page.js("document.querySelector('#workloads').closest('section').hidden")  # no process belongs to a workload
    m = machine_tree.Machine(tmp_path).process(5001, "/system.slice/llm.service")
    m.process(5002, "/system.slice/<img src=x onerror=alert(1)>.service", "until = 5")
    with m.serve("[workloads]\nkeep_s = 2\n") as s:
        page.open(s.url).live()
        cells = "[...document.querySelectorAll('#{} tbody [data-name=\"{}\"]')].map(c => c.textContent)"
        wait(lambda: any(re.fullmatch(r"[\d.]+ k?J", t) for t in page.js(cells.format("workloads", "Energy"))), "energy")
        assert "llm.service" in page.js(cells.format("workloads", "Workload"))
        wait(lambda: ": listed workloads" in page.text("#workloads-sums"), "sums")
        page.js("document.querySelector('#workloads-ended').closest('details').open = true")
        wait(lambda: any("<img" in t for t in page.js(cells.format("workloads-ended", "Workload"))), "an ended workload")
        assert page.count("#workloads img") == page.count("#workloads-ended img") == 0
        assert page.js("window.violations") == [] and page.complaints() == []
        page.open(s.url, width=360).live()
        wait(lambda: page.count("#workloads tbody tr") >= 1, "workloads")
        assert page.js("document.documentElement.scrollWidth") <= 360


def test_nothing_is_drawn_while_the_page_is_hidden(page, demo):
    page.open(demo.url).live()
    hide = ("Object.defineProperty(document, 'hidden', {value: arguments[0], configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))")
    page.driver.execute_script(hide, True)
    before = page.text("#rows")
    ticks = "fetch('/api/v1/self').then(r => r.json()).then(d => d.ticks)"
    first = page.js(ticks)
    wait(lambda: page.js(ticks) >= first + 3, "three more readings")
    assert page.text("#rows") == before
    page.driver.execute_script(hide, False)
    wait(lambda: page.text("#rows") != before, "current figures")


def test_the_page_is_small(tmp_path):
    subprocess.run([support.TOP / "tools" / "assets", "unpack", tmp_path / "none", tmp_path], check=True)
    size = {f.name: (tmp_path / "assets" / f.name).stat().st_size for f in (support.TOP / "web").glob("*.js")}
    # Files that are fetched only where they are used.
    for name, most in (("docs", 2), ("guard", 22), ("moves", 6), ("compare", 12), ("alerts", 6), ("process", 4),
                       ("workloads", 5), ("models", 3), ("fleet", 10)):
        assert size.pop(f"{name}.js") < most * 1024, name
    assert sum(size.values()) < 92 * 1024


def test_nothing_moves_when_figures_change(page, demo):
    page.open(demo.url).live()
    open_first(page)
    wait(lambda: page.js("document.fonts.status") == "loaded", "the fonts")
    for _ in range(2):  # also waits for the first figures
        seen = page.text("#rows")
        wait(lambda: page.text("#rows") != seen, "a figure to change")
    page.driver.execute_script(
        "window.shift = 0; new PerformanceObserver(l => l.getEntries().forEach(e =>"
        "window.shift += e.value)).observe({type: 'layout-shift'})")
    seen = page.text("#rows")
    for _ in range(4):
        wait(lambda: page.text("#rows") != seen, "a figure to change")
        seen = page.text("#rows")
    assert page.js("window.shift") < 0.01


def test_instances_of_a_split_board_are_shown(page, service):
    page.open(service("mig").url).live()
    wait(lambda: page.count(".mig li") == 3, "three instances")
    assert re.match(r"0: 3g\.71gb[\d.]+ of [\d.]+ GiB", page.text(".mig li"))


def test_our_own_cost_is_shown(page, demo):
    page.open(demo.url).live()
    cost = "[...document.querySelectorAll('#self dd')].map(e => e.textContent)"
    want = (r"\d+\.\d+ %", r"\d+\.\d MiB", r"\d+\.\d /s", r"[\d.]+ (µs|ms|s)", r"\d+")
    wait(lambda: all(map(re.fullmatch, want, page.js(cost))) and page.js(cost), "five figures")
    page.js("document.querySelector('#calls').closest('details').open = true")
    wait(lambda: page.count("#calls tbody tr") > 3, "the calls")


def test_a_gpu_that_asks_for_recovery_stands_out(page, service):
    page.open(service("xid-storm").url).live()
    badge = "[...document.querySelectorAll('tr.gpu .badge')].map(e => e.textContent)"
    wait(lambda: page.js(badge) == ["attention", "ok"], "the second GPU to want attention, and to come first")
    remedy = "document.querySelector('.trouble .remedy')?.textContent ?? ''"
    wait(lambda: page.js(remedy).endswith("then reset the GPU."), "the remedy of the last Xid")
    wait(lambda: "drain and reset" in page.text("#health .alarm:last-child"), "its recovery")
    assert page.text("#total-gpus") == "2 (1 not ok)"


def test_without_a_driver_the_page_shows_the_remedy(page, service):
    page.open(service("no-driver").url)
    wait(lambda: page.shown("#empty") and "modprobe nvidia" in page.text("#empty"), "the remedy")
    assert not page.shown(".gpus")
    assert page.text("#total-gpus").startswith("–unknown: the NVIDIA kernel driver is not loaded")
    assert page.js("[...document.querySelectorAll('.panels .empty:not([hidden])')].map(e => e.textContent)")[0] == "Unknown: no GPU can be read."


@pytest.mark.parametrize("name, why", [("no-gpu", "There is no GPU to measure."), ("no-driver", "The NVIDIA kernel driver is not loaded")])
def test_without_a_gpu_no_window_can_be_started(page, service, name, why):
    page.open(service(name).url)
    wait(lambda: (page.text("#window-note") or "").startswith(why), "the reason")
    assert page.js("document.querySelector('#window-form button').disabled")


NOT_OPEN = """
[[gpu]]
profile = "h100"
[[fault]]
call = "nvmlInit_v2"
delay = 600
"""


@needs_daemon
def test_before_the_first_reading_nothing_is_zero(page, service, scenario_file):
    page.open(service(scenario_file(NOT_OPEN), ready=False).url)
    wait(lambda: page.text("#status-word") not in ("Connecting", "Live"), "a state that says so")
    assert page.text("#empty").startswith(("Waiting for the first reading.", "A driver call has not returned: nvmlInit_v2."))
    for name in ("gpus", "power", "energy", "memory"):
        assert page.text(f"#total-{name}").startswith("–unknown: "), name
    assert not page.shown("#compare-button") and not page.shown(".gpus")


CHIPS = "[...document.querySelectorAll('.chip')]"


def test_all_gpus_are_in_one_chart(page, service):
    page.open(service("sixty-four").url).live()
    loaded = "performance.getEntriesByType('resource').some(e => e.name.endsWith('compare.js'))"
    assert not page.js(loaded)
    page.key("c")
    wait(lambda: page.js(CHIPS + ".filter(c => /^\\d+ \\d+ W$/.test(c.textContent)).length") == 64, "64 lines with values")
    wait(lambda: re.fullmatch(r"Power of 64 GPUs of the last 5 min: \d+ W \(GPU \d+\) to \d+ W \(GPU \d+\)\.",
                              page.text("#compare .unseen")), "the chart in a sentence")
    shown = f"{CHIPS}.filter(c => c.ariaPressed === 'true').map(c => +c.querySelector('b').textContent)"
    page.js(CHIPS + "[3].click()")
    assert page.js(shown) == [i for i in range(64) if i != 3]
    wait(lambda: "of 63 GPUs" in page.text("#compare .unseen"), "one line less")
    page.find(".lines button:nth-child(2)").click()
    assert page.js(shown) == []
    page.js(CHIPS + "[7].focus()")
    page.key(Keys.ENTER)
    assert page.js(shown) == [7] and page.js("document.activeElement.textContent").startswith("7 ")
    wait(lambda: re.search(r"GPU 7 \d+ W", page.text("#compare .legend")), "its value")
    page.js("[...document.querySelectorAll('#compare option')].find(o => o.value === 'temperature_gpu_celsius').selected = true")
    page.js("document.querySelector('#compare select').dispatchEvent(new Event('change'))")
    wait(lambda: page.text("#compare .unseen").startswith("Temperature of 1 GPU of"), "another quantity")
    assert page.js("location.hash") == "#gpu=&range=5m&chart=temperature_gpu_celsius"
    page.driver.refresh()
    page.live()
    wait(lambda: page.text("#compare .unseen").startswith("Temperature of 64 GPUs"), "the same chart again")
    assert page.js("window.clipped") == [] and page.complaints() == []
    page.key("c")
    assert not page.shown("#compare")


def test_a_time_range_is_entered(page, service):
    page.open(service(mock=("--past", "7200")).url).live()
    open_first(page)

    def enter(begin, end):
        page.key("r")
        for name, ago in (("from", begin), ("to", end)):
            page.driver.execute_script(
                "const d = new Date(Date.now() - arguments[1] * 1000 - new Date().getTimezoneOffset() * 60000);"
                "document.querySelector('#period-' + arguments[0]).value = arguments[1] === null ? '' : d.toISOString().slice(0, 19)",
                name, ago)
        page.find("#period button[value=show]").click()

    enter(600, 1200)
    assert page.text("#period-note").startswith("The range must be 10 s or longer.")
    page.find("#period button[value=cancel]").click()
    enter(-600, None)
    assert page.text("#period-note").startswith("The range begins in the future")
    page.find("#period button[value=cancel]").click()
    assert not page.js("document.querySelector('#period').open")
    enter(3600, 1800)
    between = r"Power from [\d:]+ to [\d:]+: \d+ W to \d+ W\."
    wait(lambda: re.fullmatch(between, page.text(".charts .unseen")), "half an hour of the past")
    assert page.js("document.querySelector('.ranges [aria-pressed=true]').textContent") == "Other"
    assert re.match(r"#gpu=0&from=[\dT:-]+Z&to=[\dT:-]+Z$", page.js("location.hash"))
    said = page.text(".charts .unseen")
    page.driver.refresh()
    page.live()
    wait(lambda: page.text(".charts .unseen") == said, "the same half hour")
    enter(1800, None)
    wait(lambda: re.match(r"Power from [\d:]+ until now: ", page.text(".charts .unseen")), "until now")
    page.key("1")
    wait(lambda: "of the last 5 min:" in page.text(".charts .unseen"), "the last minutes")


BLINKING = '[[gpu]]\nprofile = "h100"\ncount = 2\n' + "".join(
    f'[[timeline]]\nat = {at}\ndo = "{what}"\ngpu = 1\n'
    for i in range(40) for at, what in ((8 + 6 * i, "lose"), (11 + 6 * i, "heal")))


def test_notifications_are_shown_only_when_the_user_turned_them_on(page, service, scenario_file):
    page.open(service(scenario_file(BLINKING)).url).live()
    page.driver.execute_script("sessionStorage.permission = 'default'; localStorage.removeItem('alerts')")
    wait(lambda: page.text("tr.gpu.down .badge") == "lost", "a lost GPU")
    wait(lambda: page.count("tr.gpu.down") == 0, "its return")
    assert page.js("window.notified") == []
    page.find("#alerts-button").click()
    wait(lambda: page.js("document.querySelector('#alerts').open"), "the dialog")
    assert page.text("#alerts-state") == "Notifications are off."
    page.find("#alerts-go").click()
    wait(lambda: page.text("#alerts-state").startswith("Notifications are on"), "the permission")
    page.find("#alerts button:not([type])").click()
    wait(lambda: page.js("window.notified"), "a notification")
    assert re.match(r"Simulated: GPU 1 is lost: .*fell off the bus.* reset", page.js("window.notified")[0])
    start_window(page, "<i>hasty</i>")
    wait(lambda: page.count("#windows tbody tr") == 1, "the window")
    wait(lambda: page.count("tr.gpu.down"), "a lost GPU, so that the window is not valid")
    page.js("document.querySelector('#windows tbody button').click()")
    wait(lambda: len(page.js("window.notified")) == 2, "one about the window")
    assert re.match(r"Simulated: Energy window <i>hasty</i>: (suspect|invalid|no result): ", page.js("window.notified")[1])
    page.find("#alerts-button").click()
    wait(lambda: page.js("document.querySelector('#alerts').open"), "the dialog")
    page.find("#alerts-go").click()
    wait(lambda: page.text("#alerts-state") == "Notifications are off.", "the end of the notifications")
    assert page.complaints() == [] and page.js("window.violations") == []


def test_a_window_that_was_seen_ending_is_notified(page, service):
    """A window waits for its last samples before it has ended; the page may read it at that moment."""
    page.open(service().url).live()
    page.alerts("window")
    start_window(page, "slow")
    wait(lambda: page.count("#windows tbody tr") == 1, "the window")
    page.driver.execute_async_script("""
        const done = arguments[0];
        import('/assets/data.js').then(({ emit, model }) => {
            const [w] = model.windows.values();
            for (const change of [{ state: "ending" }, { state: "ended", validity: "suspect", codes: [] }]) {
                model.windows.set(String(w.id), { ...w, ...change });
                emit("windows");
            }
            done();
        });""")
    wait(lambda: page.js("window.notified"), "a notification")
    assert page.js("window.notified")[0].startswith("Simulated: Energy window slow: suspect")


def test_a_gpu_that_becomes_too_hot_is_notified_once(page, service, scenario_file):
    # hot and cool in turn, so that a page that opens late sees the next time
    path = scenario_file('[[gpu]]\nprofile = "h100"\nambient_c = 70\nthermal_s = 1\nnoise = 0\n'
                         '[[gpu.load]]\nkind = "square"\nhigh = 0.9\nlow = 0\nperiod = 16\n')
    page.open(service(path).url).live()
    page.alerts("hot")
    wait(lambda: page.js("window.notified"), "a notification")
    assert re.fullmatch(r"Simulated: GPU 0 is close to its temperature limit: Its temperature is \d+ °C\. Check its fans, the air flow and its load\.",
                        page.js("window.notified")[0].replace("\u00a0", " "))
    before = page.text("#rows")
    wait(lambda: page.text("#rows") != before, "a later figure")
    assert len(page.js("window.notified")) == 1


def test_hostile_names_are_text_in_every_view(page, service):
    page.open(service("odd-names").url).live()
    page.key("c")
    wait(lambda: "<b>GPU</b>" in page.js("document.querySelector('.chips')?.textContent || ''"), "the name in the chart of all GPUs")
    wait(lambda: "<script>" in page.text("#processes tbody"), "the process")
    assert page.count("main b b, main script, .name b, .chip b b") == 0
    assert page.js("window.violations") == []



def test_the_page_reconnects_by_itself(page, service):
    s = service()
    page.open(s.url).live()
    open_first(page)
    page.driver.execute_script("window.same = true")
    s.stop()
    wait(lambda: page.text("#status-word") == "Reconnecting", "Reconnecting")
    assert page.shown("#problem")
    assert page.text("#announce").startswith("Reconnecting.")
    wait(lambda: "old" in page.text("#status-age"), "the age of the figures")
    s.start()
    wait(lambda: page.text("#status-word") == "Live", "Live again")
    assert not page.shown("#problem")
    assert page.js("window.same") is True, "the page was loaded again"
    before = page.text("#rows")
    wait(lambda: page.text("#rows") != before, "a figure to change")


SINCE = """
const done = arguments[arguments.length - 1];
import('/assets/data.js').then(({ model }) => done([...model.since.values()].sort()));
"""


@needs_daemon
def test_after_a_restart_the_energy_counts_from_the_new_start(page, service):
    s = service("two-gpus", history="none")
    shown = lambda: page.driver.execute_async_script(SINCE)
    page.open(s.url).live()
    wait(lambda: len(shown()) == 2, "since when energy is counted")
    before = shown()
    s.stop()
    wait(lambda: page.text("#status-word") == "Reconnecting", "Reconnecting")
    s.start()
    wait(lambda: [t > max(before) for t in shown()] == [True, True], "the time of the new start")
    wait(lambda: page.count("#energy-since:not(.later)"), "the page to show it")


def test_retry_now_is_offered(page, service):
    s = service()
    page.open(s.url).live()
    s.stop()
    wait(lambda: page.text("#status-word") == "Reconnecting" and page.shown("#retry"), "the button")
    s.start()
    page.js("document.querySelector('#retry').click()")
    wait(lambda: page.text("#status-word") == "Live", "Live again")
    assert not page.shown("#retry")


EVENTS = "[...document.querySelectorAll('#events li')].map(li => li.dataset.id)"


def test_events_go_on_when_the_service_counts_from_1_again(page, service):
    s = service(mock=("--past", "60"))  # the mock numbers its events from 1 at each start
    page.open(s.url).live()
    wait(lambda: page.count("#events li"), "an event")
    for label in ("a", "b"):
        start_window(page, label)
        wait(lambda: page.count("#windows tbody tr") == "ab".index(label) + 1, "the window")
    s.stop()
    s.start()
    wait(lambda: page.text("#status-word") == "Live", "Live again")
    wait(lambda: page.count("#windows tbody tr") == 0, "the windows of the one before to go")
    wait(lambda: page.count("#events li") == 1, "the events of the new one")


@needs_daemon
def test_the_page_shows_why_no_history_is_kept(page, service):
    first = service()
    page.open(service(history=first.history).url).live()
    wait(lambda: page.shown("#store"), "the notice")
    assert "is in use by another gpuward" in page.text("#store")
    page.open(first.url).live()
    wait(lambda: page.count("#self dd"), "what the service says of itself")
    assert not page.shown("#store")


def test_everything_can_be_done_by_keyboard(page, demo):
    page.open(demo.url).live()
    focused = "document.activeElement.textContent"
    page.key("j")
    assert "0" in page.js(focused)
    page.key("j")
    assert "1" in page.js(focused)
    page.key(Keys.ARROW_UP)
    assert "0" in page.js(focused)
    page.key(Keys.ENTER)
    assert page.js("document.activeElement.ariaExpanded") == "false"
    page.key(Keys.ENTER)
    assert page.js("document.activeElement.ariaExpanded") == "true"
    assert not page.js("document.getElementById("
                       "document.activeElement.getAttribute('aria-controls')).hidden")
    page.key("?")
    assert page.js("document.querySelector('#help').open")
    page.key(Keys.ESCAPE)
    assert not page.js("document.querySelector('#help').open")


def test_the_keyboard_focus_is_visible_on_every_control(page, demo):
    page.open(demo.url).live()
    stops = set()
    for _ in range(14):
        page.key(Keys.TAB)
        stops.add(page.js("document.activeElement.outerHTML.slice(0, 80)"))
        assert page.js("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert len(stops) >= 10


def test_every_control_has_a_name_and_every_image_a_text(page, demo):
    page.open(demo.url).live()
    open_first(page)
    assert page.js(
        "[...document.querySelectorAll('input, select, button')].filter(e => !(e.labels?.length"
        "|| e.ariaLabel || e.textContent.trim())).map(e => e.outerHTML)") == []
    assert page.count("img:not([alt])") == 0
    assert page.js("[...document.querySelectorAll('canvas')].filter(c =>"
                   "!c.closest('[aria-hidden=true]')).length") == 0
    assert page.js("[...document.querySelectorAll('table')].every(t => t.caption)")
    assert page.count("[style]:not(.plot *, .fill, .mark)") == 0
    ids = page.js("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_only_a_change_of_state_is_announced(page, demo):
    page.open(demo.url).live()
    assert page.count("[aria-live]") == 1
    said = page.text("#announce")
    seen = page.text("#rows")
    wait(lambda: page.text("#rows") != seen, "a figure to change")
    assert page.text("#announce") == said


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_colours_can_be_read(page, demo, scheme):
    page.open(demo.url, scheme=scheme).live()
    assert page.js("document.documentElement.dataset.theme") == scheme
    value = lambda name: page.js("getComputedStyle(document.documentElement)"
                                 ".getPropertyValue(arguments[0]).trim()", "--" + name)
    grounds = ("ground", "card", "raised")
    pairs = [(t, g) for g in grounds for t in ("text", "text-2", "accent")]
    pairs += [(t, "card") for t in ("power", "heat", "use", "memory", "good", "warn", "bad")]
    pairs += [(t, t + "-soft") for t in ("good", "warn", "bad", "calm")]
    pairs += [("on-accent", "accent")]
    for front, back in pairs:
        a, b = sorted((luminance(value(front)), luminance(value(back))), reverse=True)
        assert (a + 0.05) / (b + 0.05) >= 4.5, (scheme, front, back)


def test_the_theme_is_flipped_by_key_and_kept(page, demo):
    page.open(demo.url, scheme="dark").live()
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.js(ground)
    page.key("t")
    assert page.js("document.documentElement.dataset.theme") == "light"
    assert page.js(ground) != dark
    page.driver.refresh()
    page.live()
    assert page.js("document.documentElement.dataset.theme") == "light"


def start_window(page, label):
    page.find("#window-label").send_keys(label)
    page.find("#window-form button").click()


def test_a_window_is_started_and_stopped(page, demo):
    page.open(demo.url).live()
    start_window(page, "first <b>try</b>")
    row = "document.querySelector('#windows tbody tr')"
    wait(lambda: page.count("#windows tbody tr") == 1, "the window")
    assert page.js(row + ".cells[0].textContent") == "first <b>try</b>"
    seconds = lambda: float(page.js(row + ".cells[3].textContent").split()[0])
    wait(lambda: seconds() > 2, "the seconds to be counted")
    wait(lambda: "J" in page.js(row + ".cells[4].textContent"), "joules while it is open")
    page.js(row + ".querySelector('button').click()")
    wait(lambda: page.count("#windows tbody a") == 1, "the window to end")
    wait(lambda: re.search(r"\d (k|M)?J.* … .*J", page.js(row + ".cells[4].textContent")),
         "joules with their interval")
    assert page.js(row + ".cells[5].textContent").startswith(("valid", "suspect", "invalid"))
    assert re.search(r"/api/v1/windows/\w+$", page.js(row + ".querySelector('a').href"))
    page.js(row + ".querySelector('button').click()")
    wait(lambda: page.count("#windows tbody tr") == 0, "the window to be forgotten")


def test_a_late_message_does_not_bring_a_forgotten_window_back(page, demo):
    """The stream can deliver a message about a window after the reply to the request that removed the window."""
    keep = ("const Real = EventSource; window.EventSource = class extends Real {"
            "constructor(...a) { super(...a); window.streams = [...(window.streams ?? []), this]; } };")
    script = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": keep})
    try:
        page.open(demo.url).live()
    finally:
        page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    start_window(page, "late")
    wait(lambda: page.count("#windows tbody tr") == 1, "the window")
    window = requests.get(demo.url + "/api/v1/windows").json()["windows"][0]
    page.js("document.querySelector('#windows tbody tr .actions').lastElementChild.click()")
    wait(lambda: page.count("#windows tbody tr") == 0, "the window to be forgotten")
    page.js("streams.forEach((s) => s.dispatchEvent(new MessageEvent('window', { data: " + json.dumps(json.dumps(window)) + " })))")
    assert page.count("#windows tbody tr") == 0


@needs_daemon
def test_parts_of_a_window_are_shown(page, service):
    s = service("two-gpus")
    page.open(s.url).live()
    start_window(page, "answer")
    wait(lambda: page.count("#windows tbody tr") == 1, "the window")
    page.driver.execute_script(
        "fetch('api/v1/windows').then(r => r.json()).then(r => fetch(`api/v1/windows/${"
        "r.windows[0].id}/marks`, {method: 'POST', headers: {'Content-Type': 'application/json'},"
        "body: '{\"label\": \"decode\"}'}))")
    wait(lambda: re.search(r"decode: [\d.]+ k?J in [\d.]+ s, so far",
                           page.text("#windows .parts") or ""), "the current part")
    assert page.text("#windows summary") == "2 parts"


def test_the_token_is_asked_for_when_it_is_needed(page, service):
    page.open(service(token=TOKEN).url).live()
    start_window(page, "guarded")
    wait(lambda: page.js("document.querySelector('#token').open"), "the question for the token")
    assert "Enter the content of its token file" in page.text("#token-why")
    page.find("#token-input").send_keys("a wrong one", Keys.ENTER)
    wait(lambda: page.js("sessionStorage.token") == "a wrong one" and
         page.js("document.querySelector('#token').open"), "the question again")
    assert page.text("#token-why").startswith("The service refused that token.")
    page.find("#token-input").clear()
    page.find("#token-input").send_keys(TOKEN, Keys.ENTER)
    wait(lambda: page.js("sessionStorage.token") == TOKEN, "the token to be kept")
    assert TOKEN not in page.js("JSON.stringify(localStorage)")
    wait(lambda: page.count("#windows tbody tr") == 1, "the window, without another click")


def test_docs_show_the_operations_without_another_host(page, demo):
    page.driver.get_log("performance")
    page.open(demo.url, path="/docs")
    wait(lambda: page.count(".opblock"), "operations")
    assert "/api/v1/snapshot" in page.text("#docs").replace("\u200b", "")
    assert page.js("window.violations") == []
    assert page.complaints() == []
    messages = [json.loads(e["message"])["message"] for e in page.driver.get_log("performance")]
    # only requests of this page: an earlier page may still have sent some
    asked = [m["params"]["request"]["url"] for m in messages
             if m["method"] == "Network.requestWillBeSent" and m["params"]["documentURL"].startswith(demo.url)]
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.js(ground)
    assert max(map(int, re.findall(r"\d+", dark))) < 60, "the dark theme of the system"
    page.js("localStorage.setItem('theme', 'light')")
    page.driver.refresh()
    wait(lambda: page.count(".opblock"), "operations")
    assert page.js(ground) != dark, "the theme that was chosen on the page"
    assert asked and [u for u in asked if not u.startswith((demo.url, "data:", "blob:"))] == []
