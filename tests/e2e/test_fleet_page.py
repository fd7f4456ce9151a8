"""Tests the tab Fleet of the page in a real Chromium: two hundred nodes, faults, hostile names, the width of a
phone."""
import pytest

from fake_prometheus import FakePrometheus, nodes
from support import wait
from test_page import chromium, needs_daemon, page, service  # noqa: F401

pytestmark = [needs_daemon, pytest.mark.deep]
EVIL = "<img src=x onerror=window.evil=1>"


def many():
    rows = nodes(200)
    rows["targets"][6] = ({"job": "gpuward", "instance": "n7"}, 0)
    rows["now"] = [r for r in rows["now"] if r[0]["instance"] != "n7"]
    rows["idle"], rows["idle_watts"] = [({"instance": "n9"}, 3)], [({"instance": "n9"}, 360)]
    rows["attention"] = [({"instance": "n2", "gpu": "5", "uuid": "GPU-n2-5", "reason": "down", "state": "lost"}, 9),
                         ({"instance": "n3", "gpu": "0", "uuid": "GPU-n3-0", "reason": "ecc"}, 7)]
    rows["down"] = [({"instance": "n2"}, 1)]
    rows["workloads"] += [({"kind": "kubernetes", "namespace": EVIL, "name": f"train-{i}"}, 1e6 * i) for i in range(1, 20)]
    rows["model_energy"].append(({"model": EVIL}, 9))
    return rows


@pytest.fixture(scope="module")
def fake():
    with FakePrometheus(many()) as e:
        yield e


@pytest.fixture(scope="module")
def fleet(service, fake):  # noqa: F811
    return service("two-gpus", env={"GPUWARD_FLEET_PROMETHEUS": fake.url})


def opened(page, fleet, **more):  # noqa: F811
    page.driver.get("about:blank")  # if only the part after # differs, the browser loads nothing
    page.open(fleet.url, path="/#fleet", **more)
    wait(lambda: page.count("#fleet-nodes tbody tr") == 200, "200 nodes")
    return page


def test_the_tab_shows_the_fleet(page, fleet):  # noqa: F811
    page.open(fleet.url).live()
    wait(lambda: page.shown("#tabs"), "the tab")
    assert page.shown("#machine") and not page.shown("#fleet")
    page.find("#tabs a[href='#fleet']").click()
    wait(lambda: page.count("#fleet-nodes tbody tr") == 200, "200 nodes")
    assert not page.shown("#machine")
    assert page.text("#fleet-total-nodes") == "200 (1 down)" and page.text("#fleet-total-gpus") == "1592 (1 down)"
    assert page.text("#fleet-total-idle") == "3 GPUs, 360 W"
    first = page.text("#fleet-attention li")
    assert "n7 cannot be scraped" in first and "systemctl status gpuward" in first.lower()
    assert "lost" in page.text("#fleet-attention li:nth-child(2)")
    assert page.text("#fleet-models tbody tr td:last-child") == "0.250"
    page.find("#tabs a:first-child").click()
    wait(lambda: page.shown("#machine"), "the machine")
    assert page.complaints() == [] and page.js("window.violations") == []


def test_nodes_are_sorted_and_filtered(page, fleet):  # noqa: F811
    opened(page, fleet)
    assert page.text("#fleet-nodes tbody th") == "n200"  # the node with the most energy
    page.find("#fleet-filter").send_keys("n19")
    wait(lambda: page.count("#fleet-nodes tbody tr") == 11, "eleven nodes")
    assert page.text("#fleet-node-count") == "11 of 200 shown"
    page.find("#fleet-nodes thead th:nth-child(4) button").click()
    assert page.text("#fleet-nodes tbody th") == "n199"


def test_where_a_job_fits_is_asked_by_keyboard(page, fleet):  # noqa: F811
    opened(page, fleet)
    page.find("#fleet-size").send_keys("85\n")
    wait(lambda: page.count("#fleet-places tbody tr"), "places")
    assert page.text("#fleet-places tbody th") == "n6" and page.text("#fleet-fit-note") == "194 nodes"  # n7 is down


def test_hostile_names_stay_text(page, fleet):  # noqa: F811
    opened(page, fleet)
    assert EVIL in page.text("#fleet-models") and page.count("#fleet img") == 0 and page.js("window.evil") is None


@pytest.mark.parametrize("scheme, width", [("dark", 1920), ("light", 1280), ("light", 390)])
def test_no_part_is_wider_than_the_window(page, fleet, scheme, width):  # noqa: F811
    opened(page, fleet, scheme=scheme, width=width)
    assert page.js("document.documentElement.scrollWidth") <= width
    overlaps = page.js("""(() => {
        const all = [...document.querySelectorAll('.top > *')].filter(e => e.offsetParent).map(e => e.getBoundingClientRect());
        return all.some((a, i) => all.some((b, k) => i < k && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1));
    })()""")
    assert not overlaps


def test_old_figures_say_their_age_and_the_error(page, fleet, fake):  # noqa: F811
    opened(page, fleet)
    fake.fault = lambda query: (500, "text/plain", b"disk full")
    try:
        wait(lambda: "disk full" in page.text("#fleet-error"), "the error")
        assert page.shown("#fleet-error") and " old" in page.text("#fleet-error")
        assert page.js("document.querySelector('#fleet').classList.contains('old')") and page.count("#fleet-nodes tbody tr") == 200
    finally:
        fake.fault = lambda query: None


@pytest.mark.parametrize("real, words", [(0, "SIMULATED GPUs: no value is real"), (8, "Some of these GPUs are simulated: their values are not real")])
def test_the_mark_says_whether_all_gpus_are_simulated(page, fleet, fake, real, words):  # noqa: F811
    before = fake.rows["simulated"]
    fake.rows["simulated"] = [({"simulated": "true"}, 8)] + [({"simulated": "false"}, real)] * bool(real)
    try:
        opened(page, fleet)
        wait(lambda: page.shown("#fleet-simulated") and page.text("#fleet-simulated") == words, words)
    finally:
        fake.rows["simulated"] = before


def test_there_is_no_tab_without_an_engine(page, service):  # noqa: F811
    page.open(service("two-gpus").url).live()
    wait(lambda: page.count("#self dd"), "the cost of the service")
    assert not page.shown("#tabs") and page.complaints() == []
