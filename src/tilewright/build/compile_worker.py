"""NVRTC in processes of its own: an input that crashes it takes a worker along, and not the run.

A worker lives as long as the run and compiles one program after another, so that a run pays once for starting it (about
as much as loading NVRTC here would cost). Several threads that compile at once have a worker each.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO

import msgspec

from tilewright.build.nvrtc import Compiled, Program, run
from tilewright.errors import EXIT_MISSING, TilewrightError

_LENGTH = struct.Struct("<Q")
_ROOT = Path(__file__).parents[2]


class Answer(msgspec.Struct):
    """What a worker sends back: a result, or the arguments of a ``TilewrightError``."""

    compiled: Compiled | None = None
    error: tuple[str, str, dict[str, str], str, int] | None = None


def compile_apart(program: Program) -> Compiled:
    """As ``nvrtc.run``, in a worker.

    Raises:
        TilewrightError: as ``nvrtc.run``, and ``build/compiler_crashed`` (exit 3).
    """
    if not sys.executable:  # an interpreter inside another program cannot be started a second time
        return run(program)
    return _workers().compile(program)


@cache
def _workers() -> Workers:
    # -P: the working folder's own modules are not taken for ours.
    start = f"import sys; sys.path.append({str(_ROOT)!r}); from tilewright.build.compile_worker import serve; serve()"
    return Workers((sys.executable, "-P", "-c", start))


class Workers:
    """The idle workers of this process. Each ends by itself when its input closes, so with the process."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = tuple(command)
        self._idle: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def compile(self, program: Program) -> Compiled:
        """Compile in an idle worker, or in a new one."""
        worker = self._take()
        try:
            answer = _exchange(worker, program)
        except (OSError, EOFError, msgspec.DecodeError):
            raise _crashed(program, worker) from None
        except BaseException:
            _end(worker)  # interrupted: what it sends later would be taken for the next answer
            raise
        with self._lock:
            self._idle.append(worker)
        if answer.error is not None:
            raise TilewrightError(*answer.error)
        return answer.compiled or Compiled("")

    def close(self) -> None:
        """End every idle worker."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            _end(worker)

    def _take(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._owner != os.getpid():  # a forked child must not talk to its parent's workers
                self._owner, self._idle = os.getpid(), []
            if self._idle:
                return self._idle.pop()
        return subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _exchange(worker: subprocess.Popen[bytes], program: Program) -> Answer:
    assert worker.stdin is not None
    assert worker.stdout is not None
    _send(worker.stdin, msgspec.msgpack.encode(program))
    return msgspec.msgpack.decode(_receive(worker.stdout), type=Answer)


def _end(worker: subprocess.Popen[bytes]) -> int:
    """End a worker, if it has not ended by itself; its exit code."""
    worker.kill()
    for pipe in (worker.stdin, worker.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    return worker.wait()


def _crashed(program: Program, worker: subprocess.Popen[bytes]) -> TilewrightError:
    code = _end(worker)
    # A worker that was still alive has been killed by us just now, and has no signal to tell of.
    name = signal.Signals(-code).name if code < 0 and -code != signal.SIGKILL else f"exit code {code}"
    return TilewrightError(
        "build/compiler_crashed",
        f"The compiler (NVRTC) crashed ({name}) on {program.kernel}.",
        {"file": Path(program.name).name},
        "It is a defect of the compiler: try another -std or fewer flags in the sidecar's [build], or another NVRTC.",
        EXIT_MISSING,
    )


def serve() -> None:
    """A worker: programs from stdin, answers to stdout, until stdin closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides when it ends
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the compiler prints is no answer
    while True:
        try:
            program = msgspec.msgpack.decode(_receive(sys.stdin.buffer), type=Program)
        except EOFError:
            return
        try:
            answer = Answer(compiled=run(program))
        except TilewrightError as error:
            facts = {name: str(value) for name, value in error.facts.items()}
            answer = Answer(error=(error.code, error.message, facts, error.hint, error.exit_code))
        _send(answers, msgspec.msgpack.encode(answer))


def _send(stream: IO[bytes], payload: bytes) -> None:
    stream.write(_LENGTH.pack(len(payload)) + payload)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    size = _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0]
    return _exactly(stream, size)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = stream.read(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
