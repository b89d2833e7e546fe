"""Times of several things in turn, so that a noisy machine is noisy for all of them."""

import time
from collections.abc import Callable, Mapping


def best_times(
    candidates: Mapping[str, Callable[[], object]], *, seconds: float = 3.0, least: int = 7
) -> dict[str, float]:
    """The shortest time of each candidate, all run round after round for about `seconds`.

    The minimum is the time without interference by other processes, and the same estimate for
    every candidate.
    """
    for run in candidates.values():
        run()
        run()
    best = dict.fromkeys(candidates, float("inf"))
    rounds, end = 0, time.perf_counter() + seconds
    while rounds < least or time.perf_counter() < end:
        rounds += 1
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def show(title: str, times: Mapping[str, float], goals: Mapping[str, float]) -> None:
    """A line for the baseline (the first) and one for each ratio against it."""
    baseline, *others = times
    print(f"\n{title}\n  {baseline:<28} {times[baseline] * 1e3:8.2f} ms")
    for name in others:
        ratio = times[name] / times[baseline]
        goal = f"goal {goals[name]:.2f}x" if name in goals else ""
        missed = "  MISSED" if name in goals and ratio > goals[name] else ""
        print(f"  {name:<28} {times[name] * 1e3:8.2f} ms {ratio:7.2f}x  {goal}{missed}")
