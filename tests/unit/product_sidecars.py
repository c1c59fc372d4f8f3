"""The sidecar that many sample kernels share: C (M × N) = A (M × K) · B (K × N), row-major, and the three sizes."""

from __future__ import annotations


def product_sidecar(
    kernel: str,
    launch: str,
    sizes: str,
    *,
    names: str = "ABC",
    elements: tuple[str, str, str] = ("float32", "float32", "float32"),
    depth: str = "int32",
    fill: str = "uniform(-1, 1)",
) -> str:
    """TOML.

    Args:
        launch: lines of ``[launch]``. sizes: lines of ``[sizes]``.
        names: of the three arrays. elements: their types. depth: the type of K.
        fill: of A and B; "" leaves it to their types.
    """
    lines = [f'kernel = "{kernel}"', "[launch]", launch, "[sizes]", sizes]
    for name, dtype, shape in zip(names, elements, (("M", "K"), ("K", "N"), ("M", "N")), strict=True):
        lines += ["[[args]]", f'name = "{name}"', f'dtype = "{dtype}"', f'shape = ["{shape[0]}", "{shape[1]}"]']
        lines += ['role = "out"'] if name == names[-1] else [f'fill = "{fill}"'] if fill else []
    for name, dtype in (("M", "int32"), ("N", "int32"), ("K", depth)):
        lines += ["[[args]]", f'name = "{name}"', f'dtype = "{dtype}"', f'value = "{name}"']
    return "\n".join(lines) + "\n"
