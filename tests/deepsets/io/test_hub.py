"""Upload to and download from a stub of the Hub: a local HTTP server that speaks the part of its API that is used."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import deepsets
from deepsets.estimators import SetClassifier
from deepsets.io import ModelFolderError, from_pretrained, push_to_hub

hub = pytest.importorskip("huggingface_hub")
COMMIT = "c" * 40


def etag(content):
    return hashlib.sha1(content).hexdigest()


class Stub(BaseHTTPRequestHandler):
    """Repositories as dicts of file name to bytes; one commit each."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, content, status=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self):
        repos, body = self.server.repos, self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tokens.append(self.headers.get("Authorization"))
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            repos.setdefault(name, {})
            self.server.private[name] = asked.get("private") or asked.get("visibility") == "private"
            self.reply({"url": f"{self.server.address}/{name}", "name": name})
            return
        if self.path == "/api/validate-yaml":
            self.reply({"errors": [], "warnings": []})
            return
        name = self.path.removeprefix("/api/models/").rsplit("/", 2)[0]
        if "/preupload/" in self.path:
            files = json.loads(body)["files"]
            self.reply({"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]})
        else:
            lines = [json.loads(line) for line in body.splitlines()]
            for line in lines:
                if line["key"] == "file":
                    repos[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.server.messages.append(lines[0]["value"]["summary"])
            self.reply(
                {"success": True, "commitUrl": f"{self.server.address}/{name}/commit/{COMMIT}", "commitOid": COMMIT}
            )

    def do_GET(self):
        parts = self.path.strip("/").split("?")[0].split("/")
        if parts[:2] == ["api", "models"]:
            name = "/".join(parts[2:4])
            if name not in self.server.repos:
                self.reply({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
                return
            if parts[4] == "tree":
                files = self.server.repos[name].items()
                self.reply([{"type": "file", "path": file, "size": len(x), "oid": etag(x)} for file, x in files])
                return
            files = [{"rfilename": file} for file in self.server.repos[name]]
            self.reply({"id": name, "modelId": name, "sha": COMMIT, "siblings": files, "tags": [], "downloads": 0})
            return
        content = self.server.repos.get("/".join(parts[:2]), {}).get("/".join(parts[4:]))
        if content is None:
            self.reply({"error": "Not found"}, 404)
            return
        self.server.downloads.append(parts[-1])
        self.reply(content, ETag=f'"{etag(content)}"', X_Repo_Commit=COMMIT)

    do_HEAD = do_GET


@pytest.fixture
def stub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    server.repos, server.private, server.tokens, server.messages, server.downloads = {}, {}, [], [], []
    address = server.address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 2)) for n in range(2, 22)]
    return SetClassifier(model="linear", random_state=0).fit(X, [n % 2 for n in range(20)]), X


def test_a_pushed_model_comes_back(stub, fitted, tmp_path):
    model, X = fitted
    address = push_to_hub(model, "me/parity", private=True, token="hf_secret", message="Add parity")
    assert address.endswith(f"/me/parity/commit/{COMMIT}")
    assert stub.private == {"me/parity": True}
    assert stub.messages == ["Add parity"]
    assert set(stub.tokens) == {"Bearer hf_secret"}
    assert sorted(stub.repos["me/parity"]) == ["README.md", "config.json", "model.safetensors"]

    loaded = from_pretrained("me/parity", cache_dir=tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_the_card_has_metadata_and_says_how_to_load_the_model_from_the_hub(stub, fitted):
    push_to_hub(fitted[0], "me/parity", token="hf_secret")
    card = stub.repos["me/parity"]["README.md"].decode()
    assert card.startswith("---\nlibrary_name: deepsets\n")
    assert 'deepsets.io.from_pretrained("me/parity")' in card
    assert "deepsets.load(" not in card


def test_only_the_files_of_a_model_folder_are_downloaded(stub, fitted, tmp_path):
    push_to_hub(fitted[0], "me/parity", token="hf_secret")
    stub.repos["me/parity"]["evil.pkl"] = b"cos\nsystem\n"
    from_pretrained("me/parity", cache_dir=tmp_path)
    assert set(stub.downloads) == {"README.md", "config.json", "model.safetensors"}


def test_a_damaged_download_is_refused(stub, fitted, tmp_path):
    push_to_hub(fitted[0], "me/parity", token="hf_secret")
    files = stub.repos["me/parity"]
    *kept, last = files["model.safetensors"]
    files["model.safetensors"] = bytes([*kept, last ^ 1])
    with pytest.raises(ModelFolderError, match="checksum differs"):
        from_pretrained("me/parity", cache_dir=tmp_path)


def test_an_unknown_repository_is_an_error_of_the_hub(stub, tmp_path):
    with pytest.raises(hub.errors.RepositoryNotFoundError):
        from_pretrained("me/nothing", cache_dir=tmp_path)


def test_a_local_folder_is_loaded_without_the_hub(fitted, tmp_path):
    path = deepsets.save(fitted[0], tmp_path / "parity")
    assert from_pretrained(str(path)).classes_.tolist() == [0, 1]


def test_the_message_without_huggingface_hub_names_the_extra(fitted, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"needs huggingface_hub: pip install 'deepsets\[hub\]'"):
        push_to_hub(fitted[0], "me/parity")
