"""Keep values of environment variables (passwords, tokens) out of everything that is stored or printed.

A job file refers to a variable as `${NAME}`. Loading it calls `remember` with the value; other processes of the run
get the values by `known_in`. All our errors, and the messages and notes of work units, pass through `hidden`, which
replaces each value by its reference `${NAME}`, in state stores, documents, Dagster's events and logs.

User code may also read variables that no file names, and raise what it read. So `hide_environment` looks for secrets in
the environment (Dagster puts the variables of `.env` there) by the names of variables, and for passwords in URLs.

Settings that name a variable (`key_env`, `headers_env`) take its value by `variable`: from the environment, or from
what a project found in files and by commands (`give`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from urllib.parse import quote, quote_plus, unquote, urlsplit

SHORTEST = 4
"""Values with fewer characters are not hidden: parts of ordinary words would be replaced."""
_WORDS = frozenset({"true", "false", "null", "none"})
"""Values that are not hidden, as they are ordinary words."""
_SHORTEST_UNNAMED = 6
"""The same, and no plain words, for values that no file of the project refers to."""
_SECRET_NAME = re.compile(
    r"passw|passphrase|secret|credential|token(?!iz)|(?:^|_)(?:pass|pwd|salt)(?:_|$)|connection_?string"
    r"|(?:account|access|api|sas|private|master|subscription|functions)_?key|store_key$|key_pem$"
    r"|(?:^|_)(?:authorization|cookie|jwt)$|auth_user_info$|bearer_config$|^sig$|^signature$|amz_signature$"
)
"""Names of secrets, in small letters with `_` between words.

A `key` alone is none: that is a column to merge by, or the beginning of `keyspace`."""
_NO_SECRET_NAME = re.compile(
    r"_(?:file|path|dir|location|url|uri|endpoint|name|type|provider|class|source|env|header|column)$"
    r"|_(?:minutes|seconds|ms|limit|count|size|length|enabled)$|_expires_"
    r"|(?<!secret)_id$"  # `access_key_id` and `token_id` are names; Vault's `secret_id` is a secret
    r"|(?:max|min|num|page|next|continuation|sync)_tokens?$"  # numbers of words, and places in lists of pages
    r"|application_credentials$"  # a file
    r"|s3[an]_(?:\w+_)?access_key$"  # Hadoop's name of what AWS calls `access_key_id`
)
"""Names that say where a secret is, of which kind it is, or how long it lasts."""
_KEY_VARIABLE = re.compile(r"(?:^|_)key$", re.IGNORECASE)
"""Names of variables whose values are secrets too: hiding too much harms less than refusing a setting does."""
_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_PLACE = re.compile(r"[/~.]|[A-Za-z]:\\|[a-z0-9+]+://")
"""The beginning of a path or URL, for which people search; the password of a URL is hidden by itself."""
_CUT = r"(?=…|\.\.\.|\\?' at line \d|$)"
"""The end of a shortened text; the beginning of a value may stand before it. MySQL cuts statements without a sign."""
_SETTING = re.compile(r"[?&;]\s*([\w.-]+)=([^&;]+)")
"""A setting in a URL (`?user=u&password=p`), or in a line of settings (`AccountName=a;AccountKey=k`)."""
_SQLITE_KEY = re.compile(r"^\s*(?:jdbc:)?sqlite[+\w]*:[^?]*\?.*?\b(?:pragma_|hex_?|text_?)?key=([^&#]+)", re.IGNORECASE)
"""The key of a database of SQLite that is encrypted, in its URL."""
_MAYBE_SECRET = frozenset({"key", "code", "auth", "appid"})
"""Settings of URLs that hold a secret if their value looks like one."""
_RANDOM = re.compile(r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[\w.~%+/=-]{20,}|[0-9a-f]{32,}|[0-9A-F]{32,}")
_KEY_FORM = re.compile(
    r"\b(?:AIza[\w-]{35}|gh[oprsu]_[A-Za-z0-9]{36}|github_pat_\w{22,}|glpat-[\w-]{20}|[rs]k_live_[A-Za-z0-9]{20,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}|eyJ[\w-]{10,999}\.eyJ[\w-]{10,}\.[\w-]{10,})"
    r"|(?<=hooks\.slack\.com/services/)\w+/\w+/\w{20,}|-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s*[A-Za-z0-9+/=][^\0]*"
)
"""Keys that are known by their form, wherever they stand."""
_OF_JAAS = re.compile(r"""\b(\w+)\s*=\s*("[^"]*"|'[^']*'|[^\s;]+)""")
# Bounded, so that texts of any length are searched in linear time.
_LOGIN = re.compile(r"://[^:/]*:([^@]{,2048})@")
"""The password of a URL as SQLAlchemy reads it: it may hold `/`, `?` and `#`."""
_LITERAL_LOGIN = re.compile(r"://[^/?#]{,255}:([^/@]{1,255})@|://[^:/\s\[]*:(?!\d+(?:[/?#,]|$))([^@\s]{1,2048})@")
"""The same in a text of which nobody knows yet whether it is a URL: `http://host:80/x@y` has none."""
_ORACLE = re.compile(r"\bjdbc:oracle:\w+:[^/@]+/([^@]{1,2048})@")
_REFERENCE = re.compile(r"(\$)\$|\$\{[^{}:]*+(?::-([^{}]*)|[^{}]*)\}")
"""A plain dollar sign, which is written twice; a reference, and its default."""

_USUAL_NAME = re.compile(r"[A-Z_][A-Z0-9_]*|[A-Za-z]*")
"""Names of variables that are shown: as they are written mostly, and plain words."""
_NO_NAME = "(not shown, as it is not in capitals)"
"""What messages show in place of other ones."""
_ENCODED = re.compile("%[0-9A-F]{2}")

_known: dict[str, str] = {}
"""References `${NAME}` by value, or by the password in it."""
_values: dict[str, str] = {}
"""Whole values that are hidden, by name."""
_given: dict[str, Mapping[str, str]] = {}
"""By name of a variable, what knows its value."""


def remember(references: Mapping[str, str]) -> None:
    """Hide values from now on, in this process.

    Args:
        references: by value, the text to show instead of it. If a value is a URL, its password is hidden too, because
            messages of drivers may hold the password alone; and what a percent-encoded value stands for.
    """
    for value, reference in references.items():
        for secret in (value, unquote(value), *passwords(value)):
            if _is_long(secret):
                _known[secret] = reference
                name = _name(reference)
                # `known_in` also returns the passwords in values.
                if secret == value and reference != _NO_NAME and value not in passwords(_values.get(name, "")):
                    _values[name] = value


def remember_passwords(references: Mapping[str, str]) -> None:
    """Hide the passwords of URLs from now on, in this process, but not the URLs.

    Args:
        references: by URL, the text to show instead of its password.
    """
    for value, reference in references.items():
        _known.update(dict.fromkeys(filter(_is_long, passwords(value)), reference))


def hide_environment() -> None:
    """Hide the secrets of this process's environment from now on: user code may show those that no file refers to.

    These are values of variables with names such as `API_TOKEN`, and passwords of URLs. Plain words stay, since a text
    such as `postgres` is a part of many messages.
    """
    for name, value in os.environ.items():
        found = passwords(value)
        if (is_secret_name(name) or _KEY_VARIABLE.search(name)) and not _PLACE.match(value):
            found.append(value)
        for secret in found:
            if len(secret) >= _SHORTEST_UNNAMED and not secret.isalpha() and _is_long(secret):
                _known.setdefault(secret, f"${{{name}}}")


def hide_variables(names: Iterable[str]) -> None:
    """Hide the values of these variables of this process's environment from now on; those that are not set are none.

    Args:
        names: those that `known_values` has in the process that loaded the project, for the other ones of its run.
    """
    remember({os.environ[name]: f"${{{name}}}" for name in names if name in os.environ})


def hide_names(names: Iterable[str], environ: Mapping[str, str]) -> None:
    """Hide names of variables that are not set from now on, unless they look like names: people write secrets there."""
    for name in names:
        if len(name) >= _SHORTEST_UNNAMED and not _USUAL_NAME.fullmatch(name) and name not in environ:
            _known.setdefault(name, _NO_NAME)


def forget() -> None:
    """Hide nothing any more; for tests, which load several projects in one process."""
    _known.clear()
    _values.clear()
    _given.clear()


def give(names: Iterable[str], values: Mapping[str, str]) -> None:
    """Let `variable` find values that the environment does not have, from now on, in this process.

    Args:
        names: of the variables.
        values: by name; a value is asked for when it is needed first.
    """
    _given.update(dict.fromkeys(names, values))


def variable(name: str) -> str | None:
    """Return the value of an environment variable, or the one that was given by this name; None if there is none.

    It is hidden from now on.

    Raises:
        InvalidSpecError: the file or the command that has the value does not give it.
    """
    value = os.environ.get(name)
    if value is None and name in _given:
        value = _given[name][name]
    if value is None:
        hide_names([name], {})
    else:
        remember({value: f"${{{name}}}"})
    return value


def known_values() -> Mapping[str, str]:
    """Return the values that are hidden, by name."""
    return _values


def as_written(text: str) -> str | None:
    """Return a text with known values replaced so that expanding it gives the text again; None if it holds no value.

    Example:
        >>> remember({"s3cr3t-word": "${WORD}"})
        >>> as_written("Bearer s3cr3t-word$"), as_written("Bearer"), forget()
        ('Bearer ${WORD}$$', None, None)
    """
    # A list, because another thread may load a job meanwhile.
    names = {value: name for name, value in list(_values.items()) if value in text}
    if not names:
        return None
    longest_first = sorted(names, key=lambda value: -len(value))
    parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
    return "".join(f"${{{names[part]}}}" if part in names else part.replace("$", "$$") for part in parts)


def known_in(job_json: str) -> dict[str, str]:
    """Return the references (by value) that a job's JSON uses; other processes of the run pass them to `remember`."""
    return {
        value: reference
        # The longest last, which counts if one name had several values: a shorter one may be a part of it.
        for value, reference in sorted(_known.items(), key=lambda pair: len(pair[0]))
        if json.dumps(value, ensure_ascii=False)[1:-1] in job_json
    }


def hidden(text: str) -> str:
    """Return a text with each known value replaced by its reference, also if the text was cut inside of a value.

    Example:
        >>> remember({"s3cr3t-word": "${WORD}"})
        >>> hidden("near 's3cr3t-word' and 's3cr3t…"), forget()
        ("near '${WORD}' and '${WORD}…", None)
    """
    for value, reference in sorted(_known.items(), key=lambda pair: -len(pair[0])):
        for form in _forms(value):
            text = text.replace(form, reference)
            text = _without_beginning(text, form, reference)
    return text


@lru_cache(maxsize=1024)
def _forms(value: str) -> tuple[str, ...]:
    """Return how messages may hold a value: as it is, on one line or cut behind its first, in a URL, as bytes, quoted.

    Texts are quoted up to twice. `repr`, which libraries put around texts and options, and JSON escape quotes,
    backslashes and other letters; SQL and CSV double quotes.
    """
    octets = value.encode("utf-8", "surrogateescape")
    forms = dict.fromkeys((value, " ".join(value.split()), repr(octets)[2:-1], *_first_line(value)))
    for _ in range(2):
        forms |= dict.fromkeys(quoted for form in list(forms) for quoted in _quoted(form))
    in_url = (quote(octets, safe=""), quote(octets), quote_plus(octets))
    # Not all libraries write `%2F` in capitals.
    return tuple(dict.fromkeys((*forms, *in_url, *(_ENCODED.sub(lambda one: one[0].lower(), url) for url in in_url))))


def _first_line(value: str) -> Iterator[str]:
    """Yield the first line of a value with several: many messages of libraries are cut behind their first one."""
    line, cut, _ = value.strip().partition("\n")
    if cut and len(line) >= _SHORTEST_UNNAMED and not line.startswith("-----"):  # that of a key in PEM tells nothing
        yield line.strip()


def _quoted(text: str) -> Iterator[str]:
    """Yield a text as it stands inside of another one that is quoted."""
    for write in (repr, ascii):
        yield write(text)[1:-1]
        yield write(text + "'\"")[1:-4]  # beside both kinds of quotes, single ones are escaped
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield text.replace("'", "''")
    yield text.replace('"', '""')


def _without_beginning(text: str, form: str, reference: str) -> str:
    """Replace the beginning of a value at a place where the text was cut."""
    if form[:SHORTEST] not in text:
        return text
    beginnings = "|".join(re.escape(form[:length]) for length in range(len(form) - 1, SHORTEST - 1, -1))
    return re.sub(f"(?:{beginnings}){_CUT}", lambda _: reference, text)


def _is_long(secret: str) -> bool:
    return len(secret) >= SHORTEST and secret.lower() not in _WORDS and not (secret.isdecimal() and len(secret) < 6)


def _name(reference: str) -> str:
    return reference.removeprefix("${").partition(":-")[0].removesuffix("}")


def is_secret_name(name: str) -> bool:
    """Return whether a setting, or a variable, of this name holds a secret; its words may be written in any way.

    This is the only list of such words: checks of job files and flows, and what hides values, all ask it.

    Example:
        >>> [is_secret_name(one) for one in ("ssl.keystore.password", "accountKey", "AWS_ACCESS_KEY_ID", "keyspace")]
        [True, True, False, False]
    """
    words = _BETWEEN_WORDS.sub("_", name).lower()
    return _SECRET_NAME.search(words) is not None and _NO_SECRET_NAME.search(words) is None


def is_secret(name: str, value: str) -> bool:
    """Return whether a setting holds a secret by its name, or by a name that others have too and a random value."""
    return is_secret_name(name) or (name.lower() in _MAYBE_SECRET and _RANDOM.fullmatch(value) is not None)


def has_literal_password(text: str) -> bool:
    """Return whether a text has a password, in a URL or among settings, that is not taken from a `${NAME}`.

    The default of a reference (`${NAME:-default}`) is a part of the text.
    """
    written = _with_defaults(text)
    found = [*_secret_settings(written), *_ORACLE.findall(written), *map("".join, _LITERAL_LOGIN.findall(written))]
    return any("\0" not in one for one in found)


def has_reference(text: str) -> bool:
    """Return whether a text takes a part of its value from a variable, with no default.

    Example:
        >>> [has_reference(one) for one in ("${PW}", "x${PW:-}", "${PW:-hunter2}", "hunter2", "$${PW}")]
        [True, True, False, False, False]
    """
    return "\0" in _with_defaults(text)


def _with_defaults(text: str) -> str:
    """Return a text with its references replaced by their defaults, and those without one by NUL."""

    def default(found: re.Match[str]) -> str:
        given: str = found[1] or found[2] or ""
        return "\0" if given.lower() in {"", *_WORDS} else given

    return _REFERENCE.sub(default, text)


def passwords(value: str) -> list[str]:
    """Return the passwords of a URL or of a line of settings, percent-encoded and decoded; empty if it has none."""
    found = [*_secret_settings(value), *_ORACLE.findall(value)]
    if "://" in value:
        with suppress(ValueError):
            found.insert(0, urlsplit(value).password or "")
        found += _LOGIN.findall(value)
    return [form for one in found if one for form in dict.fromkeys((one, unquote(one)))]


def _secret_settings(text: str) -> Iterator[str]:
    """Yield the values of secrets among the settings of a URL, of a line, or of Java's JAAS."""
    pairs = _SETTING.findall(text)
    if "LoginModule" in text:
        pairs += _OF_JAAS.findall(text)
    for name, value in pairs:
        if is_secret(name, value.partition("#")[0]) and value.lower() not in _WORDS:
            yield value.strip("\"'")
    yield from _KEY_FORM.findall(text)
    yield from _SQLITE_KEY.findall(text)
