"""Tests gpuward measure --count-url, which reads the token counter of a server over HTTP."""
import contextlib
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest

from support import CONSTANT, PROGRAM, TIMEOUT, USAGE, check, environment, gpuward

NAME = "vllm:generation_tokens_total"


class Counter:
    """A server that answers each request with the next of its texts, and then repeats the last one.  For a text None it closes
    the connection."""

    def __init__(self, *answers, status=200, kind="text/plain"):
        self.answers, self.asked = list(answers), []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append((self.path, dict(self.headers)))
                text = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                if text is None:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/metrics"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()


def measure(tmp_path, load, url, *words, command=("sleep", "0.2")):
    out = tmp_path / "result.json"
    done = gpuward("measure", load, "-o", out, "--count-url", url, *words, "--", *command)
    doc = json.loads(out.read_text()) if out.exists() else None
    if doc:
        check("measure", doc)
    return done, doc


def series(*values):
    return "".join(f'{NAME}{{engine="{i}",model_name="m"}} {v}\n' for i, v in enumerate(values))


def test_what_a_server_counts_is_the_count(tmp_path, load):
    with Counter(series(100, 50), series(400, 150)) as server:
        done, doc = measure(tmp_path, load, server.url)
    run = doc["runs"][0]
    assert done.returncode == 0 and run["tokens"] == 400 and doc["tokens"] == 400
    count, each = run["count"], run["energy_per_token_joules"]
    assert count == {"source": "count-url", "url": server.url, "counter": NAME, "series": 2, "of": "tokens",
                     "number": 400, "edge": count["edge"], "new": None, "absence": None, "server_pids": []}
    assert f"{NAME}, 2 series, at" in " ".join(done.stderr.split())
    assert 0 < count["edge"] < 400
    assert each["best"] == pytest.approx(run["energy_joules"]["best"] / 400)
    assert each["high"] == pytest.approx(run["energy_joules"]["high"] / (400 - count["edge"]))
    path, headers = server.asked[0]
    assert path == "/metrics" and headers["Accept"].startswith("text/plain")


@pytest.mark.parametrize("what, tokens", [("", 400), ('{engine="1"}', 100), ('{engine="0",model_name="m"}', 300)])
def test_labels_choose_among_the_series(tmp_path, load, what, tokens):
    with Counter(series(100, 50), series(400, 150)) as server:
        _, doc = measure(tmp_path, load, f"{server.url}#{NAME}{what}", command=["true"])
    assert doc["runs"][0]["tokens"] == tokens
    count = doc["runs"][0]["count"]
    assert count["counter"] == NAME + what and count["series"] == (1 if what else 2)


def test_a_series_that_appears_during_the_run_is_reported(tmp_path, load):
    with Counter(series(100), series(400, 150)) as server:
        done, doc = measure(tmp_path, load, server.url, command=["true"])
    count = doc["runs"][0]["count"]
    assert done.returncode == 0 and count["number"] == 450 and count["series"] == 2
    assert count["new"] == {"series": 1, "number": 150, "began": "assumed"}
    err = " ".join(done.stderr.split())
    assert "--count-url: 1 of 2 series appeared during the run; all of its 150 tokens are counted" in err
    assert f"{NAME}, 2 series (1 appeared during the run), at" in err


@pytest.mark.parametrize("age, known", [(-5, True), (3600, False)])
def test_the_created_time_of_a_new_series_decides_whether_it_counts(tmp_path, load, age, known):
    began = f'{NAME[:-6]}_created{{engine="1",model_name="m"}} {time.time() - age}\n'
    with Counter(series(100), series(400, 150) + began) as server:
        done, doc = measure(tmp_path, load, server.url, command=["true"])
    count = doc["runs"][0]["count"]
    if known:
        assert done.returncode == 0 and count["new"] == {"series": 1, "number": 150, "began": "told"}
        assert "are counted, assuming" not in done.stderr
    else:
        assert done.returncode == 1 and count["number"] is None and count["new"] is None
        assert "(now 150) was missing before the run, although the server's clock says that it started 36" in count["absence"]


def test_the_result_holds_no_query_of_the_url(tmp_path, load):
    with Counter(f"{NAME} 1\n", f"{NAME} 5\n") as server:
        _, doc = measure(tmp_path, load, f"{server.url}?key=secret#{NAME}", "--trials=2", "--no-cooldown", command=["true"])
    assert doc["runs"][0]["count"]["url"] == server.url and server.asked[0][0] == "/metrics?key=secret"
    assert "secret" not in json.dumps(doc)


@pytest.mark.parametrize("answer", ["Content-Length: {n}\r\n\r\n{body}",
                                    "Transfer-Encoding: chunked\r\n\r\n{n:x}\r\n{body}\r\n0\r\n\r\n"],
                         ids=["whole", "pieces"])
def test_a_server_that_does_not_hang_up_is_not_waited_for(tmp_path, load, answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept = []

        def serve():
            for value in (5, 25):
                kept.append(listener.accept()[0])
                kept[-1].recv(65536)
                body = f"{NAME} {value}\n"
                kept[-1].sendall(f"HTTP/1.1 200 OK\r\n{answer.format(n=len(body), body=body)}".encode())
        thread = threading.Thread(target=serve)
        thread.start()
        done, doc = measure(tmp_path, load, f"http://127.0.0.1:{listener.getsockname()[1]}/metrics", command=["true"])
        thread.join()
        for connection in kept:
            connection.close()
    assert done.returncode == 0 and doc["runs"][0]["tokens"] == 20


def test_a_number_in_json_counts_iterations(tmp_path, load):
    with Counter('{"done": {"steps": 5}}', '{"done": {"steps": 30}}', kind="application/json") as server:
        _, doc = measure(tmp_path, load, f"{server.url}#done.steps", "--count=iterations", command=["true"])
    run = doc["runs"][0]
    assert run["iterations"] == 25 and run["count"]["of"] == "iterations" and run["tokens"] is None
    assert run["count"]["counter"] == "done.steps" and run["count"]["series"] == 1


def test_each_run_has_its_own_count(tmp_path, load):
    with Counter(*(f"{NAME} {v}\n" for v in (0, 10, 10, 30))) as server:
        _, doc = measure(tmp_path, load, server.url, "--trials=2", "--no-cooldown", "--warmup=1", command=["true"])
    assert [run["tokens"] for run in doc["runs"]] == [10, 20]


@pytest.mark.parametrize("after, said", [
    (f"{NAME} 7\n", "the counter fell from 100 to 7; perhaps the server was restarted"),
    (f"{NAME} 100\n", "the counter did not grow: 100 before and 100 after the run"),
    (f"{NAME} NaN\n", "the value of the counter is not a number (NaN), which is not a count"),
    ("other 5\n", f"the reply has no '{NAME}'"),
    (None, "does not speak HTTP"),
])
def test_a_count_that_fails_at_the_end_is_null_and_the_run_is_kept(tmp_path, load, after, said):
    with Counter(f"{NAME} 100\n", after) as server:
        done, doc = measure(tmp_path, load, f"{server.url}#{NAME}")
    run = doc["runs"][0]
    assert done.returncode == 1 and run["exit_status"] == 0
    assert run["tokens"] is None and run["energy_per_token_joules"] is None and run["energy_joules"]["best"] > 0
    assert run["count"]["number"] is None and run["count"]["edge"] is None and said in run["count"]["absence"]
    assert "--count-url: " in done.stderr and "the count is unknown" in done.stderr and said in done.stderr


def test_a_server_that_is_gone_at_the_end_leaves_the_run(tmp_path, load):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Counter(f"{NAME} 100\n"))
        begun, go = tmp_path / "begun", tmp_path / "go"
        os.mkfifo(begun)
        os.mkfifo(go)

        def leave():
            begun.write_text("")  # the command has begun: it reads from the pipe
            stack.close()
            go.write_text("")
        thread = threading.Thread(target=leave)
        thread.start()
        done, doc = measure(tmp_path, load, server.url, command=["sh", "-c", f"cat {begun}; cat {go}"])
        thread.join()
    assert done.returncode == 1 and "no server listens on 127.0.0.1:" in doc["runs"][0]["count"]["absence"]


def refused(tmp_path, load, url):
    done, doc = measure(tmp_path, load, url, command=["touch", tmp_path / "started"])
    assert done.returncode == 1 and doc is None and not (tmp_path / "started").exists()
    assert "nothing was measured" in done.stderr
    return done.stderr


def test_a_server_that_does_not_answer_starts_nothing(tmp_path, load):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert f"--count-url: no server listens on 127.0.0.1:{port}; nothing" in refused(tmp_path, load, f"http://127.0.0.1:{port}/m")


@pytest.mark.parametrize("answer, status, what, said", [
    (f"{NAME} 5\n", 404, "", "replied with status 404"),
    ('{"error": {"message": "Invalid API Key"}}', 401, "", "Invalid API Key; --count-url sends no key: use --count-cmd with curl"),
    (f"{NAME} 5\n", 200, "#vllm:generation_tokens", f"has no 'vllm:generation_tokens', but it has '{NAME}'"),
    ("up 1\n", 200, "", f"no known token counter; give its name after the URL, as in URL#{NAME}"),
    (f"{NAME} NaN\n", 200, "", "the value of the counter is not a number (NaN)"),
    ("{}", 200, "", "the reply is JSON; give the path of the number after the URL"),
])
def test_a_server_that_cannot_count_starts_nothing(tmp_path, load, answer, status, what, said):
    with Counter(answer, status=status) as server:
        assert said in refused(tmp_path, load, server.url + what)


@pytest.mark.parametrize("words, said", [
    (["--count-url=https://localhost/metrics"], "https is not supported"),
    (["--count-url=localhost:8000/metrics"], "is not a URL such as http://localhost:8000/metrics"),
    (["--count-url=http://h/#n{a=~\"b\"}"], "is not a counter; give NAME, NAME{LABEL"),
    (["--count-url=http://h/", "--count-cmd=echo 1"], "--count-cmd and --count-url exclude each other"),
    (["--count-url=http://h/", "--tokens=5"], "--count-url and --tokens exclude each other"),
    (["--count-url=http://h/", "--part=x"], "--count-url counts over the whole run"),
    (["--count-url=http://h/", "--count=iterations"], "give the name of the counter: URL#NAME"),
])
def test_invalid_count_options_are_refused(words, said):
    done = gpuward("measure", "--simulate=idle-h200", *words, "--", "true")
    assert done.returncode == USAGE and said in done.stderr


class Silent:
    """A server that answers a number of requests.  It accepts later requests but does not answer; then it sets asked."""

    def __init__(self, answers):
        self.answers, self.asked, self.kept = answers, threading.Event(), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/metrics"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        for number in range(self.answers + 1):
            connection = self.listener.accept()[0]
            connection.recv(65536)
            if number == self.answers:
                self.kept.append(connection)
                self.asked.set()
                return
            with connection:
                body = f"{NAME} {100 * number + 5}\n"
                connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.listener.close()
        for connection in self.kept:
            connection.close()


def interrupted(load, asked, *words):
    """Sends SIGINT when asked() is true.  Returns the exit status, the output and the time from the signal to the end."""
    child = subprocess.Popen([str(PROGRAM), "measure", load, *map(str, words)], env=environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert asked()
    begin = time.monotonic()
    child.send_signal(signal.SIGINT)
    err = " ".join(child.communicate(timeout=TIMEOUT)[1].split())
    return child.returncode, err, time.monotonic() - begin


SOON = 5  # most seconds until the end on a busy machine; without the signal it takes ten


def test_ctrl_c_ends_the_waiting_for_a_silent_server_and_nothing_is_started(tmp_path, load):
    with Silent(0) as server:
        code, err, took = interrupted(load, lambda: server.asked.wait(TIMEOUT), "--count-url", server.url, "--",
                                      "touch", tmp_path / "started")
    assert code == 130 and took < SOON and not (tmp_path / "started").exists()
    assert "did not answer before the interruption; nothing was measured" in err


def test_ctrl_c_after_the_run_keeps_it_without_its_count(tmp_path, load):
    out = tmp_path / "r.json"
    with Silent(1) as server:
        code, err, took = interrupted(load, lambda: server.asked.wait(TIMEOUT), "-o", out, "--count-url", server.url,
                                      "--", "sleep", "0.2")
    run = json.loads(out.read_text())["runs"][0]
    assert code == 1 and took < SOON and run["energy_joules"]["best"] > 0 and run["tokens"] is None
    assert "did not answer before the interruption" in run["count"]["absence"]
    assert "the count is unknown" in err


def test_ctrl_c_that_ends_the_command_does_not_wait_for_a_silent_server(tmp_path, load):
    out, fifo = tmp_path / "r.json", tmp_path / "go"
    os.mkfifo(fifo)
    with Silent(1) as server:
        code, _, took = interrupted(load, lambda: fifo.read_text() == "runs\n", "-o", out, "--count-url", server.url,
                                    "--", "sh", "-c", f"echo runs > {fifo}; exec sleep 60")
    run = json.loads(out.read_text())["runs"][0]
    assert code == 130 and took < SOON and run["exit_signal"] == signal.SIGINT and run["count"]["number"] is None


def test_a_server_that_answers_is_still_counted_after_ctrl_c(tmp_path, load):
    out, fifo = tmp_path / "r.json", tmp_path / "go"
    os.mkfifo(fifo)
    with Counter(f"{NAME} 5\n", f"{NAME} 25\n") as server:
        code, _, _ = interrupted(load, lambda: fifo.read_text() == "runs\n", "-o", out, "--count-url", server.url,
                                 "--", "sh", "-c", f"echo runs > {fifo}; exec sleep 60")
    assert code == 130 and json.loads(out.read_text())["runs"][0]["tokens"] == 20


def test_ctrl_c_between_runs_keeps_those_that_were_made(tmp_path, load):
    out = tmp_path / "r.json"
    with Silent(2) as server:
        code, err, took = interrupted(load, lambda: server.asked.wait(TIMEOUT), "-o", out, "--count-url", server.url,
                                      "--trials=3", "--no-cooldown", "--", "true")
    assert code == 130 and took < SOON and [r["tokens"] for r in json.loads(out.read_text())["runs"]] == [100]
    assert "before the interruption; this run was not started" in err and "1 of 3 runs were made" in err


def test_a_server_that_is_gone_between_runs_leaves_those_that_were_made(tmp_path, load):
    with Counter(f"{NAME} 1\n", f"{NAME} 5\n", None) as server:
        done, doc = measure(tmp_path, load, server.url, "--trials=3", "--no-cooldown", command=["true"])
    assert done.returncode == 1 and [r["tokens"] for r in doc["runs"]] == [4]
    assert "this run was not started" in done.stderr and "nothing was measured" not in done.stderr


def test_ctrl_c_ends_a_command_that_counts(tmp_path, load):
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    code, err, took = interrupted(load, lambda: fifo.read_text() == "runs\n", "--count-cmd",
                                  f"echo runs > {fifo}; sleep 60", "--", "touch", tmp_path / "started")
    assert code == 130 and took < SOON and not (tmp_path / "started").exists()
    assert "interrupted before the command ended; nothing was measured" in err


class Router:
    """A fake llama.cpp router: a request loads the model that it names, unless it has autoload=false."""

    def __init__(self, loaded=()):
        self.loaded = list(loaded)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
                model = query.get("model", [""])[0]
                if model and query.get("autoload") != ["false"] and model not in outer.loaded:
                    outer.loaded.append(model)
                if model in outer.loaded:
                    outer.count += 500
                    code, body = 200, f"llamacpp:tokens_predicted_total {outer.count}\n"
                else:
                    what = "model is not loaded" if model else "model name is missing from the request"
                    code, body = 400, json.dumps({"error": {"code": 400, "message": what, "type": "invalid_request_error"}})
                self.send_response(code)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *args):
                pass
        self.count = 0
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/metrics"

    __enter__, __exit__ = Counter.__enter__, Counter.__exit__


def test_a_router_is_asked_for_one_model_and_loads_none(tmp_path, load):
    with Router(loaded=["m"]) as server:
        done, doc = measure(tmp_path, load, server.url + "?model=m")
        assert done.returncode == 0 and doc["tokens"] == 500, done.stderr
        done, doc = measure(tmp_path, load, server.url + "?model=other")
        assert "400: model is not loaded; load the model before" in " ".join(done.stderr.split()), done.stderr
        assert server.loaded == ["m"]


def test_a_router_without_a_model_is_explained(tmp_path, load):
    with Router(loaded=["m"]) as server:
        done, _ = measure(tmp_path, load, server.url)
    assert "model name is missing from the request; add the model to the URL: ?model=NAME" in " ".join(done.stderr.split())


# A server that counts tokens. Its child process holds the GPU memory, like the engine of vLLM or a runner of Ollama.
SERVER = """
import http.server, os, pathlib, subprocess, sys
folder, host = pathlib.Path(sys.argv[1]), sys.argv[2]
tokens = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global tokens
        tokens += 500
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"vllm:generation_tokens_total %d\\n" % tokens)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer((host, 0), Handler)
engine = subprocess.Popen(["sleep", "600"])
(folder / str(engine.pid)).write_text(str(2 << 30))
print(server.server_port, engine.pid, flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def token_server(folder, host="127.0.0.1"):
    """Runs the server in its own process. Yields the server, its port and the pid of its engine."""
    child = subprocess.Popen([sys.executable, "-c", SERVER, folder, host], stdout=subprocess.PIPE, text=True)
    try:
        port, engine = map(int, child.stdout.readline().split())
        yield child, port, engine
    finally:
        with contextlib.suppress(ProcessLookupError, UnboundLocalError):
            os.kill(engine, signal.SIGKILL)
        child.kill()
        child.wait()
        child.stdout.close()


def foreign(doc):
    return [c["evidence"] for c in doc["runs"][0]["codes"] if c["code"] == "foreign-process"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_server_that_is_counted_is_part_of_the_measurement(tmp_path, scenario, host):
    folder = tmp_path / "held"
    folder.mkdir()
    load = scenario(CONSTANT.replace("[[gpu.load]]", f'follow = "{folder}"\n[[gpu.load]]', 1))
    with token_server(folder) as (server, port, engine):
        done, doc = measure(tmp_path, load, f"http://{host}:{port}/metrics", "--require-exclusive")
        assert done.returncode == 0, done.stderr
        run, = doc["runs"]
        assert run["tokens"] == 500 and run["count"]["server_pids"] == [server.pid]
        assert engine in [p.get("pid") for p in run["devices"][0]["processes"]]
        assert foreign(doc) == [] and "another process" not in done.stderr
        assert f"(pid {server.pid}, part of the measurement)" in " ".join(done.stderr.split())
        # A process that does not belong to the server still counts as foreign.
        stranger = subprocess.Popen(["sleep", "600"])
        try:
            (folder / str(stranger.pid)).write_text(str(1 << 30))
            done, doc = measure(tmp_path, load, f"http://{host}:{port}/metrics")
            assert doc["validity"] == "suspect" and f"(pid {stranger.pid})" in foreign(doc)[0]
        finally:
            stranger.kill()
            stranger.wait()


def test_server_of_another_address_and_a_count_command_stay_foreign(tmp_path, scenario):
    folder = tmp_path / "held"
    folder.mkdir()
    load = scenario(CONSTANT.replace("[[gpu.load]]", f'follow = "{folder}"\n[[gpu.load]]', 1))
    with token_server(folder) as (_, _, engine), Counter(series(100), series(400)) as other:
        _, doc = measure(tmp_path, load, other.url)
        assert doc["runs"][0]["count"]["server_pids"] == [] and f"(pid {engine})" in foreign(doc)[0]
