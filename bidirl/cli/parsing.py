"""The one module that knows jsonargparse: a typed dataclass from a YAML file and ``--key value`` pairs, strictly.

What it adds: errors are one line with the nearest correct name; nothing is abbreviated; arguments of a class named in
the file are never carried into another class named on the command line; a class that takes ``**kwargs`` is refused,
because its arguments could not be checked.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

import jsonargparse
import yaml

from bidirl.core.errors import BidirlError, ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Parsed(Generic[T]):
    """A config object, and the YAML text that would give the same object again."""

    value: T
    resolved_yaml: str


def parse_config(
    config_class: type[T], file: Path | None, options: Sequence[str] = (), unbuilt: Sequence[str] = ()
) -> Parsed[T]:
    """Read ``file``, apply ``--key value`` options, check everything and build ``config_class``.

    ``config_class.DEFAULT_CLASSES`` (optional) maps keys to the class that is used where none is named.
    Keys in ``unbuilt`` are checked for names and types, but their objects are not made: they are ``None``.

    Raises:
        ConfigError: one line that names the key and the fix.
    """
    parser = _parser(config_class)
    required = _take_required(parser)
    content = {} if file is None else _read_yaml(file)
    pairs = _pairs(options)
    for key, class_path in getattr(config_class, "DEFAULT_CLASSES", {}).items():
        content.setdefault(key, class_path)
    for key, value in pairs.items():
        _guard_class_switch(parser, content, key, value)
    try:
        _check_keys(parser, content)
        base = parser.parse_object(content)
        # Classes are set before their arguments.
        arguments = [f"--{key}={value}" for key, value in sorted(pairs.items(), key=lambda item: item[0].count("."))]
        namespace = parser.parse_args(arguments, namespace=base)
        _refuse_open_signatures(namespace)
        given = {key.partition(".")[0] for key in (*content, *pairs)}
        for key in unbuilt:
            if key not in given:
                del namespace[key]
        _require(namespace, [key for key in required if key.partition(".")[0] not in unbuilt])
        text = parser.dump(namespace, skip_unset=False)
        for key in unbuilt:
            namespace.pop(key, None)
        built = config_class(**vars(_parser(config_class, unbuilt).instantiate(namespace)), **dict.fromkeys(unbuilt))
    except jsonargparse.ArgumentError as error:
        raise ConfigError(_one_line(parser, str(error))) from None
    except BidirlError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(_one_line(parser, str(error))) from error
    return Parsed(built, text)


def describe(config_class: type[Any]) -> str:
    """The list of keys with types, defaults and meanings."""
    text = _parser(config_class).format_help()
    return text[text.index("--") - 2 :] if "--" in text else text


def known_keys(config_class: type[Any]) -> tuple[str, ...]:
    """Every key that a config file may hold, dotted; arguments of injected classes are not listed."""
    return tuple(_keys(_parser(config_class)))


def _parser(config_class: type[Any], skip: Sequence[str] = ()) -> jsonargparse.ArgumentParser:
    parser = jsonargparse.ArgumentParser(exit_on_error=False, allow_abbrev=False, add_help=False)
    parser.add_class_arguments(config_class, None, skip=set(skip))
    return parser


def _take_required(parser: jsonargparse.ArgumentParser) -> list[str]:
    """Keys without a default. They are checked at the end: file and command line each may lack some."""
    required = [action.dest for action in parser._actions if action.required]
    for action in parser._actions:
        action.required = False
    extra = sorted(set(parser._extra_required_keys) - set(required))
    parser._extra_required_keys.clear()
    return required + extra


def _require(namespace: jsonargparse.Namespace, required: Sequence[str]) -> None:
    for key in required:
        if namespace.get(key) is None:
            raise ConfigError(f"{key} must be given: add it to the file or pass --{key} VALUE")


def _keys(parser: jsonargparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.dest.rpartition(".")[2] != "help":
            yield action.dest


def _read_yaml(file: Path) -> dict[str, Any]:
    if not file.is_file():
        near = _hint(file.name, [p.name for p in file.parent.glob("*.y*ml")] if file.parent.is_dir() else [])
        raise ConfigError(f"config file {file} does not exist{near}")
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"config file {file} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"config file {file} holds {type(content).__name__}, not keys and values")
    return content


class _UniqueKeyLoader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
    """Refuses a key that is given twice, which YAML itself would let pass silently."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        result: dict[Any, Any] = super().construct_mapping(node, deep)
        return result


# YAML 1.1 reads 1e-5 as text; a learning rate is a number.
_UniqueKeyLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _pairs(options: Sequence[str]) -> dict[str, str]:
    """``--key value`` and ``--key=value`` as a mapping."""
    found: dict[str, str] = {}
    rest = list(options)
    while rest:
        option = rest.pop(0)
        if not option.startswith("--"):
            raise ConfigError(f"unexpected argument {option!r}: options are written --key value")
        key, equals, value = option[2:].partition("=")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise ConfigError(f"--{key} has no value: write --{key} value (a switch is set with true or false)")
            value = rest.pop(0)
        if key in found:
            raise ConfigError(f"--{key} is given twice")
        found[key] = value
    return found


def _guard_class_switch(parser: jsonargparse.ArgumentParser, content: dict[str, Any], key: str, value: str) -> None:
    """Trap: jsonargparse keeps the arguments that the file gave to the old class if the new one has the same names."""
    if key.endswith(".class_path"):
        key = key.removesuffix(".class_path")
    head, _, leaf = key.rpartition(".")
    holder = _lookup(content, head)
    if not _is_class_key(parser, key) or not isinstance(holder, dict) or leaf not in holder:
        return
    old = holder[leaf]
    old_class = old.get("class_path", "") if isinstance(old, dict) else str(old)
    if value.lstrip().startswith("{"):
        del holder[leaf]  # a full object replaces the old one
    elif old_class.rpartition(".")[2] != value.rpartition(".")[2]:
        if isinstance(old, dict) and old.get("init_args"):
            raise ConfigError(
                f"--{key} {value} would inherit {', '.join(old['init_args'])} that the file sets for {old_class}: "
                f"replace the whole object with --{key} '{{class_path: {value}, init_args: {{…}}}}'"
            )
        del holder[leaf]  # otherwise the defaults of the old class would be carried over


def _lookup(content: dict[str, Any], dotted: str) -> Any:
    found: Any = content
    for part in dotted.split(".") if dotted else ():
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _check_keys(parser: jsonargparse.ArgumentParser, content: Mapping[str, Any]) -> None:
    """Unknown top-level keys first: they have the best hint."""
    known = {key.partition(".")[0] for key in _keys(parser)}
    for key in content:
        if key not in known:
            raise ConfigError(f"unknown key {str(key)!r}{_hint(str(key), known)}")


def _refuse_open_signatures(node: Any, key: str = "") -> None:
    """A class with ``*args`` or ``**kwargs``, or unannotated arguments, switches checking off."""
    items = vars(node).items() if isinstance(node, jsonargparse.Namespace) else ()
    for name, child in items:
        if name == "class_path" and isinstance(child, str):
            _check_signature(child, key)
        _refuse_open_signatures(child, f"{key}.{name}".lstrip("."))


def _check_signature(class_path: str, key: str) -> None:
    found = jsonargparse._util.import_object(class_path)
    if not inspect.isclass(found):
        raise ConfigError(f"{key}: {class_path} is not a class")
    if found.__init__ is object.__init__:
        return
    parameters = list(inspect.signature(found.__init__).parameters.values())[1:]
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            taken = f"{class_path} takes **{parameter.name}"
            raise ConfigError(f"{key}: {taken}, so its arguments cannot be checked: name and annotate each one")
    hints = get_type_hints(found.__init__)
    bare = [parameter.name for parameter in parameters if parameter.name not in hints]
    if bare:
        raise ConfigError(f"{key}: {class_path} has arguments without a type: annotate {', '.join(bare)}")


def _one_line(parser: jsonargparse.ArgumentParser, message: str) -> str:
    """The essence of a jsonargparse error, with the nearest correct name."""
    text = " ".join(message.split())
    key_match = re.search(r'Parser key "([^"]+)"', text)
    key = key_match.group(1) if key_match else ""
    if match := re.search(r"unrecognized arguments: --([^\s=]+)", text):
        return _unknown(parser, match.group(1))
    if match := re.search(r"Group '([^']+)' does not accept option '([^']+)'", text):
        return _unknown(parser, f"{match.group(1)}.{match.group(2)}")
    if match := re.search(r"Problem with given class_path '([^']+)':.*Option '([^']+)' is not accepted", text):
        return _unknown_argument(key, match.group(1), match.group(2))
    if match := re.search(r"Problem with given class_path '([^']+)': (.+)", text):
        inner = re.sub(r'Parser key "([^"]+)": ', r"\1: ", match.group(2))
        return f"{key or match.group(1)}: {_plain(inner)}" + (f" (in {match.group(1)})" if key else "")
    if match := re.search(r"Option '([^']+)' is not accepted", text):
        return _unknown(parser, match.group(1))
    detail = text.partition('":')[2].strip() if key else text
    if not _is_class_key(parser, key):
        return f"{key}: {_plain(detail)}" if key else _plain(detail)
    return _class_problem(parser, key, detail)


def _unknown(parser: jsonargparse.ArgumentParser, key: str) -> str:
    head = key
    while head := head.rpartition(".")[0]:
        if _is_class_key(parser, head):
            return f"{head}: unknown argument {key[len(head) + 1 :]!r} (the class in use does not take it)"
    keys = set(_keys(parser))
    leaves = {k.rpartition(".")[2]: k for k in keys}
    near = difflib.get_close_matches(key, keys, 1, 0.6)
    near = near or [leaves[leaf] for leaf in difflib.get_close_matches(key.rpartition(".")[2], leaves, 1, 0.7)]
    return f"unknown key {key!r}" + (f": did you mean {near[0]!r}?" if near else "; bidirl train --help lists all keys")


def _unknown_argument(key: str, class_path: str, argument: str) -> str:
    try:
        found = jsonargparse._util.import_object(class_path)
        known = list(inspect.signature(found).parameters)
    except (ImportError, ValueError, TypeError, AttributeError):
        known = []
    short = class_path.rpartition(".")[2]
    if not known:
        return f"{key}: {short} takes no arguments, so {argument!r} cannot be set"
    return f"{key}: {short} has no argument {argument!r}{_hint(argument, known)}"


def _class_problem(parser: jsonargparse.ArgumentParser, key: str, detail: str) -> str:
    base = next(_typehint(action) for action in parser._actions if action.dest == key)
    names = sorted(set(_concrete_names(base)))
    if match := re.search(r"dot import path string: (\S+)", detail, re.IGNORECASE):
        return f"{key}: there is no class {match.group(1)!r}{_hint(match.group(1), names)}"
    if match := re.search(r"Import path (\S+) does not correspond to a subclass of (\S+)", detail):
        return f"{key}: {match.group(1)} is not a subclass of {match.group(2)}; available: {', '.join(names)}"
    if match := re.search(r"but (\S+) is abstract", detail):
        return f"{key}: {match.group(1)} is abstract, name a class that can be built; available: {', '.join(names)}"
    detail = detail.partition(" Subclass types expect")[0]
    return f"{key}: {_plain(detail)}; available: {', '.join(names)}"


def _concrete_names(base: Any) -> Iterator[str]:
    origin = getattr(base, "__origin__", base)
    for candidate in getattr(origin, "__args__", None) or (origin,):
        stack = [candidate] if inspect.isclass(candidate) else []
        while stack:
            current = stack.pop()
            stack.extend(current.__subclasses__())
            if not inspect.isabstract(current):
                yield current.__name__


def _is_class_key(parser: jsonargparse.ArgumentParser, key: str) -> bool:
    return any(action.dest == key and any(True for _ in _class_types(_typehint(action))) for action in parser._actions)


def _typehint(action: Any) -> Any:
    return getattr(action, "_typehint", None)


def _class_types(hint: Any) -> Iterator[type[Any]]:
    origin = getattr(hint, "__origin__", hint)
    for candidate in (origin, *(getattr(hint, "__args__", None) or ())):
        if inspect.isclass(candidate) and inspect.isabstract(candidate):
            yield candidate


def _plain(detail: str) -> str:
    if match := re.search(r"Subtypes: \[<?(?:class )?'?[\w]+\.[\w.]+.*?\] Errors: - (.+?) - Expected an? ", detail):
        return _plain(
            re.sub(r'Parser key "([^"]+)": ', r"\1: ", match.group(1))
        )  # what is wrong inside an optional section
    if match := re.search(r"Subtypes: \[(.+?)\] Errors:.* Given value: (.+)$", detail):
        detail = f"expected {match.group(1).replace(', ', ' or ')}, got {match.group(2)}"
    detail = re.split(r" - [Ee]xpected | Given value type", detail)[0].replace("<class 'NoneType'>", "null")
    detail = re.sub(r"<class '([\w.]+)'>", r"\1", detail).replace("typing.Literal", "one of ")
    return re.sub(r"\bExpected an? ", "expected ", detail).replace(". Got value: ", ", got ")


def _hint(wrong: str, known: Sequence[str] | set[str]) -> str:
    near = difflib.get_close_matches(wrong, list(known), 1, 0.5)
    if near:
        return f": did you mean {near[0]!r}?"
    return f"; available: {', '.join(sorted(known))}" if known else ""
