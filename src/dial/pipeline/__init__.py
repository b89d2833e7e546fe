"""From domains to finished predictors: prepare, train, finish, judge, write."""

from dial.pipeline.adaptation import adapt as adapt
