"""A real server of PostgreSQL's, in a folder of its own, which listens on a socket in it."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEBIAN = Path("/usr/lib/postgresql")


def programs() -> Path | None:
    """The folder of initdb and postgres, of the newest version there is."""
    named = shutil.which("initdb")
    folders = [Path(named).parent] if named else sorted(DEBIAN.glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


def somebody() -> str | None:
    """PostgreSQL refuses to run as root: another user, where we are that; else ourselves."""
    import pwd

    if os.getuid() != 0:
        return None
    names = [user.pw_name for user in pwd.getpwall()]
    return next(name for name in ("postgres", "nobody") if name in names)


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """Its address; `folder` is where the programs are."""
    import psycopg

    user, place = somebody(), Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    if user is not None:
        shutil.chown(place, user)
    environment = {"LC_ALL": "C", "PATH": os.environ["PATH"]}
    subprocess.run(
        [folder / "initdb", "-D", place / "data", "-U", "tester", "-A", "trust", "--no-sync",
         "-E", "UTF8"],
        user=user, env=environment, cwd=place, check=True, capture_output=True,
    )  # fmt: skip
    running = subprocess.Popen(
        [folder / "postgres", "-D", place / "data", "-k", place, "-F",
         "-c", "listen_addresses=", "-c", "max_connections=10"],
        user=user, env=environment, cwd=place,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"host={place} user=tester dbname=postgres"
    try:
        for _ in range(600):
            try:
                psycopg.connect(address).close()
                break
            except psycopg.OperationalError:
                assert running.poll() is None, "PostgreSQL has ended"
                time.sleep(0.1)
        yield address
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(60)
        shutil.rmtree(place)
