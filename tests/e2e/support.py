"""The common functions of the end-to-end tests: they run the program and check its documents.

The program that is tested is build/gpuward, or the one below GPUWARD_BUILD.  No test asserts a
time: TIMEOUT only keeps a hang from blocking the run.

GPUWARD_TEST_JITTER=S in the environment makes each run of the program and each request to a service wait a random time
of 0 to S seconds first, as a busy machine would.  If a test fails only with this variable, it assumes that its next
step is quick; make it wait for the state that it needs.  The first lines of the run show the seed; GPUWARD_TEST_SEED=N
uses the same seed again.

    GPUWARD_TEST_JITTER=1 pytest -n 8 tests/e2e/test_guard_contention.py
"""
import contextlib
import fcntl
import functools
import json
import os
import pathlib
import pty
import random
import re
import shutil
import socket
import struct
import subprocess
import termios
import time

import jsonschema
import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GPUWARD_BUILD", TOP / "build")).resolve()
PROGRAM = BUILD / "gpuward"
SIMULATOR = BUILD / "sim" / "libnvidia-ml.so.1"
FIXTURES = TOP / "tests" / "fixtures"
SCHEMAS = TOP / "docs" / "schema"
COMMANDS = ("list", "snapshot", "env", "doctor")
TIMEOUT = 60
JITTER = float(os.environ.get("GPUWARD_TEST_JITTER", 0))
chance = random.Random()  # conftest.py seeds it for each test

OK, FAILED, USAGE, NO_GPU, PARTIAL = 0, 1, 2, 3, 4  # exit codes, src/cli/cli.h

# A card that draws constant power, and has done so for a while.
WATTS = 400
CONSTANT = f"""
[time]
begin = 30
[[gpu]]
profile = "h200"
[[gpu.load]]
kind = "constant"
unit = "watts"
level = {WATTS}
"""


def environment(**changes):
    """Returns a small, known environment; a value of None removes the variable."""
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "xterm", "HOME": "/"}
    for name in ("ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
        if name in os.environ:
            env[name] = os.environ[name]
    env.update(changes)
    return {k: str(v) for k, v in env.items() if v is not None}


def other_clock(shift):
    """Returns environment variables with which a program's clock is shifted, for example by "+30d"."""
    library = f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketime.so.1"
    if not os.path.exists(library):
        pytest.skip("faketime is not installed")
    # Without the last variable, version 0.9.10 lets pthread_cond_timedwait() of a monotonic time end at once.
    return {"LD_PRELOAD": library, "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_FORCE_MONOTONIC_FIX": "0"}


def jitter():
    if JITTER:
        time.sleep(chance.uniform(0, JITTER))  # as a busy machine would


# In a container with its own pid namespace, the program reports that processes may be hidden.
CONTAINED = os.readlink("/proc/self/ns/pid") != "pid:[4026531836]"


def gpuward(*args, env=None, program=PROGRAM, **kw):
    """Runs the program; the result has returncode, stdout and stderr as text."""
    jitter()
    kw.setdefault("stdin", subprocess.DEVNULL)
    kw.setdefault("capture_output", True)
    return subprocess.run(
        [str(program), *map(str, args)],
        env=env or environment(),
        timeout=TIMEOUT,
        encoding="utf-8",
        **kw,
    )


def started(*args, env=None, **kw):
    """Starts the program in the background, with pipes."""
    kw = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **kw}
    return subprocess.Popen([str(PROGRAM), *map(str, args)], env=env or environment(), **kw)


class Terminal:
    """Runs the program on its own terminal, in its own session."""

    def __init__(self, columns, *args, **env):
        def lead():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.child = started(*args, env=environment(**env), preexec_fn=lead, stdin=slave, stdout=slave, stderr=slave, text=False)
        os.close(slave)

    def write(self, data):
        os.write(self.master, data)

    def read(self, until=None):
        """Returns the output until it contains `until` (bytes), or until the program ends."""
        out = b""
        with contextlib.suppress(OSError):  # EIO: the other side has closed
            while until is None or until not in out:
                out += os.read(self.master, 65536)
        return out.decode().replace("\r\n", "\n")

    def end(self):
        """Returns the output until the program ends, and its exit code."""
        out, code = self.read(), self.child.wait(TIMEOUT)
        os.close(self.master)
        return out, code


def on_terminal(columns, *args, **env):
    """Runs the program on a terminal of this width; returns its output and its exit code."""
    return Terminal(columns, *args, **env).end()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def make_certificate(path):
    """Makes a self-signed certificate for localhost, and its key."""
    if not shutil.which("certtool"):
        pytest.skip("certtool is not installed")
    cert, key, template = path / "cert.pem", path / "key.pem", path / "template"
    template.write_text("cn = localhost\ndns_name = localhost\nip_address = 127.0.0.1\nexpiration_days = 2\n"
                        "tls_www_server\nsigning_key\n")
    for words in (["--generate-privkey", "--key-type=ecdsa", "--outfile", key],
                  ["--generate-self-signed", "--load-privkey", key, "--template", template, "--outfile", cert]):
        subprocess.run(["certtool", *words], check=True, capture_output=True)
    return cert, key


def wait(true, what="the condition", seconds=TIMEOUT, ignore=()):
    """Waits until true() is true and returns its value.  An exception in ignore counts as false.  what is the text of the error,
    or a function without arguments that returns it."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(*ignore):
            value = true()
            if value:
                return value
        assert time.monotonic() < end, f"in {seconds} s there was not: {what() if callable(what) else what}"
        time.sleep(0.02)  # time between two checks of the condition


def until_caught(child, number):
    """Waits until the child has a handler for the signal, or waits for a signal.  Before that, the signal would end the child."""
    twice = [False]

    def caught():
        assert child.poll() is None, "the program ended before it waited for the signal"
        status = pathlib.Path(f"/proc/{child.pid}/status").read_text()
        masks = re.findall(r"^Sig(?:Cgt|Blk):\s*(\w+)", status, re.M)
        twice.append(any(int(mask, 16) >> number - 1 & 1 for mask in masks))
        return all(twice[-2:])  # a single success may be chance: the program blocks all signals while it starts a thread
    wait(caught, f"a handler of signal {number}")


def document(command, *args, code=OK, **kw):
    """Runs `command --json`, expects the exit code and silence on stderr, returns the JSON."""
    done = gpuward(command, *args, "--json", **kw)
    assert done.stderr == ""
    assert done.returncode == code, done.stdout[:2000]
    doc = json.loads(done.stdout)
    check(command, doc)
    return doc


def load(name):
    return json.loads((SCHEMAS / name).read_text())


@functools.lru_cache(maxsize=None)
def validator(command):
    schema = load(command + ".json")
    resolver = jsonschema.RefResolver(SCHEMAS.as_uri() + "/", schema)
    return jsonschema.Draft202012Validator(schema, resolver=resolver)


def resolve(schema, name):
    """Returns the parts of a schema with every $ref resolved, each with its file."""
    if "$ref" in schema:
        where, _, path = schema["$ref"].partition("#")
        name = where or name
        part = load_once(name)
        for step in filter(None, path.split("/")):
            part = part[step]
        yield from resolve(part, name)
    for part in schema.get("allOf", []) + schema.get("anyOf", []):
        yield from resolve(part, name)
    yield schema, name


load_once = functools.lru_cache(maxsize=None)(load)


def unknown_keys(instance, parts, path="$"):
    """Returns the keys that the schema does not name.  Clients must accept such keys; our tests do not."""
    if isinstance(instance, list):
        for part, name in parts:
            if "items" in part:
                for i, item in enumerate(instance):
                    sub = list(resolve(part["items"], name))
                    yield from unknown_keys(item, sub, f"{path}[{i}]")
    if not isinstance(instance, dict):
        return
    for key, value in instance.items():
        known = [(p["properties"][key], n) for p, n in parts if key in p.get("properties", {})]
        for schema, name in known:
            yield from unknown_keys(value, list(resolve(schema, name)), f"{path}.{key}")
        if not known and not any("additionalProperties" in p for p, _ in parts):
            yield f"{path}.{key}"


def every_object(value):
    if isinstance(value, dict):
        yield value
        for v in value.values():
            yield from every_object(v)
    elif isinstance(value, list):
        for v in value:
            yield from every_object(v)


def every_number(value):
    if isinstance(value, bool):
        return
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from every_number(v)
    elif isinstance(value, list):
        for v in value:
            yield from every_number(v)


SENTINELS = [s / d for s in (2**32 - 1, 2**64 - 1, 2**63 - 1) for d in (1, 10, 100, 1000)]
NOT_FIGURES = {"cause", "message"}  # null when all is well
# The reason for missing memory has its own key. A process with a known control group may have no container and no unit.
NO_FIGURES_OF_PROCESSES = {"memory_bytes", "memory_absent", "energy_method", "device_uuid"}
NONE_IN_A_GROUP = {"container", "unit"}


def check(command, doc):
    """Checks a document: it matches the schema, has no unknown key, has a reason for each null and a null for each reason, and
    no number with which a driver says "none"."""
    validator(command).validate(doc)
    assert list(unknown_keys(doc, [(load_once(command + ".json"), command + ".json")])) == []
    for o in every_object(doc):
        if "absent" in o:
            nulls = {k for k, v in o.items() if v is None} - (NO_FIGURES_OF_PROCESSES if "orphan" in o else NOT_FIGURES)
            if o.get("cgroup"):
                nulls -= NONE_IN_A_GROUP
            assert nulls == set(o["absent"])
        if "memory_absent" in o:
            key = "memory_bytes" if "memory_bytes" in o else "memory_total_bytes"
            assert (o[key] is None) == (o["memory_absent"] is not None)
    for n in every_number(doc):
        assert not any(abs(n - s) <= s * 1e-15 for s in SENTINELS), n
        assert n == n and abs(n) != float("inf")


def carry_baselines(env, source, target, cwd="/"):
    """Copies the baselines of one scenario file to another, as if the GPU of one machine changed.  Each scenario has its own
    folder, named after its path and content (src/cli/cli.c)."""
    def folder(path):
        total = 0xcbf29ce484222325
        for byte in str(path).encode() + pathlib.Path(cwd, path).read_bytes():
            total = (total ^ byte) * 0x100000001b3 % 2 ** 64
        return pathlib.Path(env["XDG_CACHE_HOME"], "gpuward/baseline", f"simulated-{total:016x}")
    shutil.copytree(folder(source), folder(target))


@functools.lru_cache(maxsize=None)
def scenarios():
    """Returns the names of the built-in scenarios, as the program lists them."""
    done = gpuward("list", "--simulate=help", env=environment(COLUMNS=500))
    assert done.returncode == OK
    lines = [l for l in done.stdout.splitlines() if l.startswith("  ")]
    return tuple(l.split()[0] for l in lines)
