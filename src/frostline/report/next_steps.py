"""What follows an answer: the command that would make it surer, and how to load the model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frostline.data.kinds import MULTI_LABEL, TOKENS
from frostline.data.wording import duration
from frostline.report.answer.output_sentences import is_saved

Answer = Mapping[str, Any]  # answer.json


def next_command(answer: Answer) -> str | None:
    """The command that would make the answer surer; None if there is none, or while runs are pending."""
    decision = answer["decision"]
    command: str | None = decision["next_command"] if decision and not answer["runs"]["pending"] else None
    return command


def training_time(answer: Answer) -> str | None:
    """How long that command trains; None if that is unknown."""
    seconds = answer["decision"] and answer["decision"]["next_seconds"]
    return f"about {duration(seconds)} of training" if seconds else None


def advice(answer: Answer) -> str:
    """The command as a sentence; empty if there is none."""
    command, time = next_command(answer), training_time(answer)
    return f" To be surer{f', with {time}' if time else ''}: `{command}`." if command else ""


def sentence_without_command(answer: Answer) -> str:
    """The answer without its last advice, for where :func:`next_command` stands on a line of its own."""
    return str(answer["sentence"]).replace(advice(answer), "")


def loading(answer: Answer, folder: Path) -> str | None:
    """Three lines of Python that load what is recommended and classify a text; None if nothing is recommended.

    A fine-tuned model is loaded by transformers, or by sentence-transformers if its head does not belong to its type.
    Everything else is loaded by frostline: a BiLSTM, a model of an estimator, or a model with a temperature or a threshold,
    which the others would ignore.

    Args:
        answer: The answer.
        folder: Of the saved model.
    """
    recommended, decision = answer["sizes"][0]["recommended"], answer["decision"]
    if recommended is None and decision is None:
        return None
    name, pair = json.dumps(str(folder), ensure_ascii=False), bool((answer["columns"] or {}).get("text_pair"))
    opener = answer["opened_by"]
    if opener == "sentence-transformers" and recommended and not is_saved(answer):
        texts = '[("A text.", "Its pair.")]' if pair else '["A text."]'
        return (
            "from sentence_transformers import SentenceTransformer\n"
            f"model = SentenceTransformer({name})\n"
            f"print(model.encode({texts}))"
        )
    if opener == "transformers" and recommended and not is_saved(answer):
        if answer["task_type"] == TOKENS:
            return (
                "from transformers import pipeline\n"
                f'tag = pipeline("token-classification", {name}, aggregation_strategy="simple")\n'
                'print(tag("A sentence."))'
            )
        text = '{"text": "A text.", "text_pair": "Its pair."}' if pair else '"A text."'
        every = ', top_k=None, function_to_apply="sigmoid"' if answer["task_type"] == MULTI_LABEL else ""
        return (
            "from transformers import pipeline\n"
            f'classify = pipeline("text-classification", {name}{every})\n'
            f"print(classify({text}, truncation=True))"
        )
    texts = 'pandas.DataFrame({"text": ["A text."], "text_pair": ["Its pair."]})' if pair else '["A text."]'
    if answer["task_type"] == TOKENS:
        texts = '[["A", "sentence"]]'
    return f"import frostline{', pandas' if pair else ''}\nfound = frostline.predict({name}, {texts})\nprint(*found.rows())"
