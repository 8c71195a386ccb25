"""`troupe pull` from a server that speaks the hub's API; huggingface_hub reads what it leaves."""

import json
import os
import pathlib
import shutil
import subprocess
import threading

import pytest

huggingface_hub = pytest.importorskip("huggingface_hub")

from certificates import make_certificate  # noqa: E402
from hub import COMMIT, Hub  # noqa: E402
from server import ROOT, binary, wait_until  # noqa: E402

QWEN = ROOT / "tests" / "data" / "golden" / "qwen2"
GGUF = ROOT / "tests" / "data" / "gguf" / "llama3-q8_0.gguf"
WEIGHTS = "model.safetensors"


def checkpoint():
    files = {file.name: file.read_bytes() for file in QWEN.iterdir() if file.name != "expected.json"}
    return files | {"README.md": b"# small", "pytorch_model.bin": b"\x80", "onnx/model.onnx": b"x"}


@pytest.fixture
def hub():
    with Hub(checkpoint()) as served:
        yield served


class Puller:
    def __init__(self, home):
        self.home = home
        self.cache = home / "hub"
        self.repository = self.cache / "models--org--small"

    def environment(self, hub, **more):
        kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        return {**kept, "HOME": str(self.home), "HF_HOME": str(self.home), "HF_ENDPOINT": hub.url, **more}

    def start(self, hub, what="org/small", *flags, **environment):
        return subprocess.Popen([binary(), "pull", what, *flags], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment(hub, **environment))

    def __call__(self, hub, what="org/small", *flags, **environment):
        process = self.start(hub, what, *flags, **environment)
        out, err = process.communicate(timeout=300)
        assert process.returncode >= 0, err
        return process.returncode, out, err

    def refused(self, *arguments, **environment):
        status, out, err = self(*arguments, **environment)
        assert (status, out) == (1, ""), (status, out, err)
        return err.splitlines()[-1]

    def partials(self):
        return sorted(self.repository.glob("blobs/*.incomplete"))

    def is_named(self):
        return (self.repository / "refs" / "main").exists()


@pytest.fixture
def pull(tmp_path):
    return Puller(tmp_path)


def check_with_hub(pull, hub, paths):
    """What Hugging Face's own library makes of the cache."""
    info = huggingface_hub.scan_cache_dir(pull.cache)
    assert not info.warnings
    (repository,) = info.repos
    assert (repository.repo_id, repository.repo_type, repository.refs.keys()) == ("org/small", "model", {"main"})
    (revision,) = repository.revisions
    assert revision.commit_hash == COMMIT
    assert {str(file.file_path.relative_to(revision.snapshot_path)) for file in revision.files} == set(paths)
    for file in revision.files:
        assert file.blob_path.name == hub.sum_of(str(file.file_path.relative_to(revision.snapshot_path)))
    folder = huggingface_hub.snapshot_download("org/small", cache_dir=pull.cache, local_files_only=True)
    assert pathlib.Path(folder) == revision.snapshot_path
    for path in paths:
        found = huggingface_hub.hf_hub_download("org/small", path, cache_dir=pull.cache, local_files_only=True)
        assert pathlib.Path(found).read_bytes() == hub.files[path]


def test_a_checkpoint_is_pulled_found_and_used(pull, hub):
    wanted = {path for path in hub.files if "/" not in path and not path.endswith((".md", ".bin"))}
    status, out, err = pull(hub)
    assert status == 0, err
    assert out.startswith(f"org/small: {len(wanted)} files, ")
    assert WEIGHTS in err  # a line for each file, where there is no terminal
    check_with_hub(pull, hub, wanted)
    environment = pull.environment(hub)
    listed = json.loads(subprocess.run([binary(), "models", "--json"], env=environment, capture_output=True).stdout)
    assert [(model["name"], model["loads"]) for model in listed["models"]] == [("org/small", True)]
    ran = subprocess.run([binary(), "run", "--model", "org/small", "--raw", "--quiet", "--max-tokens", "2",
                          "--kv-cache", "4MiB", "x"], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr

    before = len(hub.requests)
    status, out, _ = pull(hub, "org/small", "--json")
    assert status == 0 and json.loads(out)["received_bytes"] == 0
    assert len(hub.requests) == before + 1  # the listing


def test_the_librarys_downloads_are_taken_over(pull, hub):
    huggingface_hub.snapshot_download("org/small", cache_dir=pull.cache, endpoint=hub.url, token=False,
                                      allow_patterns=["*.json", "*.safetensors", "*.jinja"])
    status, out, err = pull(hub, "org/small", "--json")
    assert status == 0, err
    assert json.loads(out)["received_bytes"] == 0


@pytest.mark.parametrize("status_of_parts", [206, 200])
def test_broken_connections_are_resumed(pull, hub, status_of_parts):
    hub.range_status = status_of_parts
    size = len(hub.files[WEIGHTS])
    hub.breaks = [1000, 0, size // 2]
    status, _, err = pull(hub)
    assert status == 0, err
    asked = [headers.get("Range") for headers in hub.requests_for("/cdn/")]
    assert asked == [None, "bytes=1000-", "bytes=1000-", f"bytes={1000 + size // 2}-"]
    assert "the connection broke; trying again" in err


def test_a_killed_pull_is_resumed_and_what_it_left_names_no_version(pull, hub):
    hub.hold = threading.Event()
    process = pull.start(hub)
    assert hub.held.wait(300)
    half = len(hub.files[WEIGHTS]) // 2
    wait_until(lambda: pull.partials() and pull.partials()[0].stat().st_size >= half, "half of the file")
    process.kill()
    process.communicate()
    hub.hold.set()
    hub.hold = None
    assert not pull.is_named()
    status, _, err = pull(hub)
    assert status == 0, err
    assert hub.requests_for("/cdn/")[-1]["Range"] == f"bytes={half}-"
    assert pull.partials() == [] and pull.is_named()


def test_servers_without_ranges_begin_anew_and_are_given_up(pull, hub):
    hub.has_ranges = False
    hub.breaks = [1000]
    assert pull(hub)[0] == 0
    shutil.rmtree(pull.home)
    pull.home.mkdir()
    hub.breaks = [1000] * 20
    assert "the connection broke; what is there is kept for the next try" in pull.refused(hub)
    assert 4 <= 20 - len(hub.breaks) <= 7  # tries
    assert pull.partials()[0].stat().st_size == 1000 and not pull.is_named()


def test_wrong_checksums_are_refused_and_damaged_parts_fetched_again(pull, hub):
    right = hub.files[WEIGHTS]
    hub.sends[WEIGHTS] = right[:-1] + bytes([right[-1] ^ 1])
    assert "does not have the checksum that the hub states" in pull.refused(hub)
    assert not pull.is_named() and not (pull.repository / "blobs" / hub.sum_of(WEIGHTS)).exists()
    page = b"<!DOCTYPE html><html>log in"
    hub.sends = {"config.json": page + b" " * (len(hub.files["config.json"]) - len(page))}
    assert "it is a web page, as a proxy on the way may send" in pull.refused(hub)
    hub.sends = {"config.json": b"{}" + b" " * 5000}
    assert "the server sends more than the hub says" in pull.refused(hub)
    hub.sends = {}
    blobs = pull.repository / "blobs"
    (blobs / hub.sum_of(WEIGHTS)).unlink()
    (blobs / (hub.sum_of(WEIGHTS) + ".troupe.incomplete")).write_bytes(b"x" * 1000)
    status, _, err = pull(hub)
    assert status == 0 and "was damaged; fetching it again" in err
    assert (blobs / hub.sum_of(WEIGHTS)).read_bytes() == right

    os.truncate(blobs / hub.sum_of(WEIGHTS), 100)  # a disk that was full, once
    assert pull(hub)[0] == 0
    (blobs / hub.sum_of(WEIGHTS)).write_bytes(b"x" * len(right))
    assert pull(hub, "org/small", "--verify")[0] == 0
    assert (blobs / hub.sum_of(WEIGHTS)).read_bytes() == right


def test_private_and_gated_models_need_a_token_which_no_other_origin_gets(pull, hub):
    hub.token = "hf_secret"
    assert "or it is private: set HF_TOKEN" in pull.refused(hub)
    assert "the account of the token in use may not read it" in pull.refused(hub, HF_TOKEN="hf_other")
    hub.gated = True
    said = pull.refused(hub)
    assert f"org/small is gated: its terms are accepted at {hub.url}/org/small, and set HF_TOKEN" in said
    assert "hf_other" not in pull.refused(hub, HF_TOKEN="hf_other")
    assert pull(hub, HF_TOKEN="hf_secret\n")[0] == 0  # /cdn/ asserts that it comes without
    shutil.rmtree(pull.cache)
    (pull.home / "token").write_text("hf_secret\n")  # as `hf auth login` does
    assert pull(hub)[0] == 0


def test_what_is_not_there_is_told(pull, hub):
    assert "there is no such model" in pull.refused(hub, "org/other")
    assert "no such version" in pull.refused(hub, "org/small", "--revision", "v9")
    assert "org/small has no GGUF files" in pull.refused(hub, "org/small:Q4_K_M")
    assert "HF_HUB_OFFLINE is set" in pull.refused(hub, HF_HUB_OFFLINE="1")
    status, _, err = pull(hub, "small")
    assert status == 2 and "ORG/NAME" in err
    status, _, err = pull(hub, HF_ENDPOINT="nowhere")
    assert status == 2 and err.startswith("troupe: HF_ENDPOINT: ")
    status, out, err = pull(hub, "org/small", "--revision", "v1/x", "--json")
    assert status == 0, err
    assert (pull.repository / "refs/v1/x").read_text() == COMMIT and not pull.is_named()
    assert json.loads(out)["name"] == str(pull.repository / "snapshots" / COMMIT)


def test_busy_servers_are_asked_again(pull, hub):
    hub.statuses = [503, 429]
    status, _, err = pull(hub)
    assert status == 0 and "status 429; trying again" in err
    hub.statuses = [500] * 9
    assert "status 500" in pull.refused(hub)
    hub.statuses = []


def test_mirrors_whose_listings_lack_checksums(pull, hub):
    hub.says_sums = False
    assert pull(hub)[0] == 0
    assert not hub.requests_for("/cdn/", "HEAD")  # addresses there may be signed for GET
    check_with_hub(pull, hub, {path for path in hub.files if "/" not in path and not path.endswith((".md", ".bin"))})


def test_a_sentence_encoders_modules_are_pulled_by_their_list(pull):
    encoder = ROOT / "tests" / "data" / "tiny_encoders" / "bert"
    files = {path.name: path.read_bytes() for path in encoder.iterdir() if path.is_file()}
    modules = json.loads(files["modules.json"])
    for module in modules:
        if module["type"].endswith("Pooling"):
            files["my_pooling/config.json"] = (encoder / module["path"] / "config.json").read_bytes()
            module["path"] = "my_pooling"
    files["modules.json"] = json.dumps(modules).encode()
    files["other/config.json"] = b"{}"
    with Hub(files) as hub:
        status, out, err = pull(hub)
        assert status == 0, err
        version = pull.repository / "snapshots" / COMMIT
        assert (version / "my_pooling" / "config.json").exists() and not (version / "other").exists()
        listed = json.loads(subprocess.run([binary(), "models", "--json"], env=pull.environment(hub),
                                           capture_output=True).stdout)
        assert [(model["name"], model["loads"]) for model in listed["models"]] == [("org/small", True)]


def test_gguf_files_by_format_and_an_older_version_s_stay(pull):
    files = {"small-Q8_0.gguf": GGUF.read_bytes(), "sub/small-Q4_K_M.gguf": GGUF.read_bytes() + bytes(32),
             "config.json": b"{}", "mmproj-F16.gguf": b"x"}
    with Hub(files) as hub:
        status, out, err = pull(hub, "org/small:q8_0")
        assert status == 0, err
        assert out.startswith("org/small:Q8_0: 1 file, ")
        hub.commit = COMMIT[::-1]
        hub.files["config.json"] = b"{ }"
        status, out, _ = pull(hub, "hf.co/org/small")  # the usual format
        assert status == 0 and out.startswith("org/small:Q4_K_M: 1 file, ")
        assert "org/small has no `Q4_K`; there are Q8_0, Q4_K_M" in pull.refused(hub, "org/small:Q4_K")
        environment = pull.environment(hub)
        listed = subprocess.run([binary(), "models", "--json"], env=environment, capture_output=True).stdout
        names = [model["name"] for model in json.loads(listed)["models"]]
        assert names[-2:] == ["org/small:Q4_K_M", "org/small:Q8_0"]
        tokens = subprocess.run([binary(), "tokenize", "--model", "org/small:Q8_0", "x"], env=environment,
                                capture_output=True, text=True)
        assert tokens.returncode == 0, tokens.stderr


def test_two_pulls_at_once_share_the_work(pull, hub):
    hub.hold = threading.Event()
    first = pull.start(hub)
    assert hub.held.wait(300)
    second = pull.start(hub)
    for line in second.stderr:
        if f"waiting for another program that fetches {WEIGHTS}" in line:
            break
    hub.hold.set()
    for process in (first, second):
        process.communicate(timeout=300)
        assert process.returncode == 0
    assert len(hub.requests_for("/cdn/")) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_is_told_and_what_was_fetched_is_kept(pull, hub):
    disk = pull.home
    megabytes = len(hub.files[WEIGHTS]) // 2**20 + 20
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("cannot mount")
    try:
        (disk / "filler").write_bytes(bytes(19 * 2**20))
        assert "more, but only" in pull.refused(hub)  # found before anything is fetched
        assert hub.requests_for("/cdn/") == []
        (disk / "filler").unlink()
        hub.hold = threading.Event()
        process = pull.start(hub)
        assert hub.held.wait(300)
        half = len(hub.files[WEIGHTS]) // 2
        wait_until(lambda: pull.partials() and pull.partials()[0].stat().st_size >= half, "half of the file")
        with open(disk / "filler", "wb") as filler, pytest.raises(OSError):
            while True:
                filler.write(bytes(2**16))
                filler.flush()
        hub.hold.set()
        _, err = process.communicate(timeout=300)
        assert process.returncode == 1 and "the disk is full; " in err and "goes on from there" in err
        (disk / "filler").unlink()
        assert pull(hub)[0] == 0
        assert hub.requests_for("/cdn/")[-1].get("Range")
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_https_is_verified_and_proxies_are_asked(pull, tmp_path_factory):
    certificate, key = make_certificate(tmp_path_factory.mktemp("tls"))
    with Hub(checkpoint(), (certificate, key)) as hub:
        assert "certificate verify failed" in pull.refused(hub)
        assert pull(hub, SSL_CERT_FILE=str(certificate))[0] == 0
    with Hub({"x-Q8_0.gguf": b"GGUF"}) as hub:
        assert pull(hub, "org/small", HF_ENDPOINT="http://hub.invalid", http_proxy=hub.url,
                    no_proxy="localhost")[0] == 0
        assert all(headers["Host"] in ("hub.invalid", f"localhost:{hub.port}") for *_, headers in hub.requests)
        assert "cannot" not in pull.refused(hub, HF_ENDPOINT="https://127.0.0.1:1")  # refused connections end it soon
