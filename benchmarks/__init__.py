"""Benchmarks: the case list, timing, the runner and the reports. Part of the source tree, not of the wheel."""
