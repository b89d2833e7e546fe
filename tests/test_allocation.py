"""Memory that is kept between steps, by the system's own count of the pages it had to hand out."""

import resource
import sys

import pytest
import torch

from dial import allocation


def faults() -> int:
    """Pages that the system hands out while 64 MB are taken and given back, again and again."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(16 * 1024**2)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_pages_are_handed_out_once_inside_and_given_back_after() -> None:
    outside = faults()
    with allocation.kept():
        first, second = faults(), faults()
    assert outside > 5 * first > 5 * second
    assert second < 100
    assert faults() == pytest.approx(outside, rel=0.2)
