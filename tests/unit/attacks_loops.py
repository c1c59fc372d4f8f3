"""The K-loop, and what stands in front of it."""

from __future__ import annotations

from collections.abc import Iterator

from attack_base import (
    BEFORE,
    FIRST_BARRIER,
    HEAD,
    INNER,
    LOAD_A,
    LOAD_B,
    LOOP,
    MATH,
    SECOND_BARRIER,
    STORE,
    Attack,
    refuse,
    scalar,
)


def k_loops() -> Iterator[Attack]:
    """Forms of the K-loop, its header and its barriers."""
    yield scalar("as it is")
    yield scalar(
        "tile counter", (LOOP, "    for (int t = 0; t < (K + TILE - 1) / TILE; t++) {\n        int k0 = t * TILE;\n")
    )
    yield scalar("bound first", ("k0 < K; k0 += TILE", "K > k0; k0 += TILE"))
    yield scalar("k = k + step", ("k0 += TILE", "k0 = k0 + TILE"))
    yield scalar("unsigned counter", ("int k0 = 0;", "unsigned k0 = 0;"))
    yield scalar("long counter", ("int k0 = 0;", "long long k0 = 0;"))
    yield scalar("a first that is not zero", ("int k0 = 0;", "int k0 = TILE;"))
    yield scalar("a first from a parameter", ("int k0 = 0;", "int k0 = K % TILE ? TILE : 0;"))
    yield scalar("steps of two tiles", ("k0 += TILE", "k0 += 2 * TILE"))
    yield scalar("a step from a parameter", ("k0 += TILE", "k0 += blockDim.x"))
    yield scalar("pragma", (LOOP, "    #pragma unroll 2\n" + LOOP))
    yield scalar("pragma behind a comment", (LOOP, "    #pragma unroll 1\n    // over the tiles\n\n" + LOOP))
    yield scalar("_Pragma", (LOOP, '    _Pragma("unroll 1")\n' + LOOP))
    yield scalar("_Pragma on the line", (LOOP, '    _Pragma("unroll 1") ' + LOOP.lstrip()))
    yield scalar("code on the loop's line", (LOOP, "    sum = 1.0f; " + LOOP.lstrip()))
    yield scalar("brace on its own line", (LOOP, LOOP.replace(" {\n", "\n    {  // tiles\n")))
    yield scalar("comment at the brace", (LOOP, LOOP.replace(" {\n", " {  // over the tiles\n")))
    yield scalar("code behind the brace", (LOOP + LOAD_A, LOOP[:-1] + " " + LOAD_A.lstrip()))
    yield scalar("code behind the loop", ("    }\n\n    if (row", "    } sum += 1.0f;\n\n    if (row"))
    yield scalar("k <= last", ("k0 < K;", "k0 <= K - 1;"), **refuse("not_understood", "k0 <= K"))
    yield scalar("k != bound", ("k0 < K;", "k0 != (K + TILE - 1) / TILE * TILE;"), **refuse("not_understood", "k0 !="))
    yield scalar(
        "downwards",
        ("int k0 = 0; k0 < K; k0 += TILE", "int k0 = (K - 1) / TILE * TILE; k0 >= 0; k0 -= TILE"),
        **refuse("not_understood", "k0 -= TILE"),
    )
    yield scalar("negative step", ("k0 += TILE", "k0 += -TILE"), **refuse("not_understood", "k0 += -TILE", False))
    yield scalar("second condition", ("k0 < K;", "k0 < K && sum < 1e30f;"), **refuse("not_understood", "1e30f"))
    yield scalar(
        "while",
        (LOOP, "    int k0 = 0;\n    while (k0 < K) {\n"),
        ("        }\n        __syncthreads();\n", "        }\n        __syncthreads();\n        k0 += TILE;\n"),
        **refuse("not_understood", "while (k0"),
    )
    yield scalar(
        "no variable of its own",
        (LOOP, "    int k0;\n    for (k0 = 0; k0 < K; k0 += TILE) {\n"),
        **refuse("not_understood", "for (k0 = 0"),
    )
    yield scalar(
        "two variables",
        ("int k0 = 0; k0 < K; k0 += TILE", "int k0 = 0, t = 0; k0 < K; k0 += TILE, ++t"),
        **refuse("not_understood", "++t"),
    )
    yield scalar(
        "variable changed", (INNER, "        if (K < 0) k0 += 1;\n" + INNER), **refuse("not_understood", "for (int k0")
    )
    yield scalar(
        "variable changed by reference",
        (INNER, "        int &again = k0;\n        again += 0;\n" + INNER),
        **refuse("not_understood", "for (int k0"),
    )
    yield scalar(
        "variable changed by pointer",
        (INNER, "        int *again = &k0;\n        *again += 0;\n" + INNER),
        **refuse("not_understood", "for (int k0"),
    )
    yield scalar(
        "bound changed",
        (INNER, "        if (sum > 1e30f) K = k0;\n" + INNER),
        **refuse("divergent_barrier", "for (int k0"),
    )
    yield scalar(
        "start changed",
        (LOOP, "    int start = 0;\n    for (int k0 = start; k0 < K; k0 += TILE) {\n"),
        (INNER, "        start = k0;\n" + INNER),
        **refuse("not_understood", "for (int k0"),
    )
    yield scalar(
        "bound read from memory", ("k0 < K;", "k0 < int(A[0] * 0.0f) + K;"), **refuse("not_understood", "for (int k0")
    )
    yield scalar("short counter", ("int k0 = 0;", "short k0 = 0;"), **refuse("not_understood", "short k0"))
    yield scalar(
        "bound of the thread",
        ("k0 < K;", "k0 < K + int(threadIdx.x) * 0;"),
        **refuse("divergent_barrier", "for (int k0"),
    )
    yield scalar(
        "first of the thread", ("int k0 = 0;", "int k0 = tx & 0;"), **refuse("divergent_barrier", "for (int k0")
    )
    yield scalar(
        "bound that differs",
        (BEFORE, BEFORE + "    int n = K;\n    if (ty > 99) n = 0;\n"),
        ("k0 < K;", "k0 < n;"),
        **refuse("divergent_barrier", "for (int k0"),
    )
    yield scalar(
        "bound changed for all", (BEFORE, BEFORE + "    int n = K;\n    if (K > 32) n = 32;\n"), ("k0 < K;", "k0 < n;")
    )
    yield scalar("one barrier", (SECOND_BARRIER, "        }\n    }\n"), **refuse("baseline_race", "__syncthreads"))
    yield scalar(
        "one barrier, a ring",
        (SECOND_BARRIER, "        }\n    }\n"),
        ("As[TILE][TILE]", "As[2][TILE][TILE]"),
        ("Bs[TILE][TILE]", "Bs[2][TILE][TILE]"),
        ("        As[ty]", "        int b = k0 / TILE & 1;\n        As[b][ty]"),
        ("        Bs[ty]", "        Bs[b][ty]"),
        ("As[ty][k] * Bs", "As[b][ty][k] * Bs[b]"),
        **refuse("already_pipelined", "__syncthreads"),
    )
    yield scalar(
        "three barriers",
        (INNER, "        if (K > 0) sum += 0.0f;\n        __syncthreads();\n" + INNER),
    )
    yield scalar(
        "begins with the barrier", (LOOP, LOOP + "        __syncthreads();\n"), (SECOND_BARRIER, "        }\n    }\n")
    )
    yield scalar(
        "begins with the barrier, with remarks",
        (
            LOOP,
            LOOP.replace(
                "{\n", "{  // tiles\n        // all are done\n        __syncthreads();  // wait\n        // load\n"
            ),
        ),
        (SECOND_BARRIER, "        }  // sums\n        // over\n    }\n"),
    )
    yield scalar(
        "begins with the barrier that pays for an earlier use",
        (BEFORE, BEFORE + "    As[ty][tx] = tx;\n    __syncthreads();\n    sum = As[tx][ty];\n"),
        (LOOP, LOOP + "        __syncthreads();\n"),
        (SECOND_BARRIER, "        }\n    }\n"),
    )
    yield scalar(
        "statements behind the barrier",
        (SECOND_BARRIER, "        }\n        __syncthreads();\n        sum += 0.5f;\n    }\n"),
        **refuse("not_understood", "0.5f"),
    )
    yield scalar(
        "barrier in a branch",
        (FIRST_BARRIER, "        if (K > 0) __syncthreads();\n\n        for"),
        **refuse("not_understood", "if (K > 0)"),
    )
    yield scalar(
        "barrier in a macro",
        (FIRST_BARRIER, "        SYNC();\n\n        for"),
        (HEAD, "#define SYNC() __syncthreads()\n" + HEAD),
        **refuse("not_understood", "        SYNC();"),
    )
    yield scalar(
        "barrier in a function",
        (FIRST_BARRIER, "        wait_all();\n\n        for"),
        (HEAD, "__device__ void wait_all() { __syncthreads(); }\n" + HEAD),
        **refuse("not_understood", "        wait_all"),
    )
    yield scalar(
        "counting barrier",
        (FIRST_BARRIER, "        __syncthreads_count(1);\n\n        for"),
        **refuse("not_understood", "_count"),
    )
    yield scalar(
        "barrier in PTX",
        (INNER, '        asm volatile("bar.sync 1, 256;");\n' + INNER),
        **refuse("not_understood", "bar.sync"),
    )
    yield scalar(
        "two K-loops",
        (
            "    if (row < M && col < N) {",
            LOOP
            + LOAD_A
            + LOAD_B
            + FIRST_BARRIER[:-3]
            + INNER
            + MATH
            + SECOND_BARRIER
            + "    if (row < M && col < N) {",
        ),
        **refuse("not_understood", ""),
    )
    yield scalar(
        "persistent",
        (LOOP, "    for (int again = 0; again < 2; ++again) {\n" + LOOP),
        (SECOND_BARRIER, SECOND_BARRIER + "    }\n"),
    )
    yield scalar(
        "in a branch",
        (LOOP, "    if (K > 0) {\n" + LOOP),
        (SECOND_BARRIER, SECOND_BARRIER + "    }\n"),
    )
    yield scalar("no loop", (LOOP, "    { int k0 = 0;\n"), **refuse("no_k_loop", HEAD))
    yield scalar(
        "no shared memory",
        (LOOP, "    for (int k0 = 0; k0 < 0; k0 += TILE) {\n"),
        ("__shared__ float", "float"),
        **refuse("no_k_loop", HEAD),
    )
    yield scalar("loop inside #if", (LOOP, "#if TILE > 8\n" + LOOP + "#endif\n"), **refuse("not_understood", ""))
    yield scalar(
        "#if in the load phase",
        (LOAD_B, "#if TILE > 8\n" + LOAD_B + "#endif\n"),
        **refuse("not_understood", "#if TILE"),
    )
    yield scalar(
        "#if in the compute phase", (MATH, "#if TILE > 8\n" + MATH + "#endif\n"), **refuse("not_understood", "#if TILE")
    )
    yield scalar(
        "pointer advanced in the header", ("k0 += TILE)", "k0 += TILE, A += 0)"), **refuse("not_understood", "A += 0")
    )
    yield scalar("unsigned bound", (BEFORE, BEFORE + "    unsigned depth = K;\n"), ("k0 < K;", "k0 < depth;"))


def early_returns() -> Iterator[Attack]:
    """What stands in front of the K-loop."""
    yield scalar("uniform return", (BEFORE, BEFORE + "    if (blockIdx.y * TILE >= M) return;\n"))
    yield scalar(
        "divergent return",
        (BEFORE, BEFORE + "    if (row >= M + 99) return;\n"),
    )
    yield scalar(
        "return in a divergent loop",
        (BEFORE, BEFORE + "    for (int i = 99; i < tx; ++i) return;\n"),
        **refuse("divergent_barrier", "return;"),
    )
    yield scalar(
        "return in a switch",
        (BEFORE, BEFORE + "    switch (tx) { case 99: return; }\n"),
        **refuse("not_understood", "switch"),
    )
    yield scalar(
        "return in #if",
        (BEFORE, BEFORE + "#if TILE == 16\n    if (row > M + 99) return;\n#endif\n"),
        **refuse("not_understood", "#if"),
    )
    yield scalar(
        "return in a macro",
        (BEFORE, BEFORE + "    LEAVE(row > M + 99)\n"),
        (HEAD, "#define LEAVE(x) if (x) return;\n" + HEAD),
        **refuse("not_understood", "    LEAVE("),
    )
    yield scalar(
        "exit in PTX",
        (BEFORE, BEFORE + '    if (tx > 99) asm volatile("exit;");\n'),
        **refuse("not_understood", "exit;"),
    )
    yield scalar(
        "goto",
        (BEFORE, BEFORE + "    if (tx > 99) goto done;\n"),
        (STORE, STORE + "        done:;\n"),
        **refuse("not_understood", "goto", False),
    )
