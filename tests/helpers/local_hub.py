"""A stand-in for the hub on this machine: repositories, commits and downloads over HTTP.

It answers what `huggingface_hub` asks when a model is pushed and fetched again; large files take
the path of git's large file storage, as there.
"""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_local"


class LocalHub(ThreadingHTTPServer):
    """Repositories by name, each with its files; every request is noted."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.commits: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.stored: dict[str, bytes] = {}
        self.failing = False
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def sha(self, name: str) -> str:
        """Of the present state of a repository, as long as git's."""
        files = self.repositories[name]
        hashes = json.dumps({key: hashlib.sha256(files[key]).hexdigest() for key in sorted(files)})
        return hashlib.sha1(hashes.encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: LocalHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), Content_Type="application/json")

    def _answer(self) -> None:
        body = self._body()
        path = self.path.split("?")[0]
        with self.server.lock:
            self.server.requests.append(f"{self.command} {path}")
            if self.server.failing:
                self._json({"error": "out of order"}, 403)
                return
            for method, pattern, action in _ROUTES:
                found = re.fullmatch(pattern, path)
                if method == self.command and found:
                    action(self, body, *found.groups())
                    return
            self._json({"error": f"no {self.command} {path}"}, 404)

    do_GET = do_POST = do_PUT = do_HEAD = _answer  # noqa: N815 - names of http.server

    def _is_known(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return True
        self._json({"error": "Invalid credentials"}, 401)
        return False

    def create(self, body: bytes) -> None:
        if not self._is_known():
            return
        asked = json.loads(body)
        owner = asked.get("organization") or "me"
        name = f"{owner}/{asked['name']}"
        url = f"{self.server.url}/{name}"
        if name in self.server.repositories:
            self._json({"error": "You already created this model repo", "url": url}, 409)
            return
        self.server.repositories[name] = {".gitattributes": b"*.safetensors filter=lfs\n"}
        self.server.private[name] = asked.get("visibility") == "private"
        self._json({"url": url, "name": name, "id": name})

    def who(self, _body: bytes) -> None:
        if self._is_known():
            self._json({"name": "me", "type": "user", "orgs": [], "auth": {"type": "access_token"}})

    def yaml(self, _body: bytes) -> None:
        self._json({"errors": [], "warnings": []})

    def preupload(self, body: bytes, name: str, _revision: str) -> None:
        if name not in self.server.repositories:
            self._json({"error": "Repository not found"}, 404)
            return
        files = json.loads(body)["files"]
        modes = {True: "lfs", False: "regular"}
        self._json(
            {
                "files": [
                    {
                        "path": file["path"],
                        "uploadMode": modes[file["path"].endswith(".safetensors")],
                        "shouldIgnore": False,
                        "oid": None,
                    }
                    for file in files
                ]
            }
        )

    def batch(self, body: bytes, _name: str) -> None:
        objects = json.loads(body)["objects"]
        for one in objects:
            href = f"{self.server.url}/storage/{one['oid']}"
            one["actions"] = {"upload": {"href": href}, "verify": {"href": f"{href}/verify"}}
        self._json({"transfer": "basic", "objects": objects})

    def store(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            self._json({"error": "another content"}, 422)
            return
        self.server.stored[oid] = body
        self._send(200)

    def verify(self, _body: bytes, oid: str) -> None:
        self._send(200 if oid in self.server.stored else 404)

    def commit(self, body: bytes, name: str, _revision: str) -> None:
        if not self._is_known():
            return
        lines = [json.loads(line) for line in body.splitlines() if line.strip()]
        files = self.server.repositories[name]
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "header":
                    self.server.commits.append({"repository": name, **value})
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.server.stored[value["oid"]]
                case "deletedFile":
                    files.pop(value["path"], None)
        sha = self.server.sha(name)
        url = f"{self.server.url}/{name}/commit/{sha}"
        self._json({"success": True, "commitOid": sha, "commitUrl": url, "hookOutput": ""})

    def info(self, _body: bytes, name: str, *_revision: str) -> None:
        files = self.server.repositories.get(name)
        if files is None:
            self._json({"error": "Repository not found"}, 404)
            return
        siblings = [{"rfilename": path} for path in sorted(files)]
        private = self.server.private[name]
        sha = self.server.sha(name)
        self._json({"id": name, "sha": sha, "siblings": siblings, "private": private, "tags": []})

    def tree(self, _body: bytes, name: str, *_revision: str) -> None:
        files = self.server.repositories.get(name, {})
        self._json(
            [
                {
                    "type": "file",
                    "path": path,
                    "size": len(content),
                    "oid": hashlib.sha1(content).hexdigest(),
                }
                for path, content in sorted(files.items())
            ]
        )

    def resolve(self, _body: bytes, name: str, _revision: str, path: str) -> None:
        files = self.server.repositories.get(name)
        if files is None:
            self._send(404, X_Error_Code="RepoNotFound")
            return
        if path not in files:
            self._send(404, X_Error_Code="EntryNotFound", X_Repo_Commit=self.server.sha(name))
            return
        content = files[path]
        self._send(
            200,
            content,
            X_Repo_Commit=self.server.sha(name),
            ETag=f'"{hashlib.sha256(content).hexdigest()}"',
            Content_Length=str(len(content)),
            Accept_Ranges="none",
        )


_NAME = "([^/]+/[^/]+)"
_ROUTES: Any = [
    ("POST", "/api/repos/create", _Handler.create),
    ("GET", "/api/whoami-v2", _Handler.who),
    ("POST", "/api/validate-yaml", _Handler.yaml),
    ("POST", f"/api/models/{_NAME}/preupload/([^/]+)", _Handler.preupload),
    ("POST", f"/{_NAME}\\.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", "/storage/([0-9a-f]+)", _Handler.store),
    ("POST", "/storage/([0-9a-f]+)/verify", _Handler.verify),
    ("POST", f"/api/models/{_NAME}/commit/([^/]+)", _Handler.commit),
    ("GET", f"/api/models/{_NAME}", _Handler.info),
    ("GET", f"/api/models/{_NAME}/revision/([^/]+)", _Handler.info),
    ("GET", f"/api/models/{_NAME}/tree/([^/]+)", _Handler.tree),
    ("GET", f"/{_NAME}/resolve/([^/]+)/(.+)", _Handler.resolve),
    ("HEAD", f"/{_NAME}/resolve/([^/]+)/(.+)", _Handler.resolve),
]


@contextmanager
def serving() -> Any:
    """A hub that answers as long as the block runs."""
    hub = LocalHub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
