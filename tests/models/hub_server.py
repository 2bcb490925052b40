"""The hub's HTTP interface, as far as its own client asks for it, on loopback and in memory."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit


class Hub:
    """Repositories: their files by path, and what was asked of the hub."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.large: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.down = False
        self.address = ""

    def commit(self, name: str) -> str:
        """Forty digits that differ as soon as a file does."""
        files = self.repositories[name]
        parts = [path.encode() + content for path, content in sorted(files.items())]
        return hashlib.sha1(b"".join(parts)).hexdigest()

    def downloads(self) -> set[str]:
        """The files that were fetched."""
        return {asked.split("/", 5)[-1] for asked in self.asked if asked.startswith("GET /")}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Silent."""

    def answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def as_json(self, value: Any, status: int = 200) -> None:
        self.answer(status, json.dumps(value).encode(), Content_Type="application/json")

    def missing(self, code: str) -> None:
        self.answer(404, b"{}", X_Error_Code=code, X_Error_Message="not here")

    def do_GET(self) -> None:
        self.respond(b"")

    def do_HEAD(self) -> None:
        self.respond(b"")

    def do_POST(self) -> None:
        self.respond(self.rfile.read(int(self.headers["Content-Length"])))

    def do_PUT(self) -> None:
        self.respond(self.rfile.read(int(self.headers["Content-Length"])))

    def respond(self, body: bytes) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.asked.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        if hub.down:
            self.answer(503)
        elif path == "/api/repos/create":
            wanted = json.loads(body)
            name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
            hub.repositories.setdefault(name, {})
            self.as_json({"url": f"{hub.address}/{name}", "name": name})
        elif path == "/api/validate-yaml":
            self.as_json({"errors": [], "warnings": []})
        elif parts[0] == "large":
            hub.large[parts[1]] = body
            self.answer(200)
        elif path.endswith(".git/info/lfs/objects/batch"):
            self.as_json({"transfer": "basic", "objects": [*map(self.large, objects(body))]})
        elif parts[0] == "api" and parts[1] == "models":
            self.model("/".join(parts[2:4]), parts[4:], body)
        elif parts[2:3] == ["resolve"]:
            self.file("/".join(parts[:2]), "/".join(parts[4:]))
        else:
            self.missing("EntryNotFound")

    def large(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Where the content of a large file goes."""
        upload = {"href": f"{self.hub.address}/large/{wanted['oid']}"}
        return {**wanted, "actions": {"upload": upload}}

    def model(self, name: str, rest: list[str], body: bytes) -> None:
        if name not in self.hub.repositories:
            self.missing("RepoNotFound")
            return
        files, kind = self.hub.repositories[name], rest[0] if rest else "revision"
        if kind == "revision":
            siblings = [{"rfilename": path} for path in files]
            sha = self.hub.commit(name)
            self.as_json({"id": name, "modelId": name, "sha": sha, "siblings": siblings})
        elif kind == "tree":
            self.as_json([self.entry(*file) for file in files.items()])
        elif kind == "preupload":
            wanted = json.loads(body)["files"]
            self.as_json(
                {"files": [{**mode(file["path"]), "shouldIgnore": False} for file in wanted]}
            )
        elif kind == "commit":
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = self.hub.large[value["oid"]]
            oid = self.hub.commit(name)
            self.as_json({"commitUrl": f"{self.hub.address}/{name}/commit/{oid}", "commitOid": oid})

    @staticmethod
    def entry(path: str, content: bytes) -> dict[str, Any]:
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return {"type": "file", "path": path, "size": len(content), "oid": blob}

    def file(self, name: str, path: str) -> None:
        content = self.hub.repositories.get(name, {}).get(path)
        if content is None:
            self.missing("EntryNotFound")
            return
        tag = f'"{self.entry(path, content)["oid"]}"'
        self.answer(200, content, ETag=tag, X_Repo_Commit=self.hub.commit(name))


def objects(body: bytes) -> list[dict[str, Any]]:
    """Of a question about large files."""
    wanted: list[dict[str, Any]] = json.loads(body)["objects"]
    return wanted


def mode(path: str) -> dict[str, str]:
    """Weights go where large files go, by a protocol of their own."""
    return {"path": path, "uploadMode": "lfs" if path.endswith(".safetensors") else "regular"}


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub that is empty at first, until the block ends."""
    hub = Hub()
    handler = type("Handler", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
