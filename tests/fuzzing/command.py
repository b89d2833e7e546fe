"""The command in a process of its own, and the memory that it took: less than a gigabyte."""

import subprocess
import sys
from typing import NamedTuple

from ..commands import Command

MOST, BESIDE_IMPORTS = 1000, 400
"""MB of memory, in all and beside the imports of the whole package."""
# Not getrusage: there, a process that was just started has the peak of the one that started it.
_MEASURED = """
import re, sys
from dial.cli import main
try:
    main()
finally:
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
    print(int(peak[1]) // 1024, file=sys.stderr)
"""


class Told(NamedTuple):
    """How the command ended, what it printed, and the most memory that it took, in MB."""

    code: int | None
    out: str
    err: str
    peak: int


def run(*words: object) -> Told:
    """Run `dial` with these words in an interpreter of its own; it may show no traceback."""
    command = [sys.executable, "-c", _MEASURED, *map(str, words)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    *lines, peak = told.stderr.splitlines(keepends=True)
    found = Told(told.returncode, told.stdout, "".join(lines), int(peak))
    return _checked(found, MOST)


def refused(*words: object) -> str:
    """Returns what the command says, which has to refuse with one message."""
    command = Command(*words)
    out, err = command.communicate()
    assert command.peak is not None, err
    told = _checked(Told(command.returncode, out, err, command.peak), BESIDE_IMPORTS)
    assert told.code == 2, told
    assert told.out == ""
    assert told.err.count("dial: error: ") == 1
    return told.err


def _checked(told: Told, most: int) -> Told:
    assert "Traceback" not in told.err, told.err
    assert told.peak < most, told
    return told
