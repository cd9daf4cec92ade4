"""The small web server: who may read, and that nothing else is possible."""

import contextlib
import http.client
import socket
import threading
import time

import pytest

import fedpick as fp
from fedpick._support import web
from fedpick._support.web import Answer, Server, address, is_loopback

TOKEN = "correct-horse-battery"


def ask(server, path="/", method="GET", host=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    named = {"Host": host or f"127.0.0.1:{server.port}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    connection.request(method, path, headers=named)
    reply = connection.getresponse()
    body = reply.read().decode()
    connection.close()
    return reply.status, body, reply.headers


@pytest.fixture
def server():
    def answer(path):
        if path == "/broken":
            raise RuntimeError("secret path of a file")
        return {"/": Answer(b"hello", tag="abc")}.get(path)

    with Server("127.0.0.1", 0, answer) as made:
        yield made


def test_it_shows_and_tells_who_has_it_already(server):
    status, body, headers = ask(server)
    assert (status, body, headers["ETag"]) == (200, "hello", '"abc"')
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert ask(server, If_None_Match='"abc"')[:2] == (304, "")
    assert ask(server, If_None_Match='"old"')[:2] == (200, "hello")
    assert ask(server, method="HEAD")[:2] == (200, "")
    assert ask(server, "/other")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(server, method):
    assert ask(server, method=method)[0] == 501


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "", "[", "0.0.0.0"])
def test_another_site_s_name_for_this_machine_is_refused(server, host):
    """DNS rebinding: a page of evil.example, whose name now points here, must not read the runs."""
    status, body, _ = ask(server, host=host or " ")
    assert status in (400, 403)
    assert "hello" not in body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:1234", "[::1]:80"])
def test_this_machine_s_names_are_known_also_behind_a_tunnel(server, host):
    assert ask(server, host=host)[0] == 200


def test_an_error_is_no_end_and_tells_no_secret(server):
    status, body, _ = ask(server, "/broken")
    assert status == 500
    assert "secret" not in body
    assert ask(server)[0] == 200


def test_a_token_is_needed_and_kept_in_a_cookie():
    with Server("127.0.0.1", 0, lambda path: Answer(b"hello"), token=TOKEN) as server:
        assert ask(server)[0] == 401
        assert ask(server, f"/?token={TOKEN}x")[0] == 401
        assert ask(server, Authorization="Bearer wrong")[0] == 401
        assert ask(server, Cookie="fedpick-token=wrong; =;;")[0] == 401
        assert ask(server, Authorization=f"Bearer {TOKEN}")[:2] == (200, "hello")
        status, _, headers = ask(server, f"/?token={TOKEN}")
        assert (status, headers["Location"]) == (303, "./")
        assert "HttpOnly" in headers["Set-Cookie"]
        assert "SameSite=Strict" in headers["Set-Cookie"]
        assert ask(server, Cookie=headers["Set-Cookie"].split(";")[0])[:2] == (200, "hello")


def test_a_short_token_and_a_port_in_use_are_explained(server):
    with pytest.raises(fp.SettingError, match=r"has 5 characters, but must have 16 or more; make one with"):
        Server("127.0.0.1", 0, lambda path: None, token="abcde")
    with pytest.raises(fp.ConfigError, match=rf"cannot listen on 127.0.0.1 port {server.port} .*choose another port"):
        Server("127.0.0.1", server.port, lambda path: None)
    with pytest.raises(fp.ConfigError, match="cannot listen on no such host"):
        Server("no such host", 0, lambda path: None)


def test_too_many_connections_are_closed(server):
    server._server._free = threading.BoundedSemaphore(1)
    with socket.create_connection(("127.0.0.1", server.port)) as first:
        first.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert first.recv(20).startswith(b"HTTP/1.1 200")
        with socket.create_connection(("127.0.0.1", server.port)) as second:
            second.settimeout(10)
            assert second.recv(20) == b""


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX: ", b"GET /" + b"x" * 50])
def test_connections_that_send_a_byte_at_a_time_are_closed(server, sent, monkeypatch):
    monkeypatch.setattr(web, "PATIENCE", 0.3)
    server._server._free = threading.BoundedSemaphore(3)
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
    over = threading.Event()

    def drip():
        for each in slow:
            each.sendall(sent)
        while not over.wait(0.05):
            for each in slow:
                with contextlib.suppress(OSError):
                    each.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        for _ in range(100):  # in 5 seconds at most
            try:
                status = ask(server)[0]
                break
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
        else:
            pytest.fail("three slow connections keep everybody out")
        assert status == 200
    finally:
        over.set()
        thread.join()
        for each in slow:
            each.close()


def test_a_thread_that_cannot_start_takes_no_place(server, monkeypatch):
    real = threading.Thread.start

    def start(thread):
        if (
            "process_request_thread" in thread.name
            or getattr(thread._target, "__name__", "") == "process_request_thread"
        ):
            raise RuntimeError("can't start new thread")
        real(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(web.MOST_CONNECTIONS + 6):
            with socket.create_connection(("127.0.0.1", server.port)) as one:
                one.settimeout(10)
                assert one.recv(20) == b""
    assert ask(server)[0] == 200


def test_who_may_not_read_keeps_no_connection(server):
    with Server("127.0.0.1", 0, lambda path: Answer(b"secret"), token=TOKEN) as closed:
        for port, path in ((closed.port, b"/"), (server.port, b"//[")):
            with socket.create_connection(("127.0.0.1", port)) as one:
                one.settimeout(5)
                one.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
                said = b""
                while more := one.recv(1000):  # until it is closed
                    said += more
                assert said.startswith(b"HTTP/1.1 40")
                assert b"secret" not in said


def test_addresses():
    assert address("9090", "metrics") == address(9090, "metrics") == ("127.0.0.1", 9090)
    assert address("0.0.0.0:80", "metrics") == ("0.0.0.0", 80)
    for wrong in ("", "host", ":99999", ":-1", "a:b", True, ":1e3", ":²"):
        with pytest.raises(fp.SettingError, match=r"metrics = .*HOST:PORT; write"):
            address(wrong, "metrics")
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost", "LocalHost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "example.org", "192.0.2.1", "localhost.example.org")))
