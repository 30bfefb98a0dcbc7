"""The words of the generated tasks, each in one of two disjoint parts: SEEN (train, validation) and UNSEEN (test)."""

from typing import NamedTuple

from frostline.data.folding import between_commas

Words = tuple[str, ...]


def _words(text: str) -> Words:
    return tuple(text.split())


def _phrases(text: str) -> Words:
    return tuple(between_commas(text))


class Film(NamedTuple):
    """Words of film reviews; every pair is (negative, positive).

    ``topics`` and ``adjectives`` have the same keys: an adjective fits each noun under its key, and those under
    "any" fit every noun. Verbs are written base/past.
    """

    films: Words
    bits: Words
    topics: dict[str, Words]
    adjectives: dict[str, tuple[Words, Words]]
    extremes: tuple[Words, Words]
    verdicts: tuple[Words, Words]
    verbs: tuple[Words, Words]


class Cast(NamedTuple):
    """Words of the agreement sentences: nouns in the singular, verbs (each first in its phrase) in the base form.

    No verb has a past tense like its base form ("cost", "read"): with "the plate" it would be right after all.
    """

    people: Words
    objects: Words
    places: Words
    letters: Words
    names: Words
    people_verbs: Words
    thing_verbs: Words
    people_states: Words
    thing_states: Words
    met: Words
    got: Words


PLURAL_TOPICS = frozenset(
    _words("jokes twists costumes effects songs performances actors sets visuals characters dancers")
)

FILM_SEEN = Film(
    films=_words("film comedy thriller drama adventure romance mystery fantasy"),
    bits=_words("scene moment joke twist"),
    topics={
        "whole": _words("film comedy thriller drama adventure romance mystery fantasy"),
        "story": _words("plot story script ending dialogue premise jokes twists"),
        "craft": _words("score photography editing lighting design costumes effects songs"),
        "people": _words("cast hero lead narrator heroine performances actors"),
    },
    adjectives={
        "whole": (
            _words("boring dreary pointless forgettable shallow pretentious humdrum dismal"),
            _words("entertaining enjoyable funny exciting satisfying refreshing thrilling uplifting"),
        ),
        "story": (
            _words("dull predictable confusing contrived silly clumsy implausible stale"),
            _words("clever gripping witty touching original thoughtful inventive engaging"),
        ),
        "craft": (
            _words("ugly sloppy crude drab tacky amateurish cheap jarring"),
            _words("lovely elegant beautiful stylish polished graceful striking tasteful"),
        ),
        "people": (
            _words("wooden annoying bland lifeless unconvincing stiff irritating charmless"),
            _words("charming convincing likeable lively charismatic magnetic appealing delightful"),
        ),
    },
    extremes=(
        _words("awful terrible dreadful horrible pathetic appalling lousy"),
        _words("excellent wonderful superb brilliant terrific splendid marvellous"),
    ),
    verdicts=(
        _words("mess disaster failure bore letdown chore nuisance flop"),
        _words("triumph delight treat joy success masterpiece pleasure gem"),
    ),
    verbs=(
        _words("bore/bored annoy/annoyed disappoint/disappointed irritate/irritated exhaust/exhausted weary/wearied"),
        _words("delight/delighted impress/impressed charm/charmed amuse/amused thrill/thrilled enchant/enchanted"),
    ),
)

FILM_UNSEEN = Film(
    films=_words("movie western sequel remake musical documentary satire cartoon"),
    bits=_words("shot line minute sequence"),
    topics={
        "whole": _words("movie western sequel remake musical documentary satire cartoon"),
        "story": _words("screenplay narrative finale storytelling opening humour conclusion"),
        "craft": _words("soundtrack camerawork music animation cinematography choreography sets visuals"),
        "people": _words("villain acting ensemble star detective characters dancers"),
    },
    adjectives={
        "whole": (
            _words("tedious dire mediocre substandard unwatchable soulless aimless lazy"),
            _words("captivating rewarding hilarious spellbinding heartwarming enthralling riveting exhilarating"),
        ),
        "story": (
            _words("muddled unoriginal incoherent ridiculous hackneyed formulaic nonsensical laughable"),
            _words("compelling absorbing moving imaginative intelligent poignant smart suspenseful"),
        ),
        "craft": (
            _words("hideous shoddy garish clunky inept messy careless gaudy"),
            _words("gorgeous exquisite stunning dazzling majestic sumptuous breathtaking inspired"),
        ),
        "people": (
            _words("insufferable unlikeable tiring unpleasant grating obnoxious insipid unbearable"),
            _words("endearing memorable believable talented lovable commanding admirable adorable"),
        ),
    },
    extremes=(
        _words("atrocious abysmal horrendous woeful ghastly rotten"),
        _words("outstanding magnificent fantastic fabulous remarkable sensational"),
    ),
    verdicts=(
        _words("catastrophe travesty shambles embarrassment disgrace fiasco blunder"),
        _words("marvel wonder revelation achievement winner highlight hit"),
    ),
    verbs=(
        _words("frustrate/frustrated bother/bothered tire/tired disgust/disgusted anger/angered"),
        _words("fascinate/fascinated please/pleased captivate/captivated astonish/astonished dazzle/dazzled"),
    ),
)

IRREGULAR = {"child": "children", "woman": "women", "man": "men", "knife": "knives", "shelf": "shelves", "be": "is"}

CAST_SEEN = Cast(
    people=_words(
        "teacher doctor farmer pilot lawyer guard singer neighbour student nurse painter child woman baker sailor"
        " writer"
    ),
    objects=_words("key book cup bottle plate lamp picture knife basket hat coat box"),
    places=_words("table shelf chair window door cabinet car bed"),
    letters=_words("letter gift ticket card report parcel"),
    names=_words("Anna Tom Maria Peter Julia"),
    people_verbs=_phrases(
        "laugh a lot, work at night, sing well, speak softly, live nearby, arrive early, drive too fast, sleep badly,"
        "know the answer, play chess, like coffee, smile often, need help, walk slowly, cook well, write poems,"
        "wait outside"
    ),
    thing_verbs=_phrases("look old, belong to {name}, seem worn, smell strange, need a label, come from Paris"),
    people_states=_words("tired late hungry famous happy busy nervous ready"),
    thing_states=_words("missing new dusty precious plain ugly simple useful"),
    met=_words("met helped called followed thanked trusted"),
    got=_words("bought lost wanted"),
)

CAST_UNSEEN = Cast(
    people=_words(
        "plumber scientist soldier judge dancer actor waiter tourist engineer cousin manager officer man boy girl poet"
    ),
    objects=_words("ring coin camera brush jar clock spoon mirror toy vase umbrella pen"),
    places=_words("desk sofa bench cupboard fridge counter fireplace drawer"),
    letters=_words("note present postcard invitation package envelope"),
    names=_words("Laura David Emma Simon Clara"),
    people_verbs=_phrases(
        "travel by train, eat too much, run every morning, study history, dance gracefully, stay at home, love music,"
        "collect stamps, swim every day, complain bitterly, want tea, talk too loudly, wear glasses, draw portraits,"
        "leave at noon"
    ),
    thing_verbs=_phrases("remain a mystery, matter to {name}, appear worthless, attract attention, bring luck"),
    people_states=_words("angry sick rich lonely furious proud calm asleep"),
    thing_states=_words("gone perfect cheap tiny beautiful rare valuable familiar"),
    met=_words("saw visited hired praised invited noticed"),
    got=_words("sold kept chose"),
)
