"""A10 of the acceptance list (docs/GUARD.md): every worker that speaks HTTP, and everything that can go wrong with it.

One service guards a worker of each kind for each way to misbehave, so that a whole row of the list costs one run.
"""
import contextlib
import time

import fake_workers as fake
import guarded
from guarded import Guarded
from worker import GIB, World

SIZE = 8 * GIB
TIMES = """
[guard]
mode = "enforce"
simulated = true
poll_ms = 100
[guard.defaults]
quiet_s = 0.2
min_resident_s = 0
post_action_s = 0
verify_s = 1
drain_s = {drain}
budget_s = {budget}
"""
# Kind, its fake, the path that its eviction asks, what it has loaded.
KINDS = {
    "ollama": ("Ollama", "/api/generate", {"models": ["llama3:8b"]}),
    "llamacpp": ("LlamaCpp", "/models/unload", {"models": ["org/a"]}),
    "llamaswap": ("LlamaSwap", "/api/models/unload", {"models": ["m"]}),
    "vllm": ("VLLM", "/sleep", {}),
    "sglang": ("SGLang", "/release_memory_occupation", {}),
    "tabby": ("Tabby", "/v1/model/unload", {"models": ["m"]}),
    "kobold": ("Kobold", "/api/admin/reload_config", {"models": ["big.kcpps"]}),
    "comfy": ("Comfy", "/free", {"models": ["sdxl"]}),
    "a1111": ("A1111", "/sdapi/v1/unload-checkpoint", {"models": ["checkpoint"]}),
}
LAZY = ("llamaswap", "comfy")  # come back when a client asks


class Company:
    """One of each kind for each way to misbehave, and the service that guards them all."""

    def __init__(self, path, drain=0.5, budget=6, kinds=KINDS, modes=("",), size=SIZE, **more):
        self.world = World(path, profile="h200")
        self.stack = contextlib.ExitStack()
        self.times = TIMES.format(drain=drain, budget=budget)
        self.size = size
        self.kind = {f"{k}{m}": k for m in modes for k in kinds}
        self.mode = {f"{k}{m}": m for m in modes for k in kinds}
        self.names = list(self.kind)
        self.fakes = {}
        for n, k in self.kind.items():
            own = {**KINDS[k][2], **more, "keeps": more.get("keeps", self.mode[n] == "-keeps")}
            self.fakes[n] = guarded.held(self.world, KINDS[k][0], size, **own)

    def __enter__(self):
        for w in self.fakes.values():
            self.stack.enter_context(w)
        text = self.times + "".join(w.table(n, self.kind[n]) for n, w in self.fakes.items())
        self.s = self.stack.enter_context(Guarded(self.world, text))
        self.all("active", resident=self.size)
        return self

    def __exit__(self, *exc):
        self.stack.close()

    def path(self, name):
        return KINDS[self.kind[name]][1]

    def states(self):
        return {w["name"]: w for w in self.s.get("/api/v1/guard").json()["workers"]}

    def of(self, mode):
        return [n for n in self.names if self.mode[n] == mode]

    def all(self, state, resident=None, but=(), mode=None):
        """Waits until all are in this state."""
        names = [n for n in self.names if self.kind[n] not in but and mode in (None, self.mode[n])]

        def there():
            now = self.states()
            return all(now[n]["state"] == state and (resident is None or self.fakes[n].resident() == resident)
                       for n in names)
        try:
            self.s.wait(there, 40)
        except AssertionError:
            now = self.states()
            raise AssertionError({n: (now[n]["state"], self.fakes[n].resident() >> 30) for n in names}) from None

    def order(self, what, names=None):
        for n in names or self.names:
            assert self.s.post(f"/api/v1/guard/workers/{n}/{what}", token=True, json={}).status_code < 300

    def leave(self):
        self.order("evict")

    def told(self, mode="", within=float("inf")):
        """How often each was told to leave, within so many seconds of the first time."""
        def count(n):
            w = self.fakes[n]
            at = [t for t, (m, p, _) in zip(w.times, w.calls) if m == "POST" and p.partition("?")[0] == self.path(n)]
            return sum(t - at[0] < within for t in at)
        return {n: count(n) for n in self.of(mode)}

    def each(self, number, mode=""):
        return dict.fromkeys(self.of(mode), number)

    def fail(self, failure, mode=""):
        for n in self.of(mode):
            self.fakes[n].fail[self.path(n)] = failure()

    def said(self, name):
        return [d for d in self.s.decisions() if d["worker"] == name]


def untouched(c):
    for n, w in c.fakes.items():
        assert w.process.child.poll() is None, n  # max_level 2: nobody is ended


def test_a10_ok(tmp_path):
    with Company(tmp_path) as c:
        c.leave()
        c.all("evicted", resident=0)
        assert c.told() == c.each(1)
        c.order("resume")
        c.all("active", resident=SIZE, but=LAZY)
        for k in LAZY:  # let in, and loaded when somebody asks
            c.s.until("active", name=k)
            assert c.fakes[k].resident() == 0
        assert all(w["evictions_total"] == 1 for w in c.states().values())
        untouched(c)


def test_a10_4xx_and_5xx_are_tried_twice_more_and_a_slow_one_is_waited_for(tmp_path):
    with Company(tmp_path, modes=("-403", "-500", "-slow"), size=4 * GIB) as c:
        for code in (403, 500):
            c.fail(lambda code=code: fake.status(code), f"-{code}")
        c.fail(lambda: fake.slow(0.4), "-slow")
        c.leave()
        c.all("evicted", resident=0, mode="-slow")
        assert c.told("-slow") == c.each(1, "-slow")
        for code in (403, 500):
            c.all("stuck", resident=4 * GIB, mode=f"-{code}")
            now = c.states()
            for n in c.of(f"-{code}"):
                assert str(code) in now[n]["why"] and now[n]["evictions_total"] == 0, now[n]
        time.sleep(1)  # again in 30 s, not before
        for code in (403, 500):
            assert c.told(f"-{code}", within=25) == c.each(3, f"-{code}")
        untouched(c)


def test_a10_refused_and_not_freed_are_stuck_and_the_third_try_may_succeed(tmp_path):
    with Company(tmp_path, modes=("-twice", "-gone", "-keeps"), size=4 * GIB) as c:
        c.fail(lambda: fake.times(2, fake.status(500)), "-twice")
        for n in c.of("-gone"):
            c.fakes[n].server.shutdown()
            c.fakes[n].server.server_close()
            c.fakes[n].server.shutdown = lambda: None
        c.leave()
        c.all("evicted", resident=0, mode="-twice")
        assert c.told("-twice") == c.each(3, "-twice")
        for mode in ("-gone", "-keeps"):  # 200 is never proof
            c.all("stuck", resident=4 * GIB, mode=mode)
        now = c.states()
        for n in c.of("-keeps"):
            assert (now[n]["residue_bytes"], now[n]["evictions_total"]) == (4 * GIB, 0)
        untouched(c)


def test_a10_one_that_hangs_costs_its_budget_and_holds_nobody_up(tmp_path):
    with Company(tmp_path, budget=4) as c:
        first, *others, last = c.names
        c.fail(lambda: fake.hang)
        c.fakes[last].fail.clear()
        c.order("evict", [first, last, *others])
        c.s.until("evicted", name=last)
        c.all("stuck", resident=SIZE, but=(last,))
        course = [(d["worker"], d["to"]) for d in c.s.decisions()]
        assert course.index((last, "evicted")) < course.index((first, "stuck")), course
        untouched(c)


def test_a10_a_reload_storm_is_named_after_three(tmp_path):
    """Clients load again as soon as it is out: evicted each time, and from the third on it is said."""
    with Company(tmp_path, kinds=("ollama", "llamacpp", "comfy")) as c:
        c.leave()
        for n in range(1, 4):
            c.all("evicted", resident=0)
            assert c.told() == c.each(n)
            for w in c.fakes.values():
                w.load(w.known[0])
                w.settle()
            c.s.wait(lambda n=n: all(t > n for t in c.told().values()) or
                     all("reload-storm" in str(c.said(k)) for k in c.names))
        for k in c.names:
            c.s.wait(lambda k=k: "reload-storm" in str(c.said(k)))
        untouched(c)


BUSY = ("llamacpp", "kobold", "comfy", "a1111")  # tell what is in flight


def test_a10_work_in_flight_is_waited_for(tmp_path):
    with Company(tmp_path, drain=30, kinds=BUSY, busy=1) as c:
        c.leave()
        for k in BUSY:
            c.s.until("drain", name=k)
        time.sleep(0.7)
        assert c.told() == c.each(0) and {c.s.now(k) for k in BUSY} == {"drain"}
        for w in c.fakes.values():
            w.busy = 0
        c.all("evicted", resident=0)


def test_a10_a_drain_that_does_not_end_is_cut_off(tmp_path):
    with Company(tmp_path, drain=0.6, kinds=BUSY, busy=1) as c:
        c.leave()
        c.all("evicted", resident=0)
