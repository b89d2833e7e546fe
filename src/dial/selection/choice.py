"""The choice among the predictors that a run has anyway, without labels of the target."""

from collections.abc import Sequence

from torch import Tensor

from dial.methods import Candidate, agreement


def choose(candidates: Sequence[Candidate], labels: Tensor) -> tuple[Candidate, list[float]]:
    """Returns the candidate with which most neighbors agree, and the scores of all.

    Neighbors are found by the features of every network there is, before and after training: the
    graph of one network alone would favor the predictor that was made from it.

    Args:
        candidates: with outputs for the same images; of equal scores the first one wins.
        labels: `(N,)`, of the source images, or of prototypes of the classes.
    """
    spaces = {id(each.target): (each.source, each.target) for each in candidates}
    scores = agreement([each.logits.argmax(1) for each in candidates], labels, [*spaces.values()])
    return candidates[scores.index(max(scores))], scores
