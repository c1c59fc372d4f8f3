"""Names of kernels as sidecars and people write them: ``gemm``, ``ns::gemm``, ``gemm<128, 8>``."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tilewright.launch.host_code import angle_list
from tilewright.launch.toml_table import Table


def is_same_kernel(one: str, other: str) -> bool:
    """Whether two names may be one kernel's: alike, or one of them without its namespace."""
    return one == other or (one.split("::")[-1] == other.split("::")[-1] and ("::" in one) != ("::" in other))


def kernel_of_file(path: Path) -> str | None:
    """The kernel that a sidecar names; None where it cannot be told (loading it will report why)."""
    try:
        name = tomllib.loads(path.read_text("utf-8")).get("kernel")
    except (OSError, ValueError):
        return None
    return split_instance(name)[0] if isinstance(name, str) else None


def kernel_and_template(root: Table) -> tuple[str, tuple[str, ...]]:
    """What the sidecar calls the kernel, and its template arguments: ``kernel = "gemm<64>"`` is an instance's name.

    Raises:
        TilewrightError: ``launch/template_arguments`` where `template` says other arguments than the name.
    """
    written, template = root.text("kernel"), root.texts("template")
    name, own = split_instance(written)
    if own and template and own != template:
        message = f"the sidecar's kernel is {written}, and its template = [{', '.join(map(repr, template))}]."
        raise root.place("template").error("template_arguments", message, "Keep one of them.")
    return name, own or template


def split_instance(name: str) -> tuple[str, tuple[str, ...]]:
    """``ns::gemm<128, 8>`` → (``ns::gemm``, (``128``, ``8``)); a name that has no arguments as it is."""
    at = name.find("<")
    arguments, end = angle_list(name, at) if at > 0 else ((), -1)
    return (name[:at].strip(), arguments) if end >= 0 and not name[end + 1 :].strip() else (name, ())
