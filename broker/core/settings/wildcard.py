"""Wildcard patterns over dotted names: ``.`` separates words, ``*`` is one word, ``#`` any number of words, also none.

Artemis's default syntax. Used by address settings and by maps of redelivery policies.
"""

from __future__ import annotations

from typing import Final

ONE_WORD: Final = "*"
ANY_WORDS: Final = "#"
#: How specific a pattern is at one place. The end of a pattern is more specific than ``#`` (``a`` beats ``a.#`` for ``a``)
#: and less than a further word (``#.b`` beats ``#``).
_LITERAL_RANK, _ONE_WORD_RANK, _END_RANK, _ANY_WORDS_RANK = 3, 2, 1, 0


def pattern_matches(pattern: str, name: str) -> bool:
    """Whether ``pattern`` matches the dotted ``name``. Iterative, at most len(pattern) × len(name) steps.

    A ``name`` may itself be a pattern: then the answer is whether ``pattern`` covers it (``*`` covers a word or ``*``, only
    ``#`` covers ``#``).
    """
    return words_match(pattern.split("."), name.split("."))


def words_match(pattern: list[str], words: list[str]) -> bool:
    """``pattern_matches`` for what is split already."""
    at, place = 0, 0
    star, restart = -1, 0
    while place < len(words):
        if at < len(pattern) and pattern[at] == ANY_WORDS:
            star, restart = at, place
            at += 1
        elif at < len(pattern) and (pattern[at] == words[place] or (pattern[at] == ONE_WORD and words[place] != ANY_WORDS)):
            at += 1
            place += 1
        elif star >= 0:
            restart += 1
            at, place = star + 1, restart
        else:
            return False
    return all(word == ANY_WORDS for word in pattern[at:])


def specificity(pattern: str) -> tuple[int, ...]:
    """Sort key: of two patterns that match the same name, the larger one is the more specific.

    Words are compared from the left: a literal word, then ``*``, then ``#``.
    """
    ranks = {ONE_WORD: _ONE_WORD_RANK, ANY_WORDS: _ANY_WORDS_RANK}
    return (*(ranks.get(word, _LITERAL_RANK) for word in pattern.split(".")), _END_RANK)


def pattern_problem(pattern: str) -> str | None:
    """Why ``pattern`` is not a usable pattern, in one sentence; None when it is."""
    if not pattern:
        return "a pattern must not be empty; use # for every address"
    for word in pattern.split("."):
        if not word:
            return "a pattern must not have an empty word (two dots in a row, or one at an end)"
        if len(word) > 1 and (ONE_WORD in word or ANY_WORDS in word):
            return f"the word {word!r} mixes a wildcard with text; * and # stand for whole words between dots"
    return None
