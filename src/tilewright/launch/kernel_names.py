"""Names of kernels as sidecars and people write them: ``gemm``, ``ns::gemm``, ``gemm<128, 8>``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from pathlib import Path

from tilewright.launch.host_code import LaunchSite, angle_list, bare, closing, launch_sites
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


def launches_of(
    text: str, kernel: str, namesakes: Collection[str] = ()
) -> tuple[tuple[LaunchSite, ...], tuple[LaunchSite, ...]]:
    """(launches of one kernel in a file, launches that may be its or a namesake's), each in order.

    Args:
        kernel: with its namespaces. namesakes: kernels of the file that differ from it in those alone, itself included.
    """
    sites = launch_sites(text, kernel.split("::")[-1])
    if set(namesakes) <= {kernel}:
        return sites, ()
    code = bare(text)
    meant = [kernel_meant(code, site.start, namesakes) for site in sites]
    own = tuple(site for site, name in zip(sites, meant, strict=True) if name == kernel)
    return own, tuple(site for site, name in zip(sites, meant, strict=True) if name is None)


def kernel_meant(code: str, at: int, names: Collection[str]) -> str | None:
    """Which of some kernels a name at ``at`` stands for, by the namespaces around it; None where that does not tell.

    Args:
        code: without comments (:func:`tilewright.launch.host_code.bare`). names: with their namespaces.
    """
    written = re.compile(r"(::)?\s*((?:\w+\s*::\s*)*\w+)").match(code, at)
    if written is None:
        return None
    called = "".join(written[2].split())
    around: list[str] = []
    for opened in re.finditer(r"\bnamespace\s+(\w+(?:\s*::\s*\w+)*)\s*\{", code[:at]):
        if closing(code, opened.end() - 1) > at:
            around += "".join(opened[1].split()).split("::")
    for depth in range(0 if written[1] else len(around), -1, -1):
        full = "::".join([*around[:depth], called])
        if full in names:
            return full
    return None


def split_instance(name: str) -> tuple[str, tuple[str, ...]]:
    """``ns::gemm<128, 8>`` → (``ns::gemm``, (``128``, ``8``)); a name that has no arguments as it is."""
    at = name.find("<")
    arguments, end = angle_list(name, at) if at > 0 else ((), -1)
    return (name[:at].strip(), arguments) if end >= 0 and not name[end + 1 :].strip() else (name, ())
