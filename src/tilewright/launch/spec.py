"""What a sidecar says, read and checked for form: ``LaunchSpec``. Values come with ``bind``, arrays with ``inputs``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tilewright.errors import TilewrightError
from tilewright.launch.dtypes import DType
from tilewright.launch.expressions import Expression, Place
from tilewright.launch.toml_lines import TomlLines

Role = Literal["in", "out", "inout"]
Constant = bool | int | float | str
Triple = tuple[Expression, Expression, Expression]


@dataclass(frozen=True)
class Fill:
    """How an array gets its values: ``randint(-20, 20)``."""

    text: str
    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class ArgSpec:
    """One argument, in the order of the signature.

    Attributes:
        name: as in the signature.
        dtype: of the scalar or of the array's elements.
        shape: expressions; None for a scalar.
        strides: in elements; None for row-major.
        fill: values of an array that the kernel reads.
        role: of an array; scalars are "in".
        alias_of: the argument whose buffer this one shares, ``offset`` elements from its start.
        offset: expression, elements; only with ``alias_of``.
        value: of a scalar.
        line: of the ``[[args]]`` entry.
    """

    name: str
    dtype: DType
    shape: tuple[Expression, ...] | None
    strides: tuple[Expression, ...] | None
    fill: Fill | None
    role: Role
    alias_of: str | None
    offset: Expression | None
    value: Expression | None
    line: int | None

    @property
    def is_pointer(self) -> bool:
        return self.shape is not None


@dataclass(frozen=True)
class BuildSpec:
    """How the file is compiled: ``-D``, include folders (resolved beside the sidecar), standard, further flags."""

    defines: Mapping[str, str] = field(default_factory=dict)
    include: tuple[Path, ...] = ()
    std: str | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class TritonSpec:
    """The ``[triton]`` table: how a Triton kernel is specialised.

    Attributes:
        constants: value of each ``tl.constexpr`` parameter, by name. Texts: ``"None"``, and ``"tl.float16"`` for a type
            of the language.
        num_warps: warps of a block.
        num_stages: of software pipelining; None for Triton's default.
        options: further options of Triton's compiler: ``enable_fp_fusion``, ``maxnreg``, …
    """

    constants: Mapping[str, Constant] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int | None = None
    options: Mapping[str, Constant] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchSpec:
    """A sidecar.

    Attributes:
        path: the file it was read from.
        kernel: the ``__global__`` function.
        template: template arguments, in order, as text.
        arch: default architecture, as written, or None.
        build: how to compile.
        grid, block: three expressions each (missing ones are 1).
        shared_bytes: dynamic shared memory, an expression.
        sizes: name of a set → name of a size → value. ``default`` is always there.
        args: in the order of the signature.
        reference: the file with ``reference(**inputs)``, or None.
        assume: facts that the source cannot show: ``no_alias``.
        triton: where the kernel is Triton's; None for CUDA.
        lines: where each key stands.
    """

    path: Path
    kernel: str
    template: tuple[str, ...]
    arch: str | None
    build: BuildSpec
    grid: Triple
    block: Triple
    shared_bytes: Expression
    sizes: Mapping[str, Mapping[str, int]]
    args: tuple[ArgSpec, ...]
    reference: Path | None
    assume: Mapping[str, bool]
    triton: TritonSpec | None = None
    lines: TomlLines = field(default_factory=TomlLines, repr=False, compare=False)

    @property
    def no_alias(self) -> bool:
        """Whether no buffer that is written overlaps one that is read: said, and no argument shares a buffer."""
        return self.assume.get("no_alias", False) and all(a.alias_of is None for a in self.args)

    def is_sized(self, *parts: Expression) -> bool:
        """Whether sizes decide about an expression: what it is at the sets of the sidecar says nothing of others."""
        return any(part.names() & set(self.sizes["default"]) for part in parts)

    def place(self, *path: str | int) -> Place:
        """The place of a key, for messages about it: ``spec.place("args", 2, "dtype")``."""
        return Place(str(self.path), self.lines.of(path))

    def error(self, path: tuple[str | int, ...], reason: str, message: str, hint: str = "") -> TilewrightError:
        """An input error that names the line of ``path``."""
        return self.place(*path).error(reason, message, hint)
