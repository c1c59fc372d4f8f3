"""Blocks, successors, what an instruction reads and writes, and which registers live across blocks."""

from __future__ import annotations

import random
import time

import pytest
from ptx_samples import instructions, kernel, module_of, one, parsed

from tilewright.build.nvrtc import toolchain
from tilewright.errors import TilewrightError
from tilewright.ptx.cfg import Graph, build_graph, defs_uses, ends_block
from tilewright.ptx.module import BranchTargets, Function, Instruction, Label, Symbol
from tilewright.ptx.parse import parse_ptx

needs_nvrtc = pytest.mark.skipif(toolchain() is None, reason="NVRTC is not installed")

# An instruction; what it writes; what it reads. Names without their "%".
FLOWS = [
    ("add.s32 %r1, %r2, %r3;", "r1", "r2 r3"),
    ("@%p1 add.s32 %r1, %r2, 4;", "r1", "p1 r1 r2"),
    ("ld.global.v4.f32 {%f1, %f2, _, %f4}, [%rd1+16];", "f1 f2 f4", "rd1"),
    ("@!%p2 ld.shared.u32 %r1, [%r2];", "r1", "p2 r1 r2"),
    ("st.shared.v2.f32 [%r1], {%f1, %f2};", "", "f1 f2 r1"),
    ("red.global.add.f32 [%rd1], %f1;", "", "f1 rd1"),
    ("atom.global.cas.b32 %r1, [%rd1], %r2, %r3;", "r1", "r2 r3 rd1"),
    ("setp.lt.and.s32 %p1|%p2, %r1, %r2, !%p3;", "p1 p2", "p3 r1 r2"),
    ("shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1;", "p1 r1", "r2"),
    ("elect.sync _|%p1, -1;", "p1", ""),
    ("match.all.sync.b32 %r1|%p1, %r2, %r3;", "p1 r1", "r2 r3"),
    ("vote.sync.ballot.b32 %r1, %p1, -1;", "r1", "p1"),
    ("activemask.b32 %r1;", "r1", ""),
    ("mov.b64 {%r1, %r2}, %rd1;", "r1 r2", "rd1"),
    ("mov.b64 %rd1, {%r1, %r2};", "rd1", "r1 r2"),
    ("mov.u32 %r1, %tid.x;", "r1", ""),
    ("cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;", "", "r1 r2 rd1"),
    ("cp.async.wait_group 1;", "", ""),
    ("cp.async.mbarrier.arrive.shared.b64 [%r1];", "", "r1"),
    ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
     "", "r1 r2 r3 r4 rd1"),
    ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd1, {%r2, %r3}], [%r4];", "",
     "r2 r3 r4 rd1"),
    ("mbarrier.init.shared::cta.b64 [%r1], %r2;", "", "r1 r2"),
    ("mbarrier.inval.shared.b64 [%r1];", "", "r1"),
    ("mbarrier.arrive.shared::cta.b64 %rd1, [%r1];", "rd1", "r1"),
    ("mbarrier.arrive.shared::cta.b64 _, [%r1];", "", "r1"),
    ("mbarrier.arrive.shared::cluster.b64 [%r1], %r2;", "", "r1 r2"),
    ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r2;", "", "r1 r2"),
    ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], %r2;", "", "r1 r2"),
    ("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;", "p1", "r1 r2"),
    ("mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1;", "p1", "r1 rd1"),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, %p1, 1, 1, 0, 1;",
     "f1 f2 f3 f4", "f1 f2 f3 f4 p1 rd1 rd2"),
    ("wgmma.wait_group.sync.aligned 0;", "", ""),
    ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2}, {%r1,%r2}, {%r3}, {%f3,%f4};", "f1 f2",
     "f3 f4 r1 r2 r3"),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2}, {%r1}, {%r2}, {%f3}, %r4, 0x0;",
     "f1 f2", "f3 r1 r2 r4"),
    ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1,%r2}, [%r3], %r4;", "r1 r2", "r3 r4"),
    ("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {%f1,%f2}, %r4;", "", "f1 f2 r4 rd1"),
    ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1,%r2}, [%r3];", "r1 r2", "r3"),
    ("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r3], {%r1,%r2};", "", "r1 r2 r3"),
    ("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;", "r1", "r2"),
    ("bar.sync %r1, %r2;", "", "r1 r2"),
    ("bar.red.popc.u32 %r1, 0, %p1;", "r1", "p1"),
    ("barrier.cta.red.or.pred %p1, 0, !%p2;", "p1", "p2"),
    ("nanosleep.u32 %r1;", "", "r1"),
    ("setmaxnreg.inc.sync.aligned.u32 240;", "", ""),
    ("prefetch.tensormap [%rd1];", "", "rd1"),
    ("prmt.b32 %r1, %r2, 0, %r3;", "r1", "r2 r3"),
    ("selp.f32 %f1, %f2, 0f00000000, %p1;", "f1", "f2 p1"),
    ("mapa.shared::cluster.u32 %r1, %r2, %r3;", "r1", "r2 r3"),
    ("fence.proxy.async.shared::cta;", "", ""),
    ("call (%r1), foo, (%r2, %r3);", "r1", "r2 r3"),
    ("call foo, (%r2);", "", "r2"),
    ("@%p1 call (%r1), foo, (%r2);", "r1", "p1 r1 r2"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "defs", "uses"), FLOWS)
def test_what_an_instruction_writes_and_reads(text: str, defs: str, uses: str) -> None:
    module = parse_ptx(kernel(text).replace(".visible", ".extern .func foo;\n.visible", 1))
    found = defs_uses(instructions(module.functions["k"])[0])
    assert [" ".join(sorted({name[1:] for name in names})) for names in found] == [defs, uses]


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("bar.sync 0;", True),
        ("bar.arrive 1, 64;", True),
        ("barrier.sync 0;", True),
        ("barrier.cluster.arrive.aligned;", True),
        ("barrier.cluster.wait;", True),
        ("bar.warp.sync -1;", False),
        ("mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;", True),
        ("mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %r2;", True),
        ("mbarrier.arrive.shared.b64 %rd1, [%r1];", False),
        ("nanosleep.u32 32;", True),
        ("cp.async.wait_group 0;", False),
        ("exit;", True),
        ("trap;", True),
        ("@%p1 exit;", True),
        ("wgmma.wait_group.sync.aligned 0;", False),
    ],
)
def test_where_the_scheduler_takes_over(text: str, ends: bool) -> None:
    assert ends_block(one(text)) is ends


LOOP = """
    mov.u32 %r1, 0;
    ld.param.u32 %r9, [n];
LOOP:
    add.s32 %r2, %r1, 1;
    bar.sync 0;
    bar.warp.sync -1;
WAIT:
    add.s32 %r3, %r2, 1;
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r9], 0;
    @!%p1 bra WAIT;
    mov.u32 %r1, %r3;
    setp.lt.s32 %p2, %r1, %r9;
    @%p2 bra LOOP;
    st.shared.u32 [%r9], %r1;"""


def test_a_loop_with_barrier_and_wait() -> None:
    graph = build_graph(parsed(LOOP, ".param .u32 n"))
    names = [[i.full_name.split(".")[0] for i in block.instructions] for block in graph.blocks]
    assert names == [
        ["mov", "ld"],
        ["add", "bar"],
        ["bar"],
        ["add"],
        ["mbarrier"],
        ["bra"],
        ["mov", "setp", "bra"],
        ["st", "ret"],
    ]
    assert [block.successors for block in graph.blocks] == [(1,), (2,), (3,), (4,), (5,), (3, 6), (1, 7), ()]
    assert graph.labels == {"LOOP": 1, "WAIT": 3}
    assert [block.first_site for block in graph.blocks] == [0, 2, 4, 5, 6, 7, 8, 11]
    assert [graph.instructions[b.first_site] for b in graph.blocks] == [b.instructions[0] for b in graph.blocks]
    live = [sorted(block.live_in) for block in graph.blocks]
    assert live == [[], ["%r1", "%r9"], *[["%r2", "%r9"]] * 2, ["%r2", "%r3", "%r9"], ["%p1", "%r2", "%r3", "%r9"],
                    ["%r3", "%r9"], ["%r1", "%r9"]]  # fmt: skip
    assert graph.blocks[5].live_out == {"%r2", "%r3", "%r9"}
    assert graph.blocks[1].defs == {"%r2"}


def test_a_guarded_write_does_not_end_a_life() -> None:
    body = "mov.u32 %r1, 1;\nbar.sync 0;\n{} mov.u32 %r1, 2;\nst.shared.u32 [%r1], %r1;"
    assert "%r1" in build_graph(parsed(body.format("@%p1"))).blocks[1].live_in
    assert "%r1" not in build_graph(parsed(body.format(""))).blocks[1].live_in


def test_tables_and_ends() -> None:
    body = "T: .branchtargets A, B, A; brx.idx %r1, T; A: trap; B: @%p1 exit; @%p1 bra A; mov.u32 %r1, 0; END:"
    graph = build_graph(parsed(body))
    a, b = graph.labels["A"], graph.labels["B"]
    assert graph.blocks[0].successors == (a, b, a)
    assert graph.blocks[a].successors == ()
    assert graph.blocks[b].successors == (b + 1,)
    assert graph.blocks[b + 1].successors == (a, b + 2)
    guarded = build_graph(parsed("T: .branchtargets A; @%p1 brx.idx %r1, T; A: mov.u32 %r1, 0;"))
    assert guarded.blocks[0].successors == (1, 1)


@pytest.mark.parametrize(
    "items",
    [
        (),
        (Label("A"),),
        (Instruction("bar", ("sync",), ()),),
        (Instruction("mov", ("u32",), ()), Label("A")),
        (Instruction("bra", (), (Symbol("A"),)), Label("A")),
    ],
)
def test_a_fall_off_the_end_returns(items: tuple[Instruction | Label | BranchTargets, ...]) -> None:
    graph = build_graph(Function("f", True, body=items))
    assert graph.instructions[-1].opcode == "ret"
    assert graph.blocks[-1].successors == ()
    assert all(index < len(graph.blocks) for block in graph.blocks for index in block.successors)
    assert all(index < len(graph.blocks) for index in graph.labels.values())


def test_a_branch_to_nowhere_is_refused() -> None:
    for operands in ((Symbol("A"),), ()):
        with pytest.raises(TilewrightError, match="label"):
            build_graph(Function("f", True, body=(Instruction("bra", (), operands),)))


def liveness_by_definition(graph: Graph) -> list[set[str]]:
    """Live at a block's start: some path from there reads the register before any write. One register at a time."""
    names = {name for i in graph.instructions for part in defs_uses(i) for name in part}
    live: list[set[str]] = [set() for _ in graph.blocks]
    for name in names:
        reads, writes = [], []
        for block in graph.blocks:
            first = None
            for instruction in block.instructions:
                defs, uses = defs_uses(instruction)
                if name in uses or name in defs:
                    first = "read" if name in uses else "write"
                    break
            reads.append(first == "read")
            writes.append(first == "write")
        for start in range(len(graph.blocks)):
            seen, stack = set(), [start]
            while stack:
                index = stack.pop()
                if index in seen:
                    continue
                seen.add(index)
                if reads[index]:
                    live[start].add(name)
                    break
                if not writes[index]:
                    stack.extend(graph.blocks[index].successors)
    return live


def random_body(rng: random.Random) -> str:
    lines = []
    for index in range(rng.randint(3, 14)):
        lines.append(f"L{index}:")
        for _ in range(rng.randint(0, 3)):
            guard = rng.choice(["", "", "@%p1 "])
            lines.append(f"{guard}add.s32 %r{rng.randrange(6)}, %r{rng.randrange(6)}, %r{rng.randrange(6)};")
        lines.append(rng.choice(["", "bar.sync 0;", "@%p2 bra L0;", "bra L1;", "@%p1 bra L2;", "@%p1 ret;", "exit;"]))
    return "\n".join(lines)


def test_liveness_is_what_the_definition_says() -> None:
    rng = random.Random(7)
    for _ in range(150):
        graph = build_graph(parsed(random_body(rng)))
        expected = liveness_by_definition(graph)
        assert [set(block.live_in) for block in graph.blocks] == expected
        for block in graph.blocks:
            assert block.live_out == set().union(*(expected[index] for index in block.successors))


@needs_nvrtc
@pytest.mark.parametrize("name", ["igemm_wmma", "hgemm_mma"])
def test_no_register_of_an_example_lives_at_its_start(name: str) -> None:
    for function in module_of(name).functions.values():
        graph = build_graph(function)
        assert graph.blocks[0].live_in == frozenset()
        assert liveness_by_definition(graph) == [set(block.live_in) for block in graph.blocks]


def test_a_big_kernel_takes_linear_time() -> None:
    lines = []
    for index in range(2_000):
        lines.append(f"L{index}:")
        lines += [f"add.s32 %r{index * 4 + k}, %r{max(index * 4 - k * 9, 0)}, %r{k};" for k in range(8)]
        lines.append(f"setp.lt.s32 %p1, %r{index}, %r{index + 1};\n@%p1 bra L{index // 16 * 16};")
    function = parsed("\n".join(lines), registers=".reg .b32 %r<9000>; .reg .pred %p<3>;")
    begin = time.perf_counter()
    graph = build_graph(function)
    assert len(graph.instructions) == 20_001
    # About a fifth of a second where the core is free.
    assert time.perf_counter() - begin < 4
