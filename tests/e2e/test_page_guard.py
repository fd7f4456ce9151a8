"""Tests the guard's panel in a real Chromium, with a real service and a worker that is a tree of processes on a simulated
card."""
import re

import pytest

import service
from guarded import Guarded, configure, held, quick
import support
from support import wait
from test_page import Page, chromium, page  # noqa: F401: fixtures
from worker import GIB, Contender, Worker, World

DEFAULTS = quick(quiet_s=2, verify_s=3, budget_s=8)
ROW = "#guard-workers tbody tr"


class Panel(Page):
    def open(self, url, token=None, **kw):
        super().open(url, **kw)
        if token:
            self.driver.execute_script("sessionStorage.token = arguments[0]", token)
        self.live()
        wait(lambda: self.shown("#guard") and self.count(ROW), "the panel")
        return self

    def cell(self, i, row=1):
        return self.text(f"{ROW}:nth-child({row}) > :nth-child({i})").replace("\u00a0", " ")

    def state(self, row=1):
        return self.text(f"{ROW}:nth-child({row}) > :nth-child(2) .badge")

    def until(self, *states):
        wait(lambda: self.state() in states, f"state {states}")

    def press(self, word):
        """Presses the worker's button with this word, which opens its dialog."""
        wait(lambda: word in self.js(f"[...document.querySelectorAll('{ROW} button')].map(b => b.textContent)"), word)
        self.driver.execute_script(
            f"const b = [...document.querySelectorAll('{ROW} button')].find(b => b.textContent === arguments[0]);"
            "b.focus(); b.click();", word)
        assert self.js("document.querySelector('#request').open")

    def confirm(self, button="#request-go"):
        self.find(button).click()


@pytest.fixture
def panel(chromium):  # noqa: F811
    return Panel(chromium)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def worker(world):
    with Worker(world) as w:
        service.Service.wait(lambda: w.resident() == 10 * GIB)
        yield w


@pytest.fixture(scope="module")
def guarded(world, worker):
    with Guarded(world, configure(("ollama", worker), defaults=DEFAULTS, more="[models]\ninterval_s = 1\n")) as s:
        s.until("active")
        yield s


def test_there_is_no_panel_and_no_script_without_a_worker(page):  # noqa: F811
    with service.Service("two-gpus") as s:
        page.open(s.url).live()
        asked = "performance.getEntriesByType('resource').map(e => e.name)"
        wait(lambda: any(u.endswith("/api/v1/guard") for u in page.js(asked)), "the question for a guard")
        before = page.text("#rows")
        wait(lambda: page.text("#rows") != before, "a figure to change")
        assert not page.shown("#guard") and not page.shown("#guard-tile")
        assert not any("guard.js" in u for u in page.js(asked))


def test_a_worker_is_shown_with_what_it_holds(panel, guarded):
    panel.open(guarded.url)
    panel.until("active")
    wait(lambda: "GPU 0" in panel.cell(1), "where it is")
    assert panel.cell(1).startswith("ollama") and "priority 0" in panel.cell(1)
    assert panel.cell(4).startswith("10.0/ 10.0 GiB")
    assert panel.text("#guard-mode") == "enforce"
    assert not panel.shown("#guard-mark") and not panel.shown("#guard-journal")
    assert "journal ok" in panel.text("#guard-facts")
    assert panel.text("#total-guard") == "ollama active"
    assert panel.text("#guard-processes .badge") == "worker"
    assert panel.text("#guard-gpus .badge") == ("GPU 0: hidden processes" if support.CONTAINED else "GPU 0 ok")
    assert panel.complaints() == [] and panel.js("window.violations") == []
    wait(lambda: panel.js("document.querySelector('#guard').getBoundingClientRect().top") < 800,
         "the panel on the first screen: the figures of the only GPU are closed")


def test_models_are_shown_with_their_energy_and_why_tokens_are_unknown(panel, guarded):
    panel.open(guarded.url)
    wait(lambda: "only model" in panel.text("#models"), "the energy of a model")
    cells = panel.js("[...document.querySelectorAll('#models tbody tr')].map(r => [...r.cells].map(c => [c.innerText, c.title]))")[0]
    assert [c[0] for c in cells[:2]] == ["llama3:8b", "ollama"]
    assert cells[3][1] == "Ollama has no token counter"
    assert cells[6][0].endswith("J") and cells[7][0] == "only model"
    assert panel.complaints() == []


def test_a_worker_that_moves_is_notified(panel, guarded, world):
    panel.open(guarded.url)
    panel.until("active")
    panel.alerts("moved")
    panel.until("active")
    assert panel.js("window.notified") == []
    with Contender(world, 12 * GIB):
        wait(lambda: panel.js("window.notified"), "a notification about the eviction")
        assert re.fullmatch(r"Simulated: A worker left its GPU: Ollama left GPU 0 for sleep \(pid \d+, 12.0 GiB\): 10.0 GiB freed in [\d.]+ m?s\.",
                            panel.js("window.notified")[0].replace("\u00a0", " "))
    wait(lambda: len(panel.js("window.notified")) == 2, "one about the return")
    assert panel.js("window.notified")[1].startswith("Simulated: A worker is back: ")
    panel.driver.execute_script("localStorage.removeItem('alerts'); sessionStorage.removeItem('shown')")


def test_a_contender_changes_the_state_on_the_open_page(panel, guarded, world):
    panel.open(guarded.url)
    panel.until("active")
    with Contender(world, 12 * GIB) as game:
        panel.until("evicted")
        wait(lambda: panel.text(f"{ROW} .reason .badge") == "contention", "the reason")
        assert f"pid {game.pid} sleep" in panel.cell(3)
        assert "GPU-" not in panel.cell(3), "the reason has a UUID instead of the number of the GPU"
        wait(lambda: panel.text("#announce").startswith("ollama: evicted."), "the announcement")
        wait(lambda: panel.text("#guard-processes .badge") == "contender", "the contender in the list")
        assert panel.cell(4).startswith("0/ 10.0 GiB")
        assert panel.text("#total-guard") == "ollama evicted"
        line = "#guard-decisions li:first-child"
        wait(lambda: re.search(r"ollama left GPU 0 for sleep \(pid \d+, 12.0 GiB\): 10.0 GiB freed in [\d.]+ m?s", panel.text(line)), "the move in one line")
        assert panel.js(f"[...document.querySelectorAll('{line} .steps b')].map(b => b.textContent)") \
            == ["suspect", "decided", "ordered", "answered", "freed"]
        assert not panel.shown(line + " .steps")
        panel.find(line + " summary").click()
        assert panel.shown(line + " .steps")
        assert re.search(r"\d\d:\d\d:\d\d\.\d{3}\+\d\.\d\d s.*10240 MiB in", panel.text(line + " li:last-child"))
    wait(lambda: re.search(r"may return in \d s", panel.cell(5)), "a countdown")
    panel.until("active")
    wait(lambda: re.search(r"ollama is back on GPU 0 after [\d.]+ m?s: 10240 MiB", panel.text("#guard-decisions li")), "the return as another line")
    active = [d["time_utc"] for d in guarded.decisions() if d["to"] == "active"][-1]
    assert panel.js("Date.parse(document.querySelector('#guard-decisions li time').dateTime)") == panel.js(f"Date.parse('{active}')")
    assert panel.shown("#guard-decisions li:nth-child(2) .steps"), "a move that the user had unfolded was closed"
    wait(lambda: re.match(r"[1-9]\d* × evicted, [1-9]\d* × returned", panel.cell(6)), "what it did")


MOVES = """
const done = arguments[arguments.length - 1];
const row = (id, worker, from, to, more) => ({ id, worker, from, to, mask: [], rule: 'r', evidence: null, uuid: 'u', cause: null,
    freed_bytes: null, freed_seconds: null, dry_run: false, time_utc: new Date(1e12 + id * 1000).toISOString(), ...more });
import('/assets/moves.js').then(({ movesOf, headline, timeOf }) => {
    const context = { gpu: () => 'GPU 3' }, hot = { mask: ['thermal'], cause: 'because its GPU is too hot' };
    const game = { mask: ['contention'], cause: 'for the registered game minigame (pid 5)' }, person = { mask: ['manual'], cause: 'at the request of root' };
    done(movesOf([
        row(1, 'a', 'reconcile', 'active'), row(2, 'a', 'active', 'suspect'), row(3, 'b', 'active', 'drain', hot),
        row(4, 'a', 'suspect', 'active', { rule: 'no demand' }), row(5, 'b', 'drain', 'evict', hot),
        row(6, 'b', 'evict', 'stuck', { ...hot, evidence: 'it holds 4 MiB' }), row(7, 'b', 'stuck', 'evict', hot),
        row(8, 'b', 'evict', 'evicted', { ...hot, freed_bytes: 1048576, dry_run: true }),
        row(10, 'a', 'active', 'active', { rule: 'hold' }), row(20, 'a', 'active', 'active', { rule: 'evict command' }),
        row(21, 'a', 'active', 'drain', person),
        row(30, 'c', 'evicted', 'quiet', { dry_run: true }), row(31, 'c', 'quiet', 'reconcile', { rule: 'mode', evidence: 'acts' }),
        row(32, 'c', 'reconcile', 'active', { rule: 'as found' }),
        row(33, 'c', 'active', 'suspect'), row(34, 'c', 'suspect', 'drain', game),
        row(35, 'c', 'drain', 'evicted', { ...game, freed_bytes: 1048576, freed_seconds: 0.25 }),
        row(40, 'c', 'evicted', 'quiet'), row(50, 'c', 'quiet', 'precheck'), row(51, 'c', 'precheck', 'resume'), row(53, 'c', 'verify-up', 'active'),
    ]).map((m) => [m.kind, m.steps.map((d) => d.id), headline(m, context), (timeOf(m) - 1e12) / 1000]));
}).catch((e) => done(String(e)));
"""


def test_decisions_are_grouped_into_moves(panel, guarded):
    panel.open(guarded.url)
    assert panel.driver.execute_async_script(MOVES) == [
        ["found", [1], "a: r", 1],
        ["stayed", [2, 4], "a stayed on GPU 3: no demand", 4],
        ["stuck", [3, 5, 6], "b did not leave GPU 3 because its GPU is too hot: it holds 4 MiB", 6],
        ["left", [7, 8], "b would have left GPU 3 because its GPU is too hot: 1.0 MiB would be free; nothing was done", 8],
        ["note", [10], "a: hold", 10],
        ["leaving", [20, 21], "a is leaving GPU 3 at the request of root", 20],
        ["found", [30, 31], "c: mode (acts)", 31],
        ["found", [32], "c: as found", 32],
        ["left", [33, 34, 35], "c left GPU 3 for the registered game minigame (pid 5): 1.0 MiB freed in 250 ms", 35],
        ["back", [40, 50, 51, 53], "c is back on GPU 3 after 2 s", 53],
    ]


def test_without_the_token_the_buttons_show_that_they_need_it(panel, guarded):
    panel.open(guarded.url)
    panel.until("active")
    wait(lambda: "GPU 0" in panel.cell(1), "where it is")
    assert panel.shown("#guard-token")
    panel.press("Evict")
    assert panel.shown("#request-token")
    assert "free the 10.0 GiB that it holds on GPU 0" in panel.text("#request-what")
    panel.confirm()
    wait(lambda: panel.js("document.querySelector('#token').open"), "the question for the token")
    assert panel.text("#token-why").startswith("Moving a worker needs the token of this service.")
    panel.find("#token button[value=cancel]").click()
    wait(lambda: panel.text("#guard-note") == "Nothing was changed, because no token was entered.", "a sentence")
    assert guarded.now() == "active"


def test_evict_and_resume_with_the_token(panel, guarded):
    panel.open(guarded.url, token=service.TOKEN)
    panel.until("active")
    panel.press("Evict")
    assert not panel.shown("#request-token")
    panel.find("#request button[value=cancel]").click()
    guarded.observes(0.3)
    assert not panel.shown("#guard-note") and guarded.now() == "active", "a cancelled request was carried out"
    panel.press("Evict")
    panel.confirm()
    wait(lambda: re.match("Accepted: evict ollama. Its state is |Done: evict ollama", panel.text("#guard-note")), "the answer")
    panel.until("evicted")
    wait(lambda: "evicted until it is resumed" in panel.cell(5), "until when")
    assert panel.js("document.activeElement.ariaLabel") == "Resume ollama", "the focus was lost"
    panel.press("Resume")
    assert panel.shown("#request-now")
    panel.confirm("#request-now")
    wait(lambda: re.match("(Accepted|Done): resume ollama", panel.text("#guard-note")), "the answer")
    panel.until("active")


def test_a_hold_active_masks_contention_until_it_is_released(panel, guarded):
    panel.open(guarded.url, token=service.TOKEN)
    panel.until("active")
    panel.press("Hold …")
    panel.find("#request input[value=active]").click()
    assert panel.text("#request-what").startswith("It stays on the GPU, even if other processes need it.")
    panel.driver.execute_script("document.querySelector('#request-ttl').value = 900")
    panel.find("#request-reason").send_keys("a <b>demo</b>")
    panel.confirm()
    left = lambda: re.search(r"held for (\d+) min (\d+) s", panel.cell(5))
    seconds = lambda: int(left()[1]) * 60 + int(left()[2])
    wait(left, "the time of the hold")
    first = seconds()
    assert 800 < first <= 900 and guarded.worker()["hold"] == "active"
    wait(lambda: seconds() <= first - 2, "two seconds less")
    panel.press("Evict")
    panel.confirm()
    wait(lambda: "release" in panel.text("#guard-note"), "cause and remedy")
    assert panel.js("document.querySelector('#guard-note').className") == "answer bad"
    panel.press("Release")
    panel.confirm()
    wait(lambda: guarded.worker()["hold"] == "none", "the release")
    wait(lambda: "Hold …" in panel.cell(7), "the earlier button")


def test_on_simulated_gpus_the_page_says_that_no_worker_is_moved(panel, world, worker):
    text = configure(("ollama", worker)).replace("simulated = true\n", "")
    with Guarded(world, text) as s:
        panel.open(s.url)
        assert panel.text("#guard-mode") == "enforce" and "warn" in panel.js("document.querySelector('#guard-mode').className")
        assert "set simulated = true in [guard]" in panel.text("#guard-mark") and panel.shown("#guard-mark")
        assert panel.shown("#guard-token") and not panel.shown("#guard-read-only")


def test_without_a_configured_token_the_page_shows_how_to_set_one(panel, world, worker):
    with service.Service(world.scenario, config=configure(("ollama", worker), mode="dry-run")) as s:
        panel.open(s.url)
        assert panel.text("#guard-mode") == "dry run"
        assert panel.text("#guard-mark").startswith("Dry run: ")
        assert panel.shown("#guard-read-only") and not panel.shown("#guard-token"), "the page asks for a token, although the service has none"
        assert "This service is read-only" in panel.text("#guard-read-only") and "/etc/gpuward/token" in panel.text("#guard-read-only pre")
        panel.press("Evict")
        assert "no worker is moved" in panel.text("#request-what")
        panel.confirm()
        wait(lambda: "Workers and settings cannot be changed: no token is configured." in panel.text("#guard-note"), "the cause")
        assert "Set service.token_file" in panel.text("#guard-note")


def test_the_page_survives_a_restart_of_the_service(panel, world, worker):
    with Guarded(world, configure(("ollama", worker), defaults=DEFAULTS)) as s:
        s.until("active")
        panel.open(s.url)
        panel.until("active")
        panel.driver.execute_script("window.same = true")
        s.restart()
        s.post("/api/v1/guard/workers/ollama/hold", token=True, json={"state": "active", "ttl_s": 600})
        wait(lambda: panel.text("#status-word") == "Live" and "held for" in panel.cell(5), "the news of the new one")
        assert panel.js("window.same") is True


TWELVE = "".join(f"""
[[gpu]]
profile = "h100"
[[gpu.process]]
name = "model-{i}-of-a-long-name"
memory = "{20 + i} GiB"
[[gpu.process]]
name = "train.py"
memory = "40 GiB"
from = {2 if i in (2, 5) else 10000}
""" for i in range(12)) + '[[gpu]]\nprofile = "h100"\ncount = 4\n[[timeline]]\nat = 2\ndo = "lose"\ngpu = 9\n'


@pytest.fixture(scope="module")
def twelve(tmp_path_factory):
    path = tmp_path_factory.mktemp("twelve") / "world.toml"
    path.write_text(TWELVE)
    config = '[guard]\nmode = "enforce"\nsimulated = true\n[guard.defaults]\nverify_s = 1\nbudget_s = 3\ndrain_s = 1\n'
    for i in range(12):
        config += f'[[worker]]\nname = "model-{i}"\nkind = "exec"\npriority = {i}\nmatch.name = "model-{i}-*"\n' \
                  'evict_command = ["/bin/true"]\nresume_command = ["/bin/true"]\n'
    with service.Service(path, config=config, token=True) as s:
        s.wait(lambda: sum(w["state"] == "stuck" for w in s.get("/api/v1/guard").json()["workers"]) == 2)
        yield s


def test_problems_stand_out_among_many_workers(panel, twelve):
    panel.open(twelve.url)
    assert panel.count(ROW) == 12
    bad = "[...document.querySelectorAll('#guard-workers .badge.bad')].map(b => b.textContent).sort()"
    wait(lambda: panel.js(bad) == ["blind", "quarantine", "stuck", "stuck"], "what is wrong")
    wait(lambda: re.match(r"GPU 9: (lost|quarantine)", panel.text("#guard-gpus .badge")), "the lost GPU")
    badges = panel.js("[...document.querySelectorAll('#guard-gpus .badge')].map(b => b.textContent)")
    hidden = [b for b in badges if b.endswith(": hidden processes")]
    assert bool(hidden) == support.CONTAINED and [b for b in badges[1:] if b not in hidden] == ["15 GPUs ok"], badges
    assert panel.text("#total-guard") == "9 of 12 active"
    wait(lambda: panel.js("[...document.querySelectorAll('#guard-processes .badge')].slice(0, 3).map(b => b.textContent)")
         == ["contender", "contender", "worker"], "contenders before others")


def test_nothing_is_wider_than_the_screen(panel, twelve):
    panel.open(twelve.url)
    wait(lambda: panel.count("#guard-processes tbody tr") >= 12, "the processes")
    right = "Math.max(...[...document.querySelectorAll('#guard td, #guard button')].map(c => c.getBoundingClientRect().right))"
    for width in (1280, 1024, 760, 390, 320):
        panel.cdp("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 500)
        wait(lambda: panel.js("innerWidth") == width, "the width")
        assert panel.js("document.documentElement.scrollWidth") <= width
        assert panel.js(right) <= width


def test_nothing_moves_when_seconds_are_counted(panel, twelve):
    panel.open(twelve.url)
    wait(lambda: panel.count("#guard-processes tbody tr") >= 12, "the processes")
    panel.js("document.querySelector('#guard').scrollIntoView()")
    seen = panel.cell(2)
    wait(lambda: panel.cell(2) != seen, "a second")
    panel.driver.execute_script(
        "window.shift = 0; new PerformanceObserver(l => l.getEntries().forEach(e =>"
        "window.shift += e.value)).observe({type: 'layout-shift'});"
        "window.item = document.querySelector('#guard-decisions li'); window.gone = 0;"
        "new MutationObserver(l => window.gone += l.length).observe(document.querySelector('#guard-decisions'), {childList: true})")
    seen = panel.cell(2)
    for _ in range(3):
        wait(lambda: panel.cell(2) != seen, "a second")
        seen = panel.cell(2)
    assert panel.js("window.shift") < 0.01
    before = panel.text("#guard-decisions li")
    assert panel.js("window.gone") == 0 or panel.js("window.item.textContent") != before, "items were replaced although nothing changed"


def test_every_control_has_a_name_and_no_id_comes_twice(panel, twelve):
    panel.open(twelve.url)
    panel.press("Hold …")
    assert panel.js(
        "[...document.querySelectorAll('input, select, button')].filter(e => !(e.labels?.length"
        "|| e.ariaLabel || e.textContent.trim())).map(e => e.outerHTML)") == []
    labels = panel.js(f"[...document.querySelectorAll('{ROW} button')].map(b => b.ariaLabel)")
    assert len(set(labels)) == 24, "buttons of different workers have the same label"
    ids = panel.js("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    assert panel.count("[aria-live]") == 1
    assert panel.js("[...document.querySelectorAll('table')].every(t => t.caption)")
    assert panel.count("[style]:not(.plot *, .fill, .mark)") == 0
    panel.find("#request button[value=cancel]").click()


def test_hostile_names_are_text(panel, tmp_path):
    path = tmp_path / "world.toml"
    path.write_text('[[gpu]]\nprofile = "rtx4090"\n[[gpu.process]]\nname = "<img src=x>"\nmemory = "9 GiB"\n')
    config = '[guard]\nmode = "observe"\nsimulated = true\n[[worker]]\nname = "w"\nkind = "exec"\nmatch.name = "nobody"\n' \
             'evict_command = ["/bin/true"]\nresume_command = ["/bin/true"]\n'
    with service.Service(path, config=config, token=True) as s:
        panel.open(s.url)
        wait(lambda: "<img src=x>" in (panel.text("#guard-processes tbody") or ""), "the process")
        assert panel.count("#guard img") == 0
        assert panel.text("#guard-mode") == "observe"


def test_on_a_phone_every_process_is_whole(panel, guarded, world):
    with Contender(world, GIB // 4), Contender(world, GIB // 4), Contender(world, GIB // 8):
        panel.open(guarded.url, width=400, height=800)
        wait(lambda: panel.count("#guard-processes tbody tr") >= 4, "all of them")
        cut = "(e => e.scrollHeight - e.clientHeight)(document.querySelector('#guard-processes').parentNode)"
        assert panel.js(cut) <= 1


def test_the_page_does_not_repeat_the_reason_as_last_decision(panel, tmp_path):
    """While requests in flight keep the worker on the GPU, its last decision says the same as its reason."""
    world = World(tmp_path)
    with held(world, "comfy", 10 * GIB, models=["a"], busy=5) as w, Contender(world, 12 * GIB):
        text = configure(defaults=DEFAULTS.replace("drain_s = 1", "drain_s = 60"), guard='unknown = "contend"')
        with Guarded(world, text + w.table("comfy")) as s:
            s.until("drain", name="comfy")
            panel.open(s.url).until("drain")
            assert panel.cell(3).count("no rule matches it") == 1
