"""Secrets in job files and `gobblin.yaml`: values of environment variables are hidden, literal passwords refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gobblin_dagster.core.secrets import has_literal_password, has_reference, is_secret, passwords
from gobblin_dagster.spec.document import Document, Loc

_SHOWN = frozenset(
    {"job", "path", "table", "tables", "namespace", "topics", "brokers", "branch", "name", "state", "jobs"}
)
"""Keys whose values are not hidden, as people search for them (paths, tables and so on)."""
_OPTIONS = frozenset({"options", "params", "newest_params", "body"})
"""Keys whose mappings are handed on as they are. Constructs check `config`, `catalog` and `storage_options` themselves,
because they name the key that takes a variable. In other mappings (`columns`) names are those of data."""
_DATA = frozenset({"columns", "rename", "types", "schema"})
"""Keys of the user's own classes whose mappings are named by columns."""
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""The type of a construct that is the user's own class."""
_OF_JAVA = re.compile(r"(?<!\S)-D([\w.-]+)=(\S+)")
"""A property in options of Java, as `spark.driver.extraJavaOptions` holds them."""
_QUOTES = re.compile(r"\\*[\"']")
_FURTHER = ("config", "headers", "catalog", "storage_options")
"""The same for constructs that `classes` of gobblin.yaml declares: no construct checks them before it is used."""
_REFUSED = "must not hold a password; take it from the environment: ${NAME}"


def values_to_hide(document: Document) -> dict[str, str]:
    """Return the references by value of all environment variables to hide.

    These are all outside of keys in `_SHOWN`, and there those of which the password of a URL is made.
    """
    return {
        value: reference
        for loc, reference, value in _values(document)
        if not is_shown(loc) or any(value in password for password in _shown_passwords(document, loc))
    }


def shown_urls(document: Document) -> dict[str, str]:
    """Return the references by value of variables in keys of `_SHOWN`: of URLs among them, the password is hidden."""
    return {value: reference for loc, reference, value in _values(document) if is_shown(loc)}


def _values(document: Document) -> Iterator[tuple[Loc, str, str]]:
    """Yield (place, reference, value) of each reference."""
    for loc, values in document.values.items():
        for reference, value in values:
            yield loc, reference, value


def _shown_passwords(document: Document, loc: Loc) -> list[str]:
    """Return the passwords of the URL at a place, if one is there."""
    node: Any = document.data
    for part in loc:
        node = node[part]
    return passwords(node) if isinstance(node, str) else []


def is_shown(loc: Loc) -> bool:
    """Return whether people search for what stands at a place of a document, so that its value is not hidden."""
    return next((part for part in reversed(loc) if isinstance(part, str)), "") in _SHOWN


def named_variables(node: Any, *, is_name: bool = False) -> Iterator[str]:
    """Yield each variable that a setting names, at any depth: those of keys that end in `_env`."""
    match node:
        case dict():
            for key, value in node.items():
                yield from named_variables(value, is_name=is_name or str(key).endswith("_env"))
        case list():
            for value in node:
                yield from named_variables(value, is_name=is_name)
        case str() if is_name:
            yield node


def project_secrets(data: Any, written: Mapping[Loc, str]) -> Iterator[tuple[Loc, str]]:
    """Yield (place, problem) for each literal password in `gobblin.yaml`; arguments as in `literal_secrets`.

    Commands of `secrets` are the project's own programs, and `keys` of `classes` name keys of job files.
    """
    if not isinstance(data, dict):
        return
    for loc, problem in literal_secrets((), {key: data[key] for key in data if key != "secrets"}, written):
        if not (loc[0] == "classes" and "keys" in loc[2:-1]):
            yield loc, problem
    classes = data.get("classes")
    names = classes if isinstance(classes, dict) else ()
    further = [("classes", name, option) for name in names for option in _FURTHER]
    for loc in (("spark", "conf"), ("worker", "inlet", "config"), *further):
        node: Any = data
        for part in loc:
            node = node.get(part) if isinstance(node, dict) else None
        yield from literal_secrets(loc, node, written, names_secrets=True)
        for key, value in node.items() if isinstance(node, dict) else ():
            options = _QUOTES.sub(" ", written.get((*loc, key), str(value)))
            given = _OF_JAVA.findall(options)
            is_literal = any(is_secret(name, text) and not has_reference(text) for name, text in given)
            if is_literal or has_literal_password(options):
                yield (*loc, key), _REFUSED


def literal_secrets(
    loc: Loc, node: Any, written: Mapping[Loc, str], *, names_secrets: bool = False
) -> Iterator[tuple[Loc, str]]:
    """Yield (place, problem) for each literal password at any depth: in a URL, as an option, or for a user's own class.

    Args:
        loc: place of the node in the document.
        node: a part of the document, with references replaced.
        written: by place, the text of values that held references.
        names_secrets: whether the node is inside of options that are handed on as they are.
    """
    if isinstance(node, list):
        for number, part in enumerate(node):
            yield from literal_secrets((*loc, number), part, written, names_secrets=names_secrets)
    elif isinstance(node, dict):
        names_secrets |= bool(loc and loc[-1] in _OPTIONS) or _TARGET.fullmatch(str(node.get("type", ""))) is not None
        for key, value in node.items():
            here = (*loc, key)
            is_given = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
            is_free = not (names_secrets and is_given) or has_reference(written.get(here, ""))
            if not is_free and is_secret(str(key), str(value)):
                yield here, _REFUSED
            else:
                inside = names_secrets and key not in _DATA
                yield from literal_secrets(here, value, written, names_secrets=inside)
    elif isinstance(node, str) and has_literal_password(written.get(loc, node)):
        yield loc, _REFUSED
