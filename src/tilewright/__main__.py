"""``python -m tilewright``: the command line, where the entry point is not installed."""

from tilewright.cli.app import main

if __name__ == "__main__":
    raise SystemExit(main())
