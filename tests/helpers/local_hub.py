"""A stand-in for the hub on this machine: repositories, commits and downloads over HTTP.

It answers what `huggingface_hub` asks when a model is pushed and fetched again; large files take
the path of git's large file storage, as there.
"""

import base64
import hashlib
import json
import socket
import threading
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from helpers.waiting import wait_until

TOKEN = "hf_local"


class LocalHub:
    """Repositories by name, each with its files."""

    def __init__(self, url):
        self.url = url
        self.repositories = {}
        self.private = {}
        self.commits = []
        self.stored = {}
        self.failing = False

    def app(self):
        """The server of these repositories."""
        model = "/api/models/{owner}/{name}"
        file = "/{owner}/{name}/resolve/{revision}/{path:path}"
        routes = {
            "POST /api/repos/create": self.create,
            "GET /api/whoami-v2": self.who,
            "POST /api/validate-yaml": self.yaml,
            f"POST {model}/preupload/{{revision}}": self.preupload,
            "POST /{owner}/{name}.git/info/lfs/objects/batch": self.batch,
            "PUT /storage/{oid}": self.store,
            "POST /storage/{oid}/verify": self.verify,
            f"POST {model}/commit/{{revision}}": self.commit,
            f"GET {model}": self.info,
            f"GET {model}/revision/{{revision}}": self.info,
            f"GET {model}/tree/{{revision}}": self.tree,
            f"GET {file}": self.resolve,
        }
        split = ((*route.split(" "), action) for route, action in routes.items())
        return Starlette(routes=[Route(path, run, methods=[method]) for method, path, run in split])

    def sha(self, name):
        """Of the present state of a repository, as long as git's."""
        files = self.repositories[name]
        hashes = json.dumps({key: hashlib.sha256(files[key]).hexdigest() for key in sorted(files)})
        return hashlib.sha1(hashes.encode()).hexdigest()

    def repository(self, request):
        """The name of the repository that is asked for; 404 without it."""
        name = "{owner}/{name}".format(**request.path_params)
        self.require_order()
        if name not in self.repositories:
            raise HTTPException(404, headers={"X-Error-Code": "RepoNotFound"})
        return name

    def require_order(self):
        if self.failing:
            raise HTTPException(403, "out of order")

    def require_token(self, request):
        self.require_order()
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            raise HTTPException(401, "Invalid credentials")

    async def create(self, request):
        self.require_token(request)
        asked = await request.json()
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        about = {"url": f"{self.url}/{name}", "name": name, "id": name}
        if name in self.repositories:
            return JSONResponse(about | {"error": "You already created this model repo"}, 409)
        self.repositories[name] = {".gitattributes": b"*.safetensors filter=lfs\n"}
        self.private[name] = asked.get("visibility") == "private"
        return JSONResponse(about)

    async def who(self, request):
        self.require_token(request)
        auth = {"type": "access_token"}
        return JSONResponse({"name": "me", "type": "user", "orgs": [], "auth": auth})

    async def yaml(self, _):
        return JSONResponse({"errors": [], "warnings": []})

    async def preupload(self, request):
        self.repository(request)
        paths = [file["path"] for file in (await request.json())["files"]]
        modes = {path: "lfs" if path.endswith(".safetensors") else "regular" for path in paths}
        rest = {"shouldIgnore": False, "oid": None}
        files = [{"path": path, "uploadMode": mode} | rest for path, mode in modes.items()]
        return JSONResponse({"files": files})

    async def batch(self, request):
        objects = (await request.json())["objects"]
        for one in objects:
            href = f"{self.url}/storage/{one['oid']}"
            one["actions"] = {"upload": {"href": href}, "verify": {"href": f"{href}/verify"}}
        return JSONResponse({"transfer": "basic", "objects": objects})

    async def store(self, request):
        content = await request.body()
        oid = request.path_params["oid"]
        if hashlib.sha256(content).hexdigest() != oid:
            raise HTTPException(422, "another content")
        self.stored[oid] = content
        return Response()

    async def verify(self, request):
        return Response(status_code=200 if request.path_params["oid"] in self.stored else 404)

    async def commit(self, request):
        self.require_token(request)
        name = self.repository(request)
        files = self.repositories[name]
        for line in (await request.body()).splitlines():
            part = json.loads(line)
            value = part["value"]
            match part["key"]:
                case "header":
                    self.commits.append({"repository": name, **value})
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.stored[value["oid"]]
                case "deletedFile":
                    files.pop(value["path"], None)
        sha = self.sha(name)
        url = f"{self.url}/{name}/commit/{sha}"
        return JSONResponse({"success": True, "commitOid": sha, "commitUrl": url, "hookOutput": ""})

    async def info(self, request):
        name = self.repository(request)
        files = [{"rfilename": path} for path in sorted(self.repositories[name])]
        about = {"id": name, "sha": self.sha(name), "private": self.private[name], "tags": []}
        return JSONResponse(about | {"siblings": files})

    async def tree(self, request):
        files = self.repositories[self.repository(request)]
        return JSONResponse(
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

    async def resolve(self, request):
        name = self.repository(request)
        headers = {"X-Repo-Commit": self.sha(name)}
        content = self.repositories[name].get(request.path_params["path"])
        if content is None:
            raise HTTPException(404, headers=headers | {"X-Error-Code": "EntryNotFound"})
        tag = f'"{hashlib.sha256(content).hexdigest()}"'
        return Response(content, headers=headers | {"ETag": tag, "Accept-Ranges": "none"})


@contextmanager
def serving():
    """A hub that answers as long as the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        hub = LocalHub(f"http://127.0.0.1:{listening.getsockname()[1]}")
        server = uvicorn.Server(uvicorn.Config(hub.app(), log_level="error"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        wait_until(lambda: server.started, "no hub")
        try:
            yield hub
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def on_this_machine(monkeypatch, cache):
    """A hub to which `huggingface_hub` goes, with a cache of its own, in the block."""
    from huggingface_hub import constants

    with serving() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield running
