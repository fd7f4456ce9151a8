"""Tests the manifests of packaging/kubernetes: the real kubectl renders and applies them, and the service runs with
their settings.

No cluster is needed. kubectl asks an API server which kinds exist even for --dry-run=client; a small fake server
answers these requests and refuses every change. `kubectl set image --local` decodes a DaemonSet with Kubernetes' own
types and drops unknown fields, so a misspelt field is found without a server."""
import http.server
import json
import re
import shutil
import subprocess
import threading

import pytest
import yaml

from service import Service
from support import TOP

KUBECTL = shutil.which("kubectl")
TREE = TOP / "packaging" / "kubernetes"
VARIANTS = ["base", "overlays/hostpath-state", "overlays/restricted"]
ADDONS = ["addons/prometheus-operator", "addons/network-policy"]

pytestmark = pytest.mark.skipif(not KUBECTL, reason="kubectl is not installed (package kubernetes-client)")

# (group/version, resource, kind, whether it belongs to a namespace)
KINDS = [("v1", "namespaces", "Namespace", False), ("v1", "configmaps", "ConfigMap", True), ("v1", "services", "Service", True),
         ("apps/v1", "daemonsets", "DaemonSet", True), ("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", False),
         ("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", True),
         ("monitoring.coreos.com/v1", "podmonitors", "PodMonitor", True),
         ("monitoring.coreos.com/v1", "prometheusrules", "PrometheusRule", True)]


class FakeApi(http.server.BaseHTTPRequestHandler):
    """Answers discovery requests, and "not found" for every object."""

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        path = self.path.split("?")[0]
        versions = sorted({k[0] for k in KINDS if "/" in k[0]})
        if path == "/api":
            return self.answer(200, {"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            def group(v):
                one = {"groupVersion": v, "version": v.split("/")[1]}
                return {"name": v.split("/")[0], "versions": [one], "preferredVersion": one}
            return self.answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(v) for v in versions]})
        for version in ["v1", *versions]:
            if path == ("/api/" if version == "v1" else "/apis/") + version:
                return self.answer(200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
                    {"name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": ["create", "get", "patch"]}
                    for v, name, kind, namespaced in KINDS if v == version]})
        return self.answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})

    def refuse(self):
        self.server.changes.append(f"{self.command} {self.path}")
        self.answer(405, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 405})

    do_POST = do_PUT = do_PATCH = do_DELETE = refuse

    def log_message(self, *args):
        pass


@pytest.fixture
def api(tmp_path):
    """A kubeconfig for the fake server. `.changes` lists the requests that tried to change an object."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeApi)
    server.changes = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.config = tmp_path / "kubeconfig"
    server.config.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}], "users": [{"name": "u", "user": {}}]}))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def kubectl(*argv, stdin=None, **more):
    return subprocess.run([KUBECTL, *map(str, argv)], input=stdin, capture_output=True, text=True, timeout=60, **more)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The manifests. The kustomize in Debian 12's kubectl knows two fields only by their former names."""
    to = tmp_path_factory.mktemp("manifests") / "kubernetes"
    shutil.copytree(TREE, to)
    version = json.loads(kubectl("version", "--client", "-o", "json").stdout)["clientVersion"]
    if int(re.match(r"\d+", version["minor"])[0]) < 21:
        for path in to.glob("overlays/*/kustomization.yaml"):
            text = path.read_text().replace("resources:\n  - ../../base", "bases:\n  - ../../base")
            text = text.replace("patches:", "patchesStrategicMerge:").replace("- path: ", "- ")
            path.write_text(text)
    return to


@pytest.fixture(scope="module")
def rendered(tree):
    """Objects of each variant and addon, by kind."""
    out = {}
    for name in VARIANTS + ADDONS:
        done = kubectl("kustomize", tree / name)
        assert done.returncode == 0, done.stderr
        assert "deprecated" not in done.stderr, done.stderr
        out[name] = {d["kind"]: d for d in yaml.safe_load_all(done.stdout)}
    return out


def pod_of(objects):
    return objects["DaemonSet"]["spec"]["template"]["spec"]


def test_kubectl_applies_every_variant_and_addon(tree, api):
    for name in VARIANTS + ADDONS:
        objects = list(yaml.safe_load_all(kubectl("kustomize", tree / name).stdout))
        done = kubectl("--kubeconfig", api.config, "apply", "--dry-run=client", "--validate=false", "-k", tree / name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("created (dry run)") == len(objects), done.stdout
    assert api.changes == []


def missing(given, kept, path=""):
    """Returns the paths in `given` that are missing in `kept`."""
    if isinstance(given, dict):
        return [p for k, v in given.items() if v is not None
                for p in (missing(v, kept[k], f"{path}.{k}") if isinstance(kept, dict) and k in kept else [f"{path}.{k}"])]
    if isinstance(given, list):
        return [p for i, v in enumerate(given)
                for p in (missing(v, kept[i], f"{path}[{i}]") if i < len(kept) else [f"{path}[{i}]"])]
    return [] if given == kept else [path]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_field_of_the_daemonset_is_one_of_kubernetes(rendered, variant):
    given = rendered[variant]["DaemonSet"]

    def decoded(document):
        done = kubectl("set", "image", "--local", "-f", "-", "gpuward=localhost/gpuward:0.1.0", "-o", "json", stdin=json.dumps(document))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else None
    # If the image is the same, kubectl prints nothing, so the input has another image.
    other = json.loads(json.dumps(given).replace("localhost/gpuward:", "elsewhere/gpuward:"))
    kept = json.loads(json.dumps(decoded(other)).replace("elsewhere/gpuward:", "localhost/gpuward:"))
    assert missing(given, kept) == []
    other["spec"]["template"]["spec"]["hostPid"] = True
    other["spec"]["template"]["spec"]["containers"][0]["resource"] = {}
    assert missing(other, decoded(other))  # a misspelt field is found


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_container_has_no_rights_and_takes_no_gpu(rendered, variant):
    objects = rendered[variant]
    pod = pod_of(objects)
    (c,) = pod["containers"]
    assert c["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] == 65532
    assert "nvidia.com/gpu" not in json.dumps(c["resources"])
    assert not pod.get("hostNetwork") and pod["automountServiceAccountToken"] is False
    env = {e["name"]: e.get("value") for e in c["env"]}
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
    mounts = {m["mountPath"]: m for m in c["volumeMounts"]}
    volumes = {v["name"]: v for v in pod["volumes"]}
    assert set(volumes) == {m["name"] for m in mounts.values()}
    host = {v["hostPath"]["path"] for v in volumes.values() if "hostPath" in v}
    logs = {"/var/log/pods", "/var/log/containers"}
    assert host == {"base": logs, "overlays/hostpath-state": logs | {"/var/lib/gpuward"}, "overlays/restricted": set()}[variant]
    assert bool(pod.get("hostPID")) == (variant != "overlays/restricted")
    level = objects["Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == ("restricted" if variant == "overlays/restricted" else "privileged")
    assert volumes["config"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert pod["priorityClassName"] == objects["PriorityClass"]["metadata"]["name"]


def test_the_parts_name_each_other(rendered):
    base, operator = rendered["base"], rendered["addons/prometheus-operator"]
    labels = base["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    (c,) = pod_of(base)["containers"]
    ports = {p["name"]: p["containerPort"] for p in c["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert c[probe]["httpGet"]["port"] in ports
    assert base["Service"]["spec"]["selector"] == labels
    assert base["Service"]["spec"]["ports"][0]["targetPort"] in ports
    monitor = operator["PodMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"] == labels and monitor["podMetricsEndpoints"][0]["port"] in ports
    policy = rendered["addons/network-policy"]["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels and policy["ingress"][0]["ports"][0]["port"] in ports.values()
    version = re.search(r"^ *version: '([\d.]+)',$", (TOP / "meson.build").read_text(), re.M)[1]
    images = {x["image"] for v in VARIANTS for x in pod_of(rendered[v])["containers"] + pod_of(rendered[v]).get("initContainers", [])}
    assert images == {f"localhost/gpuward:{version}"}


def test_the_prometheusrule_is_made_from_the_rules(rendered):
    path = TREE / "addons" / "prometheus-operator" / "prometheusrule.yaml"
    made = subprocess.run([TOP / "tools" / "prometheusrule"], capture_output=True, text=True, check=True).stdout
    assert path.read_text() == made, f"tools/prometheusrule > {path.relative_to(TOP)}"
    groups = [g for p in sorted((TOP / "packaging" / "prometheus").glob("*.yml")) if not p.name.endswith(".test.yml")
              for g in (yaml.safe_load(p.read_text()).get("groups") or [])]
    assert rendered["addons/prometheus-operator"]["PrometheusRule"]["spec"]["groups"] == groups


def test_the_service_accepts_the_settings_and_its_dns_names(rendered):
    """Runs as in a pod: the ConfigMap is the configuration file, and $(POD_NAMESPACE) is replaced. Only port and
    history are set by the test."""
    (c,) = pod_of(rendered["base"])["containers"]
    env = {e["name"]: e.get("value", "lab") for e in c["env"] if not e["name"].startswith("NVIDIA")}
    env = {k: v.replace("$(POD_NAMESPACE)", "lab") for k, v in env.items()}
    config = rendered["base"]["ConfigMap"]["data"]["gpuward.toml"]
    with Service("eight-gpus", config=config, env=env, listen="0.0.0.0:0") as s:
        port = s.url.rsplit(":", 1)[1]
        s.url = f"http://127.0.0.1:{port}"
        for host, status in (("gpuward", 200), ("gpuward.lab", 200), ("gpuward.lab.svc", 200), ("gpuward.lab.svc.cluster.local", 200),
                             ("10.1.2.3", 200), ("gpuward.other.svc", 421), ("evil.example", 421)):
            assert s.get("/metrics", headers={"Host": f"{host}:9490"}).status_code == status, host
        for path in ("/livez", "/readyz"):
            assert s.get(path, headers={"Host": "10.1.2.3:9490"}).status_code == 200
