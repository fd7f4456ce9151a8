"""Tests each adapter with a fake server that has the API of its worker, including failures.

The table lists the behaviour of the real servers and the test for each row. tests/live/test_guard.py tests the rows of
llama.cpp with the real server.

llama.cpp  unload answers before the model's process ended   test_llamacpp_loads_a_model_that_was_still_on_its_way_out
           a load of a running model is 400                  test_a_model_that_is_already_loaded_is_back
           a load of an unknown model is 404                 test_a_deleted_model_does_not_prevent_loading_the_others
           an unload of a model that has ended is 400        test_a_model_of_llamacpp_that_has_gone_is_out
           a load of a broken file is 200, then failed       test_a_model_of_llamacpp_that_does_not_load_is_noticed_at_once
           a query to an unloaded model is 400, or           test_llamacpp_shows_whether_slots_are_busy,
             loads it without autoload=false                   test_a_model_of_llamacpp_that_changes_before_it_is_asked_is_idle
           a query to a loading model is 500 or 503          test_a_model_of_llamacpp_that_changes_before_it_is_asked_is_idle
           a query wakes a sleeping model                    test_a_sleeping_or_loading_model_of_llamacpp_is_not_asked
           busy slots are 503 with fail_on_no_slot           test_llamacpp_shows_whether_slots_are_busy
           a single-model server has no status               test_llamacpp_of_a_single_model_is_refused_with_a_way_out,
             and has slots                                     test_a_single_model_server_of_llamacpp_may_finish_...
           a wrong key is 401 "Invalid API Key"              test_the_token_is_used_and_never_appears_in_messages
           /metrics of a router needs ?model=                test_measure_count.py, test_models.py
           --models-max replaces a model, with no error      test_no_more_models_of_llamacpp_return_than_the_router_keeps
SGLang     /health generates, and waits while paused         test_a_sign_of_life_needs_no_generation
           a release while not idle ends the server          test_sglang_releases_only_when_it_is_idle
           a second resume ends it; cuda_graph is named      test_sglang_releases_and_resumes_once
           without its option a release does nothing         test_a_sglang_without_memory_saver_survives_a_release_without_effect
Ollama     keep_alive 0 unloads, embed loads embedders       test_ollama_loads_an_embedding_model_by_embed
           options are lost at unload                        test_ollama_gets_its_models_back_as_they_were
           cloud models are listed                           test_cloud_models_of_ollama_are_left_alone
TabbyAPI   no model is 503; before April 2025 400            test_a_server_that_forgot_its_models_is_not_reported_as_back,
           /health stays 503 after one error                   test_a_sign_of_life_needs_no_generation
vLLM       404 without VLLM_SERVER_DEV_MODE                  test_vllm_without_dev_mode_is_reported_with_the_remedy,
                                                             test_a_vllm_that_was_restarted_without_dev_mode_is_awake
           no effect without --enable-sleep-mode             test_a_vllm_that_does_not_sleep_is_a_failure
           an assertion fails after the memory is free,      test_a_vllm_that_freed_its_memory_and_failed_is_evicted
             then /wake_up does nothing                        (test_guard_adapters.py)
llama-swap unload does not wait, /upstream starts a model    test_requests_in_flight_of_llamaswap_are_waited_for
ComfyUI    /interrupt before /free                           test_prompts_in_comfys_queue_stay_there
KoboldCpp  a refusal is 200; an empty list of files means    test_kobold_reports_at_once_why_it_does_not_unload
 1.122       that it will refuse, and "admin" shows why
 (source,  --password hides the name and refuses the abort   test_kobold_hides_its_model_behind_its_password
 November  only POST requests that generate wake a router    test_no_question_wakes_a_kobold_that_sleeps
 2026)     "idle" is 1 between two requests of the queue     test_requests_that_wait_in_kobolds_queue_are_waited_for
           it reports its model, not its file                test_kobold_gets_back_what_it_had
           the name of a model for images is "inactive"      test_kobold_is_loaded_whatever_its_models_are_for
           while it loads, its port is closed or answers 502 test_kobold_may_restart_without_having_failed
           a router loads the model that a request names     test_what_a_client_loaded_through_kobolds_router_stays
 1.102     no "initial_model"; .kcppt files; only            test_kobold_1_102_gets_its_only_configuration_back
             --password shows the name
"""
import datetime
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest
import requests

import fake_workers as fake
import support
from fake_workers import KINDS

ADAPTER = support.BUILD / "tests" / "e2e" / "adapter"


def orders(*words, env=None, **worker):
    """Returns the outcomes of the orders, as adapter.c prints them."""
    argv = [str(ADAPTER)]
    for key, value in worker.items():
        argv += [f"{key}={v}" for v in (value if isinstance(value, (list, tuple)) else [value])]
    done = subprocess.run([*argv, *words], capture_output=True, encoding="utf-8", timeout=support.TIMEOUT,
                          env=env or support.environment())
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["order"] for r in rows] == list(range(1, len(words) + 1))
    return rows


def order(word, **worker):
    return orders(word, **worker)[0]


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(fake.TOKEN + "\n")
    return path


def worker_of(kind, **kw):
    return KINDS[kind].make(**kw), KINDS[kind].path


def test_each_row_of_the_table_above_names_a_test():
    other = (support.TOP / "tests" / "e2e" / "test_guard_adapters.py").read_text()
    named = re.findall(r"test_(\w+)(?!\w|\.py)", __doc__)
    assert len(named) > 30
    for name in named:
        assert any(g.startswith(f"test_{name}") for g in globals()) or f"def test_{name}" in other, name


def test_every_kind_has_tests():
    kinds = re.findall(r"^[KI]\(\w+, (\w+),", (support.TOP / "src/guard/kind.def").read_text(), re.M)
    assert set(kinds) == set(KINDS) | set(fake.ELSEWHERE), "add it to fake_workers.py"
    for kind, file in fake.ELSEWHERE.items():
        assert kind in (support.TOP / "tests" / "e2e" / file).read_text(), f"{file} has no test of {kind}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_leaves_and_comes_back_with_what_it_had(kind):
    worker, path = worker_of(kind)
    with worker as w:
        before = sorted(w.loaded)
        out, = orders("evict", kind=kind, url=w.url)
        assert (out["ok"], out["retry"]) == (True, False), out
        assert w.loaded == []
        assert path in [p.partition("?")[0] for p in w.asked()]
        back = order("resume", kind=kind, url=w.url, notes=out["notes"])
        assert back["ok"], back
        assert back["notes"] == ""
        assert sorted(w.loaded) == ([] if KINDS[kind].lazy else before)


@pytest.mark.parametrize("kind", KINDS)
def test_an_eviction_can_be_made_twice(kind):
    worker, _ = worker_of(kind)
    with worker as w:
        first, second, back = orders("evict", "evict", "resume", kind=kind, url=w.url)
        assert first["ok"] and second["ok"] and back["ok"], (first, second, back)
        assert w.loaded or KINDS[kind].lazy


# Words of the message for each HTTP status.
STATUSES = {400: "answers 400", 401: "token_file", 403: "token_file", 404: "answers 404", 409: "answers 409",
            429: "answers 429", 500: "answers 500", 502: "answers 502", 503: "answers 503", 307: "redirects are not followed"}


@pytest.mark.parametrize("code", STATUSES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_status_that_is_no_success_is_a_failure_with_its_words(kind, code):
    worker, path = worker_of(kind)
    with worker as w:
        w.fail[path] = fake.status(code, Location="http://127.0.0.1:1/") if code == 307 else fake.status(code)
        before = list(w.loaded)
        out = order("evict", kind=kind, url=w.url)
        # Some servers use this status to say that there is nothing to do (the model is already gone), or for an older API.
        if (kind, code) in (("ollama", 404), ("llamaswap", 404)):
            assert out["ok"], out
            return
        assert not out["ok"]
        assert STATUSES[code] in out["message"], out
        assert w.url + "/" in out["message"], "where it was asked"
        assert out["retry"] == (code in (409, 429, 503) or (kind, code) in (("sglang", 400), ("kobold", 502)))
        assert out["refused"] == (code in (401, 403, 404))
        assert w.loaded == before or kind == "llamacpp"
        if code not in (307,):
            assert f"failure {code}" in out["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_hangs_costs_the_deadline_and_no_more(kind):
    worker, path = worker_of(kind)
    with worker as w:
        w.fail[path] = fake.hang
        begin = time.monotonic()
        out = order("evict", kind=kind, url=w.url, deadline_ms=400)
        assert time.monotonic() - begin < 20
        assert (out["ok"], out["retry"]) == (False, False)
        assert "no answer in time" in out["message"], out


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_worker_is_waited_for(kind):
    worker, path = worker_of(kind)
    with worker as w:
        w.fail[path] = fake.times(1, fake.slow(0.3))
        assert order("evict", kind=kind, url=w.url, deadline_ms=30000)["ok"]
        assert w.loaded == []


@pytest.mark.parametrize("failure", [fake.reset_mid_body, fake.drop, fake.endless], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_that_breaks_is_a_failure(kind, failure):
    worker, path = worker_of(kind)
    with worker as w:
        w.fail[path] = failure
        out = order("evict", kind=kind, url=w.url)
        assert not out["ok"], out
        if failure is fake.endless:
            assert "longer than 1 MiB" in out["message"]
        assert path in out["message"] and w.url in out["message"], out


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_is_not_there_is_a_failure(kind):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:%d" % s.getsockname()[1]
        out, back = orders("evict", "resume", kind=kind, url=url)
    for o in (out, back):
        assert not o["ok"] and url in o["message"], o


@pytest.mark.parametrize("kind", KINDS)
def test_success_without_freed_memory_is_for_the_guard_to_find(kind):
    worker, _ = worker_of(kind, keeps=True)
    with worker as w:
        assert order("evict", kind=kind, url=w.url)["ok"]
        assert w.loaded


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to another user")
def test_a_token_file_that_another_user_can_replace_is_not_read(tmp_path, token_file):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    (theirs / "token").symlink_to(token_file)  # root would send the content to the other user's server
    worker, _ = worker_of("ollama", token=fake.TOKEN)
    with worker as w:
        out = order("evict", kind="ollama", url=w.url, token_file=theirs / "token")
        assert not out["ok"] and "other users can replace token_file" in out["message"], out
        assert w.loaded and fake.TOKEN not in str(w.headers)
        (theirs / "token").unlink()
        (theirs / "token").write_text(fake.TOKEN)  # root owns the file, but the other user can replace it
        assert "other users can replace" in order("evict", kind="ollama", url=w.url, token_file=theirs / "token")["message"]
        os.chown(theirs / "token", 65534, 65534)  # the other user's own token
        assert order("evict", kind="ollama", url=w.url, token_file=theirs / "token")["ok"]


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "kobold"])
def test_the_token_is_used_and_never_appears_in_messages(kind, tmp_path, token_file):
    worker, path = worker_of(kind, token=fake.TOKEN)
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong-token-987")
    with worker as w:
        out = order("evict", kind=kind, url=w.url, token_file=wrong)
        assert not out["ok"] and "401" in out["message"] and "wrong-token" not in out["message"], out
        assert order("evict", kind=kind, url=w.url, token_file=token_file)["ok"]
        assert w.loaded == []
        header = "x-admin-key" if kind == "tabby" else "Authorization"
        assert fake.TOKEN in w.headers[-1][header]
        w.fail[path] = fake.status(500, {"error": f"bad key {fake.TOKEN} given"})
        w.loaded = w.loaded or (KINDS[kind].models or ["weights"])
        out = order("evict", kind=kind, url=w.url, token_file=token_file)
        assert "bad key ***" in out["message"] and fake.TOKEN not in out["message"]


def test_an_unreadable_token_is_reported_with_its_file(tmp_path):
    with fake.Ollama(models=["m"]) as w:
        out = order("evict", kind="ollama", url=w.url, token_file=tmp_path / "none")
        assert not out["ok"] and str(tmp_path / "none") in out["message"]
        (tmp_path / "empty").write_text("\n")
        out = order("evict", kind="ollama", url=w.url, token_file=tmp_path / "empty")
        assert not out["ok"] and "must be the token" in out["message"]
        assert w.calls == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/", "127.0.0.1:80", "http://", "http:///x",
                                 "http://user:secret@127.0.0.1/", "http://127.0.0.1/ x", "unix:///run/x", "gopher://x"])
def test_only_http_addresses_are_called(url):
    out = order("evict", kind="ollama", url=url)
    assert not out["ok"] and out["message"].startswith("url"), out
    assert "secret" not in out["message"]


def test_a_self_signed_certificate_is_refused(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*support.make_certificate(tmp_path))
    with fake.Ollama(models=["m"], context=context) as w:
        out = order("evict", kind="ollama", url=w.url.replace("127.0.0.1", "localhost"))
        assert not out["ok"] and "certificate" in out["message"], out
        assert w.calls == [] and w.loaded == ["m"]


def test_a_proxy_of_the_environment_is_not_used():
    with fake.Ollama(models=["m"]) as w, fake.Ollama() as proxy:
        env = support.environment(http_proxy=proxy.url, HTTP_PROXY=proxy.url, ALL_PROXY=proxy.url)
        assert orders("evict", kind="ollama", url=w.url, env=env)[0]["ok"]
        assert proxy.calls == []


def test_nothing_is_called_unless_the_mode_is_enforce():
    with fake.Ollama(models=["m"]) as w:
        for out in orders("close", "drain", "evict", "resume", "open", kind="ollama", url=w.url, observe=1):
            assert not out["ok"] and "enforce" in out["message"]
        assert w.calls == []


def test_a_worker_is_moved_only_at_levels_of_its_kind():
    with fake.Ollama(models=["m"]) as w:
        for level in (3, 4, 5, 6):
            out = order(f"evict:{level}", kind="ollama", url=w.url)
            assert not out["ok"], out
        assert w.calls == [] and w.loaded == ["m"]
        assert order("evict:0", kind="ollama", url=w.url)["ok"]
        assert w.calls == []


def test_ollama_unloads_each_model_without_a_prompt():
    with fake.Ollama(models=["a", "b\"c\n".strip()]) as w:
        order("evict", kind="ollama", url=w.url)
        bodies = [b for m, p, b in w.calls if p == "/api/generate"]
        assert [(b["model"], b["keep_alive"], "prompt" in b) for b in bodies] == [("a", 0, False), ('b"c', 0, False)]


def test_ollama_keeps_what_is_in_use_and_lets_go_of_it_when_asked_again():
    with fake.Ollama(models=["a"], busy=1) as w:
        assert order("evict", kind="ollama", url=w.url)["ok"]
        assert w.loaded == ["a"]
        w.busy = 0
        assert order("evict", kind="ollama", url=w.url)["ok"]
        assert w.loaded == []


def test_what_clients_loaded_meanwhile_comes_back_too():
    with fake.Ollama(models=["a"], known=["b"]) as w:
        first = order("evict", kind="ollama", url=w.url)
        w.load("b")
        second = order("evict", kind="ollama", url=w.url, notes=first["notes"])
        assert w.loaded == []
        order("resume", kind="ollama", url=w.url, notes=second["notes"])
        assert w.loaded == ["a", "b"]


def test_models_are_remembered_before_anything_is_done():
    with fake.Ollama(models=["a"]) as w:
        out = order("drain", kind="ollama", url=w.url)
        assert out["ok"] and not out["in_flight"] and "model a\n" in out["notes"]
        assert w.loaded == ["a"]


@pytest.mark.parametrize("kind", ["ollama", "llamacpp"])
def test_a_deleted_model_does_not_prevent_loading_the_others(kind):
    with KINDS[kind].fake(known=["b"]) as w:
        out = order("resume", kind=kind, url=w.url, notes="model a\nmodel b\n")
        assert out["ok"] and "1 of 2" in out["message"] and "a" in out["message"]
        assert w.loaded == ["b"]


def test_a_load_that_fails_fails_the_resume_and_keeps_the_notes():
    with fake.Ollama(known=["a"]) as w:
        w.fail["/api/generate"] = fake.status(500, {"error": "model requires more memory than is available"})
        out = order("resume", kind="ollama", url=w.url, notes="model a\n")
        assert not out["ok"] and "requires more memory" in out["message"]
        assert out["notes"] == "model a\n"


def test_lazy_loads_nothing_and_the_model_of_the_policy_is_loaded_where_none_was_noted():
    with fake.Ollama(known=["a"]) as w:
        assert order("resume", kind="ollama", url=w.url, notes="model a\n", lazy=1)["ok"]
        assert w.loaded == []
        assert order("resume", kind="ollama", url=w.url, model="a")["ok"]
        assert w.loaded == ["a"]


def test_an_answer_that_is_no_json_is_a_failure():
    with fake.Ollama(models=["a"]) as w:
        for body in (b"<html>", b"", b"{", b"\xff\xfe"):
            w.fail["/api/ps"] = fake.status(200, body)
            out = order("evict", kind="ollama", url=w.url)
            assert not out["ok"] and "JSON" in out["message"], out
        for body in (b"[]", b"{}", b'{"models":null}', b'{"models":[1,null,{"name":5}]}'):
            w.fail["/api/ps"] = fake.status(200, body)
            assert order("evict", kind="ollama", url=w.url)["ok"]
        assert "/api/generate" not in w.asked()


def test_control_characters_of_a_worker_do_not_reach_messages():
    with fake.Ollama(models=["a"]) as w:
        w.fail["/api/generate"] = fake.status(500, {"error": "bad\x1b[31m\ttext\nsecond"})
        out = order("evict", kind="ollama", url=w.url)
        assert "bad?[31m?text" in out["message"] and "second" not in out["message"]


def test_llamacpp_shows_whether_slots_are_busy():
    with fake.LlamaCpp(models=["org/a b"]) as w:
        for busy in (0, 1, 4):
            w.busy = busy
            out = order("drain", kind="llamacpp", url=w.url)
            assert out["ok"] and out["in_flight"] == (busy > 0), out
        assert "model=org%2Fa%20b" in w.asked()[-1] and "autoload=false" in w.asked()[-1]
        w.slots = False
        assert order("drain", kind="llamacpp", url=w.url)["in_flight"] is False


def test_a_sleeping_or_loading_model_of_llamacpp_is_not_asked():
    with fake.LlamaCpp(sleeping=["s"], loading=["l"], known=["u"]) as w:
        out, = orders("drain", kind="llamacpp", url=w.url)
        assert out["ok"] and not out["in_flight"], out
        assert w.woken == [] and w.loaded == [] and w.asked() == ["/models"]
        assert order("evict", kind="llamacpp", url=w.url)["ok"]
        assert not w.runs("s") and not w.runs("l")


def test_a_model_of_llamacpp_that_changes_before_it_is_asked_is_idle():
    with fake.LlamaCpp(models=["a"]) as w:
        def leaves(h):
            w.unload("a")
        w.fail["/slots"] = leaves
        out = order("drain", kind="llamacpp", url=w.url)
        assert out["ok"] and not out["in_flight"] and w.loaded == [], out
        del w.fail["/slots"]
        w.load("a")
        w.loading.append("a")
        w.status_of = lambda model: {"value": "loaded"}  # the list is older than the request
        for _ in ("its process does not listen yet", "it loads"):
            out = order("drain", kind="llamacpp", url=w.url)
            assert out["ok"] and not out["in_flight"], out


@pytest.mark.parametrize("words", ["model is not found", "model is not running"])
def test_a_model_of_llamacpp_that_has_gone_is_out(words):
    with fake.LlamaCpp(models=["a", "b"]) as w:
        w.fail["/models/unload"] = fake.times(1, fake.status(400, {"error": {"code": 400, "message": words}}))
        assert order("evict", kind="llamacpp", url=w.url)["ok"] and w.loaded == ["a"], "the other one was unloaded"


def test_llamacpp_loads_a_model_that_was_still_on_its_way_out():
    with fake.LlamaCpp(models=["a"], stops="late") as w:
        out = order("evict", kind="llamacpp", url=w.url)
        assert w.status_of("a") == {"value": "loaded"} and w.loaded == []
        later = threading.Timer(0.5, w.stopped)  # the router killed it and then lists it as failed
        later.start()
        back = order("resume", kind="llamacpp", url=w.url, notes=out["notes"], deadline_ms=30000)
        later.join()
        assert back["ok"] and back["listed"] and "1 of 1" in back["message"], back
        assert w.loaded == ["a"]


def test_a_model_of_llamacpp_that_does_not_load_is_noticed_at_once():
    with fake.LlamaCpp(broken=["a"], known=["b"]) as w:
        begin = time.monotonic()
        back = order("resume", kind="llamacpp", url=w.url, notes="model a\n", deadline_ms=60000)
        assert not back["ok"] and "did not load a" in back["message"] and back["notes"].startswith("model a\n"), back
        both = order("resume", kind="llamacpp", url=w.url, notes="model a\nmodel b\n", deadline_ms=60000)
        assert both["ok"] and both["listed"] and "1 of 2" in both["message"] and "not loaded: a" in both["message"], both
        assert time.monotonic() - begin < 30


def test_a_model_of_llamacpp_that_loads_for_long_is_not_a_failure():
    with fake.LlamaCpp(known=["a"]) as w:
        w.loads_at_once = False
        back = order("resume", kind="llamacpp", url=w.url, notes="model a\n", deadline_ms=3000)
        assert back["ok"] and not back["listed"] and "loading" in back["message"], back


def test_all_models_of_llamacpp_are_requested_before_one_is_waited_for():
    with fake.LlamaCpp(known=["a", "b"]) as w:
        w.loads_at_once = False
        order("resume", kind="llamacpp", url=w.url, notes="model a\nmodel b\n", deadline_ms=3000)
        assert w.loading == ["a", "b"] and w.asked().count("/models/load") == 2


def test_no_more_models_of_llamacpp_return_than_the_router_keeps():
    with fake.LlamaCpp(known=["a", "b", "c"], most=2) as w:
        back = order("resume", kind="llamacpp", url=w.url, notes="asked 1\nmodel a\nmodel b\nmodel c\n", deadline_ms=30000)
        assert back["ok"] and back["listed"] and "2 of 3 models loaded again; not loaded: a" in back["message"], back
        assert w.loaded == ["b", "c"] and w.asked().count("/models/load") == 2
    with fake.LlamaCpp(known=["a", "b", "c"], most=0) as w:  # no limit
        assert "3 of 3" in order("resume", kind="llamacpp", url=w.url, notes="model a\nmodel b\nmodel c\n")["message"]


@pytest.mark.parametrize("kind", ["ollama", "llamacpp", "tabby", "kobold"])
def test_a_worker_lists_what_it_loaded(kind):
    worker, _ = worker_of(kind)
    with worker as w:
        out, back = orders("evict", "resume", kind=kind, url=w.url)
        assert back["ok"] and back["listed"] and not out["listed"], back


# Servers with health checks that would generate text, or that stay wrong after one error.
@pytest.mark.parametrize("make", [lambda: fake.SGLang(), lambda: fake.SGLang(old=True), lambda: fake.Tabby(models=["m"], healthy=False),
                                  lambda: fake.Tabby(models=["m"], healthy=False, old=True)],
                         ids=["sglang", "old sglang", "tabby", "old tabby"])
def test_a_sign_of_life_needs_no_generation(make):
    with make() as w:
        kind = type(w).__name__.lower()
        before = sorted(w.loaded)
        closed, out, back = orders("close", "evict", "resume", kind=kind, url=w.url, deadline_ms=10000)
        assert closed["ok"] and out["ok"] and back["ok"], (closed, out, back)
        assert sorted(w.loaded) == before and "/health" not in w.asked()


def test_llamacpp_of_a_single_model_is_refused_with_a_way_out():
    with fake.LlamaCpp(models=["m"], router=False) as w:
        out = order("evict", kind="llamacpp", url=w.url)
        assert not out["ok"] and "max_level = 4" in out["message"]


def test_a_single_model_server_of_llamacpp_may_finish_before_it_is_stopped():
    with fake.LlamaCpp(models=["m"], router=False, busy=1) as w:
        assert order("drain", kind="llamacpp", url=w.url)["refused"], "this server cannot unload its model"
        how = dict(kind="llamacpp", url=w.url, max_level=4)
        assert order("drain", **how)["in_flight"] is True
        w.busy = 4
        assert order("drain", **how)["in_flight"] is True
        w.busy = 0
        out = order("drain", **how)
        assert out["ok"] and out["in_flight"] is False, out
        w.sleeping = ["m"]
        assert order("drain", **how)["ok"] and w.woken == [] and w.asked()[-1] == "/props"


def test_an_old_llama_swap_is_asked_in_its_own_way():
    with fake.LlamaSwap(models=["m"], old=True) as w:
        assert order("evict", kind="llamaswap", url=w.url)["ok"]
        assert w.loaded == [] and w.asked() == ["/api/models/unload", "/unload"]


def test_vllm_without_dev_mode_is_reported_with_the_remedy():
    with fake.VLLM(dev=False) as w:
        for verb in ("evict", "close"):
            out = order(verb, kind="vllm", url=w.url)
            assert not out["ok"] and "VLLM_SERVER_DEV_MODE=1" in out["message"], out


def test_vllm_drains_by_pausing_and_reports_requests_in_flight():
    with fake.VLLM(busy=1) as w:
        out = order("drain", kind="vllm", url=w.url, deadline_ms=300)
        assert out["ok"] and out["in_flight"] and until(lambda: w.paused)
        w.drained.set()
        out = order("drain", kind="vllm", url=w.url)
        assert out["ok"] and not out["in_flight"]
        assert order("open", kind="vllm", url=w.url)["ok"] and not w.paused


def test_a_vllm_that_cannot_pause_is_still_put_to_sleep():
    with fake.VLLM(pauses=False) as w:
        out, asleep, back = orders("drain", "evict", "resume", kind="vllm", url=w.url)
        assert out["ok"] and not out["in_flight"] and asleep["ok"] and back["ok"], (out, asleep, back)


def test_vllm_is_never_sent_to_level_0():
    with fake.VLLM() as w:
        orders("close", "drain", "evict", "resume", "open", kind="vllm", url=w.url)
        assert not [p for p in w.asked() if "level=0" in p]
        assert "/sleep?level=1&mode=abort" in w.asked()


def test_vllm_level_2_loads_its_weights_again_before_the_cache():
    with fake.VLLM() as w:
        out = order("evict", kind="vllm", url=w.url, level=2)
        assert w.garbage and out["notes"].endswith("level 2\n")
        assert order("resume", kind="vllm", url=w.url, notes=out["notes"])["ok"]
        assert not w.garbage and w.level == 0
        assert [p for p in w.asked("POST") if p != "/pause"][-4:] == [
            "/wake_up?tags=weights", "/collective_rpc", "/wake_up?tags=kv_cache", "/resume"]


@pytest.mark.parametrize("level", (1, 2))
def test_a_vllm_that_was_restarted_without_dev_mode_is_awake(level):
    with fake.VLLM() as w:
        out = order("evict", kind="vllm", url=w.url, level=level)
        assert out["ok"] and out["notes"]
        w.dev, w.level, w.garbage, w.loaded = False, 0, False, ["weights", "kv_cache"]
        back = order("resume", kind="vllm", url=w.url, notes=out["notes"])
        assert back["ok"] and back["notes"] == "" and not back.get("message"), back


@pytest.mark.parametrize("level, path, answer, says, loaded", [
    (2, "/collective_rpc", (404,), "", ["weights"]),
    (2, "/collective_rpc", (500, {"detail": "out of memory"}), "out of memory", ["weights"]),
    (1, "/wake_up", (200, {}), "still sleeps", []),
], ids=["no request to load weights", "no memory", "it does not wake"])
def test_a_vllm_that_does_not_come_back_is_a_failure_and_stays_remembered(level, path, answer, says, loaded):
    with fake.VLLM() as w:
        out = order("evict", kind="vllm", url=w.url, level=level)
        w.fail[path] = fake.status(*answer)
        back = order("resume", kind="vllm", url=w.url, notes=out["notes"])
        assert not back["ok"] and says in back.get("message", "") and back["notes"] == out["notes"], back
        assert w.loaded == loaded


def test_sglang_releases_only_when_it_is_idle():
    with fake.SGLang(busy=2) as w:
        out = order("evict", kind="sglang", url=w.url)
        assert (out["ok"], out["retry"]) == (False, True) and "idle" in out["message"] and not w.dead
        out = order("evict", kind="sglang", url=w.url, notes=out["notes"])
        assert out["ok"] and w.loaded == []
        assert w.asked("POST")[-2:] == ["/pause_generation", "/release_memory_occupation"]
        assert order("resume", kind="sglang", url=w.url, notes=out["notes"])["ok"] and not w.paused and not w.dead


def test_sglang_releases_and_resumes_once():
    with fake.SGLang() as w:
        first, second = orders("evict", "evict", kind="sglang", url=w.url)
        assert first["ok"] and second["ok"] and not w.dead
        w.fail["/continue_generation"] = fake.times(1, fake.status(500))
        half, back, again = orders("resume", "resume", "resume", kind="sglang", url=w.url, notes=second["notes"])
        assert not half["ok"] and back["ok"] and again["ok"] and not w.dead, (half, back, again)
        assert sorted(w.loaded) == ["cuda_graph", "kv_cache", "weights"] and not w.paused


def test_a_sglang_without_memory_saver_survives_a_release_without_effect():
    with fake.SGLang(saver=False) as w:
        before = list(w.loaded)
        out, again, back, twice = orders("evict", "evict", "resume", "resume", kind="sglang", url=w.url)
        assert out["ok"] and again["ok"] and back["ok"] and twice["ok"], (out, again, back, twice)
        assert w.loaded == before and not w.dead and not w.paused


def test_a_restarted_sglang_releases_its_new_memory():
    with fake.SGLang() as w:
        out = order("evict", kind="sglang", url=w.url, root="1:1")
        w.released, w.loaded = set(), ["weights", "kv_cache", "cuda_graph"]
        again = order("evict", kind="sglang", url=w.url, notes=out["notes"], root="1:2")
        assert again["ok"] and w.loaded == [] and not w.dead, again


def test_a_vllm_that_does_not_sleep_is_a_failure():
    with fake.VLLM(sleeps=False) as w:
        out = order("evict", kind="vllm", url=w.url)
        assert not out["ok"] and "--enable-sleep-mode" in out["message"], out


def test_ollama_gets_its_models_back_as_they_were():
    later = (datetime.datetime.now(datetime.timezone(datetime.timedelta(hours=2))) + datetime.timedelta(hours=3)).isoformat()
    with fake.Ollama(models=["a"], expires_at=later) as w:
        out = order("evict", kind="ollama", url=w.url)
        assert order("resume", kind="ollama", url=w.url, notes=out["notes"])["listed"]
        assert w.options["a"]["num_ctx"] == 8192 and 3 * 3600 - 60 < w.options["a"]["keep_alive"] <= 3 * 3600
        for until, keep in (("2318-11-23T12:00:00.5-07:00", -1), ("2020-01-01T00:00:00Z", None)):
            w.expires_at = until
            out, back = orders("evict", "resume", kind="ollama", url=w.url)
            assert back["ok"] and w.options["a"]["keep_alive"] == keep, (until, w.options)


def test_models_that_the_notes_cannot_hold_are_reported_and_not_said_to_be_loaded():
    names = [f"{i:02}-{'m' * 60}" for i in range(60)]
    with fake.Ollama(models=names) as w:
        out, back = orders("evict", "resume", kind="ollama", url=w.url)
        assert out["ok"] and back["ok"] and not back.get("listed"), back
        assert 20 < len(w.loaded) < 60 and f"{len(w.loaded)} of {len(w.loaded)} models loaded again; the names of more models did not fit" in back["message"]
    with fake.Ollama(models=["n" * 300]) as w:
        out, back = orders("evict", "resume", kind="ollama", url=w.url)
        assert back["ok"] and not back.get("listed") and "no model loaded again; the names of more models did not fit" in back["message"], back


def test_ollama_loads_an_embedding_model_by_embed():
    with fake.Ollama(models=["e", "a"], embeds=["e"]) as w:
        out, back = orders("evict", "resume", kind="ollama", url=w.url)
        assert back["ok"] and back["listed"] and sorted(w.loaded) == ["a", "e"], back


def test_cloud_models_of_ollama_are_left_alone():
    with fake.Ollama(models=["a"], cloud=["big:cloud"]) as w:
        out, back = orders("evict", "resume", kind="ollama", url=w.url)
        assert back["ok"] and "1 of 1" in back["message"] and "cloud" not in out["notes"], (out, back)


def test_requests_in_flight_of_llamaswap_are_waited_for():
    with fake.LlamaSwap(models=["m"], busy=2) as w:
        assert order("drain", kind="llamaswap", url=w.url)["in_flight"] is True
        w.busy = 0
        begin = time.monotonic()
        assert order("drain", kind="llamaswap", url=w.url, deadline_ms=20000)["in_flight"] is False
        assert time.monotonic() - begin < 10, "the stream does not end"
        assert not [p for p in w.asked() if "upstream" in p]


def test_tabby_that_answers_200_but_does_not_load_has_failed():
    with fake.Tabby(breaks=True) as w:
        out = order("resume", kind="tabby", url=w.url, notes="model m\n")
        assert not out["ok"] and "did not load m" in out["message"]


@pytest.mark.parametrize("kind", ["llamacpp", "tabby"])
def test_a_model_that_is_already_loaded_is_back(kind):
    w, _ = worker_of(kind, models=["m"])
    with w:
        back = order("resume", kind=kind, url=w.url, notes="asked 1\nmodel m\n", deadline_ms=30000)
        assert back["ok"] and back["listed"] and w.loaded == ["m"], back


@pytest.mark.parametrize("kind", ["ollama", "llamacpp", "tabby"])
def test_a_server_that_forgot_its_models_is_not_reported_as_back(kind):
    w, _ = worker_of(kind, models=[])
    with w:
        lost = order("resume", kind=kind, url=w.url, bytes=1 << 30)
        assert not lost["ok"] and "set the key model" in lost["message"], lost
        assert order("resume", kind=kind, url=w.url, bytes=0)["ok"], "with bytes=0, no memory is missing"
        empty = order("evict", kind=kind, url=w.url, bytes=1 << 30)
        assert order("resume", kind=kind, url=w.url, bytes=1 << 30, notes=empty["notes"])["ok"]


def test_tabby_gets_the_model_that_it_had_last():
    with fake.Tabby(known=["a", "b"]) as w:
        assert order("resume", kind="tabby", url=w.url, notes="asked 1\nmodel a\nmodel b\n")["ok"]
        assert w.loaded == ["b"]


def test_tabby_unloads_nothing_that_it_could_not_name_again():
    with fake.Tabby(models=["m"]) as w:
        w.fail["/v1/model"] = fake.status(500)
        assert not order("evict", kind="tabby", url=w.url)["ok"] and w.loaded == ["m"]
        assert order("evict", kind="tabby", url=w.url, model="m")["ok"] and not w.loaded


@pytest.mark.parametrize("how, words", [
    ({"admin": False}, "has no admin mode: start it with --admin --admindir DIR"),
    ({"admindir": False}, "does not find its --admindir"),
    ({"token": "another"}, "refuses the password in token_file"),
    ({"token": "another", "no_file": True}, "needs its admin password: write the password of --adminpassword to a file"),
], ids=["no admin mode", "no folder", "a wrong password", "no password"])
def test_kobold_reports_at_once_why_it_does_not_unload(token_file, how, words):
    worker = {} if how.pop("no_file", False) else {"token_file": token_file}
    with fake.Kobold(models=["big.kcpps"], busy=1, **how) as w:
        for verb in ("drain", "evict"):
            out = order(verb, kind="kobold", url=w.url, **worker)
            assert not out["ok"] and out["refused"] and words in out["message"] and w.url in out["message"], out
        assert w.loaded and w.busy == 1 and w.asked("POST") == [], "its request goes on"


def test_kobold_gets_its_admin_password(token_file):
    with fake.Kobold(models=["big.kcpps"], token=fake.TOKEN) as w:
        out, back = orders("evict", "resume", kind="kobold", url=w.url, token_file=token_file)
        assert out["ok"] and back["ok"] and back["listed"] and w.loaded == ["big.kcpps"], (out, back)
        assert {h["Authorization"] for h in w.headers} == {"Bearer " + fake.TOKEN}


def test_kobold_hides_its_model_behind_its_password(token_file):
    with fake.Kobold(models=["big.kcpps"], password="for clients", busy=1) as w:  # no --adminpassword is set
        out, back = orders("evict", "resume", kind="kobold", url=w.url)
        assert out["ok"] and "model" not in out["notes"] and w.aborted == 0, out
        assert back["ok"] and back["listed"] and w.loaded == ["big.kcpps"], back
    with fake.Kobold(models=["big.kcpps"], password="for clients", token=fake.TOKEN, busy=1) as w:
        out = order("evict", kind="kobold", url=w.url, token_file=token_file)
        assert out["ok"] and "model koboldcpp/big\n" in out["notes"] and w.aborted == 1, out


@pytest.mark.parametrize("router", [False, True])
def test_no_question_wakes_a_kobold_that_sleeps(router):
    with fake.Kobold(models=["big.kcpps"], router=router) as w:
        w.sleeps()
        rows = orders("drain", "evict", "resume", kind="kobold", url=w.url, model="big.kcpps", bytes=1 << 30)
        assert all(r["ok"] for r in rows) and w.asleep and w.loaded == [], rows
        assert w.asked("POST") == [], "its model is already unloaded, so nothing is done"
        assert "no model was loaded" in rows[2]["message"], rows


def test_requests_that_wait_in_kobolds_queue_are_waited_for():
    with fake.Kobold(models=["big.kcpps"], waiting=2) as w:
        assert order("drain", kind="kobold", url=w.url)["in_flight"] is True
        w.waiting = 0
        assert order("drain", kind="kobold", url=w.url)["in_flight"] is False


def test_kobold_gets_back_what_it_had():
    small = "sub/Small 7B.gguf"
    with fake.Kobold(models=["big.kcpps"]) as w:
        w.loaded = [small]  # a client changed the model after the start
        out, back = orders("evict", "resume", kind="kobold", url=w.url)
        assert "model koboldcpp/Small7B\n" in out["notes"] and back["ok"] and back["listed"], (out, back)
        assert w.loaded == [small] and [b["filename"] for m, p, b in w.calls if "reload" in p] == [
            "unload_model", "initial_model", small]
        w.loaded, w.options = ["gone.gguf"], ["big.kcpps"]
        out, back = orders("evict", "resume", kind="kobold", url=w.url)
        assert back["ok"] and "koboldcpp/big is loaded, not koboldcpp/gone: set the key model" in back["message"], back
        w.options.append(small)
        assert order("resume", kind="kobold", url=w.url, model=small, notes="asked 1\nloaded 1\n")["ok"] and w.loaded == ["big.kcpps"]
        w.unload()
        assert order("resume", kind="kobold", url=w.url, model=small, notes="asked 1\nloaded 1\n")["ok"] and w.loaded == [small]
        w.unload()
        out = order("resume", kind="kobold", url=w.url, model="none.kcpps")
        assert not out["ok"] and "refuses to load none.kcpps" in out["message"] and "list_options" in out["message"], out


def test_an_old_kobold_needs_to_know_which_file_to_load():
    with fake.Kobold(options=["a.kcpps", "b.kcpps", "c.gguf"], old=True) as w:
        out = order("resume", kind="kobold", url=w.url)
        assert not out["ok"] and "set model" in out["message"]
        for notes, file in (("model koboldcpp/c\n", "c.gguf"), ("model koboldcpp/b\n", "b.kcpps")):
            w.unload()
            assert order("resume", kind="kobold", url=w.url, notes="asked 1\nloaded 1\n" + notes)["ok"] and w.loaded == [file]
        w.unload()
        assert order("resume", kind="kobold", url=w.url, model="a.kcpps")["ok"] and w.loaded == ["a.kcpps"]
    with fake.Kobold(options=["a.kcpps", "c.gguf"], old=True) as w:
        assert order("resume", kind="kobold", url=w.url)["ok"] and w.loaded == ["a.kcpps"], "there is only one"


def test_kobold_1_102_gets_its_only_configuration_back(token_file):
    with fake.Kobold(options=["a.kcppt", "c.gguf"], models=["a.kcppt"], password="for clients", token=fake.TOKEN, oldest=True) as w:
        out, back = orders("evict", "resume", kind="kobold", url=w.url, token_file=token_file)
        assert out["ok"] and "model" not in out["notes"] and back["ok"] and w.loaded == ["a.kcppt"], (out, back)
    with fake.Kobold(options=["a.kcppt", "b.kcpps", "c.gguf"], oldest=True) as w:
        assert order("resume", kind="kobold", url=w.url)["ok"] and w.loaded == ["b.kcpps"]
    with fake.Kobold(options=["a.kcppt", "b.kcppt", "c.gguf"], oldest=True) as w:
        out = order("resume", kind="kobold", url=w.url)
        assert not out["ok"] and "set model to a file of --admindir" in out["message"], out
        assert order("resume", kind="kobold", url=w.url, notes="asked 1\nloaded 1\nmodel koboldcpp/a\n")["ok"] and w.loaded == ["a.kcppt"]


@pytest.mark.parametrize("kobold", [dict(types=("txt2img",)), dict(types=("embeddings", "tts")), dict(names={"big.kcpps": "inactive-7b.x"})],
                         ids=["images", "no text", "an odd name"])
def test_kobold_is_loaded_whatever_its_models_are_for(kobold):
    with fake.Kobold(models=["big.kcpps"], **kobold) as w:
        out, back = orders("evict", "resume", kind="kobold", url=w.url)
        assert out["ok"] and "/api/admin/reload_config" in w.asked() and back["ok"] and back["listed"], (out, back)
        assert w.loaded == ["big.kcpps"]


@pytest.mark.parametrize("router", [False, True])
def test_kobold_may_restart_without_having_failed(router):
    with fake.Kobold(models=["big.kcpps"], router=router, restarts=3) as w:
        how = dict(kind="kobold", url=w.url, root=os.getpid())
        out, again = orders("evict", "evict", **how)
        assert out["ok"] and not again["ok"] and again["retry"] and not again["refused"], (out, again)
        w.down(0)
        back = order("resume", notes=out["notes"], deadline_ms=30000, **how)
        assert back["ok"] and back["listed"] and w.loaded == ["big.kcpps"] and w.unavailable < 0, back


def test_what_a_client_loaded_through_kobolds_router_stays():
    small = "sub/Small 7B.gguf"
    with fake.Kobold(models=["big.kcpps"], router=True) as w:
        out = order("evict", kind="kobold", url=w.url)
        assert w.loaded == []
        requests.post(w.url + "/v1/chat/completions", json={"model": "koboldcpp/big"}, timeout=support.TIMEOUT)
        assert w.loaded == [], "the router does not load a model that is not one of its files"
        requests.post(w.url + "/v1/chat/completions", json={"model": small}, timeout=support.TIMEOUT)
        assert w.loaded == [small]
        back = order("resume", kind="kobold", url=w.url, notes=out["notes"])
        assert back["ok"] and back["listed"] and w.loaded == [small], back


@pytest.mark.parametrize("kind", [k for k in KINDS if KINDS[k].shows_work])
def test_work_in_flight_is_seen_until_it_is_over(kind):
    worker, _ = worker_of(kind, busy=1)
    with worker as w:
        assert order("drain", kind=kind, url=w.url)["in_flight"] is True
        w.busy = 0
        assert order("drain", kind=kind, url=w.url)["in_flight"] is False


def test_prompts_in_comfys_queue_stay_there():
    with fake.Comfy(models=["sdxl"], busy=3) as w:
        assert order("evict", kind="comfy", url=w.url)["ok"]
        assert w.busy == 2 and w.asked("POST") == ["/interrupt", "/free"]


SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
*"stop -- gone"*) exit 5 ;;
*"stop -- denied"*) exit 1 ;;
*"stop -- slow"*) sleep 30 ;;
esac
"""


@pytest.fixture
def systemctl(tmp_path):
    path = tmp_path / "systemctl"
    path.write_text(SYSTEMCTL)
    path.chmod(0o755)
    calls = tmp_path / "calls"
    calls.touch()
    env = support.environment(PATH=f"{tmp_path}:/usr/bin:/bin", CALLS=calls)
    return env, lambda: calls.read_text().splitlines()


def test_a_unit_is_stopped_and_started(systemctl):
    env, calls = systemctl
    out, back = orders("evict:4", "resume", kind="systemd", unit="llm.service", env=env)
    assert out["ok"] and back["ok"]
    assert calls() == [f"--no-ask-password --quiet {v} -- llm.service" for v in ("stop", "start")]


@pytest.mark.parametrize("url,words", [("user", "--user stop"), ("user@ann", "--user --machine=ann@.host stop"),
                                       ("system", "--quiet stop")])
def test_a_unit_of_a_user_is_stopped_by_that_users_manager(systemctl, url, words):
    env, calls = systemctl
    orders("evict:4", kind="systemd", unit="llm.service", url=url, env=env)
    assert words in calls()[0]


@pytest.mark.parametrize("unit,words,deadline", [
    ("gone.service", "no such unit", {}),
    ("denied.service", "polkit", {}),
    ("slow.service", "in time", {"deadline_ms": 300}),
])
def test_a_unit_that_does_not_stop_is_a_failure(systemctl, unit, words, deadline):
    env, _ = systemctl
    out, = orders("evict:4", kind="systemd", unit=unit, env=env, **deadline)
    assert not out["ok"] and words in out["message"], out


def test_the_name_of_a_unit_is_never_an_option(systemctl):
    env, calls = systemctl
    assert not orders("evict:4", kind="systemd", unit="--force", env=env)[0]["ok"]
    assert not orders("evict:4", kind="systemd", env=env)[0]["ok"]
    assert calls() == []


def test_a_worker_with_a_unit_can_be_stopped_and_gets_its_models_back(systemctl):
    env, calls = systemctl
    with fake.Ollama(models=["a"]) as w:
        drained, out, back = orders("drain", "evict:4", "resume", kind="ollama", url=w.url, unit="ollama.service", env=env)
        assert drained["ok"] and out["ok"] and back["ok"], (drained, out, back)
        assert [c.split()[2] for c in calls()] == ["stop", "start"]
        assert [b["model"] for _, p, b in w.calls if p == "/api/generate"] == ["a"]
        assert back["notes"] == ""


def test_a_single_model_server_of_llamacpp_is_stopped_and_has_its_model_after_the_start(systemctl):
    env, calls = systemctl
    with fake.LlamaCpp(models=["m"], router=False) as w:
        drained, refused, out, back = orders("drain", "evict", "evict:4", "resume:4", kind="llamacpp", url=w.url, max_level=4,
                                             unit="llama.service", bytes=1 << 30, env=env)
        assert drained["ok"] and refused["refused"] and out["ok"] and back["ok"], (drained, refused, out, back)
        assert [c.split()[2] for c in calls()] == ["stop", "start"] and back["notes"] == ""


def test_a_started_server_is_waited_for(systemctl):
    env, _ = systemctl
    with fake.Ollama(known=["a"]) as w:
        w.fail["/api/ps"] = fake.times(2, fake.status(503))
        back, = orders("resume", kind="ollama", url=w.url, unit="ollama.service", notes="stopped 1\nmodel a\n", env=env,
                       deadline_ms=30000)
        assert back["ok"], back
        assert w.loaded == ["a"]


@pytest.mark.parametrize("how", [dict(word="resume:4"), dict(word="resume", start=1)])
def test_a_unit_is_started_though_the_note_that_it_was_stopped_is_lost(systemctl, how):
    env, calls = systemctl
    word = how.pop("word")
    with fake.Ollama(known=["a"]) as w:
        back, = orders(word, kind="ollama", url=w.url, unit="ollama.service", model="a", env=env, **how)
        assert back["ok"], back
        assert [c.split()[2] for c in calls()] == ["start"] and w.loaded == ["a"]


@pytest.mark.parametrize("kind", ["ollama", "comfy", "llamaswap"])
def test_a_lazy_worker_that_was_stopped_is_started_and_loads_nothing(systemctl, kind):
    env, calls = systemctl
    with KINDS[kind].fake(known=["a"]) as w:
        back, = orders("resume:4", kind=kind, url=w.url, unit="w.service", notes="model a\n", lazy=1, start=1, env=env)
        assert back["ok"] and back["notes"] == "", back
        assert [c.split()[2] for c in calls()] == ["start"] and w.loaded == []


def test_an_endpoint_without_an_answer_differs_from_a_failed_resume():
    with fake.Ollama(known=["a"]) as w:
        w.fail["/api/generate"] = fake.status(500)
        out = order("resume", kind="ollama", url=w.url, model="a")
        assert not out["ok"] and not out["no_answer"]
        w.fail["/api/ps"] = fake.status(500)
        out = order("resume", kind="ollama", url=w.url, model="a")
        assert not out["ok"] and out["no_answer"]
    out = order("resume", kind="ollama", url=w.url, model="a")
    assert not out["ok"] and out["no_answer"]


def test_a_container_is_stopped_and_started(tmp_path):
    with fake.Engine(tmp_path / "engine.sock", known=["abc", "other"], running=["abc", "other"]) as e:
        out, again, back = orders("evict:4", "evict:4", "resume", kind="container", url=e.url, container="abc")
        assert out["ok"] and again["ok"] and back["ok"], (out, again, back)
        assert sorted(e.loaded) == ["abc", "other"]
        assert e.asked()[0].startswith("/containers/abc/stop?t=")
        assert e.asked()[-1] == "/containers/abc/start"
        assert 0 < int(e.asked()[0].split("=")[1]) < 5


def test_the_token_is_not_sent_to_a_container_engine(tmp_path, token_file):
    with fake.Engine(tmp_path / "engine.sock", known=["abc"], running=["abc"]) as e:
        assert order("evict:4", kind="container", url=e.url, container="abc", token_file=token_file)["ok"]
        assert fake.TOKEN not in str(e.headers)


def test_a_container_that_is_not_there_is_a_failure(tmp_path):
    with fake.Engine(tmp_path / "engine.sock", known=["other"], running=["other"]) as e:
        out = order("evict:4", kind="container", url=e.url, container="abc")
        assert not out["ok"] and "No such container" in out["message"]
        out = order("evict:4", kind="container", url=e.url, container="../other")
        assert not out["ok"] and e.asked()[-1].startswith("/containers/..%2Fother/")
    out = order("evict:4", kind="container", url=e.url, container="abc")
    assert not out["ok"] and "engine.sock" in out["message"]
    assert not order("evict:4", kind="container", url="tcp://127.0.0.1:2375", container="abc")["ok"]


HOOK = """#!/usr/bin/python3
import json, os, sys
json.dump({"argv": sys.argv[1:], "env": dict(os.environ)}, open(sys.argv[1], "w"))
print("first")
print("last \\x1b[1m line")
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def hook(tmp_path):
    path = tmp_path / "hook"
    path.write_text(HOOK)
    path.chmod(0o755)
    return path


def test_a_hook_gets_its_arguments_and_a_fixed_environment(hook, tmp_path):
    seen = tmp_path / "seen"
    env = support.environment(GPUWARD_SECRET="a-secret", GPUWARD_GPU="wrong")
    words = [hook, seen, "0", "$(touch /tmp/never); a b"]
    out, = orders("evict", kind="exec", evict_argv=words, gpus="GPU-1,GPU-2", reason="contention thermal", bytes=5 << 30,
                  env=env)
    assert out["ok"] and out["message"] == "last ?[1m line"
    got = json.loads(seen.read_text())
    assert got["argv"] == [str(w) for w in words[1:]]
    assert {k: v for k, v in got["env"].items() if k.startswith("GPUWARD")} == {
        "GPUWARD_WORKER": "worker-under-test", "GPUWARD_GPU": "GPU-1,GPU-2", "GPUWARD_REASON": "contention thermal",
        "GPUWARD_BYTES": str(5 << 30)}
    assert set(got["env"]) - {"LC_CTYPE"} == {"PATH", "LANG", *(k for k in got["env"] if k.startswith("GPUWARD"))}


@pytest.mark.parametrize("code,retry", [(1, False), (75, True), (2, False)])
def test_a_hooks_exit_status_decides(hook, tmp_path, code, retry):
    out = order("evict", kind="exec", evict_argv=[hook, tmp_path / "seen", code])
    assert (out["ok"], out["retry"]) == (False, retry)
    assert f"exit status {code}: last" in out["message"]


def test_a_hook_that_hangs_is_ended_with_its_children(tmp_path):
    out = order("evict", kind="exec", evict_argv=["/bin/sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"],
                deadline_ms=1500)
    assert not out["ok"] and "in time" in out["message"]
    child = int((tmp_path / "pid").read_text())
    support.wait(lambda: not alive(child))


def test_a_process_that_a_hook_started_keeps_running(tmp_path):
    out = order("resume", kind="exec", resume_argv=["/bin/sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid"])
    assert out["ok"], out
    child = int((tmp_path / "pid").read_text())
    assert alive(child)  # the process runs on after the order
    os.kill(child, signal.SIGKILL)


def test_a_hook_that_is_not_there_is_a_failure():
    assert not order("evict", kind="exec", evict_argv=["/no/such/program"])["ok"]
    assert not order("evict", kind="exec", evict_argv=["A=b"])["ok"]
    assert "no program" in order("resume", kind="exec")["message"]


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


CHILD = """
import signal, sys
for s in map(int, sys.argv[2].split()):
    signal.signal(s, lambda n, f: open(sys.argv[1], "a").write(f"{n}\\n"))
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def process(tmp_path):
    """Starts processes that write the signals that they handle to a file."""
    started = []

    def start(*handled):
        log = tmp_path / f"signals-{len(started)}"
        log.touch()
        p = subprocess.Popen([sys.executable, "-c", CHILD, str(log), " ".join(str(int(s)) for s in handled)],
                             stdout=subprocess.PIPE)
        p.stdout.readline()
        started.append(p)
        p.signals = lambda: [int(x) for x in log.read_text().split()]
        return p

    yield start
    for p in started:
        p.kill()
        p.wait()


def until(what):
    return support.wait(what, seconds=20)


def untouched(p):
    """Sends SIGUSR2; True if it is the first signal that the process handled. A SIGUSR1 sent earlier would be handled first."""
    os.kill(p.pid, signal.SIGUSR2)
    return until(p.signals) == [signal.SIGUSR2] and p.poll() is None


def test_signals_go_to_the_processes_of_the_order_and_back(process):
    p, other = process(signal.SIGUSR1, signal.SIGUSR2), process(signal.SIGUSR1)
    out = order("evict", kind="signal", evict_signal=10, resume_signal=12, pid=p.pid)
    assert out["ok"] and until(lambda: p.signals() == [10])
    # After an eviction the process is not in the driver's lists, so the order has no targets.
    strange = order("resume", kind="signal", evict_signal=10, resume_signal=12, notes=out["notes"], root=other.pid)
    assert not strange["ok"], "the process does not belong to this worker"
    back = order("resume", kind="signal", evict_signal=10, resume_signal=12, notes=out["notes"], root=p.pid)
    assert back["ok"] and until(lambda: p.signals() == [10, 12]), back
    assert other.signals() == []


def test_all_signalled_processes_get_the_resume_signal_though_one_kept_memory(process):
    both = [process(signal.SIGUSR1, signal.SIGUSR2) for _ in range(2)]
    pids = [p.pid for p in both]
    how = {"kind": "signal", "evict_signal": 10, "resume_signal": 12}
    out = order("evict", pid=pids, **how)
    assert out["ok"] and until(lambda: all(p.signals() == [10] for p in both))
    assert order("resume", notes=out["notes"], pid=pids[0], root=pids, **how)["ok"]
    assert until(lambda: all(p.signals() == [10, 12] for p in both))


def test_without_notes_the_root_is_signalled_if_it_lives_through_it(process):
    p, deaf = process(signal.SIGUSR2), process(signal.SIGUSR1)
    how = {"kind": "signal", "evict_signal": 10, "resume_signal": 12}
    assert order("resume", root=[p.pid, deaf.pid], **how)["ok"] and until(lambda: p.signals() == [12])
    out = order("resume", root=deaf.pid, **how)
    assert not out["ok"] and "signal 12: send it by hand" in out["message"]
    assert not order("resume", root=f"{p.pid}:1", **how)["ok"], "the pid belongs to another process now"
    assert deaf.poll() is None and p.signals() == [12]


def test_a_process_with_a_reused_pid_is_never_signalled(process):
    p = process(signal.SIGUSR1, signal.SIGUSR2)
    out = order("evict", kind="signal", evict_signal=10, pid=f"{p.pid}:1")
    assert (out["ok"], out["retry"]) == (False, True)
    out = order("evict", kind="signal", evict_signal=10, pid=f"{p.pid}:0")
    assert not out["ok"]
    order("evict:6", kind="signal", allow_kill=1, pid=f"{p.pid}:1", deadline_ms=500)
    order("evict:5", kind="signal", allow_kill=1, pid=f"{p.pid}:0")
    assert untouched(p)


@pytest.mark.parametrize("number", [0, 15, 9, 19, 20, 999])
def test_signals_that_end_or_stop_a_process_are_refused(process, number):
    p = process(signal.SIGUSR2)
    assert not order("evict", kind="signal", evict_signal=number, pid=p.pid)["ok"]
    assert untouched(p)


@pytest.mark.parametrize("kind", ["signal", "ollama", "exec"])
@pytest.mark.parametrize("level", [5, 6])
def test_nothing_is_killed_unless_it_is_allowed(process, kind, level):
    p = process(signal.SIGUSR2)
    out = order(f"evict:{level}", kind=kind, pid=p.pid)
    assert not out["ok"] and "allow_kill" in out["message"]
    assert untouched(p)


def test_level_5_sends_sigterm_and_level_6_kills_what_stays(process):
    polite, stubborn, other = process(), process(signal.SIGTERM), process()
    assert order("evict:5", kind="ollama", allow_kill=1, pid=[polite.pid, stubborn.pid])["ok"]
    assert until(lambda: polite.poll() is not None)
    assert until(lambda: stubborn.signals() == [15]) and stubborn.poll() is None
    out = order("evict:6", kind="ollama", allow_kill=1, pid=[stubborn.pid], deadline_ms=1000)
    assert out["ok"] and "SIGKILL" in out["message"]
    assert until(lambda: stubborn.poll() is not None)
    assert stubborn.returncode == -9 and polite.returncode == -15 and other.poll() is None


def test_level_6_sends_no_sigkill_if_sigterm_is_enough(process):
    polite = process()
    out = order("evict:6", kind="ollama", allow_kill=1, pid=polite.pid, deadline_ms=30000)
    assert out["ok"] and "SIGKILL" not in out["message"]
    assert until(lambda: polite.poll() is not None) and polite.returncode == -15


def test_a_process_of_another_user_is_reported(process):
    if os.geteuid() != 0:
        out = order("evict:5", kind="ollama", allow_kill=1, pid=1)
        assert not out["ok"] or "0 processes" in out["message"]
        return
    p = process()
    env = support.environment()
    done = subprocess.run([str(ADAPTER), "kind=signal", "evict_signal=10", f"pid={p.pid}", "evict"], capture_output=True,
                          encoding="utf-8", env=env, preexec_fn=lambda: (os.setgid(65534), os.setuid(65534)))
    if not done.stdout:
        pytest.skip("another user cannot run the program here")
    out = json.loads(done.stdout)
    assert not out["ok"] and "cannot be signalled" in out["message"]
    assert p.poll() is None


def test_init_and_groups_are_never_signalled():
    for pid in ("1", "0:1", "-1:1"):  # the signal is SIGCONT, because it would do no harm
        assert not order("evict", kind="signal", evict_signal=18, pid=pid)["ok"]
