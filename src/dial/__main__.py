"""The command as `dial` and as `python -m dial`; says what to install where it is missing."""

import sys


def main() -> None:
    """Run the command."""
    try:
        from dial.cli import main as command
    except ModuleNotFoundError as error:
        from dial.errors import missing_extra

        sys.stderr.write(f"dial: error: {missing_extra(error, 'command')}\n")
        sys.exit(2)
    command()


if __name__ == "__main__":
    main()
