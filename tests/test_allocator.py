"""Memory that is kept between steps, by the system's own count of the pages it had to hand out."""

import subprocess
import sys

import pytest

from dial import allocator

# In a process of its own: what other tests have left in memory would be counted too.
SCRIPT = """
import resource
import torch
from dial.allocator import keep_memory

def faults(megabytes):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(megabytes * 1024**2 // 4)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(64))
with keep_memory():
    with keep_memory():
        faults(64)
    print(faults(64))  # the inner one has ended, and changed nothing
print(faults(64))
faults(4)
print(faults(4))
"""


@pytest.mark.skipif(allocator._library() is None, reason="another allocator than glibc's own")
def test_pages_are_handed_out_once_inside_and_given_back_after() -> None:
    """Ten times 64 MB are 163,840 pages, or 320 large ones."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    before, kept, after, small = map(int, done.stdout.split())
    assert before >= 320
    assert kept < 100
    assert after >= before / 10  # it was given back, and has to be handed out once at least
    assert small < 2 * 1024  # of 10,240: small memory is kept, as it is without us
