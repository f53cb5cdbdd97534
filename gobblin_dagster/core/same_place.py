"""Tell whether two texts name one place: a folder, a table or a topic, as publishers and states of datasets name them.

Texts are read here and nowhere else, without asking a server. One by another name (DNS) may be the same: see
`PlaceIdentity.may_be`.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote

from gobblin_dagster.core.utils.ports import DEFAULT_PORTS
from gobblin_dagster.core.utils.text import lower_ascii

_KINDS = {"postgres": "postgresql", "mariadb": "mysql", "s3a": "s3", "s3n": "s3"}
_DATABASES = ("postgresql", "mysql", "sqlite")
_HERE = "127.0.0.1"
_NAMES_OF_HERE = {"localhost", "localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback"}
_ADDRESSES_OF_HERE = {"127.0.0.1", "::1", "0.0.0.0", "::"}  # noqa: S104 - compared with, not bound to
_DIGESTS = re.compile(r" \(([0-9a-f]{16}(?: [0-9a-f]{16})*)\)$")
_SHORT_URL = re.compile(r"^file:/(?!/)", re.IGNORECASE)
"""As Hadoop and pyiceberg write and read paths of this machine: `file:/lake`."""
_HAS_PORT = re.compile(r"^[^:]+:[0-9]+$")
_DEFAULT_SOCKETS = {"/var/run/postgresql", "/run/postgresql", "/tmp"}  # noqa: S108 - where PostgreSQL's client looks
WAREHOUSE = "?warehouse="
"""Between the URL of a catalog and the name of one of its warehouses."""


@dataclass(frozen=True, slots=True)
class PlaceIdentity:
    """What a place is known by, whatever its spelling."""

    kind: str
    """Scheme of its URL, without a driver; empty: a local folder or file."""
    servers: frozenset[str]
    """As `host:port`. Two places need share one. Empty: nobody knows, or there is none."""
    path: str
    """Path at the server; a local one is absolute, without `..` and links."""
    table: str = ""
    """The table in it; in SQLite without case."""
    warehouse: str = ""
    """Of an Iceberg catalog that has several; empty: nobody knows, or there is none."""
    inode: tuple[int, int, str] | None = None
    """Of a local path, its nearest folder that exists, and what is below: links and mounts lead to the same one."""
    digests: frozenset[str] = frozenset()
    """Of a place whose text hides values of variables, which then is all that is known."""

    @classmethod
    def of(cls, place: str, base: str = "") -> PlaceIdentity:
        """Return the identity of a place; looks at local files.

        Args:
            place: a path or URL, as `PublisherTraits.keeps_rows_in`, `PublisherTraits.places` or `DatasetState.places`.
            base: absolute folder that relative paths begin at.
        """
        if found := _DIGESTS.search(place):
            return cls("", frozenset(), "", digests=frozenset(found[1].split()))
        scheme, mark, rest = _SHORT_URL.sub("file:///", place).partition("://")
        if not mark:
            return cls._local("", place, "", base)
        if scheme.lower() == "file":
            return cls._local("", f"/{unquote(rest.partition('/')[2])}", "", base)
        return cls._of_url(scheme, rest, base)

    @classmethod
    def _of_url(cls, scheme: str, rest: str, base: str) -> PlaceIdentity:
        kind = scheme.lower().partition("+")[0]
        kind = _KINDS.get(kind, kind)
        if kind == "kafka":
            servers, _, topic = rest.rpartition("/")
            return cls(kind, _servers(servers, kind), topic)
        rest, _, table = rest.rpartition("#") if "#" in rest else (rest, "", "")
        rest, _, warehouse = rest.partition(WAREHOUSE)
        servers, _, path = rest.partition("/")
        if kind in _DATABASES:
            path, _, query = path.partition("?")
            servers = servers or written_servers(kind, parse_qs(query))
        if kind == "sqlite":
            return cls._local(kind, path, lower_ascii(table) if _is_of_schema(table) else table, base)
        if kind == "mysql" and _is_of_schema(table):
            path = ""  # a schema is a database
        return cls(kind, _servers(servers, kind), path.rstrip("/"), table, warehouse)

    @classmethod
    def _local(cls, kind: str, path: str, table: str, base: str) -> PlaceIdentity:
        real = os.path.join(base, path)  # noqa: PTH118 - keeps the text
        if "\0" not in real:  # no file has such a name
            real = os.path.realpath(real)
        return cls(kind, frozenset(), real, table, inode=_inode(real))

    @property
    def is_local_folder(self) -> bool:
        """Whether it is a folder or file of this machine that exists."""
        return not self.kind and self.inode is not None and not self.inode[2]

    @property
    def texts(self) -> list[str]:
        """The place in one spelling, once for each of its servers; that of a local one changes with links only."""
        tail = f"/{self.path}#{self.table}?{self.warehouse}"
        return [f"{self.kind}://{server}{tail}" for server in sorted(self.servers) or [""]]

    def is_same(self, other: PlaceIdentity) -> bool:
        """Return whether both are certainly one place."""
        if self.digests or other.digests:
            return bool(self.digests & other.digests)
        if self.kind != other.kind or not _is_same_table(self.table, other.table):
            return False
        if self.kind in {"", "sqlite"}:
            return self.path == other.path or (self.inode is not None and self.inode == other.inode)
        is_known = self.kind not in _DATABASES or bool(self.servers and other.servers)  # older programs left them out
        return (
            self.path == other.path
            and (self.servers == other.servers or bool(self.servers & other.servers) or not is_known)
            and (not self.warehouse or not other.warehouse or self.warehouse == other.warehouse)
        )

    def may_be(self, other: PlaceIdentity) -> bool:
        """Return whether both are one place, or may be one that has several names: only its own notes can tell."""
        is_local = self.kind in {"", "sqlite"} or bool(self.digests)
        return self.is_same(other) or (not is_local and self.kind == other.kind and self._last_name == other._last_name)

    def holds(self, other: PlaceIdentity) -> bool:
        """Return whether a folder is another one, or above it."""
        if (self.kind, self.servers) != (other.kind, other.servers):
            return False
        if f"{other.path}/".startswith(f"{self.path.rstrip('/')}/"):
            return True
        if self.inode is None:
            return False
        above = other.path
        while above != os.path.dirname(above):  # noqa: PTH120 - texts, as in `_local`
            if _inode(above) == self.inode:
                return True
            above = os.path.dirname(above)  # noqa: PTH120 - as above
        return False

    def may_hold(self, other: PlaceIdentity) -> bool:
        """Return whether a folder of a server would be another one, or above it, if both servers were one."""
        is_below = f"{other.path}/".startswith(f"{self.path}/".lstrip("/"))
        return self.kind not in {"", "sqlite"} and self.kind == other.kind and is_below

    @property
    def _last_name(self) -> str:
        return (self.table or self.path).rpartition("/")[2].rpartition(".")[2].lower()


def is_same_place(one: str, other: str, base: str = "") -> bool:
    """Return whether two folders or URLs are one place; of several servers, with commas between, they need share one.

    Args:
        one: as `PlaceIdentity.of` takes it.
        other: the other one.
        base: absolute folder that relative paths begin at.

    Example:
        >>> is_same_place("kafka://one:9092,two:9092/clicks", "kafka://two,three:9092/clicks")
        True
        >>> is_same_place("sqlite:////lake/x.db#main.Orders", "sqlite+pysqlite:////lake/old/../x.db#main.orders")
        True
        >>> is_same_place("postgresql://localhost/d#public.t", "postgres://[::1]:5432/d#public.t")
        True
        >>> is_same_place("lake/n", "/shop/lake/n", "/shop"), is_same_place("lake/n", "lake/N")
        (True, False)
    """
    return one == other or PlaceIdentity.of(one, base).is_same(PlaceIdentity.of(other, base))


def do_meet(some: Collection[str], others: Collection[str], base: str = "") -> bool:
    """Return whether two lists of folders or URLs have a place in common; `base` as in `is_same_place`."""
    if not {*some}.isdisjoint(others):  # as nearly always: no file is looked at
        return True
    known = [PlaceIdentity.of(one, base) for one in others]
    return any(PlaceIdentity.of(one, base).is_same(other) for one in some for other in known)


def written_servers(kind: str, query: Mapping[str, str | Sequence[str]], host: str = "", port: str = "") -> str:
    """Return the servers of a database's URL as places have them, `host:port`, with commas between.

    Args:
        kind: `postgresql`, `mysql`; others have neither sockets nor several hosts.
        query: the options of the URL, which may name hosts and sockets.
        host: of the URL itself.
        port: as that.

    Example:
        >>> written_servers("postgresql", {"host": ["a:1", "b"]}), written_servers("mysql", {"unix_socket": "/run/m"})
        ('a:1,b:5432', '%2Frun%2Fm:3306')
    """
    hosts, ports = _several(query.get("host", ())), _several(query.get("port", ()))
    host = _HERE if host == "localhost" else host.lower()
    if kind == "postgresql":
        hosts = hosts or [host or os.environ.get("PGHOST") or _HERE]
        port = port or os.environ.get("PGPORT", "") or str(DEFAULT_PORTS[kind])
    elif kind == "mysql":
        hosts = _several(query.get("unix_socket", ())) or hosts or [host or _HERE]
        port = port or str(DEFAULT_PORTS[kind])
    else:
        hosts = [host]
    several = [*ports, *[(ports or [port])[-1]] * len(hosts)]
    return ",".join(
        f"{quote(one, safe='')}:{several[at]}" if one.startswith("/") or not _HAS_PORT.search(one) else one
        for at, one in enumerate(hosts)
    )


def _several(value: str | Sequence[str]) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    return [part for text in texts for part in text.split(",") if part]


def each_server(place: str) -> list[str]:
    """Return a place once for each of its servers: two that have a text in common are one place.

    Example:
        >>> each_server("kafka://one:9092,two:9092/clicks")
        ['kafka://one:9092/clicks', 'kafka://two:9092/clicks']
    """
    scheme, mark, rest = place.partition("://")
    if not mark:
        return [place]
    servers, _, path = rest.partition("/")
    return [f"{scheme.partition('+')[0]}://{server}/{path}" for server in sorted({*servers.split(",")})]


def _servers(text: str, kind: str) -> frozenset[str]:
    """Return each server as `host:port`, in one spelling."""
    return frozenset(_server(one.strip(), kind) for one in text.split(",")) - {""}


def _server(text: str, kind: str) -> str:
    text = text.rpartition("://")[2].rpartition("@")[2]
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
    else:
        host, mark, port = text.rpartition(":")
        host, port = (host, port) if mark else (port, "")
    if not host:
        return ""
    host = unquote(host)
    if host.startswith("/"):  # a socket
        host = _HERE if kind == "postgresql" and host.rstrip("/") in _DEFAULT_SOCKETS else os.path.realpath(host)
    else:
        host = _host(host.lower())
    return f"{host}:{port.strip(':') or DEFAULT_PORTS.get(kind, '')}"


def _host(name: str) -> str:
    name = name.rstrip(".")
    if name in _NAMES_OF_HERE or name.endswith(".localhost"):
        return _HERE
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    shown = str(mapped or address)
    return _HERE if shown in _ADDRESSES_OF_HERE else shown


def _is_same_table(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    # Older programs left out the name of a catalog without a `type`.
    return short == long or (not _is_of_schema(long) and long.partition(".")[2] == short)


def _is_of_schema(table: str) -> bool:
    """Return whether a table is one of a database; those of Iceberg's catalogs have longer names."""
    return table.count(".") < 2


def _inode(path: str) -> tuple[int, int, str] | None:
    """Return device and inode of a path, or of its nearest folder that exists, and the rest; None if nobody knows."""
    above = path
    while True:
        try:
            found = os.stat(above)  # noqa: PTH116 - texts, as in `_local`
        except (FileNotFoundError, NotADirectoryError):
            parent = os.path.dirname(above)  # noqa: PTH120 - as above
            if parent == above:
                return None
            above = parent
        except (OSError, ValueError):
            return None
        else:
            return found.st_dev, found.st_ino, path[len(above) :].strip("/")
