"""Selectors: SQL-92 conditions over a message's headers and properties, as in JMS 1.1, section 3.8.

``compile_selector`` turns the text into closures once; ``Selector.matches`` then only calls them. Beyond JMS: ``IN`` takes numbers too, and
``"any name"`` in double quotes names a property that is no Java identifier (SQL's delimited identifiers).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from . import selector_terms as terms
from .selector_terms import Kind, Like, Lookup, PropertyValue, Run, Term

if TYPE_CHECKING:
    from lark import Lark, Token
    from lark.exceptions import UnexpectedInput

    Children = list[Any]

__all__ = ["Lookup", "PropertyValue", "Selector", "SelectorError", "compile_selector"]

MAX_CHARACTERS: Final = 4096
MAX_DEPTH: Final = 64
#: Selectors that are remembered: short ones, of some 160 B for each character, 8 MiB in all at most.
_REMEMBERED: Final = 256
_SHORT: Final = 200
#: Characters of a text times characters of patterns with ``_`` between texts, over all LIKEs of a selector: some 10 ms. By what the pattern
#: allows, a longer text is not looked at. A pattern of 64 characters is compared with all that the properties of a message can hold.
GAPPED_STEPS: Final = 1 << 22
#: The largest magnitude a literal may have: that of the smallest 64-bit number, which is written as a minus and a literal.
_LARGEST_INTEGER: Final = 2**63

_GRAMMAR: Final = r"""
?start: disjunction
disjunction: conjunction (_OR conjunction)*
conjunction: _condition (_AND _condition)*
_condition: negation | comparison
negation: NOT _condition

?comparison: sum
    | sum COMPARE sum                                     -> compare
    | sum [NOT] _BETWEEN sum _AND sum                     -> between
    | sum [NOT] _IN "(" _listed ("," _listed)* ")"        -> one_of
    | sum [NOT] _LIKE STRING [_ESCAPE STRING]             -> like
    | sum _IS [NOT] _NULL                                 -> is_null
_listed: listed
listed: [SIGN] INTEGER | [SIGN] FLOAT | STRING

sum: product (SIGN product)*
product: _factor (SCALE _factor)*
_factor: signed | _primary
signed: SIGN _factor
_primary: integer | float | text | truth | name | nested
integer: INTEGER
float: FLOAT
text: STRING
truth: TRUE | FALSE
name: NAME | QUOTED
nested: OPEN disjunction ")"

// Keywords are words of their own: ANDROID is a name.
_AND.3: /and(?![\w$])/i
_OR.3: /or(?![\w$])/i
NOT.3: /not(?![\w$])/i
_BETWEEN.3: /between(?![\w$])/i
_IN.3: /in(?![\w$])/i
_LIKE.3: /like(?![\w$])/i
_ESCAPE.3: /escape(?![\w$])/i
_IS.3: /is(?![\w$])/i
_NULL.3: /null(?![\w$])/i
TRUE.3: /true(?![\w$])/i
FALSE.3: /false(?![\w$])/i
NAME: /(?:[^\W\d]|\$)[\w$]*/
QUOTED: /"(?:[^"]|"")+"/
STRING: /'(?:[^']|'')*'/
FLOAT.2: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?|[0-9]+(?:[eE][+-]?[0-9]+[fFdD]?|[fFdD])/
INTEGER.1: /0[xX][0-9a-fA-F]+[lL]?|[0-9]+[lL]?/
COMPARE: /<>|<=|>=|=|<|>/
SIGN: /[+-]/
SCALE: /[*\/]/
OPEN: "("
%ignore /[ \t\f\r\n]+/
"""


_FIX: Final = "selectors are SQL-92 conditions as in JMS, such as: k = 'v' AND size > 10"


class SelectorError(ValueError):
    """A selector that cannot be used. ``position``: the character it fails at, from 0. The request is refused, the connection goes on."""

    code = "invalid-selector"

    def __init__(self, message: str, position: int, fix: str = _FIX) -> None:
        super().__init__(f"{message} (at character {position + 1})")
        self.message = str(self)
        self.position = position
        self.fix = fix


class Selector:
    """A compiled selector; immutable, shared by everyone who wrote the same text."""

    __slots__ = ("_per_kibibyte", "_plain", "_run", "text")

    def __init__(self, text: str, run: Run, likes: Sequence[Like]) -> None:
        self.text = text
        self._run = run
        self._plain = 1 + len(text) // 64
        self._per_kibibyte = sum([1 + like.gapped for like in likes if like.searched])
        gapped = sum([like.gapped for like in likes])
        for like in likes:
            if like.gapped:
                like.longest = GAPPED_STEPS // gapped

    def cost(self, size: int) -> int:
        """How many ordinary selectors' work (a microsecond) one evaluation may be, roughly, where the properties take ``size`` bytes."""
        return self._plain + min(self._per_kibibyte * size, 2 * GAPPED_STEPS) // 1024

    def matches(self, lookup: Lookup) -> bool:
        """Whether the condition is true; false and unknown are both no match. ``lookup`` gives a name's value, None where there is none."""
        return self._run(lookup) is True

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def compile_selector(text: str, max_characters: int = MAX_CHARACTERS, max_depth: int = MAX_DEPTH) -> Selector:
    """The selector that ``text`` says; the same again for a short one that was compiled of late. Raises SelectorError."""
    return (_remembered if len(text) <= _SHORT else _compiled)(text, max_characters, max_depth)


def _compiled(text: str, max_characters: int, max_depth: int) -> Selector:
    if len(text) > max_characters:
        message = f"the selector has {len(text)} characters, more than {max_characters}"
        raise SelectorError(message, max_characters, "shorten it, or raise limits.max-selector-characters in broker.yaml")
    if not text.strip():
        raise SelectorError("the selector is empty", 0, "leave it out to match every message")
    term, likes = _parse(text)
    if term.depth > max_depth:
        message = f"the selector is nested {term.depth} deep, more than {max_depth}"
        raise SelectorError(message, term.position, "flatten it, or raise limits.max-selector-depth in broker.yaml")
    return Selector(text, term.run, likes)


_remembered = lru_cache(maxsize=_REMEMBERED)(_compiled)


def _parse(text: str) -> tuple[Term, list[Like]]:
    parser, builder = _parser()
    from lark.exceptions import UnexpectedInput

    likes: list[Like] = []
    builder.likes = likes
    try:
        parsed: Any = parser.parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    term: Term = parsed
    return _condition(term, "a selector"), likes


@lru_cache(maxsize=1)
def _parser() -> tuple[Lark, _Builder]:
    """Made at the first selector, so that a broker without any never loads lark. LALR with the builder run at each reduction: no
    syntax tree, no recursion, so nesting costs no stack."""
    from lark import Lark

    builder = _Builder()
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=builder, maybe_placeholders=True), builder


def _syntax_error(text: str, error: UnexpectedInput) -> SelectorError:
    token = getattr(error, "token", None)
    if token is not None and token.type != "$END":
        return SelectorError(f"{_shown(str(token))} does not belong here", _at(token))
    if token is not None:
        return SelectorError("the selector ends too early", len(text))
    position = min(getattr(error, "pos_in_stream", None) or 0, len(text) - 1)
    if text[position] in "'\"":
        return SelectorError("a text or name in quotes has no end", position)
    return SelectorError(f"{_shown(text[position])} is not part of a selector", position)


def _at(token: Token) -> int:
    return token.start_pos or 0


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _condition(term: Term, where: str) -> Term:
    if term.kind in (Kind.NUMBER, Kind.TEXT):
        raise SelectorError(f"{where} must be a condition, not {term.kind.value}", term.position)
    return term


def _number(term: Term, where: str) -> Term:
    if term.kind in (Kind.CONDITION, Kind.TEXT):
        raise SelectorError(f"{where} must be a number, not {term.kind.value}", term.position)
    return term


def _deepest(parts: list[Term]) -> int:
    return max(part.depth for part in parts)


class _Builder:
    """One method a rule of the grammar: the children's terms in, the term of the whole out. Kinds are checked here."""

    def __init__(self) -> None:
        #: The LIKEs of the selector that is being read.
        self.likes: list[Like] = []

    def disjunction(self, children: Children) -> Term:
        return self._logic(children, terms.any_of, "OR")

    def conjunction(self, children: Children) -> Term:
        return self._logic(children, terms.all_of, "AND")

    @staticmethod
    def _logic(parts: list[Term], join: Any, word: str) -> Term:
        if len(parts) == 1:
            return parts[0]
        runs = [_condition(part, f"what {word} joins").run for part in parts]
        return Term(Kind.CONDITION, _deepest(parts), parts[0].position, join(runs))

    def negation(self, children: Children) -> Term:
        word, inner = children
        return Term(Kind.CONDITION, inner.depth + 1, word.start_pos, terms.negation(_condition(inner, "what follows NOT").run))

    def compare(self, children: Children) -> Term:
        left, sign, right = children
        kinds = {left.kind, right.kind} - {Kind.ANY}
        if terms.is_ordering(sign) and kinds - {Kind.NUMBER}:
            raise SelectorError(f"{sign} compares numbers; text and conditions can only be compared by = and <>", sign.start_pos)
        if len(kinds) > 1:
            raise SelectorError(f"{left.kind.value} can never be compared with {right.kind.value}", sign.start_pos)
        return Term(Kind.CONDITION, _deepest([left, right]), left.position, terms.comparison(str(sign), left.run, right.run))

    def between(self, children: Children) -> Term:
        value, negated, low, high = children
        parts = [_number(part, "what BETWEEN compares") for part in (value, low, high)]
        both = terms.all_of([terms.comparison(">=", value.run, low.run), terms.comparison("<=", value.run, high.run)])
        return self._perhaps_not(negated, both, parts)

    def one_of(self, children: Children) -> Term:
        value, negated, *listed = children
        return self._perhaps_not(negated, terms.one_of(value.run, listed), [value])

    def like(self, children: Children) -> Term:
        value, negated, pattern, escape = children
        if value.kind in (Kind.NUMBER, Kind.CONDITION):
            raise SelectorError(f"LIKE compares text, not {value.kind.value}", value.position)
        mark = None if escape is None else _unquoted(escape)
        if mark is not None and len(mark) != 1:
            raise SelectorError("ESCAPE takes exactly one character", escape.start_pos)
        try:
            run = Like(value.run, _unquoted(pattern), mark)
        except ValueError as error:
            raise SelectorError(str(error), pattern.start_pos) from None
        self.likes.append(run)
        return self._perhaps_not(negated, run, [value])

    def is_null(self, children: Children) -> Term:
        value, negated = children
        return self._perhaps_not(negated, terms.is_null(value.run), [value])

    @staticmethod
    def _perhaps_not(negated: Token | None, run: Run, parts: list[Term]) -> Term:
        return Term(Kind.CONDITION, _deepest(parts), parts[0].position, run if negated is None else terms.negation(run))

    def listed(self, children: Children) -> PropertyValue:
        *sign, literal = children
        if literal.type == "STRING":
            return _unquoted(literal)
        value = _integer(literal) if literal.type == "INTEGER" else _float(literal)
        return -value if sign[0] == "-" else value

    def sum(self, children: Children) -> Term:
        return self._chain(children)

    def product(self, children: Children) -> Term:
        return self._chain(children)

    @staticmethod
    def _chain(children: Children) -> Term:
        if len(children) == 1:
            term: Term = children[0]
            return term
        parts: list[Term] = children[::2]
        first, *rest = (_number(part, "what arithmetic works on").run for part in parts)
        signs = [str(sign) for sign in children[1::2]]
        return Term(Kind.NUMBER, _deepest(parts), parts[0].position, terms.arithmetic(first, list(zip(signs, rest, strict=True))))

    def signed(self, children: Children) -> Term:
        sign, inner = children
        run = terms.signed(sign == "-", _number(inner, f"what follows {sign}").run)
        return Term(Kind.NUMBER, inner.depth + 1, sign.start_pos, run)

    def nested(self, children: Children) -> Term:
        opening, inner = children
        return Term(inner.kind, inner.depth + 1, opening.start_pos, inner.run)

    def integer(self, children: Children) -> Term:
        return Term(Kind.NUMBER, 0, _at(children[0]), terms.constant(_integer(children[0])))

    def float(self, children: Children) -> Term:
        return Term(Kind.NUMBER, 0, _at(children[0]), terms.constant(_float(children[0])))

    def text(self, children: Children) -> Term:
        return Term(Kind.TEXT, 0, _at(children[0]), terms.constant(_unquoted(children[0])))

    def truth(self, children: Children) -> Term:
        return Term(Kind.CONDITION, 0, _at(children[0]), terms.constant(children[0].type == "TRUE"))

    def name(self, children: Children) -> Term:
        token = children[0]
        return Term(Kind.ANY, 0, _at(token), terms.identifier(_unquoted(token) if token.type == "QUOTED" else str(token)))


def _unquoted(token: Token) -> str:
    """The text between the quotes; a doubled quote stands for one."""
    quote = token[0]
    return str(token[1:-1]).replace(quote * 2, quote)


def _integer(token: Token) -> int:
    """Decimal, 0x… or, as in Java, 0… octal; a trailing L is allowed."""
    digits = str(token).rstrip("lL")
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits.startswith("0") else 10
    try:
        value = int(digits, base)
    except ValueError:
        raise SelectorError(f"{digits} is not an octal number, which a leading 0 makes it", _at(token)) from None
    if value > _LARGEST_INTEGER:
        raise SelectorError("the number does not fit into 64 bits", _at(token))
    return value


def _float(token: Token) -> float:
    value = float(str(token).rstrip("fFdD"))
    if not math.isfinite(value):
        raise SelectorError("the number is larger than a double can hold", _at(token))
    return value
