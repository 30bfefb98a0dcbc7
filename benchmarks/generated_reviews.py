"""Generated film reviews: a sentence is negative or positive. ``frostline demo`` has 1,312 of them in ``api/demo.csv``.

    $ python benchmarks/generated_reviews.py > src/frostline/api/demo.csv

A sentence frame contains one sentiment word. The frames in REVERSING reverse its polarity. In sentences with two clauses, the
label is the polarity of the main clause. Frame and label are drawn independently, so the frame alone (for example "not") does
not reveal the label. Most words are not reversed. With half of them reversed, a word alone would not reveal anything either,
and full fine-tuning would fail for some seeds.
"""

import csv
import sys
from random import Random
from typing import NamedTuple

import pyarrow as pa

DEMO = {"train": 512, "validation": 400, "test": 400}
LABELS = ("negative", "positive")
Words = tuple[str, ...]


def words(text: str) -> Words:
    """The words of a text, separated by spaces."""
    return tuple(text.split())


class Film(NamedTuple):
    """Words of film reviews. Each pair holds negative words, then positive words.

    Attributes:
        films: Nouns for the film as a whole.
        bits: Nouns for a small part of it.
        topics: Nouns that a clause is about, by kind.
        adjectives: Adjectives that fit each noun of the same kind.
        extremes: Strong adjectives that fit every noun.
        verdicts: Nouns for a good or a bad film.
        verbs: Verbs, as base/past.
    """

    films: Words
    bits: Words
    topics: dict[str, Words]
    adjectives: dict[str, tuple[Words, Words]]
    extremes: tuple[Words, Words]
    verdicts: tuple[Words, Words]
    verbs: tuple[Words, Words]


PLURAL_TOPICS = frozenset(
    words("jokes twists costumes effects songs performances actors sets visuals characters dancers")
)

FILM = Film(
    films=words("film comedy thriller drama adventure romance mystery fantasy"),
    bits=words("scene moment joke twist"),
    topics={
        "whole": words("film comedy thriller drama adventure romance mystery fantasy"),
        "story": words("plot story script ending dialogue premise jokes twists"),
        "craft": words("score photography editing lighting design costumes effects songs"),
        "people": words("cast hero lead narrator heroine performances actors"),
    },
    adjectives={
        "whole": (
            words("boring dreary pointless forgettable shallow pretentious humdrum dismal"),
            words("entertaining enjoyable funny exciting satisfying refreshing thrilling uplifting"),
        ),
        "story": (
            words("dull predictable confusing contrived silly clumsy implausible stale"),
            words("clever gripping witty touching original thoughtful inventive engaging"),
        ),
        "craft": (
            words("ugly sloppy crude drab tacky amateurish cheap jarring"),
            words("lovely elegant beautiful stylish polished graceful striking tasteful"),
        ),
        "people": (
            words("wooden annoying bland lifeless unconvincing stiff irritating charmless"),
            words("charming convincing likeable lively charismatic magnetic appealing delightful"),
        ),
    },
    extremes=(
        words("awful terrible dreadful horrible pathetic appalling lousy"),
        words("excellent wonderful superb brilliant terrific splendid marvellous"),
    ),
    verdicts=(
        words("mess disaster failure bore letdown chore nuisance flop"),
        words("triumph delight treat joy success masterpiece pleasure gem"),
    ),
    verbs=(
        words("bore/bored annoy/annoyed disappoint/disappointed irritate/irritated exhaust/exhausted weary/wearied"),
        words("delight/delighted impress/impressed charm/charmed amuse/amused thrill/thrilled enchant/enchanted"),
    ),
)

CONTRAST = 0.05  # share of sentences with two clauses
REVERSED = 0.05  # share of clauses whose sentiment word is reversed

PLAIN = (
    "{the} {is} {very} {adjective}",
    "{the} {is} {very} {adjective}",
    "{the} {is} {extremely} {extreme}",
    "{the} {is} {a_verdict}",
    "{the} {past} me",
)
REVERSING = (
    "{the} {is} not {adjective}",
    "{the} {is} never {adjective}",
    "{the} {is} hardly {adjective}",
    "{the} {is} far from {any}",
    "{the} {is} anything but {any}",
    "{the} {is} by no means {any}",
    "{the} {is} not {a_verdict}",
    "{the} did not {verb} me",
    "{the} never {past} me",
)
PLAIN_ALONE = (
    "{the} {past} me from start to finish",
    "{the} {is} nothing short of {extreme}",
    "{the} {is} never less than {any}",
    "there is no denying that {the} {is} {any}",
    "nobody could deny that {the} {is} {any}",
    "again and again {the} {past} me",
    "critics who call {the} {any} are right",
    "this is {an_adjective} {film}",
)
REVERSING_ALONE = (
    "there is nothing {adjective} about {the}",
    "nobody could call {the} {any}",
    "I would not call {the} {any}",
    "critics who call {the} {any} are wrong",
    "there is not {a_story} {bit} in this {film}",
    "hardly a {bit} in this {film} is {story}",
    "at no point did {the} {verb} me",
    "it is simply not true that {the} {is} {any}",
)
CONTRASTS = (
    "although {other}, {main}",
    "even though {other}, {main}",
    "while {other}, {main}",
    "{other}, but {main}",
    "{other}, yet {main}",
    "{main}, although {other}",
    "{main}, even though {other}",
    "{main}, even if {other}",
)
VERY = ("really", "rather", "quite", "truly", "surprisingly", "decidedly")
EXTREMELY = ("absolutely", "simply", "really", "truly", "quite", "just")


def write(rng: Random, positive: bool) -> str:
    """A sentence about a film, positive or negative."""
    if rng.random() < CONTRAST:
        # A clause about the whole film is always the main clause.
        kinds = sorted(rng.sample(sorted(FILM.topics), 2), key="whole".__ne__)
        main = _clause(rng, kinds[0], positive, PLAIN, REVERSING)
        other = _clause(rng, kinds[1], not positive, PLAIN, REVERSING)
        return _sentence(rng.choice(CONTRASTS).format(main=main, other=other))
    kind = rng.choice(sorted(FILM.topics))
    return _sentence(_clause(rng, kind, positive, PLAIN + PLAIN_ALONE, REVERSING + REVERSING_ALONE))


def _clause(rng: Random, kind: str, positive: bool, plain: Words, reversing: Words) -> str:
    """A clause about one topic of ``kind``, in one of the frames ``plain`` or ``reversing``."""
    reverses = rng.random() < REVERSED
    side = positive != reverses
    topic = rng.choice(FILM.topics[kind])
    verb, past = rng.choice(FILM.verbs[side]).split("/")
    adjective, extreme = rng.choice(FILM.adjectives[kind][side]), rng.choice(FILM.extremes[side])
    story = rng.choice(FILM.adjectives["story"][side])
    return rng.choice(reversing if reverses else plain).format(
        the=f"the {topic}",
        very=rng.choice(VERY),
        extremely=rng.choice(EXTREMELY),
        adjective=adjective,
        extreme=extreme,
        any=rng.choice((adjective, extreme)),
        an_adjective=_with_article(rng.choice((*FILM.adjectives["whole"][side], *FILM.extremes[side]))),
        a_verdict=_with_article(rng.choice(FILM.verdicts[side])),
        story=story,
        a_story=_with_article(story),
        verb=verb,
        past=past,
        film=rng.choice(FILM.films),
        bit=rng.choice(FILM.bits),
        **{"is": "are" if topic in PLURAL_TOPICS else "is"},
    )


def _with_article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def generate(*, train: int, validation: int = 0, test: int = 0, seed: int = 0) -> dict[str, pa.Table]:
    """Tables "train", "validation" and "test" with the columns ``text`` and ``label``. No text occurs twice.

    The sizes of the two classes differ by at most one. Each split has its own generator, so its size does not change the
    sentences of other splits.
    """
    written: set[str] = set()
    tables = {}
    for split, size in {"train": train, "validation": validation, "test": test}.items():
        rng = Random(f"{split} {seed}")
        labels = [bool(row % 2) for row in range(size)]
        rng.shuffle(labels)
        texts = []
        for label in labels:
            while (text := write(rng, label)) in written:
                pass
            written.add(text)
            texts.append(text)
        tables[split] = pa.table({"text": texts, "label": [LABELS[n] for n in labels]})
    return tables


if __name__ == "__main__":
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["split", "text", "label"])
    for split, table in generate(**DEMO).items():
        out.writerows((split, row["text"], row["label"]) for row in table.to_pylist())
