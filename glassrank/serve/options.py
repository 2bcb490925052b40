"""Options of a service."""

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from glassrank.errors import InputError
from glassrank.serve.limits import Limits
from glassrank.storage.files import read_file

SHORTEST_KEY, _KEY_BYTES = 16, 1 << 16
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Options:
    """Plain values, and functions at the top of a module: every worker process gets a copy."""

    index: Path
    models: tuple[tuple[str, str], ...]
    """(name, folder) of each; the first is the default."""
    cascade: bool = False
    """Whether the models, in their order, also form one pipeline, which is then the default."""
    plan: Path | None = None
    """How deep each of them goes: the file that `glassrank budget --plan` writes."""
    device: str = "cpu"
    """Where the models run."""
    ray: str | None = None
    """The address of the Ray cluster that searches; None: this machine searches."""
    shards: int | None = None
    """The cluster's shards; by default one for each processor."""
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int = 1
    """Search threads of each worker."""
    budget_ms: float = 50.0
    """Of a search without a budget of its own."""
    texts_budget_ms: float = 10_000.0
    """Of re-ranking given texts, and of an explanation."""
    work_ms: float = 1_000.0
    """The longest computation of a request: the rest of a larger budget is for waiting."""
    queue: int = 128
    """Requests that may wait in each worker; more are refused."""
    candidates: int | None = None
    """The greatest depth; by default the model's."""
    method: str | None = None
    """The default method of the first stage; if not given, the model's."""
    first_stage: str | None = None
    """`bm25`, `dense` or `hybrid`; if not given, `hybrid` where a store has vectors."""
    regularization: float | None = None
    """How far similar documents draw each other's scores together; if not given, 0.5."""
    refresh_seconds: float = 1.0
    api_key: str | None = field(default=None, repr=False)
    no_auth: bool = False
    allowed_hosts: tuple[str, ...] = ()
    clusters: Path | None = None
    curves: Path | None = None
    log: Path | None = None
    """The query log; None: nothing is logged."""
    interleave: str | None = None
    """The model, one of `models`, that is compared online with the default one."""
    interleave_share: float = 0.2
    """Of the searches that name no model."""
    traces: bool = False
    """Whether queries become OpenTelemetry spans."""
    reports_pending: bool = False
    """Whether those two reports, and the stores, may be written while it serves."""
    samples: tuple[str, ...] = ()
    """Example queries on the page."""
    subject: str = ""
    """What is searched, as the page says it: "the documentation of …"."""
    on_request: Callable[[], None] | None = field(default=None, repr=False, compare=False)
    """Called before a request is computed."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.api_key is not None and self.no_auth:
            raise InputError("expected an API key or --no-auth, not both")
        if self.api_key is not None and len(self.api_key) < SHORTEST_KEY:
            raise InputError(
                f"an API key must have at least {SHORTEST_KEY} characters, "
                f"not {len(self.api_key)}; make one with: openssl rand -hex 32"
            )
        if self.api_key is None and not self.no_auth and not is_loopback(self.host):
            raise InputError(
                f"other machines can reach {self.host}, so an API key is needed: "
                "--api-key-file FILE, or GLASSRANK_API_KEY, or --no-auth if everybody may search"
            )
        if self.no_auth and not is_loopback(self.host) and not self.allowed_hosts:
            raise InputError(
                f"other machines can reach {self.host}, and --no-auth asks for no key, so "
                "name the hosts that clients may use for this service: --allow-host NAME"
            )
        if self.ray is not None and (self.workers > 1 or self.device != "cpu"):
            raise InputError(
                "with --ray, shards have their own processes; leave out --workers and --device"
            )
        if self.cascade and len(self.models) < 2:
            raise InputError("--cascade needs several models; give --model for each of them")
        if self.plan is not None and not self.cascade:
            raise InputError("--plan needs --cascade: it says how deep each model goes")
        if self.interleave is not None:
            if self.workers > 1 or self.ray is not None:
                raise InputError(
                    "--interleave counts in one process; leave out --workers and --ray"
                )
            if self.interleave not in list(self.pipelines)[1:]:
                raise InputError(
                    f"--interleave {self.interleave}: expected a model other than the default one, "
                    "which is the first --model"
                )
            if not 0 < self.interleave_share <= 1:
                raise InputError(
                    f"--interleave-share must be above 0 and at most 1, not {self.interleave_share}"
                )
        for name in ("budget_ms", "texts_budget_ms", "work_ms"):
            if not 0 < getattr(self, name) <= self.limits.budget_ms:
                raise InputError(
                    f"{name} must be more than 0 and at most {self.limits.budget_ms:g}, "
                    f"not {getattr(self, name):g}"
                )

    @property
    def pipelines(self) -> dict[str, tuple[str, ...]]:
        """The models of each pipeline, by its name; the first is the default."""
        names = [name for name, _ in self.models]
        together = {"+".join(names): tuple(names)} if self.cascade else {}
        return {**together, **{name: (name,) for name in names}}

    @property
    def known_hosts(self) -> frozenset[str] | None:
        """The accepted `Host` headers; None: any, because a key is required.

        Without a key, another site could let its own name point to this machine and read documents
        through a visitor's browser (DNS rebinding). Its name in the header gives it away.
        """
        if self.api_key is not None:
            return None
        loopback = (*_LOOPBACK_NAMES, self.host) if is_loopback(self.host) else ()
        named = (*loopback, *self.allowed_hosts)
        return frozenset(name.lower() for name in named)


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("localhost"), is_loopback("127.8.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_api_key(file: Path | None) -> str | None:
    """From a file or from the environment: neither shows in a list of processes."""
    if file is None:
        return os.environ.get("GLASSRANK_API_KEY") or None
    try:
        key = read_file(file, _KEY_BYTES).decode("utf-8").strip()
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8; expected an API key in it") from None
    if not key:
        raise InputError(f"{file} is empty; expected an API key in it")
    return key


def named_models(given: list[str]) -> tuple[tuple[str, str], ...]:
    """`FOLDER`, whose last part is the name, or `NAME=FOLDER`, or `default`.

    >>> named_models(["default", "old=/models/tk-1", "/models/tk-2"])
    (('default', 'default'), ('old', '/models/tk-1'), ('tk-2', '/models/tk-2'))
    """
    pairs = []
    for text in given:
        name, equals, folder = text.partition("=")
        pairs.append((name, folder) if equals else (Path(text).name, text))
    names = [name for name, _ in pairs]
    for name in names:
        if not name or names.count(name) > 1:
            raise InputError(f"the model name {name!r} is empty or not unique; write NAME=FOLDER")
        if name == "none":
            raise InputError("'none' means no model; write NAME=FOLDER to use another name")
    return tuple(pairs)
