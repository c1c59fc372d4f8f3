"""Device copies, what kernels that memory bounds are held against: the driver's, and a kernel of ours.

What the driver's copy does in a CUDA graph follows its sizes: on an H200, 1024.008 MiB took 254 us (4.2 TB/s), and
1024.016 MiB 392 (2.7). Called, it reached 4.2 at 1 GiB. So the copy that stands beside a measurement is the fastest of
two: the driver's, called where the data is large, and a kernel of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

from tilewright.build.artifact import Artifact, BuildRequest, CompileFailure
from tilewright.build.build import build
from tilewright.errors import TilewrightError
from tilewright.gpu.driver import launch_kernel
from tilewright.ladder.comparing import Contender
from tilewright.settings import Settings

COPY, COPY_KERNEL = "copy", "copy kernel"
THREADS, PACK_BYTES = 128, 16
_FILE, _KERNEL = "yardstick.cu", "copy_bytes"
Copy = Callable[[int, int, int, Any], None]


def build_copy(arch: str, settings: Settings) -> Artifact:
    """The kernel for an architecture. Raises TilewrightError: what building raises."""
    text = files(__package__).joinpath(_FILE).read_text("utf-8")
    built = build(BuildRequest(text, _FILE, arch, _KERNEL), settings)
    if isinstance(built, CompileFailure):
        raise TilewrightError("build/compile_error", f"The compiler refuses it: {built.message}", {"file": _FILE})
    return built


def blocks_for(count_bytes: int) -> int:
    return max(1, -(-count_bytes // (THREADS * PACK_BYTES)))


def load_copy(arch: str, settings: Settings) -> Copy:
    """The kernel on the card: (target, source, bytes, stream) → launched. Addresses are multiples of 16."""
    import numpy as np
    from cuda.core import ObjectCode

    code = ObjectCode.from_cubin(build_copy(arch, settings).cubin)
    kernel = code.get_kernel(_KERNEL)

    def copy(target: int, source: int, count_bytes: int, stream: Any, _: Any = code) -> None:  # which holds the kernel
        arguments: list[np.generic | np.ndarray] = [np.uint64(v) for v in (source, target, count_bytes)]
        launch_kernel(kernel.handle, (blocks_for(count_bytes), 1, 1), (THREADS, 1, 1), 0, stream, arguments)

    return copy


def copies(torch: Any, count_bytes: int, is_cold: bool, kernel: Copy | None, device: str = "cuda") -> list[Contender]:
    """Copies of so many bytes.

    Args:
        is_cold: one call from a cold L2, which the driver is then called for; else it is captured, as all are.
        kernel: as `load_copy` makes it; None for the driver's copy alone.
    """
    source = torch.ones(max(count_bytes, 1), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    out = [Contender(COPY, "copy", lambda: target.copy_(source), is_captured=not is_cold)]
    if kernel is not None:
        to, of, count, stream_of = target.data_ptr(), source.data_ptr(), source.numel(), torch.cuda.current_stream
        held = (source, target)

        def call(_: Any = held) -> None:
            kernel(to, of, count, stream_of().cuda_stream)

        out.append(Contender(COPY_KERNEL, "copy", call))
    return out
