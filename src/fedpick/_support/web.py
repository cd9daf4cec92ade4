"""A small web server that only shows pages: on this machine unless asked otherwise, and it accepts no changes.

Against pages of other sites that point their own name at this machine (DNS rebinding), a server on the loopback address
answers only requests that name it. Beyond the loopback address, `fedpick watch` wants a token.
"""

import hmac
import ipaddress
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, SHUT_RDWR
from socketserver import TCPServer
from typing import Any, Self
from urllib.parse import parse_qs, quote, urlsplit

from fedpick.core.errors import ConfigError, SettingError, require

__all__ = ["Answer", "Server", "address", "is_loopback"]

LOOPBACK = "127.0.0.1"
SHORTEST_TOKEN = 16  # characters
MOST_CONNECTIONS = 64  # at a time
PATIENCE = 10.0  # seconds for a request to arrive whole, and for each part of the answer to leave
COOKIE = "fedpick-token"

log = logging.getLogger("fedpick.web")


@dataclass(frozen=True)
class Answer:
    """What a request gets; a browser that already has the answer with this tag gets 304 (not modified) instead."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    tag: str = ""


def address(where: str | int, owner: str) -> tuple[str, int]:
    """Host and port of a text such as "9090", ":9090", "0.0.0.0:9090" or "[::1]:9090"; without a host: loopback.

    >>> address(":9090", "metrics"), address("[::1]:80", "metrics")
    (('127.0.0.1', 9090), ('::1', 80))
    """
    host, _, port = str(where).rpartition(":")
    valid = port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536 and not isinstance(where, bool)
    require(valid, owner, where, "a port from 0 to 65535 or HOST:PORT", 'write ":9090" or "127.0.0.1:9090"')
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port)


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Server:
    """A web server in its own threads, until it is closed.

    Args:
        host: to listen on.
        port: to listen on; 0: any free one.
        answer: path -> what to show; None: nothing is there.
        token: that every request must have, as ?token= (once; then a cookie), or as "Authorization: Bearer"; None:
            requests need none.
        headers: further headers of every answer.
    """

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[str], Answer | None],
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        if token is not None and len(token) < SHORTEST_TOKEN:
            raise SettingError(
                f"the token has {len(token)} characters, but must have {SHORTEST_TOKEN} or more; "
                'make one with: python -c "import secrets; print(secrets.token_urlsafe())"'
            )
        self.token, self.answer, self.headers = token, answer, headers or {}
        self.local = is_loopback(host)
        self.names = {"localhost", LOOPBACK, "::1", host.lower()}
        try:
            self._server = _Listener(self, host, port)
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ConfigError(
                f"cannot listen on {host} port {port} ({why}); choose another port, or 0 for any"
            ) from None
        shown = f"[{host}]" if ":" in host else host
        self.port = int(self._server.server_address[1])
        self.url = f"http://{shown}:{self.port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True, name="fedpick-web")
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Listener(ThreadingHTTPServer):
    """Accepts at most MOST_CONNECTIONS at a time; further ones are closed at once, and a browser tries again."""

    daemon_threads = True
    block_on_close = False  # a browser keeps its connection open

    def __init__(self, site: Server, host: str, port: int) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.arriving: dict[Any, float] = {}  # connections whose request is not whole -> since when they are awaited
        super().__init__((host, port), type("Handler", (_Handler,), {"site": site}))

    def server_bind(self) -> None:
        """Without HTTPServer's look-up of this machine's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be started: socketserver closes the connection
            self._free.release()
            raise

    def service_actions(self) -> None:
        """Close the connections whose request takes too long, be it a byte at a time; called ten times a second."""
        before = time.monotonic() - PATIENCE
        for request, since in list(self.arriving.items()):
            if since < before:
                with suppress(OSError):  # it has ended just now
                    request.shutdown(SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a connection ended early", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; other methods get 501."""

    site: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "fedpick", ""
    timeout = PATIENCE

    def handle_one_request(self) -> None:
        """Read and answer a request, or end the connection."""
        self.server.arriving[self.connection] = time.monotonic()  # type: ignore[attr-defined]
        try:
            super().handle_one_request()
        finally:
            self._arrived()

    def _arrived(self) -> None:
        self.server.arriving.pop(self.connection, None)  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        """Show the page."""
        self._arrived()
        site = self.site
        try:
            parts = urlsplit(self.path)
        except ValueError:  # such as "//["
            self._send_text(HTTPStatus.BAD_REQUEST, "This is no address")
            return
        if site.local and _name(self.headers.get("Host")) not in site.names:
            self._send_text(HTTPStatus.FORBIDDEN, f"This server is for this machine only: open {site.url}")
            return
        if site.token is not None and not self._knows(site.token):
            given = parse_qs(parts.query).get("token", [""])[-1]
            if _same(given, site.token):  # from now on in a cookie: the address bar and the history do not keep it
                cookie = f"{COOKIE}={quote(given, safe='')}; HttpOnly; SameSite=Strict; Path=/"
                self._send_text(HTTPStatus.SEE_OTHER, "", {"Location": "./", "Set-Cookie": cookie})
            else:
                text = "This server needs its token: open the address with ?token=... at its end"
                self._send_text(HTTPStatus.UNAUTHORIZED, text, {"WWW-Authenticate": "Bearer"})
            return
        try:
            answer = site.answer(parts.path)
        except Exception:  # whatever is in a folder, the server goes on
            log.exception("cannot show %s", parts.path[:80])
            self._send_text(
                HTTPStatus.INTERNAL_SERVER_ERROR, "This cannot be shown now; the log of the server says why"
            )
            return
        if answer is None:
            self._send_text(HTTPStatus.NOT_FOUND, "Nothing is here")
        elif answer.tag and self.headers.get("If-None-Match") == f'"{answer.tag}"':
            self._send(HTTPStatus.NOT_MODIFIED, answer, {})
        else:
            self._send(HTTPStatus.OK, answer, {})

    do_HEAD = do_GET

    def _knows(self, token: str) -> bool:
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        try:
            kept = SimpleCookie(self.headers.get("Cookie") or "").get(COOKIE)
        except CookieError:
            kept = None
        return _same(given, token) or (kept is not None and _same(kept.value, quote(token, "")))

    def _send_text(self, status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> None:
        self._send(status, Answer(f"{text}\n".encode()), headers or {})

    def _send(self, status: HTTPStatus, answer: Answer, headers: dict[str, str]) -> None:
        self.send_response(status)
        if status >= HTTPStatus.BAD_REQUEST:  # those who may not read keep no connection
            self.send_header("Connection", "close")
        always = {
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in {**always, **self.site.headers, **headers}.items():
            self.send_header(name, value)
        if answer.tag:
            self.send_header("ETag", f'"{answer.tag}"')
        body = b"" if status == HTTPStatus.NOT_MODIFIED else answer.body
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: their addresses may hold the token."""


def _same(given: str, token: str) -> bool:
    """Compare in constant time, which does not reveal how much of the token is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode("utf-8", "replace"))


def _name(host: str | None) -> str:
    """The name in a Host header, without the port, which may be another behind a tunnel."""
    try:
        return (urlsplit(f"//{host or ''}").hostname or "").lower()
    except ValueError:
        return ""
