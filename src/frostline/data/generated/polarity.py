"""The polarity task: a sentence of a film review is negative or positive.

A sentence frame contains one sentiment word. The frames in REVERSING reverse its polarity. In sentences with two clauses, the
label is the polarity of the main clause. Frame and label are drawn independently, so the frame alone (for example "not") does
not reveal the label. Most words are not reversed. With half of them reversed, a word alone would not reveal anything either,
and full fine-tuning would fail for some seeds.
"""

from random import Random

from frostline.data.generated.english import Words, a, sentence
from frostline.data.generated.polarity_words import FILM_SEEN, FILM_UNSEEN, PLURAL_TOPICS, Film

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


def write(rng: Random, unseen: bool, positive: bool) -> str:
    """A sentence about a film, positive or negative. ``unseen``: use the words of the test split."""
    film = FILM_UNSEEN if unseen else FILM_SEEN
    if rng.random() < CONTRAST:
        # A clause about the whole film is always the main clause.
        kinds = sorted(rng.sample(sorted(film.topics), 2), key="whole".__ne__)
        main = _clause(rng, film, kinds[0], positive, PLAIN, REVERSING)
        other = _clause(rng, film, kinds[1], not positive, PLAIN, REVERSING)
        return sentence(rng.choice(CONTRASTS).format(main=main, other=other))
    kind = rng.choice(sorted(film.topics))
    return sentence(_clause(rng, film, kind, positive, PLAIN + PLAIN_ALONE, REVERSING + REVERSING_ALONE))


def _clause(rng: Random, film: Film, kind: str, positive: bool, plain: Words, reversing: Words) -> str:
    """A clause about one topic of ``kind``, in one of the frames ``plain`` or ``reversing``."""
    reverses = rng.random() < REVERSED
    side = positive != reverses
    topic = rng.choice(film.topics[kind])
    verb, past = rng.choice(film.verbs[side]).split("/")
    adjective, extreme = rng.choice(film.adjectives[kind][side]), rng.choice(film.extremes[side])
    story = rng.choice(film.adjectives["story"][side])
    return rng.choice(reversing if reverses else plain).format(
        the=f"the {topic}",
        very=rng.choice(VERY),
        extremely=rng.choice(EXTREMELY),
        adjective=adjective,
        extreme=extreme,
        any=rng.choice((adjective, extreme)),
        an_adjective=a(rng.choice((*film.adjectives["whole"][side], *film.extremes[side]))),
        a_verdict=a(rng.choice(film.verdicts[side])),
        story=story,
        a_story=a(story),
        verb=verb,
        past=past,
        film=rng.choice(film.films),
        bit=rng.choice(film.bits),
        **{"is": "are" if topic in PLURAL_TOPICS else "is"},
    )
