"""AutoDIAL: DA-layers that learn how much each domain takes of the other's statistics."""

from dataclasses import dataclass
from typing import Any

from dial.layers import DomainAlignment, LearnedMixing, calibrate
from dial.methods.dial import Dial
from dial.methods.interface import Images, Trainee
from dial.references import Reference


@dataclass(frozen=True, kw_only=True)
class AutoDial(Dial):
    """Automatic domain alignment layers (Carlucci et al. 2017), <https://arxiv.org/abs/1704.08082>.

    DIAL, where each layer normalizes the source by `a` of its own statistics and `1 - a` of the
    target's, and the target the other way round. `a`, one number a layer, is learned with the
    network: 1 is DIAL, and 0.5 is one normalization for both domains. Gradients of both losses
    pass through both domains' statistics, so every pass is over the joint batch.
    """

    reference: str | Reference = "normal"
    """Reference distribution: normal, epsilon or anchored."""
    entropy: float = 0.1
    """Weight of the target's entropy."""
    passes: str = "joint"
    """Passes per step: joint."""

    choices = Dial.choices | {"passes": ("joint",)}
    mixing = "autodial"

    def finish(self, trainee: Trainee, images: Images) -> None:
        """Compute the statistics of all domains: the target's predictor needs the source's."""
        for domain, batches in images.sources.items():
            calibrate(trainee.network, batches, domain=domain)
        super().finish(trainee, images)

    def figures(self, trainee: Trainee) -> dict[str, Any]:
        """Returns `a` of each layer, by the layer's name."""
        layers = trainee.network.named_modules()
        aligned = {name: m.mixing for name, m in layers if isinstance(m, DomainAlignment)}
        learned = {name: m for name, m in aligned.items() if isinstance(m, LearnedMixing)}
        return {"mixing": {name: round(m()[0, 0].item(), 4) for name, m in learned.items()}}


create = AutoDial
