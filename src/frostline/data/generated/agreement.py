"""The agreement task: a sentence is acceptable if its verb agrees in number with its subject.

Other nouns ("attractors") may stand between the subject and the verb. Only one verb of a sentence shows number; all other
verbs are in the past tense. Most sentences have no attractor. With many attractors, a small model would learn nothing from a
few hundred examples, and every k would have the same score. There are only a few thousand simple sentences, so large tables
contain a larger share of hard ones.
"""

from random import Random

from frostline.data.generated.agreement_words import CAST_SEEN, CAST_UNSEEN, Cast
from frostline.data.generated.english import s_form, sentence, the

SIMPLE = 0.92  # share of sentences without attractors
NEAR = ("near", "behind", "beside", "next to")
ON = ("on", "under", *NEAR)
ONE = ("each of", "one of", "every one of")
MANY = ("both of", "all of", "some of", "several of")

Subject = tuple[bool, str]  # whether it is plural, and its words


def write(rng: Random, unseen: bool, acceptable: bool) -> str:
    """A sentence whose verb agrees with its subject if ``acceptable``. ``unseen``: use the words of the test split."""
    cast = CAST_UNSEEN if unseen else CAST_SEEN
    human = rng.random() < 0.5
    plural, subject = (_simple if rng.random() < SIMPLE else rng.choice(HARD))(rng, cast, human)
    if rng.random() < 0.4:
        verb, rest = rng.choice(cast.people_verbs if human else cast.thing_verbs).split(" ", 1)
        shown = verb if plural == acceptable else s_form(verb)
        return sentence(f"{subject} {shown} {rest.format(name=rng.choice(cast.names))}")
    shown = rng.choice(("are", "were") if plural == acceptable else ("is", "was"))
    state = rng.choice(cast.people_states if human else cast.thing_states)
    if rng.random() < 0.15:
        return sentence(f"{shown} {subject} {state}", stop="?")
    return sentence(f"{subject} {shown} {state}")


def _simple(rng: Random, cast: Cast, human: bool) -> Subject:
    plural = _coin(rng)
    return plural, the(rng.choice(cast.people if human else (*cast.objects, *cast.letters)), plural)


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
    return plural, f"{the(head, plural)} {link} {the(noun, other)}"


def _chain(rng: Random, cast: Cast, human: bool) -> Subject:
    plural, subject = _attractor(rng, cast, human)
    return plural, f"{subject} by {the(rng.choice(cast.places), _coin(rng))}"


def _relative(rng: Random, cast: Cast, human: bool) -> Subject:
    plural, other = _coin(rng), _coin(rng)
    person, agent = rng.sample(cast.people, 2)
    if not human:
        thing = rng.choice((*cast.objects, *cast.letters))
        return plural, f"{the(thing, plural)} that {the(agent, other)} {rng.choice(cast.got)}"
    clause = (rng.choice(cast.met), the(agent, other))
    return plural, f"{the(person, plural)} who {' '.join(clause if _coin(rng) else reversed(clause))}"


def _pair(rng: Random, cast: Cast, human: bool) -> Subject:
    plural, other = _coin(rng), _coin(rng)
    head, noun = rng.sample(cast.people if human else cast.objects, 2)
    if plural:
        return True, f"{the(head, False)} and {the(noun, False)}"
    return False, f"{the(head, False)}, along with {the(noun, other)},"


def _partitive(rng: Random, cast: Cast, human: bool) -> Subject:
    plural = _coin(rng)
    nouns = the(rng.choice(cast.people if human else cast.objects), True)
    return plural, f"{rng.choice(MANY if plural else ONE)} {nouns}"


HARD = (_attractor, _attractor, _chain, _relative, _pair, _partitive)


def _coin(rng: Random) -> bool:
    return rng.random() < 0.5
