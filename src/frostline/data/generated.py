"""The data of ``frostline demo``: English sentences from two small grammars, of any size, the same for the same seed.

``polarity``   Is a sentence from a film review negative or positive? Negation turns words round and the main clause
               decides against a subordinate one, so that no single word tells the label.
``agreement``  Does the verb agree with its subject (acceptable) or not (unacceptable), with other nouns in between?

The test split is written with content words that train and validation never show: what a model gets right there it
knows from pretraining. Only function words, adverbs of degree and the forms of be are shared.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pyarrow as pa

from frostline.data.lexicon import CAST_SEEN, CAST_UNSEEN, FILM_SEEN, FILM_UNSEEN, IRREGULAR, PLURAL_TOPICS, Cast, Film
from frostline.errors import FrostlineError

LIMIT = 20_000  # texts a split; the tests draw as many of every split


class Task(NamedTuple):
    """``write(rng, unseen, value)`` makes one sentence whose label is ``labels[value]``."""

    labels: tuple[str, str]
    write: Callable[[Random, bool, bool], str]


def generate(task: str, *, train: int, validation: int, test: int, seed: int = 0) -> dict[str, pa.Table]:
    """Tables "train", "validation" and "test" with the columns ``text`` and ``label`` (both str).

    Classes are balanced within one, no text occurs twice in or across the tables, equal arguments give equal tables.
    Raises FrostlineError for an unknown task and for a size outside 0 to LIMIT.
    """
    if task not in TASKS:
        raise FrostlineError(f"There is no generated task {task!r}: choose one of {', '.join(TASKS)}.")
    sizes = {"train": train, "validation": validation, "test": test}
    for split, size in sizes.items():
        if not 0 <= size <= LIMIT:
            raise FrostlineError(f"{split}={size}: the task {task!r} gives 0 to {LIMIT:,} texts a split; ask for that.")
    written: set[str] = set()
    return {split: _table(TASKS[task], split, size, seed, written) for split, size in sizes.items()}


def _table(task: Task, split: str, size: int, seed: int, written: set[str]) -> pa.Table:
    """``size`` new sentences; adds them to ``written``. Each split has its own stream, so sizes do not shift others."""
    rng = Random(f"{split} {seed}")
    values = [bool(row % 2) for row in range(size)]
    rng.shuffle(values)
    texts = []
    for value in values:
        while (text := task.write(rng, split == "test", value)) in written:
            pass
        written.add(text)
        texts.append(text)
    return pa.table(
        {"text": pa.array(texts, pa.string()), "label": pa.array([task.labels[v] for v in values], pa.string())}
    )


# Polarity. A frame holds one sentiment word; those under FLIP turn it round. Frame and label are drawn independently,
# the word's polarity follows from both: so neither the frame nor "not" tells anything alone. With half of the words
# turned round a word would tell nothing either, and full fine-tuning fails to take off on some seeds.

CONTRAST = 0.3  # share of sentences with two clauses
TURNED = 0.3  # share of clauses whose word is turned round

KEEP = (
    "{the} {is} {very} {adjective}",
    "{the} {is} {very} {adjective}",
    "{the} {is} {extremely} {extreme}",
    "{the} {is} {a_verdict}",
    "{the} {past} me",
)
FLIP = (
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
KEEP_ALONE = (
    "{the} {past} me from start to finish",
    "{the} {is} nothing short of {extreme}",
    "{the} {is} never less than {any}",
    "there is no denying that {the} {is} {any}",
    "nobody could deny that {the} {is} {any}",
    "again and again {the} {past} me",
    "critics who call {the} {any} are right",
    "this is {an_adjective} {film}",
)
FLIP_ALONE = (
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


def _polarity(rng: Random, unseen: bool, value: bool) -> str:
    film = FILM_UNSEEN if unseen else FILM_SEEN
    if rng.random() < CONTRAST:
        kinds = sorted(rng.sample(sorted(film.topics), 2), key="whole".__ne__)  # a verdict on the film outweighs a part
        main = _clause(rng, film, kinds[0], value, KEEP, FLIP)
        other = _clause(rng, film, kinds[1], not value, KEEP, FLIP)
        return _sentence(rng.choice(CONTRASTS).format(main=main, other=other))
    kind = rng.choice(sorted(film.topics))
    return _sentence(_clause(rng, film, kind, value, KEEP + KEEP_ALONE, FLIP + FLIP_ALONE))


def _clause(rng: Random, film: Film, kind: str, value: bool, keep: tuple[str, ...], flip: tuple[str, ...]) -> str:
    """A clause that speaks well (``value``) or ill of one topic of ``kind``."""
    flips = rng.random() < TURNED
    side = value != flips
    topic = rng.choice(film.topics[kind])
    verb, past = rng.choice(film.verbs[side]).split("/")
    adjective, extreme = rng.choice(film.adjectives[kind][side]), rng.choice(film.extremes[side])
    story = rng.choice(film.adjectives["story"][side])
    return rng.choice(flip if flips else keep).format(
        the=f"the {topic}",
        very=rng.choice(VERY),
        extremely=rng.choice(EXTREMELY),
        adjective=adjective,
        extreme=extreme,
        any=rng.choice((adjective, extreme)),
        an_adjective=_a(rng.choice((*film.adjectives["whole"][side], *film.extremes[side]))),
        a_verdict=_a(rng.choice(film.verdicts[side])),
        story=story,
        a_story=_a(story),
        verb=verb,
        past=past,
        film=rng.choice(film.films),
        bit=rng.choice(film.bits),
        **{"is": "are" if topic in PLURAL_TOPICS else "is"},
    )


# Agreement. One verb a sentence shows number; all others are past tense. Most sentences are simple:
# with many attractors a few hundred examples teach a small model nothing, and all numbers of layers would look alike.
# Simple sentences run out after a few thousand, so larger tables hold more of the hard ones.

SIMPLE = 0.92
NEAR = ("near", "behind", "beside", "next to")
ON = ("on", "under", *NEAR)
ONE = ("each of", "one of", "every one of")
MANY = ("both of", "all of", "some of", "several of")

Subject = tuple[bool, str]  # plural?, words


def _agreement(rng: Random, unseen: bool, value: bool) -> str:
    cast = CAST_UNSEEN if unseen else CAST_SEEN
    human = rng.random() < 0.5
    plural, subject = (_simple if rng.random() < SIMPLE else rng.choice(HARD))(rng, cast, human)
    if rng.random() < 0.4:
        verb, rest = rng.choice(cast.people_verbs if human else cast.thing_verbs).split(" ", 1)
        shown = verb if plural == value else _s_form(verb)
        return _sentence(f"{subject} {shown} {rest.format(name=rng.choice(cast.names))}")
    shown = rng.choice(("are", "were") if plural == value else ("is", "was"))
    state = rng.choice(cast.people_states if human else cast.thing_states)
    if rng.random() < 0.15:
        return _sentence(f"{shown} {subject} {state}", stop="?")
    return _sentence(f"{subject} {shown} {state}")


def _simple(rng: Random, cast: Cast, human: bool) -> Subject:
    plural = _coin(rng)
    return plural, _the(rng.choice(cast.people if human else (*cast.objects, *cast.letters)), plural)


def _attractor(rng: Random, cast: Cast, human: bool) -> Subject:
    plural, other = _coin(rng), _coin(rng)
    if human:
        head, noun = rng.sample(cast.people, 2)
        link = rng.choice(NEAR)
    elif _coin(rng):
        head, noun = rng.choice(cast.letters), rng.choice(cast.people)
        link = rng.choice(("from", "for"))
    else:
        head, noun = rng.choice(cast.objects), rng.choice(cast.places)
        link = rng.choice(ON)
    return plural, f"{_the(head, plural)} {link} {_the(noun, other)}"


def _chain(rng: Random, cast: Cast, human: bool) -> Subject:
    plural, subject = _attractor(rng, cast, human)
    return plural, f"{subject} by {_the(rng.choice(cast.places), _coin(rng))}"


def _relative(rng: Random, cast: Cast, human: bool) -> Subject:
    plural, other = _coin(rng), _coin(rng)
    person, agent = rng.sample(cast.people, 2)
    if not human:
        thing = rng.choice((*cast.objects, *cast.letters))
        return plural, f"{_the(thing, plural)} that {_the(agent, other)} {rng.choice(cast.got)}"
    clause = (rng.choice(cast.met), _the(agent, other))
    return plural, f"{_the(person, plural)} who {' '.join(clause if _coin(rng) else reversed(clause))}"


def _pair(rng: Random, cast: Cast, human: bool) -> Subject:
    plural, other = _coin(rng), _coin(rng)
    head, noun = rng.sample(cast.people if human else cast.objects, 2)
    if plural:
        return True, f"{_the(head, False)} and {_the(noun, False)}"
    return False, f"{_the(head, False)}, along with {_the(noun, other)},"


def _partitive(rng: Random, cast: Cast, human: bool) -> Subject:
    plural = _coin(rng)
    nouns = _the(rng.choice(cast.people if human else cast.objects), True)
    return plural, f"{rng.choice(MANY if plural else ONE)} {nouns}"


HARD = (_attractor, _attractor, _chain, _relative, _pair, _partitive)


def _coin(rng: Random) -> bool:
    return rng.random() < 0.5


def _the(noun: str, plural: bool) -> str:
    return f"the {_s_form(noun) if plural else noun}"


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _s_form(word: str) -> str:
    """The plural of a noun or the third person singular of a verb: English spells both alike."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def _sentence(words: str, stop: str = ".") -> str:
    return words[0].upper() + words[1:] + stop


TASKS = {
    "polarity": Task(("negative", "positive"), _polarity),
    "agreement": Task(("unacceptable", "acceptable"), _agreement),
}
