"""What the figures were taken on: names, versions, clocks, and the datasheet's peaks."""

from __future__ import annotations

import re
import subprocess

import torch

from torch_pmpp._devices import device_called
from torch_pmpp._devices import peak_flops as _devices_peak
from torch_pmpp._info import cpu_model

_SMI_FIELDS = {
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "max_sm_mhz": "clocks.max.sm",
    "power_w": "power.draw",
    "power_limit_w": "power.limit",
    "temperature_c": "temperature.gpu",
    "power_state": "pstate",
}


def slug(name: str) -> str:
    """`NVIDIA H200` -> `nvidia-h200`, for file names."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def peak_flops(gpu: str | None, dtype: str, precision: str | None) -> float | None:
    """The datasheet's dense peak, or None where no datasheet states one (CPUs, other GPUs, wide integers)."""
    device = None if gpu is None else device_called(gpu)
    return None if device is None else _devices_peak(device, dtype, precision)


def _smi(fields: list[str]) -> list[str] | None:
    try:
        done = subprocess.run(
            [
                "nvidia-smi",
                f"--query-gpu={','.join(fields)}",
                "--format=csv,noheader,nounits",
                f"--id={torch.cuda.current_device()}",
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    values = [value.strip() for value in done.stdout.strip().splitlines()[0].split(",")] if done.stdout.strip() else []
    return values if len(values) == len(fields) else None


def driver_version() -> str | None:
    """Version of the NVIDIA driver, or None if nvidia-smi does not answer."""
    values = _smi(["driver_version"])
    return values[0] if values else None


def clock_state() -> dict[str, float | str] | None:
    """Clocks, power and temperature as they are now (they are never changed); None if nvidia-smi does not answer."""
    values = _smi(list(_SMI_FIELDS.values()))
    if values is None:
        return None
    state: dict[str, float | str] = {}
    for name, value in zip(_SMI_FIELDS, values, strict=True):
        try:
            state[name] = float(value)
        except ValueError:
            state[name] = value
    return state


def device_name(device: torch.device) -> str:
    """The GPU's or the processor's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_model()


def results_name(device: torch.device, isa: str | None = None) -> str:
    """File name of the results: `nvidia-h200.json`, `cpu-amd-epyc.json`, or `cpu-amd-epyc-avx2.json`, held to that."""
    if device.type == "cuda":
        return f"{slug(device_name(device))}.json"
    return f"cpu-{slug(device_name(device))}{'' if isa is None else '-' + isa}.json"
