"""Benchmarks: each prints ratios against a baseline from the same run."""

from dial.torchvision_guard import prepare_torchvision

prepare_torchvision()  # the benchmarks import torchvision and timm
