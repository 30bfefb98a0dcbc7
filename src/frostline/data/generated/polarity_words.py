"""The words of the polarity task in two disjoint parts: SEEN for train and validation, UNSEEN for test."""

from typing import NamedTuple

from frostline.data.generated.english import Words, words


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

FILM_SEEN = Film(
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

FILM_UNSEEN = Film(
    films=words("movie western sequel remake musical documentary satire cartoon"),
    bits=words("shot line minute sequence"),
    topics={
        "whole": words("movie western sequel remake musical documentary satire cartoon"),
        "story": words("screenplay narrative finale storytelling opening humour conclusion"),
        "craft": words("soundtrack camerawork music animation cinematography choreography sets visuals"),
        "people": words("villain acting ensemble star detective characters dancers"),
    },
    adjectives={
        "whole": (
            words("tedious dire mediocre substandard unwatchable soulless aimless lazy"),
            words("captivating rewarding hilarious spellbinding heartwarming enthralling riveting exhilarating"),
        ),
        "story": (
            words("muddled unoriginal incoherent ridiculous hackneyed formulaic nonsensical laughable"),
            words("compelling absorbing moving imaginative intelligent poignant smart suspenseful"),
        ),
        "craft": (
            words("hideous shoddy garish clunky inept messy careless gaudy"),
            words("gorgeous exquisite stunning dazzling majestic sumptuous breathtaking inspired"),
        ),
        "people": (
            words("insufferable unlikeable tiring unpleasant grating obnoxious insipid unbearable"),
            words("endearing memorable believable talented lovable commanding admirable adorable"),
        ),
    },
    extremes=(
        words("atrocious abysmal horrendous woeful ghastly rotten"),
        words("outstanding magnificent fantastic fabulous remarkable sensational"),
    ),
    verdicts=(
        words("catastrophe travesty shambles embarrassment disgrace fiasco blunder"),
        words("marvel wonder revelation achievement winner highlight hit"),
    ),
    verbs=(
        words("frustrate/frustrated bother/bothered tire/tired disgust/disgusted anger/angered"),
        words("fascinate/fascinated please/pleased captivate/captivated astonish/astonished dazzle/dazzled"),
    ),
)
