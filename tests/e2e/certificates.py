"""Certificates for tests, made by the openssl command."""

import subprocess

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


def make_certificate(folder, name="server", kind=CURVE, more=("-nodes",)):
    """Of this machine, signed by itself. Returns (certificate, key) as paths."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", *kind, "-keyout", key, "-out", certificate, "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", *more], capture_output=True, check=True)
    return certificate, key
