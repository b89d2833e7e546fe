"""Memory that is kept between steps, by the system's own count of the pages it had to hand out."""

import resource

import pytest
import torch

from dial import allocation


def faults(megabytes: int) -> int:
    """Pages that the system hands out while memory is taken and given back, again and again."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(megabytes * 1024**2 // 4)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(allocation._library() is None, reason="another allocator than glibc's own")
def test_pages_are_handed_out_once_inside_and_given_back_after() -> None:
    outside = faults(64)
    with allocation.kept():
        first, second = faults(64), faults(64)
    assert outside > 5 * first > 5 * second
    assert second < 100
    assert faults(64) == pytest.approx(outside, rel=0.2)
    faults(4)
    assert faults(4) < 2 * 1024  # of 10,240: small memory is kept, as it is without us
