"""The Triton package: imported late, since it is optional and large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.errors import EXIT_MISSING, TilewrightError

INSTALL_HINT = "pip install 'tilewright[triton]'"


@dataclass(frozen=True)
class Triton:
    """The parts of Triton that are used, all of them public to its own tools.

    Attributes:
        compile: ``triton.compile``. language: ``triton.language``. knobs: its settings.
        ast_source, target: ``ASTSource``, ``GPUTarget``.
    """

    version: str
    compile: Any
    language: Any
    knobs: Any
    ast_source: Any
    target: Any

    @property
    def name(self) -> str:
        return f"triton {self.version}"


def load_triton() -> Triton:
    """Import Triton.

    Raises:
        TilewrightError: ``triton/missing`` (exit 3) where it is not installed, ``triton/version`` (exit 3) where its
            compiler is called otherwise than Triton 3.4 to 3.9 have it, ``triton/broken`` where it does not load.
    """
    try:
        import triton
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise _broken(error) from error
        raise TilewrightError(
            "triton/missing", "Triton is not installed.", hint=INSTALL_HINT, exit_code=EXIT_MISSING
        ) from None
    except Exception as error:
        raise _broken(error) from error
    version = str(getattr(triton, "__version__", "of an unknown version"))
    try:
        from triton import knobs, language
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        return Triton(version, triton.compile, language, knobs, ASTSource, GPUTarget)
    except (ImportError, AttributeError) as error:
        message = f"Triton {version} cannot be used ({error}); 3.4 or later is needed."
        raise TilewrightError("triton/version", message, hint=INSTALL_HINT, exit_code=EXIT_MISSING) from error


def _broken(error: Exception) -> TilewrightError:
    message = f"Triton does not load: {type(error).__name__}: {error}."
    return TilewrightError("triton/broken", message, hint=INSTALL_HINT, exit_code=EXIT_MISSING)
