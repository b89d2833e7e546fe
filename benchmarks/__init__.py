"""Benchmarks: each prints ratios against a baseline from the same run."""

import dial  # noqa: F401 - its guard lets torchvision and timm be imported after it
