"""PyTorch without its Python functions for tensors on the device "meta", until something asks for them.

``import torch`` spends a fifth of its time on ``torch._meta_registrations``, which tracing a model needs
(torch.compile, torch.export) and running Cohort's own models does not. In its place is an empty module, which is filled
when `load_meta` is called or when one of its names is looked up.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

NAME = "torch._meta_registrations"


class _Later:
    """Finds the module, and leaves it empty until `fill`."""

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == NAME else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = self._look_up  # type: ignore[method-assign]

    def _look_up(self, name: str):
        if name.startswith("__"):  # what is asked of all modules
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        self.fill()
        return getattr(sys.modules[NAME], name)

    def fill(self) -> None:
        sys.meta_path.remove(self)
        module, spec = sys.modules.get(NAME), PathFinder.find_spec(NAME, sys.modules["torch"].__path__)
        if module is not None and spec is not None and spec.loader is not None:
            del module.__getattr__
            module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
            spec.loader.exec_module(module)


_later = _Later()


def put_off_meta() -> None:
    """From here on, ``import torch`` leaves them out."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _later)


@contextmanager
def imports_first() -> Iterator[None]:
    """Inside, a program imports its packages, PyTorch without these functions."""
    collects = gc.isenabled()
    put_off_meta()
    gc.disable()  # what packages make stays: looking for garbage takes a tenth of the time in which they are loaded
    yield
    gc.freeze()
    if collects:
        gc.enable()


def load_meta() -> None:
    """Makes PyTorch whole, if they were left out: for models and callbacks of a user's own, which may trace."""
    if _later in sys.meta_path:
        _later.fill()
