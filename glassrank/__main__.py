"""`python -m glassrank`: the command line."""

from glassrank.cli import main

if __name__ == "__main__":
    main()
