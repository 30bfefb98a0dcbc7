"""The words of the agreement task in two disjoint parts: SEEN for train and validation, UNSEEN for test."""

from typing import NamedTuple

from frostline.data.generated.english import Words, phrases, words


class Cast(NamedTuple):
    """Words of the agreement sentences. Nouns are singular. A verb phrase starts with the base form of its verb.

    No verb has a past tense equal to its base form ("cost", "read"). Otherwise an unacceptable sentence such as "The plate cost
    a lot." could be read in the past tense, and would be acceptable.
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


CAST_SEEN = Cast(
    people=words(
        "teacher doctor farmer pilot lawyer guard singer neighbour student nurse painter child woman baker sailor"
        " writer"
    ),
    objects=words("key book cup bottle plate lamp picture knife basket hat coat box"),
    places=words("table shelf chair window door cabinet car bed"),
    letters=words("letter gift ticket card report parcel"),
    names=words("Anna Tom Maria Peter Julia"),
    people_verbs=phrases(
        "laugh a lot, work at night, sing well, speak softly, live nearby, arrive early, drive too fast, sleep badly,"
        "know the answer, play chess, like coffee, smile often, need help, walk slowly, cook well, write poems,"
        "wait outside"
    ),
    thing_verbs=phrases("look old, belong to {name}, seem worn, smell strange, need a label, come from Paris"),
    people_states=words("tired late hungry famous happy busy nervous ready"),
    thing_states=words("missing new dusty precious plain ugly simple useful"),
    met=words("met helped called followed thanked trusted"),
    got=words("bought lost wanted"),
)

CAST_UNSEEN = Cast(
    people=words(
        "plumber scientist soldier judge dancer actor waiter tourist engineer cousin manager officer man boy girl poet"
    ),
    objects=words("ring coin camera brush jar clock spoon mirror toy vase umbrella pen"),
    places=words("desk sofa bench cupboard fridge counter fireplace drawer"),
    letters=words("note present postcard invitation package envelope"),
    names=words("Laura David Emma Simon Clara"),
    people_verbs=phrases(
        "travel by train, eat too much, run every morning, study history, dance gracefully, stay at home, love music,"
        "collect stamps, swim every day, complain bitterly, want tea, talk too loudly, wear glasses, draw portraits,"
        "leave at noon"
    ),
    thing_verbs=phrases("remain a mystery, matter to {name}, appear worthless, attract attention, bring luck"),
    people_states=words("angry sick rich lonely furious proud calm asleep"),
    thing_states=words("gone perfect cheap tiny beautiful rare valuable familiar"),
    met=words("saw visited hired praised invited noticed"),
    got=words("sold kept chose"),
)
