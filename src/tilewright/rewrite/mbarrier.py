"""The PTX that bulk copies need, as functions of the written file: nothing of it has an intrinsic.

Sources: PTX ISA, "mbarrier", "cp.async.bulk", "cp.async.bulk.tensor", "membar, fence" (fence.mbarrier_init,
fence.proxy.async).
"""

from __future__ import annotations

from tilewright.rewrite.rings import Names
from tilewright.source.edits import Edit, behind_includes

# Of a static ring's 48 KiB: the barriers, and what their alignment may cost.
RESERVED_BYTES = 64
WARP = 32

_ADDRESS = "static_cast<unsigned>(__cvta_generic_to_shared({}))"
_BARRIER = _ADDRESS.format("barrier")
_COMMON = [
    "// mbarriers in shared memory: one arrival a tile, and as many bytes as its copies move.",
    "{inline} void {init}(unsigned long long *barrier) {{",
    '    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;"',
    '                 ::"r"(' + _BARRIER + ') : "memory");',
    "}}",
    "// To the asynchronous proxy, new barriers must be shown.",
    "{inline} void {init_fence}() {{",
    '    asm volatile("fence.mbarrier_init.release.cluster;\\n\\tfence.proxy.async.shared::cta;" ::: "memory");',
    "}}",
    "{inline} void {arrive}(unsigned long long *barrier) {{",
    '    asm volatile("{{\\n\\t.reg .b64 state;\\n\\tmbarrier.arrive.shared::cta.b64 state, [%0];\\n\\t}}"',
    '                 ::"r"(' + _BARRIER + ') : "memory");',
    "}}",
    "{inline} void {expect}(unsigned long long *barrier, unsigned bytes) {{",
    '    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"',
    '                 ::"r"(' + _BARRIER + '), "r"(bytes) : "memory");',
    "}}",
    "// Waits until the phase of that parity is over.",
    "{inline} void {wait}(unsigned long long *barrier, unsigned parity) {{",
    "    unsigned done;",
    "    do {{",
    '        asm volatile("{{\\n\\t.reg .pred p;\\n\\t"',
    '                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n\\t"',
    '                     "selp.u32 %0, 1, 0, p;\\n\\t}}"',
    '                     : "=r"(done)',
    '                     : "r"(' + _BARRIER + '), "r"(parity) : "memory");',
    "    }} while (!done);",
    "}}",
    "{inline} void {inval}(unsigned long long *barrier) {{",
    '    asm volatile("mbarrier.inval.shared::cta.b64 [%0];"',
    '                 ::"r"(' + _BARRIER + ') : "memory");',
    "}}",
    "// What threads read and wrote in shared memory before, in front of what asynchronous copies write from here on.",
    "{inline} void {fence}() {{",
    '    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");',
    "}}",
]
_BULK = [
    "// Both addresses and the size: multiples of 16 bytes.",
    "{inline} void {copy}(void *target, const void *source, unsigned bytes,",
    "                     unsigned long long *barrier) {{",
    '    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"',
    '                 ::"r"(' + _ADDRESS.format("target") + '), "l"(__cvta_generic_to_global(source)),',
    '                 "r"(bytes), "r"(' + _BARRIER + ') : "memory");',
    "}}",
]
_TENSOR = [
    "// A CUtensorMap: what it holds is the driver's business.",
    "struct alignas(64) {map} {{",
    "    char bytes[128];",
    "}};",
    "// The box whose first element is (x, y); zeros where it leaves the matrix. Every byte of it counts.",
    "{inline} void {copy}(void *target, const {map} *map, int x, int y, unsigned long long *barrier) {{",
    '    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "',
    '                 "[%0], [%1, {{%2, %3}}], [%4];"',
    '                 ::"r"(' + _ADDRESS.format("target") + '), "l"(map), "r"(x), "r"(y),',
    '                 "r"(' + _BARRIER + ') : "memory");',
    "}}",
]
_WISHES = {
    "init": "tile_barrier_init", "init_fence": "tile_barrier_init_fence", "arrive": "tile_barrier_arrive",
    "expect": "tile_barrier_expect", "wait": "tile_barrier_wait", "inval": "tile_barrier_inval",
    "fence": "tile_proxy_fence", "copy": "tile_copy", "map": "TileMap",
}  # fmt: skip


class Functions:
    """The functions' names in one file, none of which it uses yet: ``f["wait"]``."""

    def __init__(self, names: Names, tensor: bool) -> None:
        self._names = {key: names.fresh(wish) for key, wish in _WISHES.items() if tensor or key != "map"}
        self._lines = [*_COMMON, *(_TENSOR if tensor else _BULK)]

    def __getitem__(self, key: str) -> str:
        return self._names[key]

    def edit(self, text: bytes, limit: int) -> Edit:
        """Behind the last unconditional #include in front of byte ``limit``; at the top of the file without one."""
        at = behind_includes(text, limit)
        lines = [line.format(inline="__device__ __forceinline__", **self._names) for line in self._lines]
        return Edit(at, at, "\n".join(["", *lines, "", ""] if at else [*lines, "", ""]))
