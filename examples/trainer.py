"""DA-layers in a Hugging Face Trainer: from MNIST's digits to scanned ones without labels.

The model is a small ResNet of transformers with random weights; there is nothing to download. The
loop is the Trainer's. Every example brings a source image, its label and a target image, so that
a batch has as many of each. A few minutes on two cores:

    python examples/trainer.py
"""

import argparse
import tempfile
from typing import Any

import torch
import torch.nn.functional as F
from digits_data import distort, load
from torch import Tensor
from torch.utils.data import Dataset
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import dial


class Pairs(Dataset[dict[str, Tensor]]):
    """Each source image with its label, beside a random target image."""

    def __init__(self, source: Tensor, labels: Tensor, target: Tensor) -> None:
        self.source, self.labels, self.target = source, labels, target

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        other = self.target[torch.randint(len(self.target), ())]
        return {"source": self.source[row], "labels": self.labels[row], "target": other}


class DialTrainer(Trainer):  # type: ignore[misc]
    """Cross-entropy on the source and, from a quarter of the training on, entropy on the target."""

    entropy = 0.3

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any
    ) -> Any:
        """Returns the loss of a joint batch."""
        parts = {"source": len(inputs["source"]), "target": len(inputs["target"])}
        with dial.use_domain(model, parts):
            outputs = model(distort(torch.cat([inputs["source"], inputs["target"]])))
        source, target = outputs.logits.split([*parts.values()])
        # Entropy makes predictions sure, right or wrong: it waits until most are right.
        progress = self.state.global_step / self.state.max_steps
        weight = self.entropy * min(1.0, max(0.0, 4 * progress - 1))
        loss = F.cross_entropy(source, inputs["labels"]) + weight * dial.losses.entropy(target)
        return (loss, outputs) if return_outputs else loss


def main() -> None:
    """Train with the Trainer, and score the plain network on the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    source, labels = load("mnist")
    target, truth = load("optdigits")  # the labels are for scoring alone
    torch.manual_seed(options.seed)
    config = ResNetConfig(
        num_channels=1,
        embedding_size=32,
        hidden_sizes=[32, 64, 128],
        depths=[1, 1, 1],
        layer_type="basic",
        num_labels=10,
    )
    model: Any = ResNetForImageClassification(config)
    model = dial.convert(model, append_after=["classifier.1"])
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=64,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            seed=options.seed,
            use_cpu=True,
            remove_unused_columns=False,
            dataloader_drop_last=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = DialTrainer(model, arguments, train_dataset=Pairs(source, labels, target))
        trainer.train()
    dial.calibrate(model, target.split(256), domain="target")
    plain = dial.fold(model, domain="target")  # a plain ResNet: nothing of dial in it
    with torch.no_grad():
        accuracy = (plain(target).logits.argmax(1) == truth).double().mean().item()
    print(f"DIAL: accuracy on the target {accuracy:.1%}")


if __name__ == "__main__":
    main()
