"""How many images of each domain stand in a batch: fixed numbers, or a total shared out."""

from dataclasses import dataclass

from dial.errors import DialError

_LEAST = 2  # of one image there is no variance


@dataclass(frozen=True)
class BatchSize:
    """The global batch: so many source and so many target images, over all processes."""

    source: int
    target: int


def parse_batch_size(text: str | int, *, source: int, target: int) -> BatchSize:
    """Read `32+16`, or one total to be shared in proportion to the domains' numbers of images.

    Every domain gets two at least, so that a batch always has statistics. `target` is 0 where
    there is none; then the source gets its own number, or the whole total.

    >>> parse_batch_size("32+16", source=2817, target=795)
    BatchSize(source=32, target=16)
    >>> parse_batch_size("256", source=2817, target=795)
    BatchSize(source=200, target=56)
    """
    try:
        numbers = [int(part) for part in str(text).split("+")]
    except ValueError:
        numbers = []
    match numbers:
        case [total] if not target and total >= _LEAST:
            return BatchSize(total, 0)
        case [total] if target and total >= 2 * _LEAST:
            share = round(total * source / (source + target))
            share = min(max(share, _LEAST), total - _LEAST)
            return BatchSize(share, total - share)
        case [of_source, of_target] if of_source >= _LEAST and of_target >= _LEAST:
            return BatchSize(of_source, of_target if target else 0)
    raise DialError(
        wanted="a batch size like 32+16 (source + target) or 48 (shared in proportion), "
        f"with {_LEAST} images or more of each domain",
        got=repr(text),
        fix="use --batch-size 32+16",
    )
