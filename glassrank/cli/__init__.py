"""The command line: each command is a function of its name, imported when it is called."""

import signal
import sys
import warnings
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

import typer

from glassrank import console
from glassrank.backends.compiled import on_compile
from glassrank.errors import GlassrankError, disk_error

COMMANDS = (
    *("demo", "index", "search", "retrieve", "rerank", "evaluate", "tune", "prepare", "train"),
    *("adapt", "experiment", "select", "average", "explain", "encode", "bench", "budget"),
    *("clusters", "judge", "learn", "serve", "push", "warmup"),
)
_MODULES = {
    **dict.fromkeys(("retrieve", "rerank"), "cli.runs"),
    "explain": "cli.search",
    **dict.fromkeys(("evaluate", "tune"), "research.commands.evaluate"),
    **dict.fromkeys(
        ("prepare", "train", "adapt", "select", "average", "push"), "research.commands.train"
    ),
    **{
        name: f"research.commands.{name}"
        for name in ("experiment", "bench", "budget", "clusters", "judge", "learn")
    },
}
"""Of commands that are not in a module of their name in `cli`."""


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands."""
    app = typer.Typer(
        help="CPU-first re-ranking and search under a latency budget, with additive explanations.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback(invoke_without_command=True)(_options)
    names = list(names)
    for name in names:
        home = import_module("glassrank." + _MODULES.get(name, f"cli.{name}"))
        # An epilog may take long to import, so only a command's own help has one.
        epilog = home.epilog() if len(names) == 1 and hasattr(home, "epilog") else None
        app.command(name, epilog=epilog)(getattr(home, name))
    return app


def _options(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        from glassrank import __version__

        print(f"glassrank {__version__}")
        raise typer.Exit


class _Interrupted(BaseException):
    """Ctrl-C. Typer swallows KeyboardInterrupt, not this."""


def _interrupt(*_: object) -> None:
    raise _Interrupted


@cache
def _say_compiling() -> None:
    console.say("Compiling for this processor, once, up to a minute …")


def _say_own_warnings() -> None:
    """Prints warnings of this package as sentences, without a line of code. They are for whoever
    gives the command; Python's are for whoever writes one."""
    show = warnings.showwarning

    def say(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if category.__module__.startswith("glassrank."):
            console.say(f"warning: {message}")
        else:
            show(message, category, *where, **more)

    warnings.showwarning = say


def main() -> None:
    """Run a command. Errors of ours are printed as one line; any other is a bug with a trace."""
    signal.signal(signal.SIGINT, _interrupt)
    on_compile(lambda _: _say_compiling())
    _say_own_warnings()
    try:
        # Importing the other commands would take longer than a search does.
        make_app([name for name in COMMANDS if name in sys.argv[1:2]] or COMMANDS)()
    except GlassrankError as error:
        console.error(str(error))
        sys.exit(error.exit_status)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        console.error("this needs PyTorch: pip install 'glassrank[torch]'")
        sys.exit(1)
    except _Interrupted:
        console.error("interrupted; no partial files were left behind")
        sys.exit(130)
    except BrokenPipeError:  # `glassrank search … | head`
        sys.stderr.close()
        sys.exit(0)
    except MemoryError:
        console.error("not enough memory; process less at once, or use a machine with more memory")
        sys.exit(1)
    except OSError as error:  # a full or failing disk that no caller has explained
        console.error(str(disk_error(error, "go on")))
        sys.exit(1)
