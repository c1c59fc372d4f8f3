"""The sidecar's reference: ``reference(**inputs) -> {name: float64 array}``, from a Python file of the user's."""

from __future__ import annotations

import contextlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.errors import TilewrightError
from tilewright.launch.bind import BoundLaunch, BoundScalar

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Reference:
    """A loaded reference.

    Attributes:
        path: its file, for messages.
        function: ``reference``.
        names: the parameters that it takes; None where it takes any (``**inputs``).
    """

    path: Path
    function: Callable[..., Any]
    names: frozenset[str] | None

    def compute(self, launch: BoundLaunch, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the outputs should be.

        Args:
            inputs: storages of the arrays that are filled; the reference sees them in shape, read-only, with their own
                dtypes, and the scalars as Python numbers, rounded to their types as the kernel gets them.

        Returns:
            For each array argument that is written: float64, in the argument's shape.

        Raises:
            TilewrightError: the reference failed, or what it gave does not fit.
        """
        import numpy as np

        values: dict[str, object] = {
            _keyword(scalar.name): np.frombuffer(scalar.raw(), scalar.dtype.numpy())[0].item()
            for scalar in launch.leaves
            if isinstance(scalar, BoundScalar)
        }
        for array in launch.arrays:
            if array.owner in inputs:
                values[_keyword(array.name)] = launch.view(array.name, inputs)
        taken = {name: value for name, value in values.items() if self.names is None or name in self.names}
        try:
            # What it prints goes to stderr: stdout is the receipt's.
            with np.errstate(all="ignore"), contextlib.redirect_stdout(sys.stderr):
                outputs = self.function(**taken)
        except (Exception, SystemExit) as error:
            raise self._failed(error) from error
        return self._checked(launch, outputs)

    def _checked(self, launch: BoundLaunch, outputs: object) -> dict[str, np.ndarray]:
        import numpy as np

        if not isinstance(outputs, Mapping):
            raise self._wrong(f"returned {type(outputs).__name__}; a dict of arrays by name is needed")
        written = {array.name: array for array in launch.arrays if array.role != "in"}
        known = {_keyword(name): name for name in written}
        outputs = {known.get(str(name), name): values for name, values in outputs.items()}
        if set(outputs) != set(written):
            got, need = ", ".join(map(str, outputs)) or "nothing", ", ".join(written) or "nothing"
            raise self._wrong(f"gives {got}; the sidecar's outputs are {need}")
        checked: dict[str, np.ndarray] = {}
        for name, array in written.items():
            try:
                values = np.asarray(outputs[name]).astype(np.float64, copy=False)
            except (TypeError, ValueError):
                raise self._wrong(f"gives something for {name} that is not an array of numbers") from None
            if values.shape != array.shape:
                raise self._wrong(f"gives {name} in the shape {values.shape}; the sidecar has {array.shape}")
            checked[name] = values
        return checked

    def _wrong(self, what: str) -> TilewrightError:
        return TilewrightError("verify/bad_reference", f"reference() {what}.", {"file": str(self.path)})

    def _failed(self, error: Exception | SystemExit) -> TilewrightError:
        facts: dict[str, object] = {"file": str(self.path)}
        facts |= _line(error, self.path)
        message = f"reference() failed: {type(error).__name__}: {error}."
        return TilewrightError("verify/bad_reference", message, facts)


def _keyword(name: str) -> str:
    """A member of a structure, ``param.input``, is passed as ``param_input``."""
    return name.replace(".", "_")


def load_reference(path: Path) -> Reference:
    """Run the file and take its ``reference``. Nothing is written beside it, and it is not put into ``sys.modules``.

    It needs no GPU and no inputs, so that a file that does not load is found before anything else is done.

    Raises:
        TilewrightError: ``verify/no_reference`` where it cannot be read, ``verify/bad_reference`` where it does not
            load (``sys.exit`` included) or defines no ``reference``.
    """
    facts: dict[str, object] = {"file": str(path)}
    namespace: dict[str, Any] = {"__name__": f"tilewright_reference_{path.stem}", "__file__": str(path)}
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(path.read_bytes(), str(path), "exec"), namespace)
    except OSError as error:
        raise TilewrightError(
            "verify/no_reference", f"the reference cannot be read: {error.strerror}.", facts
        ) from None
    except (Exception, SystemExit) as error:
        facts |= {"line": error.lineno} if isinstance(error, SyntaxError) else _line(error, path)
        message = f"the reference does not load: {type(error).__name__}: {error}."
        raise TilewrightError("verify/bad_reference", message, facts) from error
    function = namespace.get("reference")
    if not callable(function):
        raise TilewrightError("verify/bad_reference", "the file defines no function reference(**inputs).", facts)
    parameters = inspect.signature(function).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return Reference(path, function, None if takes_any else frozenset(parameter.name for parameter in parameters))


def _line(error: BaseException, path: Path) -> dict[str, object]:
    """The last line of the reference's own that the error went through, as facts."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return {"line": lines[-1]} if lines else {}
