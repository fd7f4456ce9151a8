"""Inference workers that hold no model: HTTP servers that speak each worker's API as its adapter uses it.

    with Ollama(models=["llama3:8b"]) as w:
        w.url           # http://127.0.0.1:PORT
        w.loaded        # what it has "on the GPU" now
        w.calls         # [("POST", "/api/generate", {...}), ...]
        w.fail["/api/generate"] = status(500)

A failure is put in front of one path: a status, a delay, silence, a connection that breaks off.
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
    """Half of the answer that was promised, then the end."""
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
    """The failure n times, then no more."""
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
            return self.send(401, {"error": {"message": "unauthorized"}})
        found = w.respond(method, url.path, query, body, self.headers)
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


class Worker:
    """What all have: models that are loaded, work in flight, failures, a record of what was asked."""
    open_paths = ()

    def __init__(self, models=(), known=(), token=None, busy=0, keeps=False, context=None):
        self.loaded = list(models)
        self.known = list(known) + list(models)
        self.token = token
        self.busy = busy    # requests in flight
        self.keeps = keeps  # says yes and frees nothing
        self.context = context  # of TLS
        self.calls, self.headers, self.fail = [], [], {}
        self.times = []  # of the calls, seconds of time.monotonic()
        self.lock = threading.Lock()
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
        """Paths that were asked, with their queries."""
        return [p for m, p, _ in self.calls if method in (None, m)]

    def unload(self, model=None):
        if not self.keeps:
            self.loaded = [] if model is None else [m for m in self.loaded if m != model]

    def load(self, model):
        if model not in self.loaded:
            self.loaded.append(model)


class Ollama(Worker):
    def respond(self, method, path, query, body, headers):
        if (method, path) == ("GET", "/api/ps"):
            return 200, {"models": [{"name": m, "model": m, "size": 5 << 30, "size_vram": 5 << 30,
                                     "expires_at": "2030-01-01T00:00:00Z"} for m in self.loaded]}
        if (method, path) == ("POST", "/api/generate"):
            model = body["model"]
            if model not in self.known:
                return 404, {"error": f"model '{model}' not found"}
            if body.get("keep_alive") == 0 and "prompt" not in body:
                if not self.busy:
                    self.unload(model)
                return 200, {"model": model, "response": "", "done": True, "done_reason": "unload"}
            self.load(model)
            return 200, {"model": model, "response": "", "done": True, "done_reason": "load"}


class LlamaCpp(Worker):
    open_paths = ("/health",)

    def __init__(self, *args, router=True, slots=True, **kw):
        super().__init__(*args, **kw)
        self.router, self.slots = router, slots

    def respond(self, method, path, query, body, headers):
        if path == "/health":
            return 200, {"status": "ok"}
        if (method, path) == ("GET", "/models"):
            rows = [{"id": m, "object": "model"} for m in self.known]
            if self.router:
                for r in rows:
                    r["status"] = {"value": "loaded" if r["id"] in self.loaded else "unloaded"}
            return 200, {"object": "list", "data": rows}
        if (method, path) == ("GET", "/slots"):
            if not self.slots:
                return 501, {"error": {"code": 501, "message": "This server does not support slots endpoint."}}
            if self.busy >= 2 and query.get("fail_on_no_slot"):
                return 503, {"error": {"code": 503, "message": "no slot available"}}
            return 200, [{"id": i, "is_processing": i < self.busy} for i in range(2)]
        if not self.router:
            return None
        if (method, path) == ("POST", "/models/unload"):
            if body["model"] not in self.loaded:
                return 400, {"error": {"code": 400, "message": "model is not running"}}
            self.unload(body["model"])
            return 200, {"success": True}
        if (method, path) == ("POST", "/models/load"):
            if body["model"] not in self.known:
                return 404, {"error": {"code": 404, "message": "model not found"}}
            self.load(body["model"])
            return 200, {"success": True}


class LlamaSwap(Worker):
    def __init__(self, *args, old=False, **kw):
        super().__init__(*args, **kw)
        self.old = old

    def respond(self, method, path, query, body, headers):
        if (method, path) == ("GET", "/running"):
            return 200, {"running": [{"model": m, "state": "ready"} for m in self.loaded]}
        if (method, path) == ("POST", "/api/models/unload") and not self.old:
            self.unload()
            return 200, {"msg": "ok"}
        if (method, path) == ("GET", "/unload"):
            self.unload()
            return 200, b"OK"


class VLLM(Worker):
    """loaded holds "weights" and "kv_cache"."""

    def __init__(self, dev=True, pauses=True, **kw):
        super().__init__(models=["weights", "kv_cache"], **kw)
        self.dev, self.pauses = dev, pauses
        self.paused = self.garbage = False
        self.level = 0

    def respond(self, method, path, query, body, headers):
        if path == "/health":
            return 200, None
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
            self.level = int(query.get("level", ["1"])[0])
            self.unload()
            self.garbage = self.level == 2
            return 200, None
        if (method, path) == ("POST", "/wake_up"):
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
    def __init__(self, saver=True, **kw):
        super().__init__(models=["weights", "kv_cache"], **kw)
        self.saver, self.paused = saver, False

    def respond(self, method, path, query, body, headers):
        if path == "/health":
            return 200, None
        if (method, path) == ("POST", "/pause_generation"):
            self.paused = True
            self.busy = max(0, self.busy - 1)
            return 200, {"status": "ok"}
        if (method, path) == ("POST", "/continue_generation"):
            self.paused = False
            return 200, {"status": "ok"}
        if (method, path) == ("POST", "/release_memory_occupation"):
            if not self.saver:
                return 500, {"error": {"message": "memory saver is not enabled"}}
            if self.busy or not self.paused:
                return 400, {"error": {"message": "release_memory_occupation should be called only when server is idle"}}
            for tag in body["tags"]:
                self.unload(tag)
            return 200, None
        if (method, path) == ("POST", "/resume_memory_occupation"):
            for tag in body["tags"]:
                self.load(tag)
            return 200, None


class Tabby(Worker):
    open_paths = ("/health",)

    def __init__(self, *args, breaks=False, **kw):
        super().__init__(*args, **kw)
        self.breaks = breaks

    def may(self, headers, path):
        return path in self.open_paths or headers.get("x-admin-key") == self.token

    def respond(self, method, path, query, body, headers):
        if path == "/health":
            return 200, {"status": "healthy"}
        if (method, path) == ("GET", "/v1/model"):
            if not self.loaded:
                return 400, {"detail": {"error": {"message": "No models are currently loaded."}}}
            return 200, {"id": self.loaded[0], "object": "model"}
        if (method, path) == ("POST", "/v1/model/unload"):
            self.unload()
            return 200, b"null"
        if (method, path) == ("POST", "/v1/model/load"):
            name = body["model_name"]
            if self.breaks:
                return 200, b'data: {"error": {"message": "CUDA out of memory"}}\n\n'
            self.load(name)
            return 200, b'data: {"module": 1, "modules": 2, "status": "processing"}\n\n' \
                        b'data: {"module": 2, "modules": 2, "status": "finished"}\n\n'


class Kobold(Worker):
    open_paths = ("/api/extra/perf", "/api/extra/abort")

    def __init__(self, *args, admin=True, options=("big.kcpps", "readme.txt"), **kw):
        super().__init__(*args, **kw)
        self.admin, self.options = admin, list(options)

    def may(self, headers, path):
        # KoboldCpp answers 200 with success false where the password is wrong.
        return True

    def respond(self, method, path, query, body, headers):
        if path == "/api/extra/perf":
            return 200, {"idle": 0 if self.busy else 1, "queue": self.busy, "uptime": 5}
        if (method, path) == ("POST", "/api/extra/abort"):
            self.busy = 0
            return 200, {"success": True, "done": True}
        if path == "/api/admin/list_options":
            return 200, self.options if self.admin else []
        if (method, path) == ("POST", "/api/admin/reload_config"):
            key = not self.token or headers.get("Authorization") == "Bearer " + self.token
            name = body["filename"]
            if not (self.admin and key and (name == "unload_model" or name in self.options)):
                return 200, {"success": False}
            self.unload()
            if name != "unload_model":
                self.load(name)
            return 200, {"success": True}


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
    """Docker's or Podman's API on a socket; loaded holds the containers that run."""

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
    """How tests play a kind of worker that has an HTTP server."""
    fake: type
    path: str                # what an eviction asks
    models: list = []        # what is loaded; some fakes have their own
    known: list = []         # what can be loaded, too
    lazy: bool = False       # loads again when a client asks, not when it is resumed
    shows_work: bool = False # says whether requests are in flight
    keys: dict = {}          # of its table, where all of its adapter is wanted

    def make(self, models=None, **kw):
        models = self.models if models is None else models
        return self.fake(**({"models": models} if self.models else {}), **({"known": self.known} if self.known else {}), **kw)


KINDS = {
    "ollama": Kind(Ollama, "/api/generate", ["llama3:8b", "hf.co/x/y:Q4_K_M"]),
    "llamacpp": Kind(LlamaCpp, "/models/unload", ["org/a b", "c"], ["d"], shows_work=True),
    "llamaswap": Kind(LlamaSwap, "/api/models/unload", ["m"], lazy=True),
    "vllm": Kind(VLLM, "/sleep", keys={"level": 2}),
    "sglang": Kind(SGLang, "/release_memory_occupation"),
    "tabby": Kind(Tabby, "/v1/model/unload", ["m"]),
    "kobold": Kind(Kobold, "/api/admin/reload_config", ["big.kcpps"], shows_work=True),
    "comfy": Kind(Comfy, "/free", ["sdxl"], lazy=True, shows_work=True),
    "a1111": Kind(A1111, "/sdapi/v1/unload-checkpoint", ["checkpoint"], shows_work=True),
}
# Kinds without such a server, and the file with their tests; test_adapters.py has the first three of these, too.
ELSEWHERE = {"systemd": "test_adapters.py", "exec": "test_guard_adapters.py", "signal": "test_guard_adapters.py",
             "container": "test_guard_adapters.py", "checkpoint": "test_guard_checkpoint.py",
             "callback": "test_guard_library.py"}
