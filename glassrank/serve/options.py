"""What a service is started with."""

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from glassrank.errors import InputError
from glassrank.serve.limits import Limits

SHORTEST_KEY = 16
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def _ignore() -> None:
    """Nobody wants to know of requests."""


@dataclass(frozen=True)
class Options:
    """Plain values, and functions at the top of a module: every worker process gets a copy."""

    index: Path
    models: tuple[tuple[str, str], ...]
    """(name, folder) of each; the first is used unless a request names another."""
    cascade: bool = False
    """Whether the models, in their order, are also one pipeline, which is then the first."""
    plan: Path | None = None
    """How deep each of them goes in it: what `glassrank budget --plan` wrote."""
    device: str = "cpu"
    """Where the models run."""
    ray: str | None = None
    """The cluster that searches, by its address; none where this machine does."""
    shards: int | None = None
    """That it searches in; as many as it has processors unless given."""
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int = 1
    """That search at the same time, in each worker."""
    budget_ms: float = 50.0
    """Of a search that names none."""
    texts_budget_ms: float = 10_000.0
    """Of re-ranking given texts, and of an explanation: nobody has asked these to be short."""
    work_ms: float = 1_000.0
    """The most that one request may compute, whatever its budget: the rest of a budget is for
    waiting."""
    queue: int = 128
    """Requests that may wait in each worker; more are refused. Before that, those are refused for
    whom there is no time."""
    candidates: int | None = None
    """How deep at most; as the model says if not given."""
    method: str | None = None
    """The first stage, unless a request names another; as the model says if not given."""
    refresh_seconds: float = 1.0
    api_key: str | None = field(default=None, repr=False)
    no_auth: bool = False
    allowed_hosts: tuple[str, ...] = ()
    clusters: Path | None = None
    curves: Path | None = None
    traces: bool = False
    """Whether queries become spans of OpenTelemetry's."""
    reports_pending: bool = False
    """Whether those two reports, and stores, may still be in the making while it serves."""
    samples: tuple[str, ...] = ()
    """Queries that the page offers to those who have none."""
    subject: str = ""
    """What is searched, for the page: "the documentation of …"."""
    on_request: Callable[[], None] = field(default=_ignore, repr=False, compare=False)
    """Called when a request is about to be computed."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.api_key is not None and self.no_auth:
            raise InputError("choose one: an API key, or --no-auth")
        if self.api_key is not None and len(self.api_key) < SHORTEST_KEY:
            raise InputError(
                f"an API key must have at least {SHORTEST_KEY} characters, "
                f"not {len(self.api_key)}; make one with: openssl rand -hex 32"
            )
        if self.api_key is None and not self.no_auth and not is_loopback(self.host):
            raise InputError(
                f"{self.host} can be reached from other machines, so an API key is needed: "
                "--api-key-file FILE, or GLASSRANK_API_KEY, or --no-auth if everybody may search"
            )
        if self.no_auth and not is_loopback(self.host) and not self.allowed_hosts:
            raise InputError(
                f"{self.host} can be reached from other machines and --no-auth asks for no key, so "
                "name the hosts that clients may call this service by: --allow-host NAME"
            )
        if self.ray is not None and (self.workers > 1 or self.device != "cpu"):
            raise InputError(
                "with --ray, shards have processes and processors of their own; leave out "
                "--workers and --device"
            )
        if self.cascade and len(self.models) < 2:
            raise InputError("--cascade is for several models; give --model for each of them")
        if self.plan is not None and not self.cascade:
            raise InputError("--plan goes with --cascade: it says how deep each model goes")
        for name in ("budget_ms", "texts_budget_ms", "work_ms"):
            if not 0 < getattr(self, name) <= self.limits.budget_ms:
                raise InputError(
                    f"{name} must be more than 0 and at most {self.limits.budget_ms:g}, "
                    f"not {getattr(self, name):g}"
                )

    @property
    def pipelines(self) -> dict[str, tuple[str, ...]]:
        """The models of each pipeline, by its name; the first is used unless a request names
        another."""
        names = [name for name, _ in self.models]
        together = {"+".join(names): tuple(names)} if self.cascade else {}
        return {**together, **{name: (name,) for name in names}}

    @property
    def known_hosts(self) -> frozenset[str] | None:
        """The `Host` headers that are answered; None: any, because the key is asked for.

        Without a key, a page of another site could have its own name point to this machine and so
        read documents through a visitor's browser. The name it would have to use gives it away.
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
    """From a file, or from the environment, where it shows in no list of processes."""
    if file is None:
        return os.environ.get("GLASSRANK_API_KEY") or None
    try:
        key = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as an API key: {error}") from None
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
            raise InputError(f"models need names that differ, {name!r} does not; write NAME=FOLDER")
        if name == "none":
            raise InputError("'none' means no model; write NAME=FOLDER to name this one otherwise")
    return tuple(pairs)
