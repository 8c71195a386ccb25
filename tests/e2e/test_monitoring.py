"""The Grafana dashboard and the alert rules in configs/, with the metrics of a running server, in a real Prometheus."""

import json
import re
import shutil
import socket
import subprocess
import time

import httpx
import pytest
import yaml

from server import GOLDEN, ROOT, Server, wait_until

CONFIGS = ROOT / "configs"
RULES = CONFIGS / "prometheus-alerts.yml"
DASHBOARD = json.loads((CONFIGS / "grafana-dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]

# Words again and again, and a guess of what follows: prompts that the prefix cache has, guesses that are judged.
REQUEST = {"prompt": "the fox and the owl and the fox and the owl and", "temperature": 0, "max_tokens": 200,
           "ignore_eos": True, "prediction": {"type": "content", "content": "and the owl and the fox"}}

pytestmark = pytest.mark.skipif(not shutil.which("promtool"),
                                reason="promtool, of Debian's package prometheus, is absent")


def promtool(*arguments):
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alert_rules_are_valid_and_fire_when_they_should():
    promtool("check", "rules", RULES)
    tests = ROOT / "tests" / "e2e" / "prometheus-alerts.test.yml"
    promtool("test", "rules", tests)
    text = tests.read_text()
    for rule in ALERTS:
        fires = re.search(rf"alertname: {rule['alert']}\n\s+exp_alerts:\n\s+- exp_labels", text)
        assert fires, f"{tests.name} has no case in which {rule['alert']} fires"


class Prometheus:
    """Scrapes a server twice: as it is, and with the label `replica`, as of one with several replicas."""

    def __init__(self, folder, target, key):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = "http://127.0.0.1:%d" % free.getsockname()[1]
        engine = "troupe_(sequences|kv|host|prompt|prefix|generated|steps?|prefill|decode|discarded|preemptions|spec|" \
                 "restarts|measured)_.*"
        scraped = {"static_configs": [{"targets": [target]}], "authorization": {"credentials": key}}
        labelled = {"source_labels": ["__name__"], "regex": engine, "target_label": "replica", "replacement": "0"}
        (folder / "prometheus.yml").write_text(yaml.safe_dump({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "one", **scraped},
                               {"job_name": "replicas", "metric_relabel_configs": [labelled], **scraped}]}))
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn"],
            stderr=(folder / "log").open("w"))
        self.http = httpx.Client(base_url=self.url, timeout=300, verify=False)  # TLS is off because its set-up is slow

    def query(self, expression):
        answer = self.http.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {answer}"
        return answer["data"]["result"]

    def ready(self):
        """Until its storage is open it refuses connections, then answers 503 in plain text."""
        try:
            return self.http.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """A Prometheus that has seen a server work."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "keys").write_text("alice=a1\n")
    (folder / "metrics-key").write_text("m1\n")
    # As many guesses as this are judged whatever they cost: `auto` makes none where steps seem to take too long for them.
    server = Server(GOLDEN, "--speculate", "ngram", "--draft-tokens", "2", "--api-keys", str(folder / "keys"),
                    "--metrics-key-file", str(folder / "metrics-key"))
    own = Prometheus(folder, server.url.removeprefix("http://"), "m1")
    counters = ["troupe_key_requests_total", "troupe_spec_decode_num_accepted_tokens_total"]
    rates = {}
    try:
        wait_until(own.ready, "Prometheus to start", 120)

        def shown():
            """One more request; whether both jobs have rates, which need samples before and after."""
            assert server.post("/v1/completions", REQUEST, headers={"Authorization": "Bearer a1"}).status_code == 200
            time.sleep(0.6)
            rates.update({counter: own.query(f"rate({counter}[1h])") for counter in counters})
            return all(sum(float(one["value"][1]) > 0 for one in found) == 2 for found in rates.values())

        wait_until(shown, lambda: f"Prometheus to have rates of both jobs, it has {rates}", 120)
        own.names = set(re.findall(r"^(troupe_\w+)", server.get(
            "/metrics", headers={"Authorization": "Bearer m1"}).text, re.MULTILINE))
        yield own
    finally:
        own.process.terminate()
        own.process.wait(300)
        server.stop()


def expressions():
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]
    for variable in DASHBOARD["templating"]["list"][1:]:
        yield variable["name"], variable["definition"]


def test_every_metric_that_dashboard_and_alerts_name_is_one_of_the_server(prometheus):
    used = {(where, name) for where, text in expressions() for name in re.findall(r"troupe_\w+", text)}
    assert len({name for _, name in used}) > 20
    missing = sorted((where, name) for where, name in used if name not in prometheus.names)
    assert missing == []


@pytest.mark.parametrize("job", ["one", "replicas"])
def test_every_panel_of_the_dashboard_shows_something(prometheus, job):
    empty = []
    for panel in PANELS:
        for target in panel["targets"]:
            values = {"job": job, "instance": ".*", "__rate_interval": "1h"}  # however long ago the requests were
            text = re.sub(r"\$(\w+)", lambda found: values[found.group(1)], target["expr"])
            samples = prometheus.query(text)
            if not samples or any(sample["value"][1] == "NaN" for sample in samples):
                empty.append((panel["title"], text, samples))
            labels = [set(sample["metric"]) for sample in samples]
            if job == "replicas" and "replica}}" in target["legendFormat"]:
                assert all("replica" in each for each in labels), text
    assert empty == []


def test_a_server_that_is_well_raises_no_alert(prometheus):
    rules = prometheus.http.get("/api/v1/rules").json()["data"]["groups"][0]["rules"]
    assert len(rules) == len(ALERTS)
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] == "err"] == []
    pending = lambda: [rule["name"] for rule in prometheus.http.get("/api/v1/rules").json()["data"]["groups"][0]["rules"]
                       if rule["state"] != "inactive"]
    wait_until(lambda: pending() == [], pending)  # where the machine stands still for seconds, one may be for that long


def test_the_dashboard_can_be_imported_with_any_data_source():
    assert DASHBOARD["templating"]["list"][0]["type"] == "datasource"
    for panel in PANELS:
        assert panel["description"] and panel["fieldConfig"]["defaults"]["unit"]
        for source in [panel["datasource"], *(target["datasource"] for target in panel["targets"])]:
            assert source == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    spots = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in DASHBOARD["panels"]]
    assert len(set(spots)) == len(spots)
