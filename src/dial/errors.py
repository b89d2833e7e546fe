"""The one exception that a user's mistake raises: what was wanted, what came, how to fix it."""


class DialError(ValueError):
    """A user's mistake: what was wanted, what came instead, and how to fix it.

    >>> print(DialError(wanted="a domain of this layer (source, target)", got="'webcam'",
    ...                 fix="name one of those, or convert with domains=(..., 'webcam')"))
    wanted a domain of this layer (source, target), got 'webcam'; fix: name one of those, or \
convert with domains=(..., 'webcam')
    """

    is_of_all = False
    """Whether all processes of a run raise it at the same place, so that none waits for another."""

    def __init__(self, *, wanted: str, got: str, fix: str) -> None:
        super().__init__(f"wanted {wanted}, got {got}; fix: {fix}")
        self.wanted, self.got, self.fix = wanted, got, fix

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by their positional arguments; ours are keywords.
        return _rebuild, (self.wanted, self.got, self.fix)


def missing_extra(error: ImportError, extra: str) -> DialError:
    """Returns the error about a package that is not installed, with the extra that installs it.

    >>> print(missing_extra(ModuleNotFoundError(name="timm.models"), "backbones"))
    wanted the package timm, got an environment where it is not installed; fix: \
pip install "dial-da[backbones]"
    """
    return DialError(
        wanted=f"the package {(error.name or str(error)).partition('.')[0]}",
        got="an environment where it is not installed",
        fix=f'pip install "dial-da[{extra}]"',
    )


def _rebuild(wanted: str, got: str, fix: str) -> DialError:
    return DialError(wanted=wanted, got=got, fix=fix)
