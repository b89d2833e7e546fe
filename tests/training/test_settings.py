"""Settings: presets, changes by name, and what the backbone decides."""

import dataclasses
import json
from dataclasses import dataclass

import pytest

from dial import DialError, backbones, methods
from dial.methods.source_only import SourceOnly
from dial.training.settings import PRESETS, Settings, Text, choose, describe_presets


@dataclass(frozen=True, kw_only=True)
class WithMomentum(SourceOnly):
    """A method with a field that the training has too."""

    momentum: float = 0.25
    """Momentum of something else."""


def test_a_name_is_the_trainings_before_the_methods() -> None:
    method = WithMomentum()
    plain = choose("digits_cnn", {"method": method, "momentum": Text("0.5")})
    assert (plain.momentum, plain.options) == (0.5, {})
    full = choose("digits_cnn", {"method": method, "method.momentum": Text("0.5")})
    assert (full.momentum, full.options) == (0.9, {"momentum": 0.5})
    both = {"training.momentum": 0.1, "method.momentum": 0.2}
    chosen = choose("digits_cnn", {"method": method, **both})
    assert (chosen.momentum, chosen.options) == (0.1, {"momentum": 0.2})
    assert methods.create(chosen.method, chosen.options) == WithMomentum(momentum=0.2)


def test_texts_are_converted_by_their_fields() -> None:
    texts = {"steps": "7", "milestones": "0.5,0.75", "align_logits": "no", "warmup": "0.25"}
    texts["append_after"] = "blocks.0, head"
    chosen = choose("efficientnet_lite0", {k: Text(v) for k, v in texts.items()})
    assert chosen.steps == 7
    assert chosen.milestones == (0.5, 0.75)
    assert chosen.align_logits is False
    assert chosen.append_after == ("blocks.0", "head")
    assert chosen.options["warmup"] == 0.25
    assert choose("efficientnet_lite0", {"image_size": Text("none")}).image_size is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"entrpy": 1}, "settings of the method dial .* got 'entrpy'; fix: did you mean entropy"),
        ({"wieght_decay": 1}, "did you mean weight_decay"),
        ({"method": "ddc", "entropy": 1}, "settings of the method ddc or of the training"),
        ({"training.entropy": 1}, "got 'training.entropy'"),
        ({"elsewhere.lr": 1}, "got 'elsewhere.lr'; fix: did you mean lr"),
        ({"method.lr": 1}, "got 'method.lr'"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(DialError, match=message):
        choose("efficientnet_lite0", options)


def test_presets_are_described_by_what_they_set() -> None:
    lines = describe_presets()
    assert list(lines) == list(PRESETS)
    assert "backbone alexnet" in lines["paper-alexnet"]
    assert "reference normal, entropy 0.1" in lines["paper-alexnet"]
    assert "milestones 0.333,0.667" in lines["paper-inception-bn"]
    assert "optimizer" not in lines["paper-alexnet"]  # it is the default


def test_resolved_settings_have_a_value_for_what_the_backbone_decides() -> None:
    chosen = choose("digits_cnn", {})
    method = methods.create(chosen.method, chosen.options)
    backbone = backbones.create("digits_cnn", num_classes=10)
    resolved = chosen.resolve(method, backbone)
    assert (resolved.image_size, resolved.align_logits, resolved.frozen) == (28, True, ())
    assert resolved.append_after == ("classifier",)
    assert resolved.options["reference"] == "normal"
    assert set(resolved.options) == {f.name for f in dataclasses.fields(method)}
    assert Settings(**json.loads(json.dumps(resolved.stored()))).stored() == resolved.stored()
