"""Facts of GPUs, each with its source, and the limits that come with a compute capability. Needs no torch.

Peaks are dense (figures that a datasheet states with sparsity are halved) and in FLOP/s, operations for int8; they and
the rates of caches are reckoned at the boost clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KIB = 1024


@dataclass(frozen=True)
class Capability:
    """What a multiprocessor of a compute capability holds, and in which units it gives it to blocks.

    Sources: CUDA Programming Guide 13.0, "Compute Capabilities" (threads, blocks, registers, shared memory), PTX ISA
    9.0, "bar" (barriers of a block), and cuda_occupancy.h of the CUDA toolkit 13.0 (granularities, sub-partitions, what
    the system reserves, barriers of a multiprocessor).
    """

    number: int  # 10 * major + minor
    max_threads: int  # resident on a multiprocessor
    max_blocks: int  # resident on a multiprocessor
    shared_bytes: int  # of a multiprocessor
    shared_opt_in: int  # most that a block gets, on request
    shared_unit: int  # a block's shared memory is rounded up to a multiple of this
    shared_reserved: int  # bytes of each block that the system takes
    barriers: int | None = None  # named ones that resident blocks share; None where they never keep a block out
    barriers_per_block: int = 16
    shared_per_block: int = 48 * KIB  # that a block gets without a request
    max_threads_per_block: int = 1024
    warp: int = 32
    registers: int = 64 * KIB  # of a multiprocessor, and at most of a block
    registers_per_thread: int = 255
    register_unit: int = 256  # a warp's registers are rounded up to a multiple of this
    partitions: int = 4  # of a multiprocessor, each with a quarter of the registers

    @property
    def name(self) -> str:
        """`9.0` of 90."""
        return f"{self.number // 10}.{self.number % 10}"


def _volta(number: int, threads: int, blocks: int, shared: int) -> Capability:
    return Capability(number, threads, blocks, shared * KIB, shared * KIB, shared_unit=256, shared_reserved=0)


def _ampere(number: int, threads: int, blocks: int, shared: int, barriers: int | None = None) -> Capability:
    opt_in = (shared - 1) * KIB  # 1 KiB of a block belongs to the system
    return Capability(
        number, threads, blocks, shared * KIB, opt_in, shared_unit=128, shared_reserved=KIB, barriers=barriers
    )


CAPABILITIES: Mapping[int, Capability] = {
    each.number: each
    for each in (
        _volta(70, 2048, 32, 96),
        _volta(72, 2048, 32, 96),
        _volta(75, 1024, 16, 64),
        _ampere(80, 2048, 32, 164),
        _ampere(86, 1536, 16, 100),
        _ampere(87, 1536, 16, 164),
        _ampere(88, 1536, 16, 100),
        _ampere(89, 1536, 24, 100),
        _ampere(90, 2048, 32, 228, 64),
        _ampere(100, 2048, 32, 228, 64),
        _ampere(103, 2048, 32, 228, 64),
        _ampere(110, 1536, 24, 228, 24),
        _ampere(120, 1536, 24, 100, 24),
        _ampere(121, 1536, 24, 100, 24),
    )
}


@dataclass(frozen=True)
class Device:
    """A GPU as its maker describes it."""

    name: str  # short, as the command line takes it
    title: str
    marks: tuple[str, ...]  # parts of the name that the driver gives it; all of one entry must be in it
    capability: Capability
    sm_count: int
    clock: float  # Hz, boost
    memory_rate: float  # bytes/s, read and written together
    memory_bytes: float
    l2_bytes: int
    peaks: Mapping[str, float]  # by dtype; tf32 is a precision of float32 products
    source: str
    l2_bytes_per_clock: int | None = None  # read by all multiprocessors together; None where it is not published
    l2_source: str = ""
    excluded: tuple[str, ...] = field(default=())  # words that tell a namesake apart

    @property
    def shared_rate(self) -> float:
        """Bytes/s of all shared memories: 32 banks of 4 bytes a clock in each multiprocessor."""
        return 128.0 * self.sm_count * self.clock

    @property
    def l2_rate(self) -> float | None:
        """Bytes/s that the second-level cache can give at most, or None."""
        return None if self.l2_bytes_per_clock is None else self.l2_bytes_per_clock * self.clock

    def selection_facts(self) -> dict[str, int]:
        """What the library's selection of a kernel asks of a device, as `torch.ops.pmpp._plan_on` takes it."""
        return {
            "compute_capability": self.capability.number,
            "sm_count": self.sm_count,
            "shared_memory_per_block": self.capability.shared_per_block,
            "shared_memory_opt_in": self.capability.shared_opt_in,
            "max_threads_per_block": self.capability.max_threads_per_block,
        }

    def matches(self, name: str) -> bool:
        """Whether the driver's name of a GPU is that of this one."""
        return all(mark in name for mark in self.marks) and not any(word in name for word in self.excluded)


def _peaks(half: float, tf32: float | None, single: float, double: float, int8: float | None) -> dict[str, float]:
    """Peaks given in TFLOP/s; bfloat16 runs at the rate of float16 wherever there is tf32."""
    found = {"float16": half, "float32": single, "float64": double}
    if tf32 is not None:
        found |= {"bfloat16": half, "tf32": tf32}
    if int8 is not None:
        found["int8"] = int8
    return {name: float(round(peak * 1e12)) for name, peak in found.items()}


_A100_PAPER = "NVIDIA A100 Tensor Core GPU Architecture (whitepaper, 2020)"
_HOPPER_L2 = (
    "two partitions of 40 slices with 64 B a clock each, as the A100 whitepaper describes them; NVIDIA states no "
    "figure for Hopper, and what programs reach is less"
)
_HOPPER = _peaks(989.4, 494.7, 66.9, 66.9, 1978.9)
_A100 = _peaks(312, 156, 19.5, 19.5, 624)
# 64 float32 lanes a multiprocessor, or 128, times two operations, times the clock, are the float32 figures.
DEVICES: tuple[Device, ...] = (
    Device(
        *("h200", "NVIDIA H200 SXM", ("H200",), CAPABILITIES[90], 132, 1.98e9, 4.8e12, 141e9, 50 * KIB**2, _HOPPER),
        source="NVIDIA H200 datasheet (2024); float32 and float64 from NVIDIA H100 Tensor Core GPU Architecture (2022)",
        l2_bytes_per_clock=5120,
        l2_source=_HOPPER_L2,
        excluded=("NVL", "GH200"),
    ),
    Device(
        *("h100", "NVIDIA H100 SXM", ("H100", "HBM3"), CAPABILITIES[90], 132, 1.98e9, 3.35e12, 80e9, 50 * KIB**2),
        _HOPPER,
        source="NVIDIA H100 datasheet (2023) and NVIDIA H100 Tensor Core GPU Architecture (2022)",
        l2_bytes_per_clock=5120,
        l2_source=_HOPPER_L2,
    ),
    Device(
        *("h100-pcie", "NVIDIA H100 PCIe", ("H100", "PCIe"), CAPABILITIES[90], 114, 1.755e9, 2.0e12, 80e9),
        *(50 * KIB**2, _peaks(756, 378, 51.2, 51.2, 1513)),
        source="NVIDIA H100 datasheet (2023) and NVIDIA H100 Tensor Core GPU Architecture (2022)",
        l2_bytes_per_clock=5120,
        l2_source=_HOPPER_L2,
    ),
    Device(
        *("a100", "NVIDIA A100 SXM 40 GB", ("A100", "40GB"), CAPABILITIES[80], 108, 1.41e9, 1.555e12, 40e9),
        *(40 * KIB**2, _A100),
        source=_A100_PAPER,
        l2_bytes_per_clock=5120,
        l2_source=_A100_PAPER,
    ),
    Device(
        *("a100-80gb", "NVIDIA A100 SXM 80 GB", ("A100", "80GB"), CAPABILITIES[80], 108, 1.41e9, 2.039e12, 80e9),
        *(40 * KIB**2, _A100),
        source="NVIDIA A100 datasheet (2021)",
        l2_bytes_per_clock=5120,
        l2_source=_A100_PAPER,
        excluded=("PCIe",),
    ),
    Device(
        *("v100", "NVIDIA V100 SXM2", ("V100", "SXM2"), CAPABILITIES[70], 80, 1.53e9, 0.9e12, 32e9, 6 * KIB**2),
        _peaks(125, None, 15.7, 7.8, None),
        source="NVIDIA Tesla V100 GPU Architecture (whitepaper, 2017)",
        l2_bytes_per_clock=2048,
        l2_source=_A100_PAPER,
    ),
    Device(
        *("t4", "NVIDIA T4", ("Tesla T4",), CAPABILITIES[75], 40, 1.59e9, 0.32e12, 16e9, 4 * KIB**2),
        _peaks(65, None, 8.1, 8.1 / 32, 130),
        source="NVIDIA T4 datasheet (2019) and NVIDIA Turing GPU Architecture (whitepaper, 2018)",
    ),
    Device(
        *("a10", "NVIDIA A10", ("NVIDIA A10",), CAPABILITIES[86], 72, 1.695e9, 0.6e12, 24e9, 6 * KIB**2),
        _peaks(125, 62.5, 31.2, 31.2 / 64, 250),
        source="NVIDIA A10 datasheet (2021); float64 at 1/64 of float32 from NVIDIA Ampere GA102 (whitepaper, 2020)",
        excluded=("A100", "A10G"),
    ),
    Device(
        *("rtx3090", "GeForce RTX 3090", ("RTX 3090",), CAPABILITIES[86], 82, 1.695e9, 0.936e12, 24e9, 6 * KIB**2),
        _peaks(71, 35.6, 35.6, 35.6 / 64, 284),
        source="NVIDIA Ampere GA102 GPU Architecture (whitepaper, 2020); 16 bits summed in float32",
        excluded=("Ti",),
    ),
    Device(
        *("l4", "NVIDIA L4", ("NVIDIA L4",), CAPABILITIES[89], 58, 2.04e9, 0.3e12, 24e9, 48 * KIB**2),
        _peaks(121, 60, 30.3, 30.3 / 64, 242),
        source="NVIDIA L4 datasheet (2023)",
        excluded=("L40",),
    ),
    Device(
        *("l40s", "NVIDIA L40S", ("L40S",), CAPABILITIES[89], 142, 2.52e9, 0.864e12, 48e9, 96 * KIB**2),
        _peaks(362.05, 183, 91.6, 91.6 / 64, 733),
        source="NVIDIA L40S datasheet (2023)",
    ),
    Device(
        *("rtx4090", "GeForce RTX 4090", ("RTX 4090",), CAPABILITIES[89], 128, 2.52e9, 1.008e12, 24e9, 72 * KIB**2),
        _peaks(165.2, 82.6, 82.6, 82.6 / 64, 660.6),
        source="NVIDIA Ada GPU Architecture (whitepaper, 2022), appendix A; 16 bits summed in float32",
        excluded=("RTX 4090 D", "Laptop"),
    ),
    Device(
        *("b200", "NVIDIA B200 SXM", ("B200",), CAPABILITIES[100], 148, 1.965e9, 8e12, 180e9, 126 * KIB**2),
        _peaks(2250, 1125, 75, 37, 4500),
        source="NVIDIA HGX B200 datasheet (2025), an eighth of the figures of eight GPUs",
        excluded=("GB200",),
    ),
    Device(
        *("rtx5090", "GeForce RTX 5090", ("RTX 5090",), CAPABILITIES[120], 170, 2.407e9, 1.792e12, 32e9, 96 * KIB**2),
        _peaks(209.5, 104.8, 104.8, 104.8 / 64, 838),
        source="NVIDIA RTX Blackwell GPU Architecture (whitepaper, 2025); 16 bits summed in float32",
        excluded=("RTX 5090 D", "Laptop"),
    ),
)
# A complex product is real multiplications and additions of the part type; unsigned bytes run as signed ones do.
_PEAK_TYPE = {"complex64": "float32", "complex128": "float64", "uint8": "int8"}


def device_named(name: str) -> Device:
    """A GPU of the table by its short name; ValueError, with the names there are, for any other."""
    for device in DEVICES:
        if device.name == name.lower():
            return device
    raise ValueError(f"unknown GPU {name!r}; expected one of {', '.join(device.name for device in DEVICES)}")


def device_called(driver_name: str) -> Device | None:
    """The GPU that the driver gives this name, such as `NVIDIA H200`; None if it is not in the table."""
    for device in DEVICES:
        if device.matches(driver_name):
            return device
    return None


def capability_named(text: str) -> Capability:
    """A compute capability as `9.0` or `90`; ValueError, with those there are, for any other."""
    digits = text.replace(".", "", 1)
    if digits.isdigit() and int(digits) in CAPABILITIES and (text == digits or text[-2] == "."):
        return CAPABILITIES[int(digits)]
    raise ValueError(
        f"unknown compute capability {text!r}; expected one of {', '.join(each.name for each in CAPABILITIES.values())}"
    )


def peak_flops(device: Device, dtype: str, precision: str | None = None) -> float | None:
    """Dense peak in FLOP/s (operations for 8-bit integers), or None where no datasheet states one."""
    return device.peaks.get("tf32" if precision == "tf32" else _PEAK_TYPE.get(dtype, dtype))
