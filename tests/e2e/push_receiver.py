"""A server that accepts pushed metrics and checks the protocol: Snappy, protobuf, labels, headers.

It has its own decoders, so that a decoder cannot share a mistake with the encoder."""
import gzip
import http.server
import ssl
import struct
import threading

STALE = 0x7FF0000000000002


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        assert shift <= 70, "a varint has at most ten bytes"
        if byte < 128:
            return value, at


def snappy(data):
    size, at = varint(data, 0)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        kind, at = tag & 3, at + 1
        if kind == 0:
            n = tag >> 2
            if n >= 60:
                more = n - 59
                n, at = int.from_bytes(data[at:at + more], "little"), at + more
            assert at + n + 1 <= len(data), "a literal ends after the end of the data"
            out += data[at:at + n + 1]
            at += n + 1
            continue
        if kind == 1:
            n, distance, at = 4 + (tag >> 2 & 7), (tag >> 5) << 8 | data[at], at + 1
        else:
            width = 2 if kind == 2 else 4
            n, distance, at = 1 + (tag >> 2), int.from_bytes(data[at:at + width], "little"), at + width
        assert 0 < distance <= len(out), "a copy begins before the beginning of the data"
        for _ in range(n):
            out.append(out[-distance])
    assert len(out) == size, f"{len(out)} bytes, announced {size}"
    return bytes(out)


def fields(data):
    """Yields (field, wire type, value) of each field of a message."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = data[at:at + 8], at + 8
            assert len(value) == 8
        elif wire == 2:
            n, at = varint(data, at)
            value, at = data[at:at + n], at + n
            assert len(value) == n, "a field ends after the end of its message"
        else:
            raise AssertionError(f"wire type {wire}")
        yield number, wire, value


def message(data, **known):
    """Returns the fields of a message by name. known: name=(number, wire type). A name that ends in _ is a repeated
    field. An unknown field is an error."""
    names = {number: (name, wire) for name, (number, wire) in known.items()}
    out = {name: [] for name in known if name.endswith("_")}
    for number, wire, value in fields(data):
        assert number in names, f"unknown field {number}"
        name, want = names[number]
        assert wire == want, f"{name} has wire type {wire}, not {want}"
        if name.endswith("_"):
            out[name].append(value)
        else:
            assert name not in out, f"{name} occurs twice"
            out[name] = value
    return out


def remote_write(body):
    """Returns [(labels, bits of the value, milliseconds)] of a remote write request."""
    out = []
    for series in message(body, series_=(1, 2))["series_"]:
        m = message(series, labels_=(1, 2), samples_=(2, 2))
        labels = [(l["name"].decode(), l["value"].decode())
                  for l in (message(x, name=(1, 2), value=(2, 2)) for x in m["labels_"])]
        names = [n for n, _ in labels]
        assert names == sorted(set(names)), f"labels in wrong order or twice: {names}"
        assert all(n and v for n, v in labels), f"an empty label: {labels}"
        assert "__name__" in names and m["samples_"]
        for x in m["samples_"]:
            s = message(x, value=(1, 1), time=(2, 0))
            out.append((dict(labels), struct.unpack("<Q", s["value"])[0], s["time"]))
    return out


def attributes(items):
    out = {}
    for item in items:
        m = message(item, key=(1, 2), value=(2, 2))
        out[m["key"].decode()] = message(m["value"], text=(1, 2))["text"].decode()
    assert len(out) == len(items), "an attribute occurs twice"
    return out


def otlp(body):
    """Returns [(resource, metric, type, unit, [(attributes, value or None, start, time)])] of an OTLP request."""
    out = []
    for rm in message(body, resource_metrics_=(1, 2))["resource_metrics_"]:
        rm = message(rm, resource=(1, 2), scope_metrics_=(2, 2))
        resource = attributes(message(rm["resource"], attributes_=(1, 2))["attributes_"])
        for sm in rm["scope_metrics_"]:
            sm = message(sm, scope=(1, 2), metrics_=(2, 2))
            assert message(sm["scope"], name=(1, 2), version=(2, 2))["name"] == b"gpuward"
            for metric in sm["metrics_"]:
                m = message(metric, name=(1, 2), description=(2, 2), unit=(3, 2), gauge=(5, 2), sum=(7, 2))
                assert ("gauge" in m) != ("sum" in m)
                if "sum" in m:
                    data = message(m["sum"], points_=(1, 2), temporality=(2, 0), monotonic=(3, 0))
                    assert (data["temporality"], data["monotonic"]) == (2, 1)
                else:
                    data = message(m["gauge"], points_=(1, 2))
                points = []
                for p in data["points_"]:
                    p = message(p, start=(2, 1), time=(3, 1), value=(4, 1), attributes_=(7, 2), flags=(8, 0))
                    assert ("value" in p) != (p.get("flags") == 1)
                    start, at = (struct.unpack("<Q", p.get(k, bytes(8)))[0] for k in ("start", "time"))
                    assert (start > 0 and start <= at) if "sum" in m else start == 0
                    points.append((attributes(p["attributes_"]),
                                   struct.unpack("<d", p["value"])[0] if "value" in p else None, start, at))
                out.append((resource, m["name"].decode(), "sum" if "sum" in m else "gauge",
                            m.get("unit", b"").decode(), points))
    return out


class Receiver:
    """answer(headers, samples) returns (status, headers, body), or bytes that are sent instead of an answer. Accepted
    data is in samples (remote write) or metrics (OTLP)."""

    def __init__(self, answer=None, port=0, tls=None):
        self.answer = answer or (lambda headers, samples: (204, {}, b""))
        self.samples, self.requests, self.metrics, self.errors = [], [], [], []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append(self.headers)
                try:
                    got = receiver.decode(self.headers, body)
                except Exception as e:  # shown at the end of the test
                    receiver.errors.append(repr(e))
                    got = []
                answer = receiver.answer(self.headers, got)
                if isinstance(answer, bytes):
                    self.wfile.write(answer)
                    self.close_connection = True
                    return
                status, headers, reply = answer
                if 200 <= status < 300:
                    (receiver.samples if "snappy" in self.headers["Content-Encoding"] else receiver.metrics).extend(got)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                if status != 204:
                    self.wfile.write(reply)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}/api/v1/write"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @staticmethod
    def decode(headers, body):
        assert headers["Content-Type"] == "application/x-protobuf"
        assert headers["User-Agent"].startswith("gpuward/")
        if headers["Content-Encoding"] == "snappy":
            assert headers["X-Prometheus-Remote-Write-Version"] == "0.1.0"
            return remote_write(snappy(body))
        assert headers["Content-Encoding"] == "gzip"
        return otlp(gzip.decompress(body))

    def times(self, name="gpuward_up"):
        """Returns the times of the values of a series, in the order of their arrival."""
        return [t for labels, bits, t in list(self.samples) if labels["__name__"] == name and bits != STALE]

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()
        assert not self.errors, self.errors
