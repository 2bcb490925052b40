"""`glassrank` and `python -m glassrank`: the command line."""

import signal


def main() -> None:
    """Run a command. Ctrl-C while the commands are imported ends the process without a trace."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from glassrank.cli import main as run

    run()


if __name__ == "__main__":
    main()
