"""A YAML text whose every value knows the line it stands on, so that an error can name it.

Duplicate keys are errors: YAML would silently take the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

MAX_BYTES = 1 << 20
_MAX_VALUES = 100_000
Path = Sequence[str | int]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where (``field`` is '' for the whole text), what, and the fix."""

    line: int
    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}" if self.field else self.text


class SourceError(ValueError):
    """The text is not YAML that we can use."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Source:
    """The plain values of a YAML text, and its nodes, which know their lines."""

    data: Any
    root: yaml.Node

    def line(self, path: Path) -> int:
        """The line of the value at ``path``, or of the nearest one around it if it is missing."""
        node = self.root
        for step in path:
            found = _step(node, step)
            if found is None:
                break
            node = found
        return int(node.start_mark.line) + 1


def field_name(path: Path) -> str:
    """A path as people write it: ``profiles[0].slices[2].memory``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def parse(text: str) -> Source:
    """Read one YAML document. Raises SourceError with lines."""
    if len(text.encode()) > MAX_BYTES:
        raise SourceError([Problem(1, "", f"the file is larger than {MAX_BYTES >> 20} MiB")])
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"the character U+{ord(text[error.position]):04X} may not stand in YAML"
        raise SourceError([Problem(line, "", what)]) from None
    try:
        root = loader.get_single_node()
        if root is None:
            raise SourceError([Problem(1, "", "the file is empty")])
        if _values(root, {}) > _MAX_VALUES:
            problem = f"has more than {_MAX_VALUES} values, counting what its aliases repeat"
            raise SourceError([Problem(1, "", problem)])
        duplicates = _duplicates(root, (), set())
        if duplicates:
            raise SourceError(duplicates)
        return Source(loader.construct_document(root), root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise SourceError([Problem(line, "", f"not YAML: {error.problem}")]) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError([Problem(1, "", f"not YAML: {error}")]) from None
    finally:
        loader.dispose()


def _values(node: yaml.Node, counted: dict[int, int]) -> int:
    """How many values the node stands for once its aliases are written out."""
    if id(node) not in counted:
        counted[id(node)] = _MAX_VALUES + 1  # as long as it is being counted: it contains itself
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            children = [value for _, value in node.value]
        counted[id(node)] = 1 + sum(_values(child, counted) for child in children)
    return counted[id(node)]


def _step(node: yaml.Node, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step] if step < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        # The key's own node: a nested value starts on the line after its key.
        for key, value in node.value:
            if key.value == str(step):
                return value if value.start_mark.line == key.start_mark.line else _keyed(key, value)
    return None


def _keyed(key: yaml.Node, value: yaml.Node) -> yaml.Node:
    """``value``, but said to start where its key stands."""
    kind = type(value)
    return kind(value.tag, value.value, key.start_mark, value.end_mark)


def _duplicates(node: yaml.Node, path: tuple[str | int, ...], visited: set[int]) -> list[Problem]:
    found: list[Problem] = []
    if id(node) in visited:  # an alias
        return found
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            found += _duplicates(item, (*path, i), visited)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), int(key.start_mark.line) + 1
            if name in seen and name != "<<":
                where = field_name((*path, name))
                found.append(Problem(line, where, f"is set on line {seen[name]} already; keep one"))
            seen[name] = line
            found += _duplicates(value, (*path, name), visited)
    return found
