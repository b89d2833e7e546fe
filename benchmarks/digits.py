"""All methods on the embedded digits, three seeds: `python -m benchmarks.digits --out DIR`.

Finished runs in the folder are not run again; runs that were stopped go on.
"""

import argparse
from pathlib import Path
from statistics import mean, stdev

import torch

import dial


def main() -> None:
    """Run what is missing, and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="*", default=list(dial.methods.names()))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| method | " + " | ".join(f"seed {seed}" for seed in options.seeds) + " | mean |")
    print("|---" * (len(options.seeds) + 2) + "|")
    for method in options.methods:
        accuracies = []
        for seed in options.seeds:
            run = dial.adapt(
                "digits:mnist",
                "digits:optdigits",
                out=options.out / f"{method}-{seed}",
                method=method,
                seed=seed,
                resume=True,
                quiet=True,
            )
            accuracies.append(100 * run.result["target_accuracy"])
        spread = f" +- {stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
        row = " | ".join(f"{accuracy:.1f}" for accuracy in accuracies)
        print(f"| {method} | {row} | {mean(accuracies):.1f}{spread} |", flush=True)


if __name__ == "__main__":
    main()
