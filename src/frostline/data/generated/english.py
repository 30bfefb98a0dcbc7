"""English grammar that the generated tasks share."""

from frostline.data.wording import comma_separated

Words = tuple[str, ...]

IRREGULAR = {"child": "children", "woman": "women", "man": "men", "knife": "knives", "shelf": "shelves", "be": "is"}


def words(text: str) -> Words:
    """The words of a text, separated by spaces."""
    return tuple(text.split())


def phrases(text: str) -> Words:
    """The phrases of a text, separated by commas."""
    return tuple(comma_separated(text))


def the(noun: str, plural: bool) -> str:
    """The noun with its definite article, in the singular or the plural."""
    return f"the {s_form(noun) if plural else noun}"


def a(word: str) -> str:
    """The word with its indefinite article."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def s_form(word: str) -> str:
    """The plural of a noun, or the third person singular of a verb. English forms both with -s."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def sentence(text: str, stop: str = ".") -> str:
    """The text with a capital letter in front and a full stop or question mark at its end."""
    return text[0].upper() + text[1:] + stop
