"""How a random tiled kernel is launched: its sidecar, and the sizes that it handles."""

from __future__ import annotations

from choices import ACCUMULATOR, Choices

_DTYPE = {"float": "float32", "__half": "float16", "signed char": "int8"}


def sidecar(c: Choices, sizes: dict[str, dict[str, int]]) -> str:
    """How it is launched at those sizes."""
    bm, bn, bk, tm, tn = c.tile
    kind = ACCUMULATOR[c.element]
    names = {"BM": bm, "BN": bn, "BK": bk, "TM": tm, "TN": tn, "THREADS": c.threads}
    out = ['kernel = "gemm"']
    if c.constants == "template":
        out.append("template = [" + ", ".join(f'"{v}"' for v in names.values()) + "]")
    grid = "[3, 1, 1]" if c.outer == "persistent" else f'["ceil_div(N, {bn})", "ceil_div(M, {bm})", 1]'
    block = f"[{bn // tn}, {bm // tm}, 1]" if c.block_2d else f"[{c.threads}, 1, 1]"
    out += ["[launch]", f"grid = {grid}", f"block = {block}", f"shared_bytes = {_dynamic_bytes(c)}", "[sizes]"]
    for name, values in sizes.items():
        out.append(f"{name} = {{ " + ", ".join(f"{k} = {v}" for k, v in values.items()) + " }")
    arrays = [("A", _DTYPE[c.element], '["M", "K"]', "in"), ("B", _DTYPE[c.element], '["K", "N"]', "in")]
    arrays.append(("C", "int32" if kind == "int" else "float32", '["M", "N"]', "out"))
    if c.extra == "bias_read":
        arrays.append(("bias", "int32" if kind == "int" else "float32", "[4]", "in"))
    if c.logs:
        arrays.append(("log", "float32", "[1]", "out"))
    for name, dtype, shape, role in arrays:
        fill = "randint(-20, 20)" if dtype in ("int8", "int32") else "normal(0, 1)"
        out += ["[[args]]", f'name = "{name}"', f'dtype = "{dtype}"', f"shape = {shape}", f'role = "{role}"']
        out += [f'fill = "{fill}"'] if role == "in" else []
    for name in "MNK":
        out += ["[[args]]", f'name = "{name}"', 'dtype = "int32"', f'value = "{name}"']
    return "\n".join(out) + "\n"


def _dynamic_bytes(c: Choices) -> int:
    if c.shared not in ("dynamic", "dynamic_bytes"):
        return 0
    bm, bn, bk, _, _ = c.tile
    used = (bm * bk + bk * bn) * (16 // c.vector)
    return max(used, c.threads * 4) if c.extra == "typed_epilogue" else used


def sizes_of(c: Choices, fresh: bool = False) -> dict[str, dict[str, int]]:
    """Size sets that the kernel handles; ``fresh``: others than those that a rewrite is verified at first."""
    bm, bn, bk, _, _ = c.tile
    tiles = (3, 2, 7) if fresh else (2, 1, 5)
    out = {"default": {"M": bm * tiles[0], "N": bn * tiles[1], "K": bk * tiles[2]}}
    if c.guard == "edges":
        step = c.vector if {c.copy_a, c.copy_b} & {"vector", "vector_transposed", "array"} else 1
        more = 3 if fresh else 2

        def odd(value: int) -> int:
            return max(value // step * step, step)

        m, n, k = bm * more - bm // 3, odd(bn * 2 - 5), odd(bk * (more + 1) - bk // 2 + 1)
        if c.compute == "wmma":  # fragments are stored whole
            m, n = m // 16 * 16, n // 16 * 16
        out["ragged"] = {"M": m, "N": n, "K": k}
    return out
