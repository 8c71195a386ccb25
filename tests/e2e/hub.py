"""A server that speaks the Hugging Face hub's API, as far as downloads need it, with the faults of real ones."""

import hashlib
import http.server
import json
import re
import ssl
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """`files`: contents by path. Those with the ends of weights are LFS's, which another origin serves (`localhost`)."""

    def __init__(self, files, certificate=None):
        self.files = dict(files)
        self.large = {path for path in files if path.endswith((".safetensors", ".gguf"))}
        self.commit = COMMIT
        self.token = None  # that may read it; None: everybody
        self.gated = False
        self.says_sums = True  # in the listing; some mirrors do not
        self.has_ranges = True
        self.range_status = 206  # 200: of a part, too, as ModelScope has it
        self.breaks = []  # bytes after which connections for large files break, one after the other
        self.sends = {}  # other contents than the listing's, by path
        self.statuses = []  # of the next answers
        self.hold = None  # an event that large files wait for behind their first half
        self.held = threading.Event()
        self.requests = []  # (method, path, headers)
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def requests_for(self, part, method="GET"):
        return [headers for seen, path, headers in self.requests if seen == method and part in path]

    def sum_of(self, path):
        content = self.files[path]
        return hashlib.sha256(content).hexdigest() if path in self.large else git_blob(content)

    def listing(self):
        entries = []
        for path, content in self.files.items():
            entry = {"rfilename": path}
            if self.says_sums:
                entry |= {"size": len(content), "blobId": git_blob(content)}
                if path in self.large:
                    entry["lfs"] = {"sha256": self.sum_of(path), "size": len(content), "pointerSize": 134}
            entries.append(entry)
        return {"_id": "1", "id": "org/small", "sha": self.commit, "gated": self.gated, "siblings": entries}

    def tree(self):
        entries = []
        for path, content in self.files.items():
            entry = {"type": "file", "path": path, "oid": git_blob(content), "size": len(content)}
            if path in self.large:
                entry["lfs"] = {"oid": self.sum_of(path), "size": len(content), "pointerSize": 134}
            entries.append(entry)
        return entries

    def answer(self, to):
        path = to.path
        if path.startswith("http"):  # asked as a proxy
            path = "/" + path.split("/", 3)[3]
        self.requests.append((to.command, path, dict(to.headers)))
        path = urllib.parse.unquote(path.split("?")[0])
        if self.statuses:
            status = self.statuses.pop(0)
            return self.send(to, status, b"<html>busy", {"Retry-After": "0"})
        if path.startswith("/cdn/"):
            name = next(name for name in self.files if self.sum_of(name) == path[5:])
            return self.send_large(to, name)
        if path.startswith("/api/resolve-cache/"):
            name = path.split(COMMIT[:8] + "/", 1)[1]
            content = self.sends.get(name, self.files[name])
            return self.send(to, 200, content, {"ETag": f'"{self.sum_of(name)}"', "X-Repo-Commit": self.commit})
        if not re.match(r"/(api/models/)?org/small/", path):
            return self.send(to, 401 if self.token else 404, b"Not found", {"X-Error-Code": "RepoNotFound"})
        if self.token and to.headers.get("Authorization") != f"Bearer {self.token}":
            if self.gated:
                return self.send(to, 401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
            return self.send(to, 401, b"", {"X-Error-Code": "RepoNotFound"})
        if path.startswith("/api/models/org/small/revision/"):
            if path.split("/revision/")[1] not in ("main", "v1/x", self.commit):
                return self.send(to, 404, b"", {"X-Error-Code": "RevisionNotFound"})
            return self.send(to, 200, json.dumps(self.listing()).encode(), {})
        if path == f"/api/models/org/small/tree/{self.commit}":  # of huggingface_hub
            return self.send(to, 200, json.dumps(self.tree()).encode(), {})
        assert path.startswith(f"/org/small/resolve/{self.commit}/"), path  # never a name that moves
        name = path.split(self.commit + "/", 1)[1]
        if name not in self.files:
            return self.send(to, 404, b"", {"X-Error-Code": "EntryNotFound"})
        if name in self.large:
            return self.send(to, 302, b"moved", {
                "Location": f"{self.scheme}://localhost:{self.port}/cdn/{self.sum_of(name)}?secret=1", "ETag": '"x"',
                "X-Linked-Etag": f'"{self.sum_of(name)}"', "X-Linked-Size": str(len(self.files[name])),
                "X-Repo-Commit": self.commit})
        return self.send(to, 307, b"moved", {
            "Location": "/api/resolve-cache/models/org/small/" + COMMIT[:8] + "/" + urllib.parse.quote(name)})

    def send(self, to, status, content, fields):
        to.send_response(status)
        for name, value in fields.items():
            to.send_header(name, value)
        to.send_header("Content-Length", str(len(content)))
        to.end_headers()
        if to.command != "HEAD":
            to.wfile.write(content)

    def send_large(self, to, name):
        assert "Authorization" not in to.headers  # of another origin
        content = self.sends.get(name, self.files[name])
        start = 0
        asked = re.fullmatch(r"bytes=(\d+)-", to.headers.get("Range", ""))
        if asked and self.has_ranges:
            start = int(asked[1])
            if start >= len(content):
                return self.send(to, 416, b"", {"Content-Range": f"bytes */{len(content)}"})
            to.send_response(self.range_status)
            to.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            to.send_response(200)
        to.send_header("Content-Length", str(len(content) - start))
        to.end_headers()
        if to.command == "HEAD":
            return None
        content = content[start:]
        if self.breaks:
            to.wfile.write(content[:self.breaks.pop(0)])
            to.wfile.flush()
            to.close_connection = True
            return to.connection.close()
        if self.hold:
            half = len(content) // 2
            to.wfile.write(content[:half])
            to.wfile.flush()
            self.held.set()
            self.hold.wait(300)
            content = content[half:]
        try:
            to.wfile.write(content)
        except OSError:
            pass  # the client has gone
        return None
