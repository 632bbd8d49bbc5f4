"""Intensity, roofs, occupancy, bank conflicts and GPU facts: pure functions, and the figures of the textbook.

The textbook is Kirk, Hwu and El Hajj, "Programming Massively Parallel Processors", 4th edition (2022), chapters 4 to 6,
whose examples reckon with an A100 of 1,555 GB/s and 19,500 GFLOP/s.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# First on the path: other distributions are known to install a top-level `benchmarks`.
sys.path.insert(0, str(ROOT))

from benchmarks import machine  # noqa: E402
from torch_pmpp import _conflicts, _devices, _intensity, _occupancy  # noqa: E402
from torch_pmpp._devices import CAPABILITIES, DEVICES  # noqa: E402

A100 = _devices.device_named("a100")
SM_80 = CAPABILITIES[80]


# ---- the textbook's figures


def test_naive_float32_product_does_a_quarter_of_an_operation_a_byte():
    """Section 5.1: 2 FLOP for 8 B."""
    assert _intensity.inner_intensity(1, 1, 4) == 0.25


@pytest.mark.parametrize(("width", "expected"), [(16, 4), (32, 8)])
def test_tiles_multiply_the_intensity_by_their_width(width, expected):
    """Section 5.4: each element of a tile is read once for `width` products."""
    assert _intensity.inner_intensity(width, width, 4) == expected


def test_roofs_of_the_a100():
    """Section 5.1 and 5.4: 389 GFLOP/s for the naive kernel (2 % of the peak), 6,220 with tiles of 16 x 16 (32 %)."""
    assert A100.memory_rate == 1555e9
    assert A100.peaks["float32"] == 19500e9
    naive = _intensity.attainable(0.25, A100.memory_rate, A100.peaks["float32"])
    tiled = _intensity.attainable(4, A100.memory_rate, A100.peaks["float32"])
    assert int(naive / 1e9 + 0.5) == 389
    assert round(tiled / 1e9) == 6220
    assert round(naive / A100.peaks["float32"], 2) == 0.02
    assert round(tiled / A100.peaks["float32"], 2) == 0.32


def test_whole_product_approaches_the_intensity_of_its_loop():
    """The textbook leaves out the result, which a long k makes small."""
    m = n = k = 4096
    for width, loop in ((1, 0.25), (16, 4), (32, 8)):
        traffic = _intensity.matmul_traffic(m, n, k, 4, _intensity.Tiling(width, width))
        assert traffic.loaded == 4 * (m * k * n + k * n * m) // width
        assert traffic.stored == 4 * m * n
        assert 0.99 * loop < _intensity.flops(m, n, k) / traffic.total < loop


def test_shared_memory_of_a_thread_for_full_occupancy():
    """Section 5.6: 164 KB for 2,048 threads are 82 B."""
    assert _occupancy.shared_per_thread(SM_80, 256, 32 * 1024).for_full_occupancy == 82


def test_block_with_32_kb_by_dividing_and_by_whole_blocks():
    """Section 5.6: 132 B a thread (32 KB, and the 1 KB that the system reserves) allow 1,272 threads, 62 %.

    A block comes whole or not at all: four of 33 KB fit in 164, 1,024 threads, 50 %.
    """
    found = _occupancy.shared_per_thread(SM_80, 256, 32 * 1024)
    assert found.bytes_per_thread == 132
    assert found.threads_by_dividing == 1272
    assert round(found.fraction_by_dividing, 2) == 0.62
    assert (found.blocks, found.threads_in_whole_blocks, found.fraction_in_whole_blocks) == (4, 1024, 0.5)
    launch = _occupancy.occupancy(SM_80, 256, dynamic_shared=32 * 1024)
    assert (launch.blocks, launch.fraction, launch.limiters) == (4, 0.5, ("shared memory",))


def test_tiles_of_16_are_not_limited_by_shared_memory():
    """Section 5.6: 8 B a thread, so that threads or registers are the limit."""
    shared = 2 * 16 * 16 * 4
    assert shared / 256 == 8
    found = _occupancy.occupancy(SM_80, 256, registers=32, static_shared=shared)
    assert found.fraction == 1
    assert found.limiters == ("registers", "threads")
    more = _occupancy.occupancy(SM_80, 256, registers=40, static_shared=shared)
    assert (more.blocks, more.limiters) == (6, ("registers",))


def test_registers_that_full_occupancy_allows():
    """Section 4.7: 65,536 registers for 2,048 threads are 32 each; with 31 or 32 all fit, with 33 they do not."""
    assert SM_80.registers // SM_80.max_threads == 32
    assert _occupancy.occupancy(SM_80, 512, registers=31).fraction == 1
    assert _occupancy.occupancy(SM_80, 512, registers=32).fraction == 1
    assert _occupancy.occupancy(SM_80, 512, registers=33).fraction == 0.75


def test_blocks_too_small_or_of_an_awkward_size():
    """Section 4.7: 32 threads a block leave a GPU of 32 blocks half empty; 768 threads fit twice, 75 %."""
    small = _occupancy.occupancy(SM_80, 32)
    assert (small.fraction, small.limiters) == (0.5, ("blocks",))
    awkward = _occupancy.occupancy(SM_80, 768)
    assert (awkward.threads, awkward.fraction, awkward.limiters) == (1536, 0.75, ("threads",))


# ---- intensity


def test_traffic_counts_splits_clusters_and_copies():
    tiling = _intensity.Tiling
    plain = _intensity.matmul_traffic(256, 512, 128, 2, tiling(128, 256))
    assert plain == _intensity.Traffic(2 * (256 * 128 * 2 + 128 * 512 * 2), 2 * 256 * 512)
    assert plain.total == plain.loaded + plain.stored
    shared = _intensity.matmul_traffic(256, 512, 128, 2, tiling(128, 256, shared_b=2))
    assert plain.loaded - shared.loaded == 2 * 128 * 512
    split = _intensity.matmul_traffic(256, 512, 128, 2, tiling(128, 256, splits=3))
    partial = 4 * 256 * 512 * 3
    assert (split.loaded - plain.loaded, split.stored - plain.stored) == (partial, partial)
    tail = _intensity.matmul_traffic(256, 512, 128, 2, tiling(128, 256, tail_sums=3 * 128 * 256))
    partial = 4 * 3 * 128 * 256
    assert (tail.loaded - plain.loaded, tail.stored - plain.stored) == (partial, partial)
    packed = _intensity.matmul_traffic(256, 512, 128, 2, tiling(128, 256, packed_a=True, packed_b=True))
    assert packed.total - plain.total == 2 * 2 * (256 * 128 + 128 * 512)


def test_traffic_counts_planes_and_sums_of_the_dtype():
    """float32 in planes: a pass reads 4 bytes an element and writes 6, which the blocks read; double sums take 8."""
    m, n, k = 256, 512, 128
    assert _intensity.bytes_in_planes("simt", "float32") == (0, 0)
    planes = _intensity.bytes_in_planes("emulated", "float32")
    found = _intensity.matmul_traffic(m, n, k, 4, _intensity.Tiling(128, 256, planes=planes))
    split = m * k + k * n
    assert found.loaded == 4 * split + 6 * (m * k * 2 + k * n * 2)
    assert found.stored == 6 * split + 4 * m * n
    pairs = _intensity.bytes_in_planes("emulated", "complex64")
    assert pairs == (12, 24)  # b stands there twice
    assert _intensity.inner_intensity(128, 64, 8, "complex64", pairs) == 8 * 128 * 64 / (12 * 128 + 24 * 64)
    for size in (1, 2, 4, 8, 16):
        whole, pieces = (
            _intensity.matmul_traffic(m, n, k, size, _intensity.Tiling(64, 64, splits=splits)) for splits in (1, 3)
        )
        assert pieces.stored - whole.stored == max(size, 4) * m * n * 3


def test_tiles_that_reach_over_the_edge_read_as_often_as_whole_ones():
    whole = _intensity.matmul_traffic(32, 33, 64, 4, _intensity.Tiling(16, 16))
    assert whole.loaded == 4 * (32 * 64 * 3 + 64 * 33 * 2)


def test_complex_products_count_real_operations():
    assert _intensity.flops(2, 3, 5, "complex64") == 4 * _intensity.flops(2, 3, 5)


def test_ridge_is_where_both_roofs_meet():
    at = _intensity.ridge(1555e9, 19.5e12)
    assert _intensity.attainable(at, 1555e9, 19.5e12) == pytest.approx(19.5e12)
    assert _intensity.attainable(at / 2, 1555e9, 19.5e12) == pytest.approx(9.75e12)
    assert _intensity.attainable(at * 2, 1555e9, 19.5e12) == 19.5e12
    assert _intensity.attainable(3, 2e12, None) == 6e12


@pytest.mark.parametrize(
    ("algorithm", "size", "width", "expected"),
    [
        ("naive", 4, 32, (4, 32, 4, 4)),
        ("naive", 1, 32, (1, 32, 1, 1)),
        ("padded", 4, 32, (4, 4, 4, 4)),
        ("padded16", 4, 16, (4, 4, 4, 4)),
        ("padded16", 1, 16, (2, 2, 1, 1)),
        ("vectorized", 2, 32, (16, 16, 16, 16)),
    ],
)
def test_sectors_of_a_transposes_accesses(algorithm, size, width, expected):
    found = _intensity.transpose_sectors(algorithm, 4096, 4096, size, width)
    assert (found.read, found.written, found.read_ideal, found.written_ideal) == expected


def test_lanes_outside_the_matrix_touch_nothing():
    """Three columns: a warp of naive has three active lanes, one of padded reads three and writes a run."""
    naive = _intensity.transpose_sectors("naive", 4096, 3, 4)
    assert (naive.read, naive.written, naive.read_ideal, naive.written_ideal) == (1, 3, 1, 1)
    padded = _intensity.transpose_sectors("padded", 4096, 3, 4)
    assert (padded.read, padded.written, padded.read_ideal, padded.written_ideal) == (1, 4, 1, 4)


def test_rows_off_a_sector_boundary_cost_one_more():
    assert _intensity.sectors([4 * lane for lane in range(32)], 4) == 4
    assert _intensity.sectors([4 * lane + 4 for lane in range(32)], 4) == 5


# ---- occupancy


def test_occupancy_names_what_does_not_fit():
    assert _occupancy.occupancy(SM_80, 1025).limiter == "a block has at most 1024 threads"
    assert _occupancy.occupancy(SM_80, 32, 256).limiter == "a thread has at most 255 registers"
    assert "at most 65536 registers, and this one needs 73728" in _occupancy.occupancy(SM_80, 1024, 65).limiter
    assert "at most 166912 bytes" in _occupancy.occupancy(SM_80, 32, dynamic_shared=163 * 1024 + 1).limiter
    for refused in (_occupancy.occupancy(SM_80, 1025), _occupancy.occupancy(SM_80, 32, 256)):
        assert (refused.blocks, refused.fraction, refused.limiters) == (0, 0.0, ())
    with pytest.raises(ValueError, match="at least 1 thread"):
        _occupancy.occupancy(SM_80, 0)
    with pytest.raises(ValueError, match="nothing negative"):
        _occupancy.occupancy(SM_80, 32, barriers=-1)
    assert _occupancy.occupancy(SM_80, 32, barriers=17).limiter == "a block has at most 16 barriers"


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "barriers", "blocks", "limiter"),
    [
        # As the driver of an H200 has it: the kernels whose barriers ptxas cannot tell apart have all 16 of a block.
        (90, 32, 168, 16, 4, "barriers"),
        (90, 64, 168, 16, 4, "barriers"),
        (90, 96, 168, 16, 4, "registers and barriers"),
        (90, 384, 168, 16, 1, "registers"),
        (90, 32, 32, 2, 32, "blocks and barriers"),
        (90, 32, 32, 3, 21, "barriers"),
        (90, 32, 32, 1, 32, "blocks"),
        # Barriers of a multiprocessor: twice its blocks, or as many as its blocks.
        (100, 32, 32, 16, 4, "barriers"),
        (110, 32, 32, 16, 1, "barriers"),
        (120, 32, 32, 16, 1, "barriers"),
        (120, 32, 32, 1, 24, "blocks and barriers"),
        (120, 32, 32, 0, 24, "blocks"),
        # Before 9.0 they are left out.
        (80, 32, 32, 16, 32, "blocks"),
        (89, 32, 32, 16, 24, "blocks"),
    ],
)
def test_occupancy_by_named_barriers(capability, threads, registers, barriers, blocks, limiter):
    found = _occupancy.occupancy(CAPABILITIES[capability], threads, registers, barriers=barriers)
    assert (found.blocks, found.limiter) == (blocks, limiter)
    assert (found.limits["barriers"] is None) == (capability < 90 or barriers == 0)


@pytest.mark.parametrize(("threads", "expected"), [(32, 255), (256, 255), (384, 168), (512, 128), (1024, 64)])
def test_registers_that_a_block_allows(threads, expected):
    """384 threads are those of wgmma, for which ptxas reports just these 168."""
    capability = CAPABILITIES[90]
    assert _occupancy.registers_allowed(capability, threads) == expected
    assert _occupancy.occupancy(capability, threads, expected).blocks >= 1
    assert _occupancy.occupancy(capability, threads, expected + 1).blocks == 0


def test_largest_block_of_shared_memory_fits_once():
    for capability in CAPABILITIES.values():
        found = _occupancy.occupancy(capability, 128, dynamic_shared=capability.shared_opt_in)
        assert (found.blocks, found.limiters) == (1, ("shared memory",)), capability.name


def test_waves_and_their_tail():
    found = _occupancy.waves(300, 2, 132)
    assert (found.slots, found.rounds, found.tail) == (264, 2, 36)
    assert found.waves == pytest.approx(300 / 264)
    assert found.efficiency == pytest.approx(300 / 528)
    exact = _occupancy.waves(528, 2, 132)
    assert (exact.rounds, exact.tail, exact.efficiency) == (2, 264, 1)
    assert _occupancy.waves(300, 0, 132) is None


CALCULATOR = r"""
#include <climits>
#include <cstdio>
#include <cuda_occupancy.h>
// Lines of: major minor threads_per_sm shared_per_sm opt_in reserved threads registers shared barriers.
int main() {
  int major, minor, most, sm, opt_in, reserved, threads, registers, shared, barriers;
  while (std::scanf("%d %d %d %d %d %d %d %d %d %d", &major, &minor, &most, &sm, &opt_in, &reserved, &threads,
                    &registers, &shared, &barriers) == 10) {
    cudaOccDeviceProp device;
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = most;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 * 1024;
    device.sharedMemPerMultiprocessor = sm;
    device.numSms = 1;
    device.sharedMemPerBlockOptin = opt_in;
    device.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = INT_MAX;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = 0;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = opt_in;
    kernel.numBlockBarriers = barriers;
    cudaOccDeviceState state;
    cudaOccResult result;
    const auto error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared);
    std::printf("%d\n", error == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -1);
  }
}
"""


def calculator_header() -> pathlib.Path | None:
    """cuda_occupancy.h of a CUDA 13 toolkit, or of the Python package of the runtime."""
    import sysconfig

    folders = [
        pathlib.Path("/usr/local/cuda/include"),
        pathlib.Path(sysconfig.get_path("purelib"), "nvidia/cu13/include"),
    ]
    for folder in folders:
        header = folder / "cuda_occupancy.h"
        # Versions before 13 do not know the capabilities from 11 on.
        if header.is_file() and "case 12:" in header.read_text(encoding="utf-8", errors="replace"):
            return header
    return None


@pytest.mark.skipif(calculator_header() is None, reason="cuda_occupancy.h of CUDA 13 is not installed")
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_occupancy_agrees_with_nvidias_own_calculator(tmp_path):
    """All capabilities, many launches."""
    (tmp_path / "calculator.cpp").write_text(CALCULATOR, encoding="utf-8")
    subprocess.run(
        ["c++", "-std=c++17", "-O1", "-w", "-I", calculator_header().parent, "calculator.cpp", "-o", "calculator"],
        cwd=tmp_path,
        check=True,
        timeout=120,
    )
    launches = []
    for capability in CAPABILITIES.values():
        for threads in (1, 31, 32, 64, 96, 128, 160, 192, 256, 384, 512, 544, 768, 992, 1024):
            for registers in (0, 1, 16, 24, 32, 33, 40, 48, 63, 64, 65, 72, 96, 127, 128, 168, 200, 255):
                for shared in (0, 1, 1023, 2048, 8448, 16384, 33000, 48 * 1024, capability.shared_opt_in):
                    for barriers in (0, 1, 3, 16):
                        launches.append((capability, threads, registers, shared, barriers))
    lines = "\n".join(
        f"{c.number // 10} {c.number % 10} {c.max_threads} {c.shared_bytes} {c.shared_opt_in} {c.shared_reserved} "
        f"{threads} {registers} {shared} {barriers}"
        for c, threads, registers, shared, barriers in launches
    )
    done = subprocess.run(
        [tmp_path / "calculator"], input=lines, capture_output=True, text=True, check=True, timeout=120
    )
    answers = [int(line) for line in done.stdout.split()]
    assert len(answers) == len(launches)
    for (capability, threads, registers, shared, barriers), answer in zip(launches, answers, strict=True):
        ours = _occupancy.occupancy(capability, threads, registers, dynamic_shared=shared, barriers=barriers)
        assert ours.blocks == answer, (capability.name, threads, registers, shared, barriers, ours)


# ---- bank conflicts


def test_neighbours_and_broadcasts_take_one_turn():
    assert _conflicts.simulate([4 * lane for lane in range(32)], 4).wavefronts == 1
    assert _conflicts.simulate([64] * 32, 4).wavefronts == 1
    assert _conflicts.simulate([2 * lane for lane in range(32)], 2).wavefronts == 1
    assert _conflicts.simulate([None] * 32, 4).wavefronts == 0


@pytest.mark.parametrize("stride", range(1, 65))
def test_stride_of_s_words_takes_the_common_divisor_of_s_and_32(stride):
    from math import gcd

    assert _conflicts.simulate([4 * stride * lane for lane in range(32)], 4).wavefronts == gcd(stride, 32)


def test_wide_accesses_are_served_in_halves_and_quarters():
    assert _conflicts.simulate([8 * lane for lane in range(32)], 8).wavefronts == 2
    assert _conflicts.simulate([16 * lane for lane in range(32)], 16).wavefronts == 4
    column = _conflicts.simulate([128 * lane for lane in range(32)], 16)
    assert (column.wavefronts, column.ideal, column.conflicts) == (32, 4, 28)


def test_simulate_refuses_what_no_warp_does():
    with pytest.raises(ValueError, match="1, 2, 4, 8 or 16 bytes, but got 3"):
        _conflicts.simulate([0], 3)
    with pytest.raises(ValueError, match="a warp has 32 lanes, but got 33"):
        _conflicts.simulate([0] * 33, 4)
    with pytest.raises(ValueError, match="address 2 of lane 0 is no multiple of 4"):
        _conflicts.simulate([2], 4)


def test_every_lane_is_served_once_for_each_word():
    for pattern in (_conflicts.algorithm_pattern(name, 4) for name in ("shared", "padded", "padded16", "vectorized")):
        words = max(1, pattern.size // 4)
        for addresses in (*pattern.store, *pattern.load):
            request = _conflicts.simulate(addresses, pattern.size)
            served = sorted(lane for banks in request.turns for lanes in banks for lane in lanes)
            assert served == sorted(lane for lane in range(32) for _ in range(words))


@pytest.mark.parametrize(
    ("algorithm", "store", "load"), [("shared", 1, 32), ("padded", 1, 1), ("padded16", 2, 2), ("vectorized", 4, 4)]
)
def test_turns_of_the_transposes_in_float32(algorithm, store, load):
    """What Nsight Compute counts on an H200: 15.6, 0.03, 1.06 and 0.02 conflicts a turn, stores and loads together."""
    pattern = _conflicts.algorithm_pattern(algorithm, 4)
    assert _conflicts.summary(pattern.store, pattern.size).per_request == store
    assert _conflicts.summary(pattern.load, pattern.size).per_request == load


def test_conflicts_for_each_needed_turn():
    found = {
        name: _conflicts.conflicts_per_turn(_conflicts.algorithm_pattern(name, 4)) for name in ("shared", "padded")
    }
    assert found == {"shared": 15.5, "padded": 0}
    assert _conflicts.conflicts_per_turn(_conflicts.algorithm_pattern("padded16", 4)) == 1


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("level", [0, 1])
def test_swizzled_chunks_never_conflict(size, level):
    assert _conflicts.conflicts_per_turn(_conflicts.algorithm_pattern("vectorized", size, level)) == 0


def test_swizzled_tile_needs_no_padding():
    assert _conflicts.conflicts_per_turn(_conflicts.tile_pattern(32, 0, 4, swizzle=True)) == 0
    with pytest.raises(ValueError, match="no padding and a power of two"):
        _conflicts.tile_pattern(32, 1, 4, swizzle=True)


def test_patterns_cover_their_tile_once():
    for algorithm in ("shared", "padded", "padded16"):
        width, padding = _conflicts.TILE_ALGORITHMS[algorithm]
        pattern = _conflicts.algorithm_pattern(algorithm, 4)
        assert pattern.shared_bytes == 4 * width * (width + padding)
    for size in (1, 2, 4, 8, 16):
        pattern = _conflicts.algorithm_pattern("vectorized", size)
        every = {address for warp in pattern.store for address in warp}
        assert every == set(range(0, pattern.shared_bytes, 16))
        assert every == {address for warp in pattern.load for address in warp}


def test_patterns_are_those_of_the_kernels():
    """The tiles here are numbers of a header, which this compares; nothing else ties them to it."""
    text = (ROOT / "csrc/padded_transpose/config.hpp").read_text(encoding="utf-8")
    number = {name: int(value) for name, value in re.findall(r"inline constexpr int (k\w+) = (\d+);", text)}
    assert {
        "shared": (number["kTile"], 0),
        "padded": (number["kTile"], number["kPadding"]),
        "padded16": (number["kSmallTile"], number["kPadding"]),
    } == _conflicts.TILE_ALGORITHMS
    assert number["kTileRows"] == _conflicts.TILE_ROWS
    body = re.search(r"aligned_tile\(int element_size, int level\) \{(.*?)\n\}", text, re.DOTALL)[1]
    shapes = [tuple(map(int, shape)) for shape in re.findall(r"TileShape\{(\d+), (\d+), (\d+)\}", body)]
    assert shapes == [_conflicts.aligned_tile(size, level) for size in (16, 4) for level in (0, 1)]


def test_text_grid_has_a_line_for_each_turn():
    pattern = _conflicts.algorithm_pattern("shared", 4)
    lines = _conflicts.text_grid(_conflicts.simulate(pattern.load[0], 4)).splitlines()
    assert len(lines) == 1 + 32
    assert lines[0].split() == ["bank", *map(str, range(32))]
    assert lines[5].split()[:2] == ["4", "4"]
    assert set(lines[5].split()[2:]) == {"."}


def test_svg_grid_is_well_formed_and_shows_the_lanes():
    import xml.etree.ElementTree as ElementTree

    request = _conflicts.simulate([128 * lane for lane in range(32)], 4)
    root = ElementTree.fromstring(_conflicts.svg_grid([("load <x>", request)], most_turns=8))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "load <x>" in texts
    assert "... and 24 more turns" in texts
    assert sum(element.get("fill") == "#1f4e79" for element in root.iter("{http://www.w3.org/2000/svg}rect")) == 8


# ---- GPU facts


def test_every_gpu_has_facts_and_sources():
    assert {"h200", "h100", "a100", "l4", "rtx4090"} <= {device.name for device in DEVICES}
    assert len({device.name for device in DEVICES}) == len(DEVICES)
    for device in DEVICES:
        assert re.search(r"\((?:whitepaper, )?20\d\d\)", device.source), device.name
        assert (device.l2_bytes_per_clock is None) == (not device.l2_source), device.name
        assert device.peaks["float16"] >= device.peaks["float32"] >= device.peaks["float64"] / 1.0001, device.name


def test_float32_peaks_follow_from_lanes_and_clock():
    """64 lanes a multiprocessor up to 8.0, 128 from then on, two operations a clock: within 4 % of the datasheet."""
    for device in DEVICES:
        lanes = 64 if device.capability.number <= 80 else 128
        assert device.peaks["float32"] == pytest.approx(2 * lanes * device.sm_count * device.clock, rel=0.04), (
            device.name
        )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla T4", "t4"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", None),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", None),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GH200 480GB", None),
    ],
)
def test_names_of_the_driver(name, expected):
    found = _devices.device_called(name)
    assert (found and found.name) == expected


def test_names_of_users():
    assert _devices.device_named("H200").title == "NVIDIA H200 SXM"
    with pytest.raises(ValueError, match=r"unknown GPU 'h300'; expected one of h200, "):
        _devices.device_named("h300")
    assert _devices.capability_named("9.0") is _devices.capability_named("90") is CAPABILITIES[90]
    assert _devices.capability_named("12.0") is CAPABILITIES[120]
    for wrong in ("9.1", "x", "", "1.20", "-9.0"):
        with pytest.raises(ValueError, match=r"expected one of 7\.0, "):
            _devices.capability_named(wrong)


def test_peaks_are_those_of_the_benchmark():
    h200 = _devices.device_named("h200")
    for dtype, precision in (("bfloat16", None), ("float32", "tf32"), ("float32", "ieee"), ("complex128", None)):
        assert _devices.peak_flops(h200, dtype, precision) == machine.peak_flops("NVIDIA H200", dtype, precision)
    assert _devices.peak_flops(h200, "int64") is None
    assert _devices.peak_flops(_devices.device_named("v100"), "bfloat16") is None


def test_facts_of_the_h200_are_those_that_selection_is_tested_with():
    text = (ROOT / "csrc/common/device_facts.hpp").read_text(encoding="utf-8")
    body = re.search(r"h200_facts\(\) \{(.*?)\n\}", text, re.DOTALL)[1]
    fields = {name: eval(value) for name, value in re.findall(r"facts\.(\w+) = ([\d *]+);", body)}
    assert fields == _devices.device_named("h200").selection_facts()
