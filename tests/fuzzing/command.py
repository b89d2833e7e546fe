"""The command in a process of its own, and the memory that it took."""

import subprocess
import sys
from typing import NamedTuple

MOST = 1000
"""MB of memory, of which the interpreter with torch takes a few hundred."""
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

    code: int
    out: str
    err: str
    peak: int


def run(*words: object) -> Told:
    """Run `dial` with these words; it may take less than a gigabyte, and show no traceback."""
    command = [sys.executable, "-c", _MEASURED, *map(str, words)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in told.stderr, told.stderr
    *lines, peak = told.stderr.splitlines(keepends=True)
    found = Told(told.returncode, told.stdout, "".join(lines), int(peak))
    assert found.peak < MOST, found
    return found


def refused(*words: object) -> str:
    """Returns what the command says, which has to refuse with one message."""
    told = run(*words)
    assert told.code == 2, told
    assert told.out == ""
    assert told.err.count("dial: error: ") == 1
    return told.err
