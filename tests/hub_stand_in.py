"""A stand-in of the hub's HTTP API in this process: repositories of files in memory, to upload to and to download from."""

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

COMMIT = "0" * 40


class Hub(ThreadingHTTPServer):
    """The files of each repository, by its name, and whether it is private."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process that takes this for the hub."""
        own = {"HF_ENDPOINT": f"http://127.0.0.1:{self.server_port}", "HF_TOKEN": "hf_of_a_test", "HF_HUB_OFFLINE": "0"}
        return {**os.environ, **own, "HF_HUB_DISABLE_TELEMETRY": "1"}


class _Request(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *what: Any) -> None:
        pass

    def _answer(self, content: Any, code: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self) -> None:
        given = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.headers["Authorization"] != "Bearer hf_of_a_test":
            return self._answer({"error": "Invalid username or password."}, 401)
        if self.path == "/api/repos/create":
            asked = json.loads(given)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            known = name in self.server.files
            self.server.files.setdefault(name, {})
            self.server.private.setdefault(
                name, "private" in (asked.get("visibility"), asked.get("private") and "private")
            )
            return self._answer({"url": f"{self.server.environment['HF_ENDPOINT']}/{name}"}, 409 if known else 200)
        if self.path == "/api/validate-yaml":
            return self._answer({"warnings": [], "errors": []})
        name = "/".join(self.path.split("/")[3:5])
        if "/preupload/" in self.path:
            asked = [one["path"] for one in json.loads(given)["files"]]
            return self._answer(
                {"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in asked]}
            )
        assert "/commit/" in self.path, self.path
        for line in map(json.loads, given.splitlines()):
            if line["key"] == "file":
                self.server.files[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        address = f"{self.server.environment['HF_ENDPOINT']}/{name}/commit/{COMMIT}"
        self._answer({"commitUrl": address, "commitOid": COMMIT, "success": True})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/api/whoami-v2":
            return self._answer({"name": "me", "orgs": []})
        name = "/".join(path.removeprefix("/api/models").split("/")[1:3])
        if (files := self.server.files.get(name)) is None:
            return self._answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
        if "/tree/" in path:
            return self._answer([{"type": "file", "path": one, "size": 1, "oid": COMMIT} for one in files])
        if path.startswith("/api/"):
            siblings = [{"rfilename": one} for one in files]
            return self._answer({"id": name, "sha": COMMIT, "private": False, "tags": [], "siblings": siblings})
        content = files[path.split("/resolve/")[1].partition("/")[2]]
        self._answer(content, X_Repo_Commit=COMMIT, ETag=f'"{hashlib.sha256(content).hexdigest()}"')

    do_HEAD = do_GET


@contextmanager
def hub_running() -> Iterator[Hub]:
    """A hub without repositories."""
    with Hub() as hub:
        thread = Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()
