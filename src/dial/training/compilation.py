"""torch.compile for training steps: the parts of a network as kernels of their own."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from dial.errors import DialError

_COMPILERS = "g++", "clang++", "c++"  # what torch looks for where CXX names none
_VERSIONS = 64  # of one piece of code: for each part of the network, domain and batch size


class Compilation:
    """The compiled parts of a network, in their places while a step lasts.

    Whatever else looks at the network, or sends batches of other sizes through it, finds it as it
    is. The part with the classifier is not compiled: its inputs, the last hidden features, are
    taken by a hook.

    Raises:
        DialError: there is no C++ compiler.
    """

    def __init__(self, network: nn.Module, *, classifier: str, backend: str = "inductor") -> None:
        named = os.environ.get("CXX")
        if not any(map(shutil.which, [named] if named else _COMPILERS)):
            raise DialError(
                wanted="a C++ compiler for --compile",
                got=f"none on the path ({named or ', '.join(_COMPILERS)})",
                fix="install one (the package g++ on Debian), or leave --compile out",
            )
        self._network = network
        self._parts = {
            name: part
            for name, part in network.named_children()
            if name != classifier.split(".", maxsplit=1)[0] and any(True for _ in part.parameters())
        }
        self._compiled: dict[str, Any] = {
            name: torch.compile(part, backend=backend) for name, part in self._parts.items()
        }

    @contextmanager
    def step(self) -> Iterator[None]:
        """Inside the `with`, the network's parts are the compiled ones."""
        with torch._dynamo.config.patch(recompile_limit=_VERSIONS):
            self._network._modules.update(self._compiled)
            try:
                yield
            finally:
                self._network._modules.update(self._parts)
