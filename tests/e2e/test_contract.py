"""Tests the interfaces that users depend on: JSON documents, metrics, configuration keys, options, exit codes and the guard's
decisions.

Each is compared with a file in tests/golden/contract.  Only what must not change is kept: keys, their order, types and
stable values.  Sentences for people become "text", measured numbers "number", times "time"; a run of equal list items
becomes one.  GPUWARD_GOLDEN=write writes the files again except the decisions, which GPUWARD_GOLDEN=write-decisions writes:
another decision in an old situation is a change of what the guard does.  Read the difference before you commit it.

The recordings in tests/golden/contract/recordings (zcat shows them) were made by a service on a simulated GPU.  They are
never written again: a recording of an older version must replay to the same decisions.
"""
import gzip
import json
import os
import re

import pytest

import openapi_check
import test_openapi
from guarded import Guarded, configure, quick
from service import Service
import support
from support import CONSTANT, FIXTURES, SIMULATOR, TOP, carry_baselines, environment, gpuward
from synthetic import needs_reader, result, save
from test_bad_input import REFUSED
from test_openapi import document, early, live, stuck, watched  # noqa: F401 (fixtures)
from worker import GIB, Contender

pytestmark = needs_reader
GOLDEN = TOP / "tests" / "golden" / "contract"
RECORDINGS = sorted((GOLDEN / "recordings").glob("*.trace.gz"))
SCENE = f"--simulate={TOP / 'tests' / 'golden' / 'still.toml'}"
STILL = [SCENE, "--root", FIXTURES / "amd-discrete", "--backend=nvml"]

# Keys with sentences for people.
TEXT = set("""advice clears configured detail ghost driver_call dry_run_why error_message evidence help hint message next note notes remedy
    reset rule sentence sentences summary description text title value_absent
    what why why_rule""".split())
# Keys with values that differ between machines, builds or runs; and verdicts, which depend on how busy the machine is.
VARIES = set("""aa_alarm change_basis change_verdict code codes ending files file how id nvml_library operation outcome path
    reservation source validity verdict version version_now version_then""".split())
# Objects with facts about the machine; they may be absent.
MACHINE = {"host", "cpu", "ram", "nvidia", "rapl"}
# Keys with numbers that are not measured and do not change.
NUMBERS = set("""backoff column device device_index exit_code exit_status index level line minimum maximum maxItems maxLength
    minItems minLength pairs priority runs schema_version status trial""".split())
# Keys of measured values and times; null if there was too little time.
MEASURED = re.compile(r".*_(bytes|bytes_per_second|celsius|hertz|joules|ratio|seconds|utc|watts)|p\d+|mean|sd|min|max|low|best|high")
# Lists with a length that depends on what has happened: only the keys of their items are compared.
HISTORY = {"decisions", "events"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def masked(value, key="", machine=False):
    """Returns value with everything that may change replaced by its type."""
    if isinstance(value, dict):
        if (machine and key == "absent") or key in TEXT:
            return key
        return {k: masked(v, k, machine or key in MACHINE) for k, v in value.items()}
    if support.CONTAINED:  # the golden files come from a machine without a container
        if key == "hidden_processes":
            value = False
        if key == "findings":
            value = [v for v in value if v["cause"] != "pid_namespace"]
    if isinstance(value, list) and key in HISTORY:
        return [list(value[0])] if value else []
    if isinstance(value, list):
        items = [masked(v, key, machine) for v in value]
        return [v for i, v in enumerate(items) if i == 0 or v != items[i - 1]]
    if machine:
        return "fact"
    if key in VARIES:
        return "varies"
    if MEASURED.fullmatch(key) and (value is None or isinstance(value, (int, float)) or TIME.fullmatch(value)):
        return "measured"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return value if key in NUMBERS else "number"
    if key in TEXT:
        return "text"
    return "time" if TIME.fullmatch(value) else re.sub(r"\bpid \d+", "pid N", value.replace(str(SIMULATOR), "SIMULATOR"))


def pretty(value, indent=""):
    """Returns JSON in filled lines of at most 160 columns."""
    text = json.dumps(value, ensure_ascii=False)
    if len(indent + text) <= 160 or not isinstance(value, (dict, list)):
        return text
    pairs = [(json.dumps(k) + ": ", v) for k, v in value.items()] if isinstance(value, dict) else [("", v) for v in value]
    rows = [""]
    for item in (k + pretty(v, indent + " ") for k, v in pairs):
        if rows[-1] and ("\n" in rows[-1] + item or len(indent + rows[-1] + item) > 156):
            rows.append("")
        rows[-1] += (", " if rows[-1] else "") + item
    head, tail = "{}" if isinstance(value, dict) else "[]"
    return head + ",".join(f"\n{indent} {row}" for row in rows) + f"\n{indent}{tail}"


def compare(name, got):
    """Asserts that got, a text or a value for json.dumps(), is equal to the golden file."""
    path = GOLDEN / name
    if not isinstance(got, str):
        got = pretty(got) + "\n"
    if os.environ.get("GPUWARD_GOLDEN") == ("write-decisions" if name.startswith("decisions/") else "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(got)
    assert got == path.read_text(), f"{path} differs"


def lines(items):
    return "".join(f"{i}\n" for i in items)


MARKING = ("import os, time; f = os.fdopen(int(os.environ['GPUWARD_MARK_FD']), 'w', 1)\n"
           "for line in ('begin load', 'end load', 'begin run', 'iterations 4', 'tokens 8', 'end run'):\n"
           "    print(line, file=f); time.sleep(0.1)")  # the parts take time: their energy is measured
BAD = "[service]\nlisen = 1\ninterval = 'soon'\n[lgo]\n[[worker]]\nname = 'v'\nkind = 'vlm'\n"
WORKER_KEYS = {  # every key of [[worker]], [[rule]] and [[schedule]]; kinds of workers have their own test
    "exec": 'evict_command = ["/bin/true"]\nresume_command = ["/bin/true"]\ngpus = ["0"]\npriority = 3\nresume = "restore"\n'
            'managed = true\nac_only = true\nmatch.name = "a*"\nmatch.exe = "/a/*"\nmatch.command = "a"\nmatch.cgroup = "a*"\n'
            'match.container = "abc"\nmatch.uid = 5\nmatch.pidfile = "/a"\nmatch.port = 5\ndebounce_ms = 1\nquiet_s = 1\n'
            'min_resident_s = 1\ndrain_s = 1\nverify_s = 1\nbudget_s = 9\npost_action_s = 1\nheadroom = "1GiB"\n'
            'headroom_percent = 5\nmin_vram = "1MiB"\nutil_percent = 1\nutil_s = 1\nmax_level = 6\nallow_kill = true\n',
    "ollama": 'url = "http://127.0.0.1:1"\nidle_after = 60\nidle_w = 20\nreload_j = 500\nresume = "lazy"\n',
    "vllm": 'url = "http://127.0.0.1:2"\nlevel = 2\nresume = "never"\n',
    "kobold": 'model = "a.kcpps"\ntoken_file = "/absent"\n',
    "signal": 'match.unit = "a.service"\nevict_signal = "SIGUSR1"\nresume_signal = "SIGUSR2"\n',
}
TABLES = ('[[rule]]\nmatch.type = ["compute", "graphics"]\nmatch.vram_ge = "1GiB"\nmatch.util_ge = 5\nmatch.gpu = "0"\n'
          'match.name = "a"\nmatch.uid = 5\naction = "ignore"\n'
          '[[schedule]]\nworker = "*"\nevict = ["Fri-Sun 18:00-23:00"]\n')
CHOICES = {  # the variable of each setting that takes one of several words, and these words
    "DEVICE_BACKEND": "auto all nvml nvidia-smi amdgpu intel none", "LOG_LEVEL": "error warning info debug",
    "LOG_FORMAT": "logfmt json", "GUARD_PROFILE": "none desktop server container", "GUARD_MODE": "observe dry-run enforce",
    "GUARD_DEMAND": "thresholds any", "GUARD_UNKNOWN": "contend watch", "GUARD_ON_BLIND": "keep evict",
    "GUARD_ON_STOP": "restore leave",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the files that the commands read."""
    top = tmp_path_factory.mktemp("contract")
    (top / "constant.toml").write_text(CONSTANT)
    (top / "bad.toml").write_text(BAD)
    (top / "good.toml").write_text('[guard]\nmode = "enforce"\n' + TABLES + "".join(
        f'[[worker]]\nname = "{kind}"\nkind = "{kind}"\n{keys}' for kind, keys in WORKER_KEYS.items()))
    for path in RECORDINGS:
        (top / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    for name, power in (("a", 300.0), ("b", 330.0)):
        save(top, f"{name}.json", result(label=name, power=power, seconds=12.5, iterations=1000))
    return top


def home(place, **more):
    """The environment of a user without configuration and with an empty cache."""
    return environment(HOME=place, XDG_CACHE_HOME=place / "cache", GPUWARD_CONFIG_ROOT=place / "none", **more)


def run(place, *args, code=0, **more):
    done = gpuward(*args, cwd=place, env=home(place, **more))
    assert done.returncode == code, done.stderr
    return done.stdout


DOCUMENTS = {  # name: (exit code, words); "%" is the folder
    "list": (0, ["list", *STILL, "--json"]),
    "list-mig": (0, ["list", "--simulate=mig", "--json"]),
    "snapshot": (0, ["snapshot", *STILL, "--json"]),
    "env": (0, ["env", *STILL, "--json"]),
    "doctor": (0, ["doctor", *STILL, "--json"]),
    "doctor-no-driver": (3, ["doctor", "--simulate=version-mismatch", "--json"]),
    "log": (0, ["log", "--simulate=constant.toml", "-i", "20ms", "-d", "200ms", "--json"]),
    "baseline": (0, ["baseline", "--simulate=idle.toml", "--time", "2s", "--json"]),
    "measure": (0, ["measure", "--simulate=constant.toml", "--label=a", "--tag=k=v", "--bundle=bundle", "--json", "--",
                    "/usr/bin/python3", "-c", MARKING]),
    "recompute": (0, ["recompute", "--json", "bundle"]),
    "measure-two": (0, ["measure", "--simulate=two-gpus", "--trials=2", "--no-cooldown", "--tokens=5", "--json", "--",
                        "sleep", "0.2"]),
    "ab": (0, ["ab", "--simulate=constant.toml", "--pairs-max=3", "--aa-pairs=2", "--no-cooldown", "--seed=7", "--json", "--",
               "sleep", "0.05", "--", "sleep", "0.3"]),
    "compare": (0, ["compare", "--json", "a.json", "b.json"]),
    "diff": (0, ["diff", "--json", "a.json", "b.json"]),
    "characterise": (0, ["characterise", "--simulate=constant.toml", "--show", "--json"]),
    "config-check": (0, ["config", "check", "--json", "good.toml"]),
    "config-check-bad": (2, ["config", "check", "--json", "bad.toml"]),
}


def parsed(text):
    """Parses one document, or one document per line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def test_documents_of_the_command_line(place):
    (place / "idle.toml").write_text('[[gpu]]\nprofile = "h200"\n')
    for name, (code, words) in DOCUMENTS.items():
        compare(f"cli/{name}.json", masked(parsed(run(place, *words, code=code))))
        if name == "baseline":  # the GPU of the next scenario gets the same baseline
            carry_baselines(home(place), "idle.toml", "constant.toml", place)


def test_headings_of_tables_for_programs(place):
    """The columns of CSV."""
    log = run(place, "log", "--simulate=two-gpus", "-i", "20ms", "-d", "60ms", "--format=csv")
    compared = run(place, "compare", "--format=csv", "a.json", "b.json")
    compare("csv.txt", lines(text.splitlines()[0] for text in (log, compared)))


def test_settings_with_their_types_and_defaults(place):
    doc = json.loads(run(place, "config", "print", "--json"))
    given = {f"GPUWARD_{section.replace('.', '_')}_{key}".upper().replace("_SERVICE_", "_"): str(value).lower()
             for section, keys in doc["values"].items() for key, value in keys.items() if isinstance(value, (bool, int, float))}
    named = json.loads(run(place, "config", "print", "--json", **given))
    compare("config.json", {"values": doc["values"], "variables": named["origins"]})
    tables = json.loads(run(place, "config", "print", "--json", "good.toml"))
    compare("config-tables.json", {k: tables[k] for k in ("workers", "rules", "schedules")})


@pytest.mark.parametrize("name", CHOICES)
def test_words_that_a_setting_takes(place, name):
    for word in CHOICES[name].split():
        assert f"'{word}'" in str(json.loads(run(place, "config", "print", "--json", **{f"GPUWARD_{name}": word}))["values"])
    run(place, "config", "check", **{f"GPUWARD_{name}": "other"}, code=2)


COMMANDS = re.findall(r"^C\((\w+)\)", (TOP / "src/cli/commands.def").read_text(), re.M)
VERBS = "status explain history evict resume hold pause snooze release game clear learn replay recover".split()
OPTION = re.compile(r"^ +((?:-\w, )?--[a-z][\w-]*(?:\[=\w+\]| [A-Z][\w=:|]*)?)", re.M)


def test_options_of_every_command(place):
    def options():
        for words in ([], *([c] for c in COMMANDS), *(["guard", v] for v in VERBS)):
            text = run(place, *words, "--help", COLUMNS="200")
            yield from re.findall("^Usage: .*", text, re.M)
            yield from ("  " + o for o in OPTION.findall(text))
    compare("options.txt", lines(options()))


CALLS = [  # exit codes of calls, in addition to those in test_bad_input.py
    [], ["--help"], ["--version"], ["version"], ["help"], ["list", "--backend=none"], ["list", "--simulate"], ["list", "--simulate=mig", "--gpu=9"],
    ["list", "--simulate=lost-gpu"], ["list", "--simulate=version-mismatch"], ["list", "--simulate=help"],
    ["list", "--simulate", "-q", "-v"], ["snapshot", "--simulate", "--gpu=0", "--no-processes"],
    ["doctor", "--simulate=two-gpus"], ["doctor", "--simulate=version-mismatch"], ["env", "--simulate", "--backend=none"],
    ["env", "--simulate", "--backend=nvidia-smi"], ["measure"], ["measure", "--"], ["measure", "--simulate", "--", "/nonexistent"],
    ["measure", "--simulate", "--", "false"], ["measure", "--simulate", "--", "sh", "-c", "exit 7"],
    ["measure", "--simulate", "--", "sh", "-c", "kill -TERM $$"], ["measure", "--simulate", "--trials=0", "--", "true"],
    ["measure", "--simulate=two-gpus", "--require-exclusive", "--", "sleep", "0.2"], ["measure", "--backend=none", "--", "true"],
    ["measure", "--service", "--address=127.0.0.1:1", "--", "true"], ["measure", "--simulate", "-o", "/nonexistent/a", "--", "true"],
    ["ab", "--simulate", "--", "true"], ["ab", "--simulate", "--fail-if=nonsense", "--", "true", "--", "true"],
    ["ab", "--simulate=constant.toml", "--pairs-max=2", "--aa-pairs=0", "--no-cooldown", "--", "false", "--", "true"],
    ["ab", "--simulate=two-gpus", "--require-exclusive", "--pairs-max=2", "--no-cooldown", "--", "sleep", "0.2", "--", "true"],
    ["compare"], ["compare", "none.json"], ["compare", "constant.toml"], ["compare", "a.json", "b.json"],
    ["compare", "--metric=nothing", "a.json"], ["diff", "a.json"], ["diff", "a.json", "b.json"], ["diff", "a.json", "none.json"],
    ["report"], ["report", "none.json"], ["plot", "none.json"], ["recompute", "none"], ["replay", "none"],
    ["recompute", FIXTURES / "bundle-h200"], ["baseline", "--backend=none"], ["baseline", "--simulate", "--kind=none"],
    ["characterise", "--simulate=constant.toml", "--show"], ["characterise", "--backend=none"],
    ["config"], ["config", "check"], ["config", "print"], ["config", "check", "bad.toml"], ["config", "check", "none.toml"],
    ["config", "check", "--origin"], ["config", "print", "--origin", "--example"], ["config", "print", "--example"],
    ["serve", "--config=bad.toml"], ["serve", "--listen=nowhere", "--simulate"], ["serve", "--interval=0", "--simulate"],
    ["serve", "extra"], ["guard"], ["guard", "frobnicate"], ["guard", "status", "--address=127.0.0.1:1"],
    ["guard", "evict", "--address=127.0.0.1:1"], ["guard", "hold", "active", "w", "--address=127.0.0.1:1"],
    ["guard", "hold", "sideways", "w", "--forever"], ["guard", "snooze"], ["guard", "snooze", "soon"], ["guard", "game", "start"],
    ["guard", "replay"], ["guard", "replay", "none"], ["guard", "replay", "constant.toml"], ["guard", "replay", "--for=1s", "none"],
    ["guard", "replay", "--policy=bad.toml", "blind.trace"], ["guard", "replay", "blind.trace"], ["guard", "recover", "extra"],
    ["run", "--address=127.0.0.1:1"], ["run", "--address=127.0.0.1:1", "--reserve=1GiB", "--", "true"],
    ["completion"], ["completion", "bash"], ["completion", "zsh"], ["completion", "fish"], ["completion", "tcsh"],
    ["log", "--simulate", "-d", "50ms", "-i", "10ms"], ["log", "--simulate", "-i", "0"], ["log", "--backend=none", "-d", "10ms"],
    ["log", "--simulate", "--json", "--format=csv"], ["frobnicate", "--help"],
]


def test_exit_codes(place):
    def outcome(words):
        code = gpuward(*words, cwd=place, env=home(place)).returncode
        return f"{code:3} " + " ".join(str(w).replace(str(TOP), "TOP") for w in words)
    compare("exit-codes.txt", lines(map(outcome, CALLS + [words for words, _ in REFUSED])))


@pytest.mark.parametrize("trace", [p.stem for p in RECORDINGS])
def test_a_recording_replays_to_the_same_decisions(place, trace):
    """Rules are sentences that contain file names, so they are replaced by R1, R2, ...: decisions with the same rule get the same
    name."""
    rules = {None: None}
    decisions = [json.loads(line) for line in run(place, "guard", "replay", trace, "--json", "--quiet").splitlines()]
    for d in decisions:
        d["rule"] = rules.setdefault(d["rule"], f"R{len(rules)}")
        d["evidence"] = d["evidence"] and "text"
    compare(f"decisions/{trace.removesuffix('.trace')}.jsonl", lines(map(json.dumps, decisions)))


STATEFUL = {"getWindows", "getEvents", "getSeries", "getDeviceSeries", "getSelf"}


def keys(value):
    """Returns the keys of a document in their order.  Lists and measured objects are left out, because they may be empty."""
    return {k: keys(v) if not MEASURED.fullmatch(k) else None for k, v in value.items()} if isinstance(value, dict) else None


def keep(name, got, replies, what=masked):
    """Compares the document of a successful reply; an error becomes a line of replies."""
    kind = got.headers.get("Content-Type", "").partition(";")[0]
    doc = got.json() if "json" in kind and got.content else None
    bad = got.status_code >= 400
    replies.append(f"{name} {got.status_code} {kind}" + (f" {json.dumps(masked(doc))}" if bad else ""))
    if doc and not bad:
        compare(f"rest/{name}-{got.status_code}.json", what(doc))


def test_every_answer_of_the_service(live, early, stuck, watched, document):  # noqa: F811
    """The state of the service at that time is not known, so only keys are compared, except for documents that do not depend on
    it."""
    known = {o["operationId"] for _, _, o in openapi_check.operations(document)}
    replies = []
    # Requests that need a service without readings come first, because `early` has its first reading after a minute.
    for name, status, how in sorted(test_openapi.cases(document, live, early, stuck, watched), key=lambda c: c[1] != 503):
        if name in known - {"getOpenapi"} - test_openapi.PAGE:
            keep(name, how(), replies, masked if name in test_openapi.GETS and name not in STATEFUL else keys)
    compare("rest.txt", lines(sorted(replies)))


def test_answers_about_windows_and_settings():
    replies = []
    with Service("two-gpus", "--manage", token=True) as s:
        window = s.post("/api/v1/windows", json={"label": "x", "gpus": [0], "tags": {"k": "v"}}, token=True).headers["Location"]
        s.post(window + "/marks", json={"label": "part"}, token=True)
        s.wait(lambda: s.get(window).json()["devices"][0]["samples"]["collected"] > 10)
        keep("endedWindow", s.post(window + "/stop", token=True), replies)
        s.wait(lambda: s.get("/api/v1/series?quantity=power_watts").json()["series"])
        keep("oneSeries", s.get("/api/v1/devices/0/series?quantity=power_watts"), replies)
        uuid = s.get("/api/v1/devices/0").json()["uuid"]
        limit, ecc = f"/api/gpu/manage/{uuid}/power-limit", f"/api/gpu/manage/{uuid}/clear-ecc"
        keep("setSetting", s.ask("PUT", limit, token=True, json={"watts": 350}), replies)
        keep("getManageChanged", s.get("/api/gpu/manage"), replies)
        keep("restoreSetting", s.ask("DELETE", limit, token=True), replies)
        keep("clearEcc", s.post(ecc, token=True), replies)
        for how in ({"json": {"watts": 350}}, {"json": {"watts": 1e9}, "token": True}, {"json": {"wats": 1}, "token": True}):
            keep("setSetting", s.ask("PUT", limit, **how), replies)
        keep("setSetting", s.ask("PUT", limit.replace("power", "no"), json={"watts": 350}, token=True), replies)
    compare("rest-changes.txt", lines(replies))


def test_documents_of_a_guard_that_acts(world, worker):
    """A game comes, a person holds the worker, memory is reserved."""
    replies = []
    patient = quick(verify_s=30, drain_s=30, budget_s=90)  # no step may fail because the machine is busy
    with Guarded(world, configure(("ollama", worker), defaults=patient)) as s:
        s.settled()
        with Contender(world, 8 * GIB) as game:
            s.until("evicted")
            s.guard("hold", "evicted", "ollama", "--for", "1h", "--reason", "a person")
            s.post("/api/v1/guard/games", token=True, json={"pid": game.pid, "ttl_s": 60})
            room = s.post("/api/v1/guard/reservations", token=True, json={"bytes": GIB, "ttl_s": 600})
            s.wait(lambda: sorted(s.worker()["mask"]) == ["contention", "manual"])
            keep("reserveMemoryBesideAGame", room, replies)
            for name, path in (("Guard", ""), ("Gpu", "/gpus/0"), ("Worker", "/workers/ollama"), ("Explain", "/explain"),
                               ("Games", "/games")):
                keep(f"guarded{name}", s.get("/api/v1/guard" + path), replies)
            fit = "/api/v1/capacity/fit?bytes=9000000000"
            s.wait(lambda: s.get(fit).json()["fit"] == "now")  # when the GPU was read once more
            keep("guardedCapacity", s.get(fit), replies)
            for verb in (["status"], ["explain"], ["explain", "ollama"], ["release"], ["pause", "--for", "1m"]):
                done = s.guard(*verb, "--json")
                compare(f"cli/guard-{'-'.join(v for v in verb if v[0] != '-')}.json", masked(parsed(done.stdout)))
    compare("rest-guarded.txt", lines(replies))


def structure(node):
    """Returns a JSON schema or an OpenAPI document without its texts for people."""
    if isinstance(node, list):
        return [structure(v) for v in node]
    if not isinstance(node, dict):
        return node
    return {k: structure(v) for k, v in node.items()
            if not (k in ("description", "summary", "title", "example", "examples", "$comment") and not isinstance(v, dict))
            and k != "example"}


def inlined(name, doc, *place):
    """Returns doc with each named part that the golden file lacks inserted where it is used: a new name for a part is no change."""
    def parts(d):
        for step in place:
            d = d.get(step, {})
        return d

    path = GOLDEN / name
    known = parts(json.loads(path.read_text())) if path.exists() else parts(doc)
    own = parts(doc)

    def walk(node):
        if isinstance(node, list):
            return [walk(v) for v in node]
        if not isinstance(node, dict):
            return node
        part = node.get("$ref", "").rsplit("/", 1)[-1]
        if part in own and part not in known:
            node = {**node, "allOf": node.get("allOf", []) + [own[part]]}
            del node["$ref"]
        node = {k: walk(v) for k, v in node.items()}
        for base in node.pop("allOf", []):  # an object that extends another one is merged with it
            for key, join in (("properties", lambda a, b: {**a, **b}), ("required", lambda a, b: a + b)):
                if key in base and key in node:
                    node[key] = join(base[key], node[key])
            node = {**base, **node}
        for key in ("required", "enum"):
            if isinstance(node.get(key), list):
                node[key] = sorted(set(node[key]), key=str)
        return dict(sorted(node.items()))

    doc = walk(doc)
    for extra in set(own) - set(known):
        del parts(doc)[extra]
    return doc


def test_schemas(document):  # noqa: F811
    document = structure(document)
    document["info"].pop("version")
    compare("openapi.json", inlined("openapi.json", document, "components", "schemas"))
    own = [p for p in sorted((TOP / "docs" / "schema").glob("*.json")) if p.name not in ("api.json", "quantities.json")]
    for path in own:  # /openapi.json contains these two unchanged
        name = f"schema/{path.name}"
        compare(name, inlined(name, structure(json.loads(path.read_text())), "$defs"))


def test_metrics(live, watched):  # noqa: F811
    def rows(text):
        types = dict(re.findall(r"^# TYPE (\S+) (\w+)", text, re.M))
        for series in re.findall(r"^([a-z]\S*?)(?:{(.*)})? \S+$", text, re.M):
            labels = ",".join(re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', series[1]))
            yield f"{series[0]} {types.get(series[0], '?')} {{{labels}}}"
    # values that are read less often, or only while a client shows processes
    late = [f"gpuward_{name}{{" for name in ("gpu_driver_energy_joules_total", "workload_power_watts", "workload_utilization_sm_ratio")]
    live.wait(lambda: live.get("/api/v1/processes") and all(name in live.get("/metrics").text for name in late))
    compare("metrics.txt", lines(sorted({row for s in (live, watched) for row in rows(s.get("/metrics").text)})))


def test_keys_of_the_log():
    found = {key for path in (TOP / "src").rglob("*.c") for key in re.findall(r'\bLOG_[SIDB]\(\s*"(\w+)"', path.read_text())}
    compare("log-keys.txt", lines(sorted(found)))
