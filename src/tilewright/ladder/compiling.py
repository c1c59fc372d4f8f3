"""A rung, compiled: one program for each of its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilewright.build.artifact import Artifact, BuildRequest, CompileFailure
from tilewright.build.build import build
from tilewright.errors import TilewrightError
from tilewright.ladder.specs import INCLUDE, RungSpec, defines_of
from tilewright.launch.bind import BoundLaunch
from tilewright.launch.executor import Program
from tilewright.launch.sidecar import check_against
from tilewright.settings import Settings
from tilewright.source.device_view import DeviceView, device_view
from tilewright.source.headers import own_headers
from tilewright.source.reader import open_kernel, read_source

DEFAULT_ARCH = "sm_86"


@dataclass(frozen=True)
class CompiledRung:
    """A rung for one element type and one architecture.

    Attributes:
        artifacts: one for each of the spec's kernels.
        constants: of the file, for the sidecars' expressions.
    """

    spec: RungSpec
    arch: str
    artifacts: tuple[Artifact, ...]
    constants: dict[str, int | float]

    @property
    def programs(self) -> tuple[Program, ...]:
        return tuple(Program(a.cubin, a.ptx, a.kernel, self.arch) for a in self.artifacts)

    @property
    def registers(self) -> int:
        """Of its hungriest kernel, per thread."""
        return max(a.resources.registers for a in self.artifacts)

    @property
    def smem_bytes(self) -> int:
        """Static shared memory of its kernels, the most of them."""
        return max(a.resources.smem_bytes for a in self.artifacts)

    @property
    def spill_bytes(self) -> int:
        return sum(a.resources.spill_bytes for a in self.artifacts)


def arch_for(spec: RungSpec, arch: str | None) -> str:
    """The architecture to build for: the one asked for, else the rung's least one, else `DEFAULT_ARCH`.

    Raises:
        TilewrightError: ``ladder/arch`` where the rung needs a later one.
    """
    least = spec.rung.min_arch
    if arch is None:
        return least if least is not None and _number(least) > _number(DEFAULT_ARCH) else DEFAULT_ARCH
    if least is not None and _number(arch) < _number(least):
        message = f"{spec.family.name}/{spec.rung.name} needs {least}, and {arch} was asked for."
        raise TilewrightError("ladder/arch", message, {}, f"Give --arch {least}, or take another rung.")
    return arch


def _number(arch: str) -> int:
    return int("".join(c for c in arch if c.isdigit()) or 0)


def compile_rung(
    spec: RungSpec, settings: Settings, arch: str | None = None, *, text: str | None = None, use_cache: bool = True
) -> CompiledRung:
    """Build a rung, from the cache where it is there, and check its table against the kernels' signatures.

    Args:
        text: the source instead of the rung's own (a twin of it).

    Raises:
        TilewrightError: ``ladder/arch``; ``build/compile_error`` with the line; what `build` and `check_against` raise.
    """
    arch = arch_for(spec, arch)
    file = spec.rung.file
    source_text = file.read_text("utf-8") if text is None else text
    view = _view(source_text, file)
    defines = tuple(sorted((name, str(value)) for name, value in defines_of(spec.rung, spec.dtype).items()))
    artifacts: list[Artifact] = []
    constants: dict[str, int | float] = {}
    for one, launch in zip(spec.specs, spec.rung.launches, strict=True):
        request = BuildRequest(view.text, file.name, arch, one.kernel, view.headers, defines, flags=one.build.flags)
        built = build(request, settings, use_cache=use_cache)
        if isinstance(built, CompileFailure):
            facts = {"file": built.file if built.file != file.name else str(file), "line": built.line}
            raise TilewrightError("build/compile_error", f"The compiler refuses it: {built.message}", facts)
        params, names = _signature(source_text, file, defines, one.kernel)
        constants |= names
        behind = len(launch.maps) + bool(launch.map_flag)  # parameters that no sidecar names
        check_against(one, params[: len(params) - behind], constants)
        artifacts.append(built)
    return CompiledRung(spec, arch, tuple(artifacts), constants)


def constants_of(spec: RungSpec) -> dict[str, int | float]:
    """What a rung's file and its defines say of tiles and stages; nothing is compiled."""
    text = spec.rung.file.read_text("utf-8")
    defines = tuple(sorted((name, str(value)) for name, value in defines_of(spec.rung, spec.dtype).items()))
    return {
        name: value
        for one in spec.specs
        for name, value in _signature(text, spec.rung.file, defines, one.kernel)[1].items()
    }


def dynamic_smem_bytes(launches: list[BoundLaunch]) -> int:
    """Dynamic shared memory of a rung's launches, the most of them."""
    return max(launch.shared_bytes for launch in launches)


# A bench asks for the same rungs again and again: judged, timed, counted; and for one source with many defines.
@lru_cache(maxsize=64)
def _view(text: str, file: Path) -> DeviceView:
    return device_view(text, file, (INCLUDE,))


@lru_cache(maxsize=256)
def _signature(
    text: str, file: Path, defines: tuple[tuple[str, str], ...], kernel: str
) -> tuple[tuple[tuple[str, str], ...], Mapping[str, int | float]]:
    """A kernel's parameters, and the constants that its file and the defines give."""
    source = read_source(text.encode(), str(file), own_headers(_view(text, file)), dict(defines))
    function = source.kernel(kernel)
    numbers = {name: int(value) for name, value in defines if value.lstrip("-").isdigit()}
    return tuple(function.params), {**open_kernel(source, function, numbers).constants.names(), **numbers}
