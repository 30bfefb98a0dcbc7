"""The answer of a search over several models: which one to take, what the others reach, and what their predictions cost."""

from collections.abc import Mapping, Sequence

from frostline.data.wording import duration_at_least
from frostline.report import formatting, names
from frostline.report.explanations import headline
from frostline.statistics.answer import Answer, ModelAnswer, ModelsAnswer

SCHEMA_VERSION = 1
CHEAPER = 1 / 3  # of the cost of predictions with the recommended model


def answer_over_models(
    models: Sequence[ModelAnswer], answers: Mapping[str, Answer], *, price: float, price_inference: float
) -> ModelsAnswer:
    """The answer about these models.

    Args:
        models: Each of them, in the order in which they were given. Points below the recommended one are known.
        answers: The answer about each model with runs, by its name. There is at least one.
        price: The score that full fine-tuning of the first model is worth.
        price_inference: The score that predictions with the first model are worth.
    """
    valued = [one for one in models if one.value is not None]
    best = max(valued, key=_value, default=None)
    most = CHEAPER * best.inference_operations if best else 0.0
    cheap = [one for one in valued if one.inference_operations <= most and one is not best]
    best_cheap, first = max(cheap, key=_value, default=None), next(iter(answers.values()))
    return ModelsAnswer(
        schema_version=SCHEMA_VERSION,
        sentence=_sentence(best, best_cheap, models, answers),
        task=first.task,
        metric=first.metric,
        train_size=first.sizes[0].train_size or 0,
        models=list(models),
        recommended=best.model if best else None,
        cheaper=best_cheap.model if best_cheap else None,
        price=price,
        price_inference=price_inference,
        seconds=sum(one.seconds for one in models),
        made_from={name: one.made_from for name, one in answers.items()},
    )


def _value(one: ModelAnswer) -> float:
    assert one.value is not None
    return one.value


def _sentence(
    best: ModelAnswer | None,
    cheap: ModelAnswer | None,
    models: Sequence[ModelAnswer],
    answers: Mapping[str, Answer],
) -> str:
    """What to take and how good it is; then the next best model and the best one with far cheaper predictions."""
    if best is None:
        return f"No model can be recommended. {' '.join(f'{one.model}: {one.why}' for one in models)}"
    answer = answers[best.model]
    assert best.choice is not None and best.rows is not None
    first = headline(answer.sentence)[0]
    scored = f"{names.metric(answer.metric)} {formatting.score(best.expected)} on {best.rows:,} validation examples"
    others = sorted((one for one in models if one not in (best, cheap) and one.value is not None), key=_value)
    parts = [f"Take {best.model}: {first[:1].lower()}{first[1:]} Expect {scored}."]
    if best.above_baseline is False:
        parts = [
            f"No model is shown to be above the {names.baseline(answer.metric)}. The best so far is {best.model}, with "
            f"{names.tuning(best.choice)}: expect {scored}."
        ]
    parts += [_beside(one, best) for one in (*others[-1:], *([cheap] if cheap else []))]
    left_out = [one for one in models if one.value is None]
    if len(left_out) == 1:
        (one,) = left_out
        parts.append(f"{one.model} was left out: {one.why[:1].lower()}{one.why[1:]}")
    elif left_out:
        parts.append(f"{', '.join(one.model for one in left_out[:-1])} and {left_out[-1].model} were left out.")
    if ended := {one.model: one.enough for one in models if one.enough is not None}:
        budget = f"`--budget {duration_at_least(max(ended.values()))}`"
        parts.append(f"The budget ended before the next runs of {' and '.join(ended)}: {budget} allows them.")
    return " ".join(parts)


def _beside(one: ModelAnswer, best: ModelAnswer) -> str:
    """A sentence on a model that is not recommended. Without an interval, nothing is said of the difference."""
    expected = f"{one.model}, with {names.tuning(one.choice)}, is expected to score "
    if one.below is None or one.low is None or one.high is None:
        expected += formatting.score(one.expected)
    else:
        less = "less" if one.below >= 0 else "more"
        interval = formatting.interval(one.low, one.high, formatting.points)
        expected += f"{formatting.points(abs(one.below))} points {less} (95 % interval of the points below: {interval})"
    if not one.inference_operations:  # a probe on the embeddings, or a TF-IDF model
        return f"{expected}, and computes no layer for a prediction."
    if not best.inference_operations:
        return f"{expected}."
    times = formatting.times(one.inference_operations / best.inference_operations)
    return f"{expected}, and takes {times} the operations for a prediction."


def by_value(answer: ModelsAnswer) -> list[ModelAnswer]:
    """The models with the highest value first; those without one last."""
    return sorted(answer.models, key=lambda one: (one.value is None, -(one.value or 0.0)))


def status(one: ModelAnswer, answer: ModelsAnswer) -> str:
    """What a table calls a model: ``recommended``, ``cheaper predictions``, or nothing."""
    if one.model == answer.recommended:
        return "recommended"
    return "cheaper predictions" if one.model == answer.cheaper else ""
