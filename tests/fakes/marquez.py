"""A consumer of OpenLineage that keeps events as Marquez does, over HTTP on this machine.

A run is kept by its id, and the last job that names it wins; a version of a dataset becomes the
current one on COMPLETE alone; facets must have a producer and a schema URL.
"""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

STATES = {
    "START": "RUNNING",
    "RUNNING": "RUNNING",
    "COMPLETE": "COMPLETED",
    "FAIL": "FAILED",
    "ABORT": "ABORTED",
}
ENDS = ("COMPLETE", "FAIL", "ABORT")


class Marquez:
    """What was posted, and what it amounts to."""

    def __init__(self):
        self.lock = threading.Lock()
        self.events = []
        self.runs = {}
        self.jobs = {}
        self.datasets = {}
        self.posts = 0
        self.answer = lambda event: None
        """Given an event, an HTTP status to refuse it with; None takes it."""
        self.headers = []

    def take(self, event):
        check(event)
        run_id, kind = event["run"]["runId"], event["eventType"]
        job = (event["job"]["namespace"], event["job"]["name"])
        self.events.append(event)
        run = self.runs.setdefault(run_id, {"events": [], "facets": {}})
        run.update(job=job, state=STATES.get(kind, "RUNNING"))
        run["events"].append(kind)
        run["facets"].update(event["run"].get("facets", {}))
        known = self.jobs.setdefault(job, {"inputs": set(), "outputs": set(), "facets": {}})
        known["facets"].update(event["job"].get("facets", {}))
        for side in ("inputs", "outputs"):
            for dataset in event.get(side, []):
                named = (dataset["namespace"], dataset["name"])
                known[side].add(named)
                kept = self.datasets.setdefault(named, {"facets": {}, "versions": []})
                kept["facets"].update(dataset.get("facets", {}))
                if side == "outputs" and kind == "COMPLETE":
                    version = dataset.get("facets", {}).get("version", {}).get("datasetVersion")
                    kept["versions"].append(version)

    @property
    def edges(self):
        """What is made from what, by the names of the datasets; a job joins them."""
        return {
            (made[1], read[1])
            for job in self.jobs.values()
            for made in job["outputs"]
            for read in job["inputs"]
        }

    def of_job(self, name):
        """Give the events of a job, in the order in which they came."""
        return [event for event in self.events if event["job"]["name"] == name]

    def kinds(self, name):
        return [event["eventType"] for event in self.of_job(name)]

    def lineage(self, node_id):
        kind, namespace, name = _split(node_id)
        if kind == "dataset":
            jobs = [
                j for j, v in self.jobs.items() if (namespace, name) in v["inputs"] | v["outputs"]
            ]
        else:
            jobs = [(namespace, name)] if (namespace, name) in self.jobs else []
        if not jobs:  # as Marquez, which knows no dataset without a job
            return None
        graph = []
        for job in jobs:
            here = f"job:{job[0]}:{job[1]}"
            known = self.jobs[job]
            graph.append(
                {
                    "id": here,
                    "type": "JOB",
                    "inEdges": [{"origin": _id(d), "destination": here} for d in known["inputs"]],
                    "outEdges": [{"origin": here, "destination": _id(d)} for d in known["outputs"]],
                }
            )
        return {"graph": graph}


def check(event):
    """Refuse what Marquez refuses."""
    UUID(event["run"]["runId"])
    assert event["job"]["namespace"]
    assert event["job"]["name"]
    facets = [*event["run"].get("facets", {}).values(), *event["job"].get("facets", {}).values()]
    for dataset in (*event.get("inputs", []), *event.get("outputs", [])):
        facets += dataset.get("facets", {}).values()
    for facet in facets:
        assert urlsplit(facet["_producer"]).scheme
        assert urlsplit(facet["_schemaURL"]).scheme
    job_type = event["job"].get("facets", {}).get("jobType")
    assert job_type is None or job_type["jobType"]


def _id(dataset):
    return f"dataset:{dataset[0]}:{dataset[1]}"


def _split(node_id):
    kind, _, rest = node_id.partition(":")
    if "://" in rest:
        scheme, _, more = rest.partition("://")
        where, _, name = more.partition(":")
        return kind, f"{scheme}://{where}", name
    namespace, _, name = rest.partition(":")
    return kind, namespace, name


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        store = self.server.store
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if urlsplit(self.path).path != "/api/v1/lineage":
            return self._say(404)
        event = json.loads(body)
        with store.lock:
            store.posts += 1
            store.headers.append(dict(self.headers))
            refused = store.answer(event)
            if refused is None:
                try:
                    store.take(event)
                except (AssertionError, KeyError, ValueError):
                    refused = 400
        return self._say(refused or 201)

    def do_GET(self):
        store, parts = self.server.store, urlsplit(self.path)
        query = parse_qs(parts.query)
        words = [unquote(word) for word in parts.path.split("/")[3:]]
        with store.lock:
            match words:
                case ["lineage"]:
                    found = store.lineage(query["nodeId"][0])
                case ["events", "lineage"]:
                    found = {"events": store.events, "totalCount": len(store.events)}
                case ["namespaces"]:
                    found = {"namespaces": sorted({job[0] for job in store.jobs})}
                case ["namespaces", namespace, "jobs"]:
                    found = {"jobs": [j[1] for j in store.jobs if j[0] == namespace]}
                case ["namespaces", namespace, "datasets", name]:
                    kept = store.datasets.get((namespace, name))
                    found = kept and {"name": name, **kept}
                case ["jobs", "runs", run_id]:
                    run = store.runs.get(run_id)
                    found = run and {"id": run_id, "state": run["state"]}
                case _:
                    found = None
        return self._say(404 if found is None else 200, found)

    def _say(self, code, value=None):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Keep quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True


@contextmanager
def marquez(port=0):
    """Serve a consumer; its ``url`` and ``port`` say where."""
    server = _Server(("127.0.0.1", port), _Handler)
    store = server.store = Marquez()
    store.port = server.server_address[1]
    store.url = f"http://127.0.0.1:{store.port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
