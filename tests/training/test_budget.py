"""`--minutes`: which plan fits, with speeds that are made up, and one that is measured."""

import numpy as np
import pytest

from dial import DialError
from dial.data.domain import Domains, ImageArray, LabelledDomain, Labels
from dial.training import budget
from dial.training.budget import Speed
from dial.training.settings import Settings, preset


def domains(source: int, target: int) -> Domains:
    def domain(count: int) -> LabelledDomain:
        pixels = np.zeros((count, 4, 4, 1), np.uint8)
        labels = Labels(("a", "b"), np.arange(count) % 2)
        return LabelledDomain(f"{count} images", ImageArray(pixels, "made up"), labels)

    return [domain(source)], [domain(target)]


def speed(settings: Settings, _: object) -> Speed:
    """Seconds grow with the pixels, and with the network."""
    cost = (settings.image_size or 224) ** 2 / 160**2
    cost *= 2 if settings.backbone == "efficientnet_lite2" else 1
    return Speed(decode=0.002, evaluate=0.01 * cost, train=0.03 * cost)


def fit(minutes: float, given: dict[str, object] | None = None, **sizes: int) -> budget.Budget:
    settings = preset("efficientnet_lite0", **(given or {}))
    pair = domains(**({"source": 2000, "target": 1000} | sizes))
    return budget.fit(settings, given or {}, pair, minutes=minutes, measure=speed)


def describe(found: budget.Budget) -> tuple[object, ...]:
    settings = found.settings
    return settings.method, settings.backbone, settings.image_size


def test_more_time_buys_more() -> None:
    plans = [fit(minutes) for minutes in (0.1, 1.5, 3, 6, 15, 120)]
    assert [describe(plan) for plan in plans] == [
        ("frozen", "efficientnet_lite0", 128),
        ("frozen", "efficientnet_lite0", 160),
        ("frozen", "efficientnet_lite0", 224),
        ("dial", "efficientnet_lite0", 160),
        ("dial", "efficientnet_lite0", 224),
        ("dial", "efficientnet_lite2", 260),
    ]
    for plan, minutes in zip(plans[1:], (1.5, 3, 6, 15, 120), strict=True):
        assert plan.seconds <= 60 * minutes
    assert plans[3].settings.steps < plans[5].settings.steps  # type: ignore[operator]


def test_several_targets_take_longer() -> None:
    (source,), (target,) = domains(2000, 1000)
    settings = preset("efficientnet_lite0", steps=200)
    plans = [
        budget.fit(settings, {"steps": 200, "image_size": 160}, pair, minutes=60, measure=speed)
        for pair in (([source], [target]), ([source], [target, target]))
    ]
    assert 1.4 < plans[1].seconds / plans[0].seconds < 1.6


def test_the_usual_number_of_steps_is_enough() -> None:
    found = fit(1000)
    per_epoch = 1800 // 24
    assert found.settings.steps == preset("efficientnet_lite2").total_steps(per_epoch)
    assert found.seconds < 60 * 1000


def test_what_the_user_chose_stays() -> None:
    found = fit(30, {"image_size": 96, "backbone": "efficientnet_lite1"})
    assert describe(found) == ("dial", "efficientnet_lite1", 96)
    assert fit(0.1, {"method": "source_only"}).settings.method == "source_only"
    assert fit(0.1, {"steps": 7}).settings.steps == 7


def test_the_plan_is_said_in_one_line() -> None:
    assert str(fit(0.1)).startswith("efficientnet_lite0 at 128 pixels, no training: about ")
    assert " training steps: about " in str(fit(6))


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan")])
def test_no_time_is_refused(minutes: float) -> None:
    with pytest.raises(DialError, match="minutes above 0"):
        fit(minutes)


def test_speed_is_measured_on_this_machine() -> None:
    settings = preset("digits_cnn")
    found = budget.measure_speed(settings, domains(20, 10))
    assert 0 < found.evaluate < found.train < 1
    assert 0 < found.decode < 1
