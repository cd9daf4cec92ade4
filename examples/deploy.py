"""Run a Flower app on this machine, with real or simulated SuperNodes, and stop everything that was started.

    python ../deploy.py . --nodes 4         a SuperLink and four SuperNodes, each in its own process, on loopback
    python ../deploy.py . --simulate 50     a SuperLink that simulates fifty clients

Other options are passed to `flwr run`: --run-config "num-server-rounds=5". SuperNodes use TLS and have keys, stored in
node-keys/, so that a node is recognised when it reconnects.
"""

import argparse
import contextlib
import datetime
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
except ImportError:  # it comes with flwr
    sys.exit('deploy: flwr is not installed for this Python: pip install "flwr[simulation]>=1.38,<2"')

HOST = "127.0.0.1"
STARTUP = 60.0  # seconds until a SuperLink that cannot be reached counts as stuck
GRACE = 5.0  # seconds to end by itself before a process is killed


class Stop(Exception):
    """The run cannot continue; the text says why."""


def processes() -> dict[tuple[int, str], int]:
    """All processes of this machine: (process id, start time) -> id of the parent."""
    found = {}
    if Path("/proc/self/stat").exists():
        for file in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # ended meanwhile
                after = file.read_text(errors="replace").rpartition(")")[2].split()  # a name may have blanks in it
                if after[0] != "Z":
                    found[int(file.parent.name), after[19]] = int(after[1])
    else:
        ps = subprocess.Popen(["ps", "-axo", "pid=,ppid=,stat=,lstart="], stdout=subprocess.PIPE, text=True)
        for line in ps.communicate()[0].splitlines():
            pid, parent, status, began = line.split(None, 3)
            if int(pid) != ps.pid and not status.startswith("Z"):
                found[int(pid), began] = int(parent)
    return found


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Deployment:
    """Processes that end with this one.

    Args:
        home: temporary folder for Flower's own files and the logs.
        work: folder in which everything runs; the app's relative paths are in it.
    """

    def __init__(self, home: Path, work: Path) -> None:
        self.home, self.work, self.port = home, work, free_port()
        flower = tuple(map(int, version("flwr").split(".")[:2]))
        self.fleet = self.port if flower >= (1, 40) else free_port()  # where SuperNodes connect
        self.certificate = home / "certificate.pem"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.family: set[tuple[int, str]] = set()  # all processes ever seen below this one
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        self.env = os.environ | {"FLWR_HOME": str(home), "PATH": path, "PYTHONUNBUFFERED": "1"}
        if shutil.which("flwr", path=path) is None:
            raise Stop('flwr is not installed for this Python: pip install "flwr[simulation]>=1.38,<2"')

    def command(self, name: str, *arguments: str) -> list[str]:
        """A command of Flower, from this Python's environment if it has one."""
        return [shutil.which(name, path=self.env["PATH"]) or name, *arguments]

    def start(self, name: str, *command: str, shown: bool = False) -> subprocess.Popen[bytes]:
        """Start a process; its output is shown, or kept in a log."""
        with contextlib.ExitStack() as stack:
            out = None if shown else stack.enter_context((self.home / f"{name}.log").open("wb"))
            # In a session of its own, so that Ctrl-C reaches this process alone, which then ends the others in order.
            process = subprocess.Popen(
                self.command(*command), stdout=out, stderr=out, cwd=self.work, env=self.env, start_new_session=True
            )
        self.running[name] = process
        return process

    def superlink(self, *options: str) -> None:
        """Start the SuperLink, wait until it answers, and write its address to flwr's configuration."""
        plain = ("--disable-runtime-dependency-installation", "--host", HOST, "--port", str(self.port))
        fleet = () if self.fleet == self.port else ("--fleet-api-address", f"{HOST}:{self.fleet}")
        self.start("SuperLink", "flower-superlink", *plain, *fleet, *options)
        trust = (
            "insecure = true" if "--insecure" in options else f"root-certificates = {json.dumps(str(self.certificate))}"
        )
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "loopback"\n\n[superlink.loopback]\naddress = "{HOST}:{self.port}"\n{trust}\n'
        )
        end = time.monotonic() + STARTUP
        while time.monotonic() < end:
            self.check()
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=1.0):
                return
            time.sleep(0.2)
        raise Stop(f"the SuperLink does not answer after {STARTUP:g} s{self.log('SuperLink')}")

    def secure_superlink(self) -> None:
        """Start a SuperLink with TLS that accepts only registered SuperNodes."""
        secret = make_certificate(self.certificate)
        self.superlink(
            *("--ssl-ca-certfile", str(self.certificate), "--ssl-certfile", str(self.certificate)),
            *("--ssl-keyfile", str(secret), "--enable-supernode-auth"),
        )

    def supernode(self, number: int, of: int, key: Path) -> None:
        """Register a SuperNode with its key, by which it is recognised when it reconnects, and start it."""
        self.flwr("supernode", "register", f"{key}.pub", "loopback")
        self.start(
            f"SuperNode {number}",
            *("flower-supernode", "--superlink", f"{HOST}:{self.fleet}", "--root-certificates", str(self.certificate)),
            *("--host", HOST, "--port", str(free_port()), "--auth-supernode-private-key", str(key)),
            *("--node-config", f"partition-id={number} num-partitions={of}"),
        )

    def flwr(self, *arguments: str) -> str:
        """The output of a short flwr command."""
        command = self.command("flwr", *arguments)
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=self.env, timeout=STARTUP, check=False)
        except subprocess.TimeoutExpired:
            raise Stop(f"flwr {' '.join(arguments)} has not ended after {STARTUP:g} s") from None
        if done.returncode:
            raise Stop(f"flwr {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def log(self, name: str) -> str:
        """The end of a process's log, to be added to a message."""
        text = (self.home / f"{name}.log").read_text(errors="replace")
        return "; the end of its log:\n" + "".join(f"  {line}\n" for line in text.splitlines()[-25:])

    def check(self) -> None:
        """Check the processes. A SuperNode may die; the SuperLink and the last SuperNode may not."""
        self.look()
        for name in [name for name, process in self.running.items() if process.poll() is not None]:
            if name != "run":
                code, lost = self.running.pop(name).returncode, f"{name} ended"
                print(f"{lost} with exit code {code}{self.log(name)}", file=sys.stderr, flush=True)
                if name == "SuperLink" or not any(other.startswith("SuperNode") for other in self.running):
                    raise Stop(f"{lost}, so the run cannot continue")

    def look(self) -> set[tuple[int, str]]:
        """Find the living processes that were started from here, including children whose parents have ended."""
        if os.name == "nt":
            return set()
        there = processes()
        alive = self.family & there.keys()
        parents = {os.getpid()} | {pid for pid, _ in alive}
        while more := {each for each, parent in there.items() if parent in parents and each not in alive}:
            alive |= more
            parents |= {pid for pid, _ in more}
        self.family |= alive
        return alive

    def stop(self) -> None:
        """End all processes: first with SIGTERM, and after a while with SIGKILL."""
        self.look()
        for process in reversed(self.running.values()):
            if os.name == "nt":
                subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
            else:
                process.terminate()
        for force in (False, True):
            end = time.monotonic() + GRACE
            while time.monotonic() < end:
                for process in self.running.values():
                    process.poll()  # else it stays as a zombie
                alive = self.look()
                if not alive:
                    return
                for pid, _ in alive if force else ():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.1)
        print(f"still there: processes {sorted(pid for pid, _ in self.look())}", file=sys.stderr)


def write(file: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(content)


def make_key(file: Path) -> Path:
    """A SuperNode's private key, and FILE.pub with its public one, as `ssh-keygen -t ecdsa -b 384` makes them."""
    if not file.exists():
        pair = ec.generate_private_key(ec.SECP384R1())
        public = pair.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        Path(f"{file}.pub").unlink(missing_ok=True)  # the private key is written last: what has one is whole
        write(Path(f"{file}.pub"), public)
        write(file, pair.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return file


def make_certificate(file: Path) -> Path:
    """Make a self-signed certificate for loopback, valid for a day; returns the file with its private key."""
    pair = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(pair.public_key())
    uses = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    certificate = (
        x509.CertificateBuilder(name, name, pair.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, decipher_only=False, **uses),
            critical=True,
        )
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(pair, hashes.SHA384())
    )
    write(file, certificate.public_bytes(Encoding.PEM))
    secret = file.with_suffix(".key")
    write(secret, pair.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return secret


def play(deployment: Deployment, app: Path, nodes: int, simulated: bool, options: list[str]) -> None:
    """Start everything, run the app, show its output."""
    if simulated:
        deployment.superlink("--insecure", "--simulation")
        options = ["--federation-config", f"num-supernodes={nodes}", *options]
    else:
        deployment.secure_superlink()
        for number in range(nodes):
            deployment.supernode(number, nodes, make_key(deployment.work / "node-keys" / f"node-{number}"))
    run = deployment.start("run", "flwr", "run", str(app), "loopback", "--stream", *options, shown=True)
    while run.poll() is None:
        deployment.check()
        time.sleep(0.5)
    if run.returncode:
        raise Stop(f"flwr run ended with exit code {run.returncode}")
    status = json.loads(deployment.flwr("ls", "loopback", "--format", "json"))["runs"][0]["status"]
    if status != "finished:completed":  # flwr run ends well also when the app fails
        raise Stop(f"the run is {status}, not completed; the reason is above")


def main() -> int:
    """Read the command line, run the app, stop everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("app", type=Path, help="folder of the Flower app, with its pyproject.toml")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--nodes", type=int, metavar="N", help="SuperNodes to start")
    mode.add_argument("--simulate", type=int, metavar="N", help="clients to simulate")
    where = "folder for what the app writes and for the SuperNodes' keys (node-keys/); the app's own unless given"
    parser.add_argument("--work", type=Path, metavar="FOLDER", help=where)
    given, options = parser.parse_known_args()
    nodes = given.nodes if given.simulate is None else given.simulate
    if nodes < 1:
        parser.error(f"{nodes} clients, but there must be at least 1")
    if not (given.app / "pyproject.toml").is_file():
        parser.error(f"{given.app} is no Flower app: it has no pyproject.toml")
    work = (given.work or given.app).resolve()
    work.mkdir(parents=True, exist_ok=True)

    def ended(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), ended)
    with tempfile.TemporaryDirectory(prefix="flower-", ignore_cleanup_errors=True) as home:
        try:
            deployment = Deployment(Path(home), work)
            try:
                play(deployment, given.app.resolve(), nodes, given.simulate is not None, options)
            finally:
                for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # a second Ctrl-C must not leave anything behind
                    if hasattr(signal, name):
                        signal.signal(getattr(signal, name), signal.SIG_IGN)
                deployment.stop()
        except Stop as error:
            print(f"deploy: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("deploy: interrupted, and all processes ended", file=sys.stderr)
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
