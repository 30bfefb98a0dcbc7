"""The generated tasks: sizes, balance and reproducibility, and labels checked by independent rules."""

import re
from collections import Counter
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from frostline import FrostlineError
from frostline.data.generated import agreement_words, polarity_words
from frostline.data.generated.tables import LIMIT, TASKS, generate

tasks = st.sampled_from(sorted(TASKS))
sizes = st.integers(0, 60)
seeds = st.integers(0, 2**32)


FUNCTION_WORDS = {"a", "the", "every", "at", "by", "from", "to", "too"}


def texts(task, split, seed=0, size=2000):
    rows = {"train": 0, "validation": 0, "test": 0, split: size}
    return generate(task, **rows, seed=seed)[split].to_pylist()


def words(value):
    """All words of a word list, at any nesting."""
    if isinstance(value, str):
        return set(re.findall(r"[\w-]+", value.replace("{name}", "")))
    return set(chain.from_iterable(map(words, value.values() if isinstance(value, dict) else value)))


# The tables.


@settings(max_examples=40)
@given(tasks, sizes, sizes, sizes, seeds)
def test_tables_have_the_requested_size_are_balanced_and_have_no_duplicates(task, train, validation, test, seed):
    tables = generate(task, train=train, validation=validation, test=test, seed=seed)
    assert {split: table.num_rows for split, table in tables.items()} == {
        "train": train,
        "validation": validation,
        "test": test,
    }
    written = [text for table in tables.values() for text in table["text"].to_pylist()]
    assert len(set(written)) == len(written)
    for table in tables.values():
        assert table.schema.names == ["text", "label"] and set(map(str, table.schema.types)) == {"string"}
        counts = Counter(table["label"].to_pylist())
        assert set(counts) <= set(TASKS[task].labels)
        assert max(counts[label] for label in TASKS[task].labels) - min(counts[x] for x in TASKS[task].labels) <= 1


@settings(max_examples=20)
@given(tasks, seeds)
def test_a_seed_gives_the_same_tables_and_another_seed_others(task, seed):
    sizes = {"train": 30, "validation": 20, "test": 20}
    first = generate(task, **sizes, seed=seed)
    assert generate(task, **sizes, seed=seed) == first
    other = generate(task, **sizes, seed=seed + 1)
    for split in sizes:
        assert set(other[split]["text"].to_pylist()) != set(first[split]["text"].to_pylist())


@pytest.mark.parametrize("task", TASKS)
def test_the_size_of_a_split_does_not_change_the_others(task):
    small = generate(task, train=50, validation=10, test=50, seed=3)
    large = generate(task, train=50, validation=90, test=50, seed=3)
    assert small["train"] == large["train"] and small["test"] == large["test"]


@pytest.mark.parametrize("task", TASKS)
def test_labels_are_shuffled_differently_in_each_split_and_seed(task):
    tables = [generate(task, train=50, validation=50, test=50, seed=seed) for seed in (0, 1)]
    orders = [tuple(table["label"].to_pylist()) for splits in tables for table in splits.values()]
    assert len({*orders, tuple(TASKS[task].labels * 25)}) == 7


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_limit_can_be_reached(task):
    tables = generate(task, train=LIMIT, validation=LIMIT, test=LIMIT)
    assert len({text for table in tables.values() for text in table["text"].to_pylist()}) == 3 * LIMIT


def test_the_error_for_an_unknown_task_lists_all_tasks():
    with pytest.raises(FrostlineError, match=r"'sentiment'.*polarity, agreement"):
        generate("sentiment", train=1, validation=1, test=1)


@pytest.mark.parametrize("size", [-1, LIMIT + 1])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_error_for_a_size_out_of_range_has_the_split_and_the_limit(split, size):
    with pytest.raises(FrostlineError, match=rf"{split}={size}.*{LIMIT:,}"):
        generate("polarity", **{"train": 1, "validation": 1, "test": 1, split: size})


# The words.


@pytest.mark.parametrize(
    ("seen", "unseen"),
    [(polarity_words.FILM_SEEN, polarity_words.FILM_UNSEEN), (agreement_words.CAST_SEEN, agreement_words.CAST_UNSEEN)],
)
def test_the_seen_and_the_unseen_words_share_no_content_word(seen, unseen):
    assert not words(seen._asdict()) & words(unseen._asdict()) - FUNCTION_WORDS


@pytest.mark.parametrize("side", [0, 1])
def test_there_are_many_words_and_each_adjective_has_one_polarity(side):
    def adjectives(side):
        parts = (polarity_words.FILM_SEEN, polarity_words.FILM_UNSEEN)
        return words([[pair[side] for pair in (*part.adjectives.values(), part.extremes)] for part in parts])

    assert len(adjectives(side)) >= 60
    assert not adjectives(0) & adjectives(1)
    films = (polarity_words.FILM_SEEN, polarity_words.FILM_UNSEEN)
    assert len(set().union(*(words(film.topics) for film in films))) >= 40
    casts = (agreement_words.CAST_SEEN, agreement_words.CAST_UNSEEN)
    assert len({noun for c in casts for noun in (*c.people, *c.objects, *c.places, *c.letters)}) >= 60
    assert len({verb.split()[0] for c in casts for verb in (*c.people_verbs, *c.thing_verbs)}) >= 30


@pytest.mark.parametrize("task", TASKS)
def test_no_content_word_of_a_test_text_is_in_a_training_text(task):
    def vocabulary(split):
        return Counter(word for row in texts(task, split) for word in set(re.findall(r"\w+", row["text"].lower())))

    part = polarity_words.FILM_UNSEEN if task == "polarity" else agreement_words.CAST_UNSEEN
    content = words([value for value in part._asdict().values() if not isinstance(value, dict)])
    content -= FUNCTION_WORDS
    assert content & set(vocabulary("test"))
    assert not content & set(vocabulary("train"))
    assert not content & set(vocabulary("validation"))


# The sentences.


@pytest.mark.parametrize("split", ["train", "validation", "test"])
@pytest.mark.parametrize("task", TASKS)
def test_texts_are_well_formed(task, split):
    for row in texts(task, split, seed=1):
        text = row["text"]
        assert re.fullmatch(r"[A-Z][A-Za-z ,-]*[.?]", text), text
        assert "  " not in text and " ," not in text and ",." not in text, text
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]|\b(\w+) \1\b", text, re.IGNORECASE), text
        assert 3 <= len(text.split()) <= 20, text


@pytest.mark.parametrize("task", TASKS)
def test_a_bag_of_words_does_not_reveal_the_label(task):
    train, test = texts(task, "train", size=500), texts(task, "test", size=1000)
    model = make_pipeline(CountVectorizer(), LogisticRegression(max_iter=1000))
    model.fit([row["text"] for row in train], [row["label"] for row in train])
    assert model.score([row["text"] for row in test], [row["label"] for row in test]) < 0.62


NEGATIONS = r"\b(not|never|hardly|far from|anything but|by no means|nothing|nobody could call|at no point|wrong)\b"
REINFORCED = r"nothing short of|never less than|no denying|nobody could deny"


@pytest.mark.parametrize(("split", "film"), [("train", polarity_words.FILM_SEEN), ("test", polarity_words.FILM_UNSEEN)])
def test_the_main_clause_and_its_negation_decide_the_polarity(split, film):
    def sentiment(side):
        pairs = [*film.adjectives.values(), film.extremes, film.verdicts, film.verbs]
        return words([[form.split("/") for form in pair[side]] for pair in pairs])

    negative, positive = sentiment(0), sentiment(1)
    for row in texts("polarity", split):
        text = row["text"].lower()
        clauses = re.split(r", (?:but |yet )?", text.rstrip("."))
        first_is_main = re.search(r", (although|even though|even if) ", text) or len(clauses) == 1
        main = clauses[0] if first_is_main else clauses[-1]
        found = set(re.findall(r"\w+", main))
        assert bool(found & negative) != bool(found & positive), text
        negated = bool(re.search(NEGATIONS, re.sub(REINFORCED, "", main)))
        assert row["label"] == ("positive" if bool(found & positive) != negated else "negative"), text


# Agreement is checked by an independent grammar. The head of the subject is its first noun; "and" makes it plural, and "each of"
# makes it singular. The verb that shows number is the only word in the list of singular and plural forms.

PLURAL_NOUNS = {"children": "child", "women": "woman", "men": "man", "knives": "knife", "shelves": "shelf"}


def number_of_verbs(cast):
    forms = {"is": False, "was": False, "are": True, "were": True}
    for phrase in (*cast.people_verbs, *cast.thing_verbs):
        verb = phrase.split()[0]
        third = re.sub(r"(?<=[^aeiou])y$", "ie", verb) + ("es" if re.search(r"(s|x|z|ch|sh)$", verb) else "s")
        forms |= {verb: True, third: False}
    return forms


def head_is_plural(subject, nouns):
    first, *_ = [word for word in subject if word in nouns or PLURAL_NOUNS.get(word, word[:-1]) in nouns or
                 re.sub(r"(es|ies)$", "", word) in nouns]  # fmt: skip
    if subject[0] in ("each", "one", "every"):
        return False
    return first not in nouns or "and" in subject


@pytest.mark.parametrize(
    ("split", "cast"), [("train", agreement_words.CAST_SEEN), ("test", agreement_words.CAST_UNSEEN)]
)
def test_agreement_labels_follow_from_head_and_verb(split, cast):
    nouns = {*cast.people, *cast.objects, *cast.places, *cast.letters}
    verbs = number_of_verbs(cast)
    for row in texts("agreement", split):
        tokens = re.findall(r"\w+", row["text"].lower())
        shown = [at for at, word in enumerate(tokens) if word in verbs]
        assert len(shown) == 1, row
        subject = tokens[1:] if shown[0] == 0 else tokens[: shown[0]]
        agrees = head_is_plural(subject, nouns) == verbs[tokens[shown[0]]]
        assert row["label"] == ("acceptable" if agrees else "unacceptable"), row


@pytest.mark.parametrize("cast", [agreement_words.CAST_SEEN, agreement_words.CAST_UNSEEN])
def test_no_verb_could_be_read_as_a_past_tense(cast):
    same_in_the_past = {"bet", "cost", "cut", "hit", "hurt", "let", "put", "quit", "read", "set", "shut", "spread"}
    assert not {phrase.split()[0] for phrase in (*cast.people_verbs, *cast.thing_verbs)} & same_in_the_past
