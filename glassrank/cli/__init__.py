"""The command line: each command is a function of its name, in a file that is read when asked."""

import signal
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module

import typer

from glassrank.backends.compiled import when_compiling
from glassrank.cli import console
from glassrank.errors import GlassrankError, disk_error

COMMANDS = (
    *("demo", "index", "search", "retrieve", "rerank", "evaluate", "tune", "prepare", "train"),
    *("adapt", "experiment", "select", "average", "explain", "encode", "bench", "budget"),
    *("clusters", "serve", "push", "warmup"),
)
_FILES = {
    **dict.fromkeys(("retrieve", "rerank"), "whole_runs"),
    "explain": "search",
    "tune": "evaluate",
    "warmup": "compile_all",
    **dict.fromkeys(("prepare", "adapt", "select", "average", "push"), "train"),
}
"""Where commands are that have no file of their name."""


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands."""
    app = typer.Typer(
        help="Neural re-ranking within a time budget, that shows why.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback(invoke_without_command=True)(_options)
    names = list(names)
    for name in names:
        home = import_module(f"glassrank.cli.{_FILES.get(name, name)}")
        # What stands below a command's own help may take long to import.
        epilog = home.epilog() if len(names) == 1 and hasattr(home, "epilog") else None
        app.command(name, epilog=epilog)(getattr(home, name))
    return app


def _options(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        from glassrank import __version__

        print(f"glassrank {__version__}")
        raise typer.Exit


class _Interrupted(BaseException):
    """Ctrl-C, under a name that the framework does not swallow."""


def _interrupt(*_: object) -> None:
    raise _Interrupted


@cache
def _say_compiling() -> None:
    console.say("Compiling for this processor, which takes up to a minute, once …")


def main() -> None:
    """Errors for people are printed as one sentence; anything else is a bug and shows its trace."""
    signal.signal(signal.SIGINT, _interrupt)
    when_compiling(lambda _: _say_compiling())
    try:
        # The others need not even be read: a search is over sooner than they are.
        application([name for name in COMMANDS if name in sys.argv[1:2]] or COMMANDS)()
    except GlassrankError as error:
        console.error(str(error))
        sys.exit(error.exit_status)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        console.error("this needs PyTorch: pip install 'glassrank[torch]'")
        sys.exit(1)
    except _Interrupted:
        console.error("interrupted; nothing half-done was left behind")
        sys.exit(130)
    except BrokenPipeError:  # `glassrank search … | head`
        sys.stderr.close()
        sys.exit(0)
    except MemoryError:
        console.error("there is not enough memory for this; give it less at once, or more memory")
        sys.exit(1)
    except OSError as error:  # a disk that is full or fails, where nobody said what that means
        console.error(str(disk_error(error, "go on")))
        sys.exit(1)
