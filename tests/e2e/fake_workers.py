"""Fake inference workers: HTTP servers without a model that implement the part of each worker's API that its adapter uses.

    with Ollama(models=["llama3:8b"]) as w:
        w.url           # http://127.0.0.1:PORT
        w.loaded        # what it has "on the GPU" now
        w.calls         # [("POST", "/api/generate", {...}), ...]
        w.fail["/api/generate"] = status(500)

fail[PATH] makes requests to a path fail: with a status, a delay, no answer, or a connection that is closed early.
"""
import http.server
import json
import os
import socketserver
import threading
import time
import typing
import urllib.parse

TOKEN = "a-secret-for-the-worker-0123456789"


def status(code, body=None, **headers):
    def do(h):
        h.send(code, body if body is not None else {"error": {"message": f"failure {code}"}}, headers)
        return True
    return do


def slow(seconds):
    def do(h):
        h.server.worker.stop.wait(seconds)
        return False
    return do


def hang(h):
    h.server.worker.stop.wait(60)
    h.close_connection = True
    return True


def reset_mid_body(h):
    """Sends half of the announced body and then closes the connection."""
    h.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"models\":")
    h.close_connection = True
    return True


def drop(h):
    h.close_connection = True
    return True


def endless(h):
    h.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
    try:
        for _ in range(64):
            h.wfile.write(b" " * 65536)
    except OSError:
        pass
    h.close_connection = True
    return True


def times(n, failure):
    """Fails n times; later requests succeed."""
    left = [n]

    def do(h):
        left[0] -= 1
        return failure(h) if left[0] >= 0 else False
    return do


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "local"

    def log_message(self, *args):
        pass

    def send(self, code, body=None, headers=()):
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if code != 204 and code != 304:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if code != 204 and code != 304:
            self.wfile.write(data)

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def answer(self, method):
        w = self.server.worker
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        body = json.loads(raw) if raw else None
        with w.lock:
            w.calls.append((method, self.path, body))
            w.times.append(time.monotonic())
            w.headers.append(dict(self.headers))
        failure = w.fail.get(url.path)
        if failure and failure(self):
            return
        if w.token and not w.may(self.headers, url.path):
            return self.send(401, w.unauthorized)
        found = w.respond(method, url.path, query, body, self.headers)
        if callable(found):
            return found(self)
        self.send(*(found if found else (404, {"detail": "Not Found"})))

    def do_GET(self):
        self.answer("GET")

    def do_POST(self):
        self.answer("POST")


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request, address):
        pass


class UnixServer(Server):
    address_family = socketserver.socket.AF_UNIX

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0

    def get_request(self):
        request, _ = super().get_request()
        return request, ("local", 0)


def metrics(rows):
    """Returns the text of a server's /metrics for {(name, help): {labels: value}}."""
    out = ""
    for (name, text), series in rows.items():
        out += f"# HELP {name} {text}\n# TYPE {name} counter\n"
        for labels, value in series.items():
            out += f"{name}{labels} {value}\n"
    return out.encode()


class Worker:
    """The common part of all fake workers: loaded models, requests in flight, failures, and a record of the requests."""
    open_paths = ()
    unauthorized = {"error": {"message": "unauthorized"}}

    def __init__(self, models=(), known=(), token=None, busy=0, keeps=False, context=None):
        self.loaded = list(models)
        self.known = list(known) + list(models)
        self.token = token
        self.busy = busy    # requests in flight
        self.keeps = keeps  # True: the server answers with success but frees nothing
        self.context = context  # the context of TLS
        self.calls, self.headers, self.fail = [], [], {}
        self.times = []  # times of the calls: seconds of time.monotonic()
        self.lock = threading.Lock()
        self.tokens = {}  # {model: [prompt tokens, generated tokens]}
        self.metrics = True  # False: the server was started without the option for /metrics
        self.stop = threading.Event()
        self.drained = threading.Event()

    def serve(self):
        return Server(("127.0.0.1", 0), Handler)

    def __enter__(self):
        self.server = self.serve()
        self.server.worker = self
        if isinstance(self.server.server_address, tuple):
            self.url = "%s://127.0.0.1:%d" % ("https" if self.context else "http", self.server.server_address[1])
        if self.context:
            self.server.socket = self.context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.stop.set()
        self.drained.set()
        self.server.shutdown()
        self.server.server_close()

    def may(self, headers, path):
        return path in self.open_paths or headers.get("Authorization") == "Bearer " + self.token

    def asked(self, method=None):
        """Returns the requested paths with their queries."""
        return [p for m, p, _ in self.calls if method in (None, m)]

    def unload(self, model=None):
        if not self.keeps:
            self.loaded = [] if model is None else [m for m in self.loaded if m != model]

    def load(self, model):
        if model not in self.loaded:
            self.loaded.append(model)


class Ollama(Worker):
    """embeds has the models for embeddings. cloud has models that are listed but hold no memory."""

    def __init__(self, *args, embeds=(), cloud=(), expires_at="2030-01-01T00:00:00Z", **kw):
        super().__init__(*args, **kw)
        self.embeds, self.cloud, self.expires_at = list(embeds), list(cloud), expires_at
        self.options = {}  # {model: options of the request that loaded it}

    def respond(self, method, path, query, body, headers):
        if (method, path) == ("GET", "/api/ps"):
            local = [{"name": m, "model": m, "size": 5 << 30, "size_vram": 5 << 30, "context_length": 8192,
                      "expires_at": self.expires_at} for m in self.loaded]
            return 200, {"models": local + [{"name": m, "model": m, "size": 0, "size_vram": 0,
                                             "expires_at": self.expires_at} for m in self.cloud]}
        if (method, path) == ("POST", "/api/generate"):
            model = body["model"]
            if model not in self.known:
                return 404, {"error": f"model '{model}' not found"}
            if body.get("keep_alive") == 0 and "prompt" not in body:
                if not self.busy:
                    self.unload(model)
                return 200, {"model": model, "response": "", "done": True, "done_reason": "unload"}
            if model in self.embeds:
                return 400, {"error": f'"{model}" does not support generate'}
            return self.load_with(body)
        if (method, path) == ("POST", "/api/embed"):
            return self.load_with(body) if body["model"] in self.known else (404, {"error": "model not found"})

    def load_with(self, body):
        self.load(body["model"])
        self.options[body["model"]] = {"keep_alive": body.get("keep_alive"), **body.get("options", {})}
        return 200, {"model": body["model"], "response": "", "done": True, "done_reason": "load"}


class LlamaCpp(Worker):
    """A router as of November 2026 (llama-server 0.7; tests/live runs the real one). stops="late": a model that stops
    is listed as loaded until stopped() is called. A model in `loading` loads until it is in `loaded`. A request to a
    model in `sleeping` wakes the model. most: the router's --models-max; a further model replaces the oldest."""
    open_paths = ("/health",)
    unauthorized = {"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}}

    def __init__(self, *args, router=True, slots=True, stops="at once", sleeping=(), loading=(), broken=(), most=4, **kw):
        super().__init__(*args, **kw)
        self.most = most
        self.router, self.slots, self.stops = router, slots, stops
        self.sleeping, self.loading, self.broken = list(sleeping), list(loading), list(broken)
        self.known += self.sleeping + self.loading + self.broken
        self.stopping, self.failed, self.woken = [], [], []
        self.loads_at_once = self.unreachable = True

    def status_of(self, model):
        for value in ("loading", "sleeping"):
            if model in getattr(self, value):
                return {"value": value}
        if model in self.failed:
            return {"value": "unloaded", "exit_code": 1, "failed": True}
        return {"value": "loaded" if model in self.loaded + self.stopping else "unloaded"}

    def runs(self, model):
        return self.status_of(model)["value"] != "unloaded"

    def stopped(self):
        """Behaves as if the router had killed the models that did not stop. Their exit status is then not 0."""
        self.failed += self.stopping
        self.stopping = []

    def respond(self, method, path, query, body, headers):
        if path == "/health":
            return 200, {"status": "ok"}
        if (method, path) == ("GET", "/models"):
            rows = [{"id": m, "object": "model"} for m in self.known]
            if self.router:
                for r in rows:
                    r["status"] = {**self.status_of(r["id"]), "args": ["llama-server", "--alias", r["id"]], "preset": "[x]\n"}
            return 200, {"object": "list", "data": rows}
        if (method, path) == ("GET", "/slots"):
            return self.answer_slots(query)
        if (method, path) == ("GET", "/props"):
            return 200, {"role": "router", "max_instances": self.most} if self.router else {"is_sleeping": bool(self.sleeping)}
        if (method, path) == ("GET", "/metrics"):
            return self.answer_metrics(query)
        if not self.router:
            return None
        if (method, path) == ("POST", "/models/unload"):
            return self.answer_unload(body["model"])
        if (method, path) == ("POST", "/models/load"):
            return self.answer_load(body["model"])

    @staticmethod
    def error(code, message):
        return code, {"error": {"code": code, "message": message, "type": "invalid_request_error"}}

    def answer_slots(self, query):
        model = query.get("model", [""])[0]
        if self.router and not self.runs(model):
            if query.get("autoload") == ["false"]:
                return self.error(400, "model is not loaded")
            self.load(model)
        if model in self.loading:  # the model's process does not listen yet
            self.unreachable, at_first = False, self.unreachable
            return (500, b"proxy error: Could not establish connection") if at_first else self.error(503, "Loading model")
        if model in self.sleeping:
            self.sleeping.remove(model)
            self.woken.append(model)
            self.load(model)
        if not self.slots:
            return self.error(501, "This server does not support slots endpoint.")
        if self.busy >= 4 and query.get("fail_on_no_slot"):
            return self.error(503, "no slot available")
        return 200, [{"id": i, "is_processing": i < self.busy} for i in range(4)]

    def answer_metrics(self, query):
        model = query.get("model", [""])[0] if self.router else self.known[0]
        if not model:
            return self.error(400, "model name is missing from the request")
        if self.router and not self.runs(model):
            if query.get("autoload") == ["false"]:
                return self.error(400, "model is not loaded")
            self.load(model)
        if model in self.loading:
            return self.error(503, "Loading model")
        if model in self.sleeping:  # in versions before August 2026, this request wakes the model
            self.sleeping.remove(model)
            self.woken.append(model)
            self.load(model)
        if not self.metrics:
            return self.error(501, "This server does not support metrics endpoint. Start it with `--metrics`")
        prompt, generated = self.tokens.get(model, (0, 0))
        return 200, metrics({("llamacpp:prompt_tokens_total", "Number of prompt tokens processed, excluding cached tokens"): {"": prompt},
                             ("llamacpp:prompt_tokens_cached_total", "Number of prompt tokens reused from the cache"): {"": 7},
                             ("llamacpp:prompt_seconds_total", "Prompt process time"): {"": 0.5},
                             ("llamacpp:tokens_predicted_total", "Number of generation tokens processed."): {"": generated}})

    def answer_unload(self, model):
        if model not in self.known:
            return self.error(400, "model is not found")
        if not self.runs(model):
            return self.error(400, "model is not running")
        if self.stops == "late" and not self.keeps:
            self.stopping.append(model)
        self.unload(model)
        if not self.keeps:
            self.sleeping = [m for m in self.sleeping if m != model]
            self.loading = [m for m in self.loading if m != model]
        return 200, {"success": True}

    def answer_load(self, model):
        if model not in self.known:
            return self.error(404, "File Not Found")
        if self.runs(model):
            return self.error(400, "model is already running")
        if self.most and sum(map(self.runs, self.known)) >= self.most:
            if self.loading or not self.loaded:
                return self.error(500, "model limit reached, try again later")
            self.unload(self.loaded[0])
        self.failed = [m for m in self.failed if m != model]
        if model in self.broken:
            self.failed.append(model)
        elif self.loads_at_once:
            self.load(model)
        else:
            self.loading.append(model)
        return 200, {"success": True}


class LlamaSwap(Worker):
    """Unloading stops its servers and aborts their requests in flight."""

    def __init__(self, *args, old=False, **kw):
        super().__init__(*args, **kw)
        self.old, self.killed = old, 0
        self.proxy = {}  # {model: address of its server}

    def events(self, h):
        """A stream that does not end. It begins with logs, models and the requests in flight."""
        flight = {"operation": "snapshot"}
        if self.busy:
            flight["requests"] = [{"id": str(i), "model": "m"} for i in range(self.busy)]
        h.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for kind, data in ("logData", {"source": "proxy", "data": "\"type\":\"x\""}), ("modelStatus", []), ("inflight", flight):
            event = json.dumps({"type": kind, "data": json.dumps(data)}, separators=(",", ":"))
            h.wfile.write(f"event:message\ndata:{event}\n\n".encode())
        h.server.worker.stop.wait(60)
        h.close_connection = True

    def respond(self, method, path, query, body, headers):
        if (method, path) == ("GET", "/running"):
            return 200, {"running": [{"model": m, "state": "ready", "cmd": "llama-server", "proxy": self.proxy.get(m, ""),
                                      "ttl": 0, "name": "", "description": ""} for m in self.loaded]}
        if path.startswith("/upstream/"):
            self.load(path.split("/")[2])
            return 502, b"bad gateway"
        if (method, path) == ("GET", "/api/events") and not self.old:
            return self.events
        if (method, path) in (("POST", "/api/models/unload"), ("GET", "/unload")) and not (self.old and method == "POST"):
            self.killed += self.busy
            self.busy = 0
            self.unload()
            return 200, {"msg": "ok"} if method == "POST" else b"OK"


class VLLM(Worker):
    """The list loaded has "weights" and "kv_cache" instead of names of models."""

    def __init__(self, dev=True, pauses=True, sleeps=True, asserts=False, **kw):
        super().__init__(models=["weights", "kv_cache"], **kw)
        self.asserts = asserts  # an assertion fails after vLLM freed its memory, so vLLM does not record that it sleeps
        self.dev, self.pauses = dev, pauses
        self.sleeps = sleeps  # False: without --enable-sleep-mode, a request to sleep does nothing
        self.paused = self.garbage = False
        self.level = 0
        self.name = "org/served"

    def answer_metrics(self):
        labels = json.dumps(self.name)
        engines = self.tokens.get(self.name, [(0, 0)])  # one pair per engine
        rows = {("vllm:prompt_tokens_total", "Number of prefill tokens processed."): 0,
                ("vllm:generation_tokens_total", "Number of generation tokens processed."): 1}
        page = {key: {f'{{engine="{i}",model_name={labels}}}': float(e[d]) for i, e in enumerate(engines)}
                for key, d in rows.items()}
        page["vllm:generation_tokens_created", "Number of generation tokens processed."] = {f"{{model_name={labels}}}": 1.7e9}
        return 200, metrics(page)

    def respond(self, method, path, query, body, headers):
        if path == "/health":
            return 200, None
        if path == "/metrics" and self.metrics:
            return self.answer_metrics()
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": self.name, "object": "model", "parent": None},
                                                    {"id": "adapter", "object": "model", "parent": self.name}]}
        if not self.dev:
            return None
        if self.pauses and path == "/is_paused":
            return 200, {"is_paused": self.paused}
        if self.pauses and (method, path) == ("POST", "/pause"):
            self.paused = True
            if query.get("mode") == ["wait"] and self.busy:
                self.drained.wait(60)
            self.busy = 0
            return 200, {"status": "paused"}
        if self.pauses and (method, path) == ("POST", "/resume"):
            self.paused = False
            return 200, {"status": "resumed"}
        if path == "/is_sleeping":
            return 200, {"is_sleeping": bool(self.level) or self.paused}
        if (method, path) == ("POST", "/sleep"):
            if not self.sleeps:
                return 200, None
            self.unload()
            if self.asserts:
                return 500, {"detail": "AssertionError"}
            self.level = int(query.get("level", ["1"])[0])
            self.garbage = self.level == 2
            return 200, None
        if (method, path) == ("POST", "/wake_up"):
            if not self.level:
                return 200, None  # vLLM only logs "Executor is not sleeping."
            for tag in query.get("tags", ["weights", "kv_cache"]):
                self.load(tag)
            if len(self.loaded) == 2:
                self.level = 0
            return 200, None
        if (method, path) == ("POST", "/collective_rpc"):
            if body == {"method": "reload_weights"} and self.loaded == ["weights"]:
                self.garbage = False
                return 200, {"results": [None]}
            return 500, {"detail": "no memory is mapped for the weights, or kv_cache came first"}


class SGLang(Worker):
    """The server ends if its scheduler fails an assertion or does not find a tag, as in the real SGLang."""

    def __init__(self, saver=True, old=False, **kw):
        super().__init__(models=["weights", "kv_cache", "cuda_graph"], **kw)
        self.saver, self.old, self.paused, self.dead = saver, old, False, False
        self.released = set()

    def die(self, h=None):
        self.dead = True
        return drop

    def respond(self, method, path, query, body, headers):
        if self.dead:
            return drop
        if path in ("/health", "/health_generate"):  # runs a generation, which waits for the end of the pause
            if self.paused:
                self.stop.wait(20)
            return (503 if self.paused else 200), None
        if path == "/metrics" and self.metrics:
            prompt, generated = self.tokens.get("m", (0, 0))
            return 200, metrics({("sglang:prompt_tokens_total", "Number of prefill tokens processed."):
                                 {'{model_name="m"}': float(prompt)},
                                 ("sglang:generation_tokens_total", "Number of generation tokens processed."):
                                 {'{model_name="m"}': float(generated)}})
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "m", "object": "model"}]}
        if path == "/get_model_info" or (path == "/model_info" and not self.old):
            return 200, {"model_path": "m", "is_generation": True}
        if path == "/get_load":
            return 200, [{"dp_rank": 0, "num_reqs": self.busy, "num_waiting_reqs": 0, "num_tokens": 0}]
        if (method, path) == ("POST", "/pause_generation"):
            self.paused = True
            self.busy = max(0, self.busy - 1)
            return 200, {"status": "ok"}
        if (method, path) == ("POST", "/continue_generation"):
            self.paused = False
            return 200, {"status": "ok"}
        if (method, path) == ("POST", "/release_memory_occupation"):
            if self.busy or self.released & set(body["tags"]):
                return self.die()
            self.released |= set(body["tags"])
            for tag in body["tags"] if self.saver else ():
                self.unload(tag)
            return 200, None
        if (method, path) == ("POST", "/resume_memory_occupation"):
            if not set(body["tags"]) <= self.released:
                return self.die()
            self.released -= set(body["tags"])
            for tag in body["tags"]:
                self.load(tag)
            return 200, None


class Tabby(Worker):
    open_paths = ("/health",)

    def __init__(self, *args, breaks=False, old=False, healthy=True, **kw):
        super().__init__(*args, **kw)
        self.breaks, self.old = breaks, old
        self.healthy = healthy  # False: a generation failed since the start

    def may(self, headers, path):
        return path in self.open_paths or headers.get("x-admin-key") == self.token

    def respond(self, method, path, query, body, headers):
        if path == "/health":
            return (200, {"status": "healthy"}) if self.healthy else (503, {"status": "unhealthy"})
        if (method, path) == ("GET", "/v1/model"):
            if not self.loaded:
                return 400 if self.old else 503, {"detail": {"error": {"message": "No models are currently loaded."}}}
            return 200, {"id": self.loaded[0], "object": "model"}
        if (method, path) == ("POST", "/v1/model/unload"):
            self.unload()
            return 200, b"null"
        if (method, path) == ("POST", "/v1/model/load"):
            name = body["model_name"]
            if name in self.loaded:
                return 400, {"detail": f'Model "{name}" is already loaded! Aborting.'}
            if self.breaks:
                return 200, b'data: {"error": {"message": "CUDA out of memory"}}\n\n'
            self.load(name)
            return 200, b'data: {"module": 1, "modules": 2, "status": "processing"}\n\n' \
                        b'data: {"module": 2, "modules": 2, "status": "finished"}\n\n'


class Kobold(Worker):
    """Behaves like KoboldCpp 1.122 (by its source, read in November 2026).

    loaded: the file with which the server process was started.  initial: the file at the first start.
    names: {file: name} of models with a name other than the file.  types: purposes of the loaded models.
    token: its --adminpassword; password: its --password, which hides the name of the model.
    admindir: False: the folder is missing.  old: "initial_model" is listed and refused.
    oldest: as version 1.102: "initial_model" is unknown, and only --password shows the name of the model.
    restarts: number of requests that find no server process after a replacement.
    sleeps(): --adminunloadtimeout has passed.
    """
    TYPES = ("llm", "txt2img", "transcribe", "tts", "embeddings", "music")
    # Only these wake a sleeping model of the router, and only with POST.
    WAKES = ("/api/extra/generate/stream", "/api/extra/tokencount", "/api/v1/generate", "/v1/completions",
             "/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/sdapi/v1/txt2img")

    def __init__(self, *args, admin=True, admindir=True, options=("big.kcpps", "sub/Small 7B.gguf"), router=False, password=None,
                 names=None, types=("llm",), old=False, oldest=False, waiting=0, restarts=0, **kw):
        super().__init__(*args, **kw)
        self.restarts = restarts
        self.admin, self.admindir, self.router, self.password, self.old = admin, admindir, router, password, old
        self.oldest = oldest
        self.options = list(options)
        self.initial = self.loaded[0] if self.loaded else self.options[0]
        self.names, self.types = dict(names or {}), types
        self.waiting = waiting      # requests in the queue
        self.asleep = False         # the model was unloaded because it was idle
        self.unavailable = 0        # requests that find no server process
        self.aborted = 0

    def sleeps(self):
        self.unload()
        self.asleep = True

    def down(self, requests):
        """Makes this number of requests find the port closed; with the router they get 502."""
        self.unavailable = requests
        for path in ("/api/extra/version", "/api/extra/perf", "/api/v1/model", "/api/admin/list_options",
                     "/api/admin/reload_config"):
            self.fail[path] = self.replaced

    def replaced(self, h):
        with self.lock:
            self.unavailable -= 1
            if self.unavailable < 0:
                return False
        return status(502, b"<!DOCTYPE html><html><h2>KoboldCpp is not available.</h2></html>")(h) if self.router else drop(h)

    def may(self, headers, path):
        return True  # most requests need no password; the others check the admin password and answer 200 with a refusal

    def sends(self, headers, *passwords):
        """Without a set password, no password is required."""
        wanted = passwords[0]
        return not wanted or headers.get("Authorization") in ["Bearer " + p for p in passwords if p]

    def model(self):
        """The name of the text model: the name of its file without folder, suffix and special characters."""
        if not self.loaded or "llm" not in self.types:
            return "inactive"
        stem = self.names.get(self.loaded[0], self.loaded[0]).rpartition("/")[2].rpartition(".")[0]
        return "koboldcpp/" + "".join(c for c in stem if c.isalnum() or c in "._-")

    def listed(self):
        return self.options + (["initial_model"] * (not self.oldest) + ["unload_model"] if self.admin else [])

    def start(self, name):
        """The manager ends the server process and starts another with this file."""
        self.unload()
        self.busy = self.waiting = 0
        self.asleep = False
        self.down(self.restarts)
        if name != "unload_model":
            self.load(self.initial if name == "initial_model" else name)

    def respond(self, method, path, query, body, headers):
        admits = self.admin and self.admindir and self.sends(headers, self.token)
        if method == "GET" and path == "/api/extra/version":  # needs no password
            return 200, {"result": "KoboldCpp", "version": "1.122", "protected": bool(self.password), "vision": False,
                         **{t: bool(self.loaded) and t in self.types for t in self.TYPES}, "router": self.router,
                         "admin": 0 if not self.admin else 2 if self.token else 1}
        if method == "GET" and path == "/api/v1/model":
            shown = self.sends(headers, *([self.password] if self.oldest else [self.password, self.token]))
            return 200, {"result": self.model() if shown else "koboldcpp/protected-model"}
        if method == "GET" and path == "/api/extra/perf":  # works also during a generation
            return 200, {"idle": 0 if self.busy else 1, "queue": self.waiting, "uptime": 5, "total_gens": 1}
        if method == "GET" and path == "/api/admin/list_options":
            return 200, self.listed() if admits else []
        if (method, path) == ("POST", "/api/extra/abort"):
            if not self.sends(headers, self.password, self.token):
                return 401, {"detail": {"error": "Unauthorized", "msg": "Authentication key is missing or invalid."}}
            if self.waiting:  # while other requests wait, an abort without the key of a request has no effect
                return 200, {"success": "false", "done": "false"}
            self.aborted += self.busy
            self.busy = 0
            return 200, {"success": "true", "done": "true"}
        if (method, path) == ("POST", "/api/admin/reload_config"):
            name = body["filename"]
            known = self.listed() if not self.old else [o for o in self.listed() if o != "initial_model"]
            if not admits or name not in known:
                return 200, {"success": False}
            self.start(name)
            return 200, {"success": True}
        if method == "POST" and path in self.WAKES:
            wanted = body.get("model")
            if self.router and (wanted in self.listed() or (self.asleep and not wanted)):
                self.start(wanted or "initial_model")
            return 200, {"results": [{"text": "x" if self.loaded else ""}]}


class Comfy(Worker):
    def respond(self, method, path, query, body, headers):
        if path == "/queue":
            return 200, {"queue_running": [[0, "a"]] * min(1, self.busy), "queue_pending": [[1, "b"]] * max(0, self.busy - 1)}
        if path == "/system_stats":
            return 200, {"system": {}, "devices": []}
        if (method, path) == ("POST", "/interrupt"):
            self.busy = max(0, self.busy - 1)
            return 200, None
        if (method, path) == ("POST", "/free"):
            if body.get("unload_models") and body.get("free_memory"):
                self.unload()
            return 200, None


class A1111(Worker):
    def respond(self, method, path, query, body, headers):
        if path == "/sdapi/v1/progress":
            return 200, {"progress": 0.4 if self.busy else 0.0, "state": {"job_count": self.busy}}
        if path == "/sdapi/v1/memory":
            return 200, {"ram": {}, "cuda": {}}
        if method != "POST" or body != {}:
            return None
        if path == "/sdapi/v1/interrupt":
            self.busy = 0
            return 200, {}
        if path == "/sdapi/v1/unload-checkpoint":
            self.unload()
            return 200, {}
        if path == "/sdapi/v1/reload-checkpoint":
            self.load("checkpoint")
            return 200, {}


class Engine(Worker):
    """The API of Docker or Podman on a UNIX socket. The list loaded has the running containers."""

    def __init__(self, path, known, running):
        super().__init__(models=running, known=known)
        self.path = path
        self.url = "unix://" + str(path)

    def serve(self):
        return UnixServer(str(self.path), Handler)

    def __exit__(self, *exc):
        super().__exit__(*exc)
        os.unlink(self.path)

    def respond(self, method, path, query, body, headers):
        _, where, name, *rest = path.split("/")
        if where != "containers" or name not in self.known:
            return 404, {"message": f"No such container: {name}"}
        if (method, rest) == ("GET", ["json"]):
            return 200, {"Id": name, "State": {"Running": name in self.loaded}}
        if (method, rest) == ("POST", ["stop"]):
            there = name in self.loaded
            self.unload(name)
            return (204, None) if there else (304, None)
        if (method, rest) == ("POST", ["start"]):
            there = name in self.loaded
            self.load(name)
            return (304, None) if there else (204, None)


class Kind(typing.NamedTuple):
    """What tests need to know about a kind of worker with an HTTP server."""
    fake: type
    path: str                # the request of an eviction
    models: list = []        # the loaded models; some fakes have other defaults
    known: list = []         # further models that can be loaded
    lazy: bool = False       # True: the worker loads a model when a client requests it, not when it is resumed
    shows_work: bool = False # True: the worker reports whether requests are in flight
    keys: dict = {}          # keys of its [[worker]] table that enable everything in its adapter

    def make(self, models=None, **kw):
        models = self.models if models is None else models
        return self.fake(**({"models": models} if self.models else {}), **({"known": self.known} if self.known else {}), **kw)


KINDS = {
    "ollama": Kind(Ollama, "/api/generate", ["llama3:8b", "hf.co/x/y:Q4_K_M"]),
    "llamacpp": Kind(LlamaCpp, "/models/unload", ["org/a b", "c"], ["d"], shows_work=True),
    "llamaswap": Kind(LlamaSwap, "/api/models/unload", ["m"], lazy=True, shows_work=True),
    "vllm": Kind(VLLM, "/sleep", keys={"level": 2}),
    "sglang": Kind(SGLang, "/release_memory_occupation"),
    "tabby": Kind(Tabby, "/v1/model/unload", ["m"]),
    "kobold": Kind(Kobold, "/api/admin/reload_config", ["big.kcpps"], shows_work=True),
    "comfy": Kind(Comfy, "/free", ["sdxl"], lazy=True, shows_work=True),
    "a1111": Kind(A1111, "/sdapi/v1/unload-checkpoint", ["checkpoint"], shows_work=True),
}
# Kinds without an HTTP server, and the file with their tests; test_adapters.py also tests the first three of these kinds.
ELSEWHERE = {"systemd": "test_adapters.py", "exec": "test_guard_adapters.py", "signal": "test_guard_adapters.py",
             "container": "test_guard_adapters.py", "checkpoint": "test_guard_checkpoint.py",
             "callback": "test_guard_library.py"}
