"""`apply`: the file is changed only where it is safe, and then whole."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.errors import EXIT_REFUSED, TilewrightError
from tilewright.receipt.evidence import Resources
from tilewright.receipt.record import Choice, Kernel, Launch, Receipt, Tool, Variant, to_json
from tilewright.workflow.applying import apply

KERNEL = "__global__ void k(float* a) {\n    a[0] = 1;  // kept\n}\n"
TEMPLATE = "template <int B>\n__global__ void k(float* a) {\n    a[0] = B;\n}\n"
ASKS = "cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);"
LAUNCH = "void run(float* a) {\n    k<<<1, 32>>>(a);\n}\n"


def receipt_for(path: Path, text: str, launch: Launch, smem_bytes: int = 0, **changes: object) -> Path:
    path.write_text(text, newline="")
    variant = Variant(
        "cp_async", 2, "accepted", source=text.replace("a[0] = ", "a[0] = 2 * "), launch=launch,
        resources=Resources(smem_bytes=smem_bytes),
    )  # fmt: skip
    kernel = Kernel(str(path), "k", 1, hashlib.sha256(text.encode()).hexdigest())
    receipt = Receipt(
        tool=Tool("0"), kernel=kernel, arch="sm_86", variants=(variant,), choice=Choice("cp_async", 2, "x")
    )
    file = path.with_name("receipt.json")
    file.write_text(to_json(replace(receipt, **changes)))  # type: ignore[arg-type]
    return file


def refused(file: Path, **options: object) -> str:
    with pytest.raises(TilewrightError) as caught:
        apply(file, **options)  # type: ignore[arg-type]
    assert caught.value.exit_code == EXIT_REFUSED
    return caught.value.code


def test_a_kernel_alone(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    file = receipt_for(path, KERNEL, Launch())
    dry = apply(file, dry_run=True)
    assert path.read_text() == KERNEL
    done = apply(file)
    assert path.read_text() == KERNEL.replace("= 1", "= 2 * 1")
    assert dry.diff == done.diff
    assert "-    a[0] = 1;  // kept\n+    a[0] = 2 * 1;  // kept\n" in done.diff
    assert sorted(p.name for p in tmp_path.iterdir()) == ["k.cu", "receipt.json"]


def test_bytes_are_added_to_the_launch(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    apply(receipt_for(path, KERNEL + LAUNCH, Launch(changed_bytes=4096), 4096))
    assert "    k<<<1, 32, 4096>>>(a);\n" in path.read_text()
    assert "cudaFuncSetAttribute" not in path.read_text()


@pytest.mark.parametrize(
    ("launch", "want"),
    [
        (
            "    k<<<1, 32, 16, s>>>(a);\n",
            f"    {ASKS}\n    k<<<1, 32, 65536, s>>>(a);\n",
        ),
        (
            "    if (a)\n        k<<<1, 32>>>(a);\n",
            f"        {{ {ASKS} k<<<1, 32, 65536>>>(a); }}\n",
        ),
        (
            f"    {ASKS.replace('65536', '16')}\n    k<<<1, 32, 16>>>(a);\n",
            f"    {ASKS}\n    k<<<1, 32, 65536>>>(a);\n",
        ),
    ],
)
def test_above_48_kib_the_launch_asks_for_leave(tmp_path: Path, launch: str, want: str) -> None:
    path = tmp_path / "k.cu"
    text = KERNEL + LAUNCH.replace("    k<<<1, 32>>>(a);\n", launch)
    apply(receipt_for(path, text, Launch(changed_bytes=65536), 65536))
    assert want in path.read_text()
    assert path.read_text().count("cudaFuncSetAttribute") == 1


def test_the_template_arguments_stay(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    text = TEMPLATE + "void run(float* a) {\n    const int T = 8;\n    k<T><<<1, 32>>>(a);\n}\n"
    file = receipt_for(path, text, Launch(changed_bytes=65536), 65536)
    kernel = Kernel(str(path), "k", 1, hashlib.sha256(text.encode()).hexdigest(), ("8",))
    file = receipt_for(path, text, Launch(changed_bytes=65536), 65536, kernel=kernel)
    apply(file)
    assert "cudaFuncSetAttribute(k<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);" in path.read_text()
    other = replace(kernel, template=("16",))
    assert refused(receipt_for(path, text, Launch(), kernel=other)) == "apply/other_instantiation"


@pytest.mark.parametrize(
    ("text", "launch", "code"),
    [
        (KERNEL, Launch(changed_bytes=4096), "apply/no_launch_site"),
        (KERNEL + LAUNCH, Launch(extra_args=("const CUtensorMap m",)), "apply/extra_arguments"),
        (KERNEL + "#define GO k<<<1, 32>>>(a)\n", Launch(changed_bytes=4096), "apply/launch_in_macro"),
        (KERNEL, Launch(changed_constants={"BM": 64}, changes_grid=True), "apply/no_launch_site"),
        (KERNEL + LAUNCH, Launch(changed_constants={"BM": 64}, changes_grid=True), "apply/launch_unclear"),
        (KERNEL + LAUNCH.replace("k<<<", "x = k<<<"), Launch(changed_bytes=65536), "apply/launch_unclear"),
        (KERNEL + LAUNCH.replace("k<<<", "(void)k<<<"), Launch(changed_bytes=65536), "apply/launch_unclear"),
        (KERNEL + LAUNCH.replace("k<<<", "a ? f() : k<<<"), Launch(changed_bytes=65536), "apply/launch_unclear"),
    ],
)
def test_a_launch_that_cannot_be_brought_along(tmp_path: Path, text: str, launch: Launch, code: str) -> None:
    path = tmp_path / "k.cu"
    assert refused(receipt_for(path, text, launch, launch.changed_bytes or 0)) == code
    assert path.read_text() == text


OTHER_WAYS = (
    "    cudaLaunchKernel((const void*)k, dim3(1), dim3(32), args, 16, 0);\n",
    "    auto f = k;\n    f<<<1, 32>>>(a);\n",
    "    GO(k);\n",
    "    configure(&k);\n",
)


@pytest.mark.parametrize("other", OTHER_WAYS)
@pytest.mark.parametrize("launch", [Launch(changed_bytes=64), Launch(changed_constants={"B": 8}, changes_grid=True)])
def test_a_launch_by_other_means_would_stay_as_it_was(tmp_path: Path, other: str, launch: Launch) -> None:
    path = tmp_path / "k.cu"
    text = KERNEL + LAUNCH.replace("<<<1", "<<<n / B").replace("}\n", other + "}\n")
    assert refused(receipt_for(path, text, launch, 64)) == "apply/launch_out_of_sight"
    assert path.read_text() == text
    assert apply(receipt_for(path, text, Launch())).is_written  # nothing of the launch changes


def test_a_macro_that_pastes_the_name_may_launch_it(tmp_path: Path) -> None:
    text = "#define GO(name) name##_k<<<1, 32>>>(a)\n" + KERNEL + LAUNCH
    assert refused(receipt_for(tmp_path / "k.cu", text, Launch(changed_bytes=64), 64)) == "apply/launch_out_of_sight"


@pytest.mark.parametrize(
    "other",
    [
        "    cudaFuncGetAttributes(&info, k);\n",
        "    CHECK(cudaFuncSetCacheConfig((void*)k, cudaFuncCachePreferShared));\n",
        "    // k is launched above\n",
        "    x.k = 1;\n    y->k = 1;\n",
    ],
)
def test_naming_a_kernel_is_not_launching_it(tmp_path: Path, other: str) -> None:
    text = KERNEL + "template __global__ void k(float* a);\n" + LAUNCH.replace("}\n", other + "}\n")
    assert apply(receipt_for(tmp_path / "k.cu", text, Launch(changed_bytes=64), 64)).is_written


@pytest.mark.parametrize(
    ("in_front", "calls"),
    [
        (f"    {ASKS}\n", 1),
        (f"    CHECK({ASKS[:-1]});\n", 1),
        (f"    cudaError_t e = {ASKS}\n", 1),
        (f"    if (bytes > 48 * 1024) {ASKS}\n", 2),
        (f"    if (bytes > 48 * 1024) {{\n        {ASKS}\n    }}\n", 2),
        (f"    big && {ASKS}\n", 2),
        (f"#ifdef BIG\n    {ASKS}\n#endif\n", 2),
        (f"    static bool once = [] {{ {ASKS} return true; }}();\n", 2),
        (f"}}\nvoid init() {{\n    {ASKS}\n}}\nvoid other(float* a) {{\n", 2),
    ],
)
def test_leave_that_may_not_be_asked_for_is_asked_for_again(tmp_path: Path, in_front: str, calls: int) -> None:
    """A condition on the old bytes, or another function: the launch with more bytes would fail."""
    path = tmp_path / "k.cu"
    text = KERNEL + LAUNCH.replace("    k<<<", in_front.replace("65536", "bytes") + "    k<<<")
    apply(receipt_for(path, text, Launch(changed_bytes=65536), 65536))
    assert path.read_text().count(ASKS[:-1]) == calls
    assert ("    " + ASKS + "\n    k<<<" in path.read_text()) or calls == 1


def test_a_changed_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    file = receipt_for(path, KERNEL, Launch())
    path.write_text(KERNEL + "\n")
    assert refused(file) == "apply/changed"
    assert path.read_text() == KERNEL + "\n"


@pytest.mark.parametrize("status", ["built", "failed", "refused"])
def test_only_what_was_verified(tmp_path: Path, status: str) -> None:
    path = tmp_path / "k.cu"
    file = receipt_for(path, KERNEL, Launch(), variants=(Variant("cp_async", 2, status, source=KERNEL),))  # type: ignore[arg-type]
    assert refused(file) == "apply/not_accepted"
    assert refused(file, variant="cp_async2") == "apply/not_accepted"


def test_without_a_choice_the_variant_has_to_be_named(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    file = receipt_for(path, KERNEL, Launch(), choice=None)
    with pytest.raises(TilewrightError) as caught:
        apply(file)
    assert caught.value.code == "apply/which"
    assert "cp_async2" in caught.value.hint
    assert apply(file, variant="cp_async2").is_written


def test_byte_order_mark_line_ends_and_mode_stay(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    file = receipt_for(path, (KERNEL + LAUNCH).replace("\n", "\r\n"), Launch(changed_bytes=65536), 65536)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    path.chmod(0o640)
    apply(file)
    data = path.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    assert data.count(b"\n") == data.count(b"\r\n")
    assert path.stat().st_mode & 0o777 == 0o640


TWO = "void one(float* a) {{\n    {first}\n}}\nvoid two(float* a) {{\n    {second}\n}}\n"


@pytest.mark.parametrize(
    ("first", "second", "launch", "code"),
    [
        ("k<<<1, 32>>>(a);", "k<<<2, 32>>>(a);", Launch(), ""),
        ("k<<<1, 32>>>(a);", "k<<<1, dim3(32, 1)>>>(a);", Launch(), ""),
        ("k<<<1, 32>>>(a);", "const int t = 32;\n    k<<<1, t>>>(a);", Launch(), ""),
        ("k<<<1, 32>>>(a);", "k<<<1, 64>>>(a);", Launch(), "apply/other_launch"),
        ("dim3 b(32);\n    k<<<1, b>>>(a);", "dim3 b(32, 2);\n    k<<<1, b>>>(a);", Launch(), "apply/other_launch"),
        ("k<<<1, 32, 64>>>(a);", "k<<<1, 32, 64>>>(a);", Launch(changed_bytes=4096), ""),
        ("k<<<1, 32, 64>>>(a);", "k<<<1, 32, 128>>>(a);", Launch(changed_bytes=4096), "apply/other_launch"),
        ("k<<<1, 32, 64>>>(a);", "k<<<1, 32, 128>>>(a);", Launch(), ""),
    ],
)
def test_launches_of_one_file_are_alike(tmp_path: Path, first: str, second: str, launch: Launch, code: str) -> None:
    """What was verified with one block, or one size of dynamic memory, says nothing of another."""
    path = tmp_path / "k.cu"
    text = KERNEL + TWO.format(first=first, second=second)
    file = receipt_for(path, text, launch, launch.changed_bytes or 0)
    if code:
        assert refused(file) == code
        assert path.read_text() == text
    else:
        apply(file)
        assert path.read_text() != text


NAMESAKES = (
    "namespace a {\n__global__ void k(float* a) {\n    a[0] = 1;\n}\n}\n"
    "namespace b {\n__global__ void k(float* a) {\n    a[0] = 3;\n}\n"
    "void run(float* a) {\n    cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 16);\n"
    "    k<<<1, 64, 16>>>(a);\n}\n}\n"
    "void run(float* a) {\n    a::k<<<1, 32>>>(a);\n    b::k<<<1, 64, 16>>>(a);\n}\n"
)


def namesake_receipt(path: Path, text: str, line: int, launch: Launch) -> Path:
    kernel = Kernel(str(path), "k", line, hashlib.sha256(text.encode()).hexdigest())
    return receipt_for(path, text, launch, launch.changed_bytes or 0, kernel=kernel)


@pytest.mark.parametrize(
    ("line", "edits"),
    [
        (
            2,
            [
                (
                    "    a::k<<<1, 32>>>",
                    f"    {ASKS.replace('(k', '(a::k')}\n    a::k<<<1, 32, 65536>>>",
                ),
            ],
        ),
        (
            7,
            [
                ("Size, 16);\n    k<<<1, 64, 16>>>", "Size, 65536);\n    k<<<1, 64, 65536>>>"),
                ("    b::k<<<1, 64, 16>>>", f"    {ASKS.replace('(k', '(b::k')}\n    b::k<<<1, 64, 65536>>>"),
            ],
        ),
    ],
)
def test_a_namesake_keeps_its_launches(tmp_path: Path, line: int, edits: list[tuple[str, str]]) -> None:
    path = tmp_path / "k.cu"
    apply(namesake_receipt(path, NAMESAKES, line, Launch(changed_bytes=65536)))
    wanted = NAMESAKES.replace("a[0] = ", "a[0] = 2 * ")
    for old, new in edits:
        assert wanted.count(old) == 1
        wanted = wanted.replace(old, new)
    assert path.read_text() == wanted


@pytest.mark.parametrize(
    "host",
    [
        "using namespace a;\nvoid run(float* a) {\n    k<<<1, 32>>>(a);\n}\n",
        f"void run(float* a) {{\n    a::k<<<1, 32>>>(a);\n    {ASKS}\n}}\n",
    ],
)
def test_a_launch_that_may_be_a_namesakes_is_refused(tmp_path: Path, host: str) -> None:
    path = tmp_path / "k.cu"
    text = NAMESAKES.split("void run(float* a) {\n    a::k")[0] + host
    file = namesake_receipt(path, text, 2, Launch(changed_bytes=65536))
    with pytest.raises(TilewrightError, match="a::k or of b::k") as caught:
        apply(file)
    assert (caught.value.code, path.read_text()) == ("apply/launch_unclear", text)
    apply(namesake_receipt(path, text, 2, Launch()))  # the launch stays as it is, whichever it is of
