"""An ``activemq.xml``, a ``broker.xml`` or a folder with one of them, translated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from ..errors import Refused
from . import artemis, classic
from .nodes import Node, parse
from .security import Security, read_properties
from .translation import Translation

_FOLDERS: Final = (".", "conf", "etc")
_FILES: Final = ("activemq.xml", "broker.xml")
_PROPERTIES: Final = re.compile(r"[\w.-]+\.properties")
_MOST_INCLUDES: Final = 100


def translate(path: Path) -> tuple[Translation, str]:
    """What it comes to, and the broker.yaml. Raises Refused."""
    file = _file(path)
    values = _values(file)
    root = parse(file, values.get)
    _include(root, file.parent, values, [])
    kinds = {"beans": classic.translate, "broker": classic.translate, "configuration": artemis.translate, "core": artemis.translate}
    if root.name not in kinds:
        raise Refused("not-readable", f"{file} begins with <{root.name}>", "name an activemq.xml or a broker.xml")
    found, security = Translation(), Security(file.parent)
    try:
        kinds[root.name](root, security, found)
    except ValueError as error:
        raise Refused("not-readable", f"{file} has something else where a number belongs: {error}", "correct it there") from None
    for note in root.left():
        found.miss(*note)
    return found, found.as_yaml(str(path))


def _file(path: Path) -> Path:
    if path.is_file():
        return path
    for folder in _FOLDERS:
        for name in _FILES:
            if (path / folder / name).is_file():
                return path / folder / name
    raise Refused("not-found", f"there is no {' or '.join(_FILES)} at {path}", "name the file, or the folder that has it")


def _values(file: Path) -> dict[str, str]:
    """What placeholders stand for: by the files of properties that it names, or by all beside it where it names none."""
    named = set(_PROPERTIES.findall(" ".join(parse(file, lambda _: None).words())))
    values: dict[str, str] = {}
    for properties in sorted(file.parent.glob("*.properties")):
        if not named or properties.name in named:
            values.update({key: value for key, (value, _) in (read_properties(properties) or {}).items()})
    return values


def _include(node: Node, folder: Path, values: dict[str, str], included: list[Path]) -> None:
    """Artemis's ``xi:include``: the elements of the other file stand in its place."""
    for place, child in enumerate(list(node.children)):
        if child.name == "include" and "href" in child.attributes:
            other = folder / unquote(child.take("href").removeprefix("file:"))
            if not other.is_file() or len(included) >= _MOST_INCLUDES:
                raise Refused("not-found", f"{child.origin} includes {other}, which cannot be read", "name a folder that has it")
            included.append(other)
            child = node.children[place] = parse(other, values.get)
        _include(child, folder, values, included)
