"""Sub-batch sizes from what a user writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial.data.batch_size import BatchSize, parse_batch_size
from dial.errors import DialError


def test_fixed_sizes() -> None:
    assert parse_batch_size("32+16", source=10, target=1000) == BatchSize(32, 16)


def test_source_only() -> None:
    assert parse_batch_size("32+16", source=10, target=0) == BatchSize(32, 0)
    assert parse_batch_size(48, source=10, target=0) == BatchSize(48, 0)


@given(st.integers(4, 512), st.integers(1, 10**6), st.integers(1, 10**6))
def test_total_is_shared_in_proportion(total: int, source: int, target: int) -> None:
    size = parse_batch_size(total, source=source, target=target)
    assert size.source + size.target == total
    assert min(size.source, size.target) >= 2
    if min(size.source, size.target) > 2:
        assert abs(size.source / total - source / (source + target)) <= 0.5 / total + 1e-9


@pytest.mark.parametrize("text", ["", "x", "1+16", "32+1", "3", "-8", "32+16+8", "32+", "3.5"])
def test_what_is_no_batch_size(text: str) -> None:
    with pytest.raises(DialError, match=r"batch size like 32\+16.*--batch-size"):
        parse_batch_size(text, source=100, target=100)
