"""The one exception that a user's mistake raises: what was wanted, what came, how to fix it."""


class DialError(ValueError):
    """A mistake in what was asked for, told in full.

    >>> print(DialError(wanted="a domain of this layer (source, target)", got="'webcam'",
    ...                 fix="name one of those, or convert with domains=(..., 'webcam')"))
    wanted a domain of this layer (source, target), got 'webcam'; fix: name one of those, or \
convert with domains=(..., 'webcam')
    """

    def __init__(self, *, wanted: str, got: str, fix: str) -> None:
        super().__init__(f"wanted {wanted}, got {got}; fix: {fix}")
        self.wanted, self.got, self.fix = wanted, got, fix

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by their positional arguments; ours are keywords.
        return _rebuild, (self.wanted, self.got, self.fix)


def _rebuild(wanted: str, got: str, fix: str) -> DialError:
    return DialError(wanted=wanted, got=got, fix=fix)
