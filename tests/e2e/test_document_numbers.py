"""Tests that numbers in documents agree with the source. Each row of NUMBERS has a sentence and the source of its
number."""
import re

import pytest

from support import TOP

UNITS = {"NS_PER_S": 10**9, "NS_PER_MS": 10**6, "NS_PER_US": 10**3}
WORDS = {w: i for i, w in enumerate("zero one two three four five six seven eight nine ten".split())}
KIB, MIB, S, MS, MINUTE = 1 << 10, 1 << 20, 10**9, 10**6, 60 * 10**9


def define(path, name, per=1):
    """Returns the value of #define NAME in a file, divided by per."""
    text = (TOP / "src" / path).read_text()
    found = re.search(rf"^#define {name}[ \t]+(.+?)[ \t]*(?:/\*.*)?$", text, re.M)
    assert found, f"src/{path} does not define {name}"
    value = re.sub(r"UINT64_C\((\d+)\)|(\d)[uUL]+\b", r"\1\2", found[1])
    for unit, n in UNITS.items():
        value = re.sub(rf"\b{unit}\b", str(n), value)
    assert re.fullmatch(r"[\d\s.*+<()-]+", value), f"{name} is {found[1]}, which is no number"
    return eval(value) / per


def setting(section, key):
    """Returns the default of a setting in config.def."""
    text = (TOP / "src/daemon/config.def").read_text()
    return float(re.search(rf'^[FO]\({section}, {key}, \w+, "([\d.]+)[a-z]*"', text, re.M)[1])


def found(path, pattern):
    """Returns the number that a pattern finds in a file."""
    return float(re.search(pattern, (TOP / path).read_text(), re.M)[1])


API, SECURITY, TOP_PAGE = "docs/API.md", "docs/SECURITY.md", "docs/man/gpuward-top.1.scd"
PAGE, MEASURE, LOG = "docs/man/gpuward.1.scd", "docs/man/gpuward-measure.1.scd", "docs/man/gpuward-log.1.scd"
NUMBERS = [  # document, sentence with {} for the number, its source
    ("web/data.js", "export const UNWATCHED = {};", lambda: define("daemon/reader.h", "READER_REST_NS", S)),
    ("src/cli/top_model.c", "#define REST_S {}", lambda: define("daemon/reader.h", "READER_REST_NS", S)),
    (API, "At most {} windows are open at a time", lambda: define("serve/windows.h", "WINDOWS_OPEN_MAX")),
    (API, "A window has at most {} marks", lambda: define("serve/windows.h", "WINDOWS_MARKS_MAX")),
    (API, "all open windows, then the latest {} ended windows", lambda: define("serve/windows.h", "WINDOWS_ENDED_MAX")),
    (API, "the latest {} ended windows are kept over a restart", lambda: define("serve/windows.h", "WINDOWS_ENDED_MAX")),
    (API, "(the window ends after this time; default {})", lambda: define("serve/api_window.c", "LIMIT_S")),
    (API, "If no sample does so within {} s, the result has the code `truncated`", lambda: define("serve/windows.h", "WINDOWS_WAIT_NS", S)),
    (API, "A document has at most {} MiB", lambda: define("serve/view.h", "VIEW_DOCUMENT_MAX", MIB)),
    (API, "The latest {} operations since the start", lambda: define("serve/guard_view.h", "GUARD_OPERATIONS")),
    (API, "The key `reason` of a request, at most {} bytes", lambda: define("serve/guard_doc.h", "GUARD_REASON_MAX")),
    (API, "the latest decisions (`?limit=`, default {})", lambda: define("serve/api_guard.c", "DECISIONS")),
    (API, "returns a list of events, oldest first: the latest {}, or", lambda: define("serve/api_events.c", "EVENTS_STANDARD")),
    (API, "how long the situation lasts, default {};", lambda: define("serve/guard_question.c", "SECONDS_STANDARD")),
    (API, "default 10; at most {} observations are made", lambda: define("guard/guard_query.h", "WHAT_IF_SCENES")),
    (API, "has columns with a step of {} s", lambda: define("measure/process_energy.h", "PROCESS_HISTORY_STEP_NS", S)),
    (API, "for at most {} processes per GPU. If there are more",
     lambda: define("measure/process_energy.h", "PROCESS_HISTORY_ROWS")),
    (API, "of the largest processes over the last {} minutes",
     lambda: define("measure/process_energy.h", "PROCESS_HISTORY_STEP_NS", MINUTE) * define("measure/process_energy.h", "PROCESS_HISTORY_POINTS")),
    (API, "relative to now: `-1h`, `-7d` | the last {} minutes |", lambda: define("serve/api_series.c", "RANGE_NS", MINUTE)),
    (API, "| at most {} points |", lambda: define("serve/api_series.c", "POINTS_AUTO")),
    (API, "the reservation ends after this time; default {};", lambda: define("serve/api_guard_reservation.c", "TTL_S")),
    (API, "the longest time in seconds that the request waits for the memory; default and maximum {} |",
     lambda: define("serve/api_guard_reservation.c", "WAIT_MOST")),
    (API, "for {} s after a request for processes", lambda: define("daemon/engine.c", "LOOK_NS", S)),
    (API, "`/api/v1/processes` waits up to {} s for a reading",
     lambda: define("serve/api_devices.c", "USE_WAIT_NS", S) * define("serve/api_devices.c", "USE_WAITS")),
    (API, "listens on http://127.0.0.1:{};", lambda: found("src/daemon/config.def", r'CONFIG_ADDRESS "127\.0\.0\.1:(\d+)"')),
    (SECURITY, "After {} wrong tokens from one address", lambda: define("serve/http_admit.c", "FAILURES")),
    (SECURITY, "wrong tokens from one address within {} seconds", lambda: define("serve/http_admit.c", "FAILURES_NS", S)),
    (SECURITY, "{} are kept for the UNIX socket", lambda: define("serve/http_conn.c", "UNIX_PLACES")),
    (SECURITY, "A head must fit into {} KiB (otherwise 431)", lambda: define("serve/http_impl.h", "HEAD_MAX", KIB)),
    (SECURITY, "and a body into {} KiB (otherwise 413)", lambda: define("serve/http.h", "HTTP_BODY_MAX", KIB)),
    (SECURITY, "parses configuration files of at most {} MiB", lambda: define("base/toml.c", "FILE_MAX", MIB)),
    (SECURITY, "is limited to a list of system calls and {} MiB", lambda: found("packaging/systemd/gpuward.service", r"^MemoryMax=(\d+)M$")),
    (SECURITY, "at most {} KiB per connection, and has", lambda: define("guard/worker/wire.h", "WIRE_SIZE", KIB)),
    (SECURITY, "It refuses to start (exit status {})", lambda: found("src/daemon/service.h", r"SERVICE_REFUSED = (\d+)")),
    (TOP_PAGE, "(default: {}ms)", lambda: define("cli/cmd_top.c", "INTERVAL_NS", MS)),
    (TOP_PAGE, "*--timeout* is {}s by default here", lambda: define("cli/cmd_top.c", "DRIVER_NS", S)),
    (TOP_PAGE, "and so on, at most {} s apart", lambda: define("cli/top_driver.c", "ENERGY_NS", S)),
    (TOP_PAGE, "with more than {} GPUs they are read every four seconds", lambda: define("cli/top_driver.c", "FEW_GPUS")),
    (TOP_PAGE, "and with more than {} every ten.", lambda: define("cli/top_driver.c", "MANY_GPUS")),
    (TOP_PAGE, "At least {} columns and", lambda: define("cli/top_screen.h", "TOP_COLUMNS_MIN")),
    (TOP_PAGE, "columns and {} rows; a smaller terminal", lambda: define("cli/top_screen.h", "TOP_ROWS_MIN")),
    (TOP_PAGE, "its own interval, {} s by default", lambda: setting("service", "interval")),
    (PAGE, "Stop waiting for a driver call after this time (default: {}s;",
     lambda: found("src/cli/cli.c", r"o\.deadline_ns = (\d+) \* NS_PER_S")),
    (MEASURE, "The first {} parts are measured", lambda: define("cli/progress_marks.h", "PROGRESS_MARKS_WINDOWS")),
    (LOG, "the command waits at most {} ms for a GPU that is late", lambda: define("cli/cmd_log.c", "HOLD_NS", MS)),
    (LOG, "Write a line every _TIME_ (default: {}ms", lambda: define("cli/cmd_log.c", "INTERVAL_NS", MS)),
    ("docs/GUARD.md", "times per hour ({}; 0: no limit)", lambda: setting("guard", "user_evictions")),
    ("docs/ARCHITECTURE.md", "HEALTH and LIMITS every {} seconds", lambda: found("src/device/backend.c", r"(\d+) \* NS_PER_S, /\* HEALTH")),
]


# The table of GUARD-MACHINE.md has one row per constant: name, value, meaning.
CONSTANTS = re.findall(r"^\| `([A-Z_]+)` \| (\d+)( s)? \|", (TOP / "docs/GUARD-MACHINE.md").read_text(), re.M)
# The constants of the guard, and their files below src.
DEFINED = {name: path for path in ("guard/guard_internal.h", "guard/scene.h") for name in
           re.findall(r"^#define ([A-Z_]+(?:_NS|_SCENES|_ERRORS|RETRIES)|RETRIES)[ \t]", (TOP / "src" / path).read_text(), re.M)}


def test_the_table_of_constants_has_each_constant_of_the_guard():
    assert sorted(DEFINED) == sorted(name for name, _, _ in CONSTANTS)


@pytest.mark.parametrize("name,value,seconds", CONSTANTS, ids=[c[0] for c in CONSTANTS])
def test_a_constant_of_the_guard_is_that_of_the_source(name, value, seconds):
    assert float(value) == define(DEFINED[name], name, S if seconds else 1)


@pytest.mark.parametrize("document,sentence,source", NUMBERS, ids=[f"{d.rpartition('/')[2]}: {s}" for d, s, _ in NUMBERS])
def test_a_number_of_a_document_is_that_of_the_source(document, sentence, source):
    text = " ".join((TOP / document).read_text().split())
    before, after = map(re.escape, sentence.split("{}"))
    has = re.search(rf"{before}([\d.,]*\d|{'|'.join(WORDS)}){after}", text, re.I)
    assert has, f"{document} has no sentence like: {sentence}"
    number = WORDS.get(has[1].lower())
    assert (float(has[1].replace(",", "")) if number is None else number) == pytest.approx(source()), has[0]
