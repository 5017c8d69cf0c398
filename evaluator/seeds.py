"""Seeds by commit and reveal: nobody can know the requests before the trial is ready.

The seed of one grant of a trial follows from a secret of this evaluator. Its digest is given out
before the patch is loaded, the seed itself once the trial is ready.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

SECRET_BYTES = 32


def seed_of(secret: bytes, trial: str, epoch: int) -> str:
    """The seed of a trial's grant: 64 hex digits, fresh for every epoch."""
    return hmac.new(secret, f"{trial}|{epoch}".encode(), hashlib.sha256).hexdigest()


def commitment_of(seed: str) -> str:
    """SHA-256 hex of the seed's hex digits."""
    return hashlib.sha256(seed.encode()).hexdigest()


def read_secret(home: Path) -> bytes:
    """The evaluator's secret, made at its first start. Only its owner may read the file.

    Raises PermissionError when others may read it, ValueError when it is damaged.
    """
    path = home / "seed-secret"
    if not path.exists():
        _make_secret(path)
    if path.stat().st_mode & 0o077:
        raise PermissionError(f"{path} can be read by others: chmod 600 it, or remove it")
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"{path} holds {len(secret)} bytes, not {SECRET_BYTES}: remove it")
    return secret


def _make_secret(path: Path) -> None:
    """Write it whole or not at all; a second evaluator that starts at once keeps the first's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(SECRET_BYTES))
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()
