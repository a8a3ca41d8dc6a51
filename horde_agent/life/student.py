"""The former name of `learner`: the class `Student` is now `StreamLearner`."""

from __future__ import annotations

from horde_agent.life.learner import (
    StreamLearner,
    check_fit,
    check_questions,
    encoder,
    predict_along,
    relearn,
    rows_of,
)

__all__ = [
    "Student",
    "check_fit",
    "check_questions",
    "encoder",
    "predict_along",
    "relearn",
    "rows_of",
]

Student = StreamLearner
