"""Choosing and judging without labels: validators, tuning, the accuracy estimate."""
