"""A fake Prometheus that gives the answers that a test sets, for faults that a test cannot cause in a real Prometheus.

    with FakePrometheus(nodes()) as engine:
        engine.rows["idle"] = [({"instance": "n1"}, 2)]
        engine.fault = lambda query: (401, "text/plain", b"wrong token")
"""
import http.server
import json
import re
import socketserver
import ssl
import threading
import time
import urllib.parse

GIB = 2**30
# (key of a query in fleet_query.def, a text in this query). The first text that occurs in a query decides.
SIGNS = (("age", "last_tick"), ("targets", "(up{"), ("now", "__name__=~"), ("attention", '"reason"'), ("capacity", "capacity_available"),
         ("simulated", "gpuward_gpu_info"), ("idle_watts", "gpuward_gpu_power_watts"), ("idle", "offset 30m"), ("down", "let_go"),
         ("utilization", "utilization_gpu"), ("workload_sum", "sum(max by"), ("workloads", "workload_energy"), ("model_energy", "model_energy"),
         ("model_tokens", "model_tokens"), ("energy", "gpuward_energy_joules"))
NOW = {"gpuward_up": 1, "gpuward_gpus": 8, "gpuward_gpu_up": 8, "gpuward_gpu_power_watts": 4000, "gpuward_gpu_power_limit_watts": 5600,
       "gpuward_gpu_memory_used_bytes": 300 * GIB, "gpuward_gpu_memory_total_bytes": 640 * GIB}


def key_of(query):
    return next(key for key, sign in SIGNS if sign in query)


def nodes(count=3, gpus=8, **labels):
    """Returns the answers about `count` healthy nodes n1, n2, ... with 8 GPUs each."""
    all_nodes = [{"instance": f"n{i + 1}", **labels} for i in range(count)]
    named = [{**n, "job": "gpuward"} for n in all_nodes]
    return {
        "targets": [(n, 1) for n in named], "age": [(n, 2) for n in named],
        "now": [({"__name__": name, **n}, value + (i if "watts" in name else 0))
                for i, n in enumerate(all_nodes) for name, value in NOW.items()],
        "energy": [(n, 3.6e6 * (i + 1)) for i, n in enumerate(all_nodes)],
        "utilization": [(n, 0.5) for n in all_nodes],
        "capacity": [({**n, "gpu": str(g), "uuid": f"GPU-{n['instance']}-{g}"}, (10 + i + 10 * g) * GIB)
                     for i, n in enumerate(all_nodes) for g in range(gpus)],
        "simulated": [({"simulated": "false"}, 8 * count)],
        "workloads": [({"kind": "slurm", "namespace": "", "name": "4711"}, 5e6), ({"kind": "idle", "namespace": "", "name": ""}, 1e6)],
        "workload_sum": [({}, 2e7)],
        "model_energy": [({"model": "llama-70b"}, 1000)],
        "model_tokens": [({"model": "llama-70b", "direction": "generated"}, 4000), ({"model": "llama-70b", "direction": "prompt"}, 9000)],
    }


class FakePrometheus:
    def __init__(self, rows=None, certificate=None):
        self.rows = rows if rows is not None else nodes()
        self.fault = lambda query: None  # (status, content type, bytes), or None for the rows
        self.queries, self.headers, self.paths = [], [], []
        self.ahead, self.more = 0, {}
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                query = form["query"][0]
                engine.queries.append(query)
                engine.headers.append(dict(self.headers))
                engine.paths.append(self.path)
                status, kind, body = engine.fault(query) or (200, "application/json", engine.answer(query))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

            def handle_error(self, request, address):
                pass  # the client closed the connection

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.url = f"https://localhost:{self.server.server_port}"

    def answer(self, query):
        now = time.time() + self.ahead
        rows = self.rows.get(key_of(query), [])
        found = re.match(r"topk\((\d+)", query)
        if found:
            rows = sorted(rows, key=lambda r: -float(r[1]))[:int(found[1])]
        return json.dumps({"status": "success", **self.more, "data": {"resultType": "vector", "result": [
            {"metric": labels, "value": [now, repr(float(value)) if isinstance(value, (int, float)) else value]}
            for labels, value in rows]}}).encode()

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()
