"""DA-layers in a Lightning module: from MNIST's digits to scanned ones without labels.

The loop is Lightning's. A step gets a batch of each domain; the module says which rows are whose,
and makes the plain network when training ends. A few minutes on two cores:

    python examples/lightning_module.py
"""

import argparse
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from digits_data import distort, load, network
from pytorch_lightning import LightningModule, Trainer, seed_everything
from pytorch_lightning.utilities import CombinedLoader
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import dial


class Dial(LightningModule):  # type: ignore[misc]
    """Cross-entropy on the source and, from a quarter of the training on, entropy on the target."""

    def __init__(self, target: Tensor, *, entropy: float = 0.3) -> None:
        super().__init__()
        self.model = dial.convert(network(), append_after=["13"])
        self.target, self.entropy = target, entropy

    def training_step(self, batch: dict[str, list[Tensor]]) -> Tensor:
        """Returns the loss of a joint batch."""
        (images, labels), (others,) = batch["source"], batch["target"]
        parts = {"source": len(images), "target": len(others)}
        with dial.use_domain(self.model, parts):
            logits = self.model(distort(torch.cat([images, others])))
        source, target = logits.split([*parts.values()])
        # Entropy makes predictions sure, right or wrong: it waits until most are right.
        progress = self.global_step / self.trainer.max_steps
        weight = self.entropy * min(1.0, max(0.0, 4 * progress - 1))
        loss: Tensor = F.cross_entropy(source, labels) + weight * dial.losses.entropy(target)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns the optimizer of all parameters, which the domains share."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)

    def on_fit_end(self) -> None:
        """Make the target's predictor: a plain network, nothing of dial in it."""
        dial.calibrate(self.model, self.target.split(256), domain="target")
        self.plain = dial.fold(self.model, domain="target")


def main() -> None:
    """Train with Lightning, and score the plain network on the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    seed_everything(options.seed)
    target, truth = load("optdigits")  # the labels are for scoring alone
    more: dict[str, Any] = {"batch_size": 64, "shuffle": True, "drop_last": True}
    domains = {
        "source": DataLoader(TensorDataset(*load("mnist")), **more),
        "target": DataLoader(TensorDataset(target), **more),
    }
    trainer = Trainer(
        max_steps=options.steps,
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    warnings.filterwarnings("ignore", ".*does not have many workers.*")  # it is all in memory
    module = Dial(target)
    trainer.fit(module, CombinedLoader(domains, "max_size_cycle"))
    with torch.no_grad():
        accuracy = (module.plain(target).argmax(1) == truth).double().mean().item()
    print(f"DIAL: accuracy on the target {accuracy:.1%}")


if __name__ == "__main__":
    main()
