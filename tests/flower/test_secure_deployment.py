"""TLS and node authentication on: who has no registered key is not there, and a key is who one is."""

import datetime
import hashlib
import ipaddress
import json
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from deployment import HERE, Deployment

import fedpick as fp

pytestmark = pytest.mark.slow
STRANGER, KEYLESS = 2, 3  # one with a key that is not registered, one without


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A certificate authority's certificate, and the SuperLink's with its key, valid for loopback and an hour."""
    ca_key, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    now, hour = datetime.datetime.now(datetime.UTC), datetime.timedelta(hours=1)

    def certificate(name, public_key, extension, *, critical):
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - hour).not_valid_after(now + hour)
        made = made.add_extension(extension, critical=critical)
        return made.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    authority = x509.BasicConstraints(ca=True, path_length=0)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HERE))])
    ca, server, server_key = (folder / name for name in ("ca.crt", "server.pem", "server.key"))
    ca.write_bytes(certificate("test authority", ca_key.public_key(), authority, critical=True))
    server.write_bytes(certificate("superlink", key.public_key(), names, critical=False))
    server_key.write_bytes(pem(key))
    return ca, server, server_key


def node_key(file: Path) -> str:
    """Write a key as `ssh-keygen -t ecdsa -b 384` does, with its public half beside it; return its identity."""
    key = ec.generate_private_key(ec.SECP384R1())
    openssh = serialization.PrivateFormat.OpenSSH
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, openssh, serialization.NoEncryption()))
    public = key.public_key()
    ssh = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    file.with_suffix(".pub").write_bytes(ssh + b"\n")
    plain = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"key:{hashlib.sha256(plain).hexdigest()[:32]}"


def test_only_registered_keys_train_and_a_key_keeps_its_history(tmp_path: Path) -> None:
    ca, server, server_key = certificates(tmp_path)
    deployment = Deployment(tmp_path, f'root-certificates = "{ca}"')
    keys = [tmp_path / f"key{node}" for node in range(3)]
    identity = [node_key(key) for key in keys]

    def register(node: int) -> None:
        deployment.flwr("supernode", "register", f"{keys[node]}.pub", "here")

    def supernode(node: int) -> None:
        key = () if node == KEYLESS else ("--auth-supernode-private-key", str(keys[node]))
        deployment.supernode(node, "--root-certificates", str(ca), *key)

    def online(many: int) -> None:
        """Wait until the SuperLink knows that so many are connected."""

        def asked() -> bool | None:
            nodes = json.loads(deployment.flwr("supernode", "list", "here", "--format", "json"))["nodes"]
            return True if sum(node["status"] == "online" for node in nodes) == many else None

        deployment.wait(asked, 60, f"{many} SuperNodes to be online")

    def refused() -> bool | None:
        codes = [deployment.running[f"node{node}"].poll() for node in (STRANGER, KEYLESS)]
        return None if None in codes else all(codes)

    try:
        deployment.superlink(
            *("--ssl-ca-certfile", str(ca), "--ssl-certfile", str(server), "--ssl-keyfile", str(server_key)),
            "--enable-supernode-auth",
        )
        trust = ssl.create_default_context(cafile=str(ca))
        with socket.create_connection((HERE, deployment.port), timeout=10) as plain:
            trust.wrap_socket(plain, server_hostname=HERE).close()  # raises unless it is TLS, with our certificate
        register(0)
        register(1)
        deployment.may_end |= {f"node{STRANGER}", f"node{KEYLESS}"}
        for node in range(4):
            supernode(node)
        online(2)
        assert deployment.wait(refused, 60, "the two that are not registered to be refused")
        with deployment.held("after-1"):
            deployment.run("run", plan="e3cs 2 4", nodes=2, deadline=60.0)
            deployment.rounds(1, 120)
            deployment.stop("node1")
            online(1)
        with deployment.held("after-2"):
            deployment.rounds(2, 60)
            supernode(1)
            online(2)
        with deployment.held("after-3"):
            deployment.rounds(3, 60)
            why = deployment.log(f"node{STRANGER}"), deployment.log(f"node{KEYLESS}"), deployment.log("superlink")
            register(STRANGER)  # its key was all that it lacked
            supernode(STRANGER)
            online(3)
        first, second, third, fourth = deployment.rounds(4, 60)
        deployment.ended("e3cs", 30)
    finally:
        deployment.end()

    assert sorted(first["names"]) == sorted(identity[:2])
    assert second["names"] == third["names"] == first["names"]
    assert fourth["names"] == [*first["names"], identity[STRANGER]]
    assert {each["partition"] for each in deployment.trained() if each["round"] < 4} == {0, 1}
    stranger, keyless, superlink = why
    assert "Failed to activate SuperNode" in stranger
    assert "All SuperNodes must be registered" in keyless
    assert superlink.count("No SuperNode found with the given public key") == 1

    # Who is who: the loss is the partition.
    assert dict(zip(first["chosen"], first["loss"], strict=True)) == {identity[0]: 0.0, identity[1]: 1.0}
    assert second["chosen"] == identity[:1]
    assert dict(zip(third["chosen"], third["loss"], strict=True)) == {identity[0]: 0.0, identity[1]: 1.0}
    assert first["status"] == third["status"] == [fp.Status.DONE] * 2

    # Away in round 2, the second client kept what it had earned, and went on from there.
    weights = [dict(zip(each["names"], each["state"]["log_weights"], strict=True)) for each in (first, second, third)]
    one, two, three = ([each[name] for name in identity[:2]] for each in weights)
    assert one[0] == one[1] > 0.0
    assert two[0] > one[0]
    assert two[1] == one[1]
    assert three[1] > two[1]
    deployment.check_records("e3cs")
