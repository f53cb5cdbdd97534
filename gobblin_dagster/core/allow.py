"""What job files may use, for people who run job files of others: folders, variables, modules, hosts and sources.

A job file is as powerful as code: it names files, environment variables, functions and servers. A list that is not set
allows everything. A list that is set allows only what it names; an empty list allows nothing. Each method returns an
empty text, or one sentence that says what is refused and names the list.

The lists do not control what the code of an allowed module does, nor to which other servers an allowed server
redirects.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from gobblin_dagster.core.known_settings import DATABASE, SQLITE, Settings, kind_of
from gobblin_dagster.core.utils.ports import DEFAULT_PORTS

_LOCAL = ("file", "local")
_WITHOUT_HOST = frozenset({*_LOCAL, "sqlite", "s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "memory"})
"""Schemes whose URLs name no server; the endpoints of buckets come from the machine's configuration."""
_HADOOPS_S3 = re.compile(r"^s3[an]://", re.IGNORECASE)
"""As Spark calls a bucket of `s3`. It has settings of its own for its server, so each is allowed by its own name."""
_HADOOPS_FILE = re.compile(r"^file:/(?!/)", re.IGNORECASE)
_BUCKETS = frozenset({"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss"})
"""Schemes whose URLs name a bucket, in its own case, or `container@account`, where others name a host."""
_AZURE = frozenset({"abfs", "abfss"})
_AZURE_HOSTS = ".core.windows.net"
"""End of the hosts of Azure's own storage, which count as buckets."""
_FILES = frozenset(
    {*_LOCAL, "s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "hdfs", "sftp", "ssh", "ftp", "ftps", "memory"}
)
"""Schemes whose URLs name files."""
_DATABASES = frozenset({"mariadb", "mssql", "mysql", "oracle", "postgres", "postgresql", "sqlserver"})
"""Schemes of databases that are servers."""
_START = re.compile(r"(jdbc:)?[A-Za-z][A-Za-z0-9+.-]{0,30}:")
"""What tells the kind of a URL."""
_JDBC = re.compile(r"jdbc:(mariadb|mysql|postgresql|sqlserver)://")
"""URLs for Java's drivers whose servers and parameters can be found."""
_CLASSES = frozenset(
    {
        "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        "com.mysql.cj.jdbc.Driver",
        "com.mysql.jdbc.Driver",
        "org.mariadb.jdbc.Driver",
        "org.postgresql.Driver",
    }
)
"""Java's drivers of these."""
_LOGIN = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(plain\.Plain|scram\.Scram|oauthbearer\.OAuthBearer)LoginModule\s+required"
    r"""(\s+(username|password|tokenauth|clientId|clientSecret|scope)\s*=\s*("[^"\\]*"|'[^'\\]*'|\w+))*\s*;\s*"""
)
"""Lines of JAAS that name no file and no class but Kafka's own."""
_FORMS = {"word": re.compile(r"[\w.@/-]+"), "name": re.compile(r"[\w-]*"), "login": _LOGIN}
_SIGNS = frozenset("()=;")
"""Signs with which Java's drivers write further hosts and settings into the place of the host."""
_SCHEMES = _DATABASES | _WITHOUT_HOST | _FILES | {"http", "https", "thrift"}
_SHORT_NAME = re.compile(r"[A-Za-z][\w-]*")
"""A name under which an installed package offers a class."""
_ODD = re.compile(r"[\\\s\x00-\x1f]")
"""Characters that end a host in some libraries and not in others, so that they would not read the same host as we."""
_NOT_IN_HOSTS = re.compile(r"[/?#@\\\s]")
_HOST = re.compile(r"[\w.-]+")
_PATTERN = re.compile(r"[{*?\[]")
_BETWEEN_NAMES = re.compile(r"[/{},]")
"""What ends a name in a pattern: `{a,../b}` is `a` or `../b` in Hadoop's patterns."""
_WEB = re.compile(r"https?://", re.IGNORECASE)
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_SHORT_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/(?!/)|jdbc:")
"""`file:/etc/x` and `jdbc:derby:/etc/x`: URLs for some libraries, relative paths for others."""


@dataclass(frozen=True, slots=True)
class AllowLists:
    """The `allow` lists of a project; None allows everything."""

    paths: tuple[str, ...] | None = None
    """Folders with all that is below them: absolute local paths, or URLs (`s3://bucket/landing`)."""
    environment: tuple[str, ...] | None = None
    """Names of variables; `*` stands for any characters."""
    modules: tuple[str, ...] | None = None
    """Modules with all their submodules, or a single `module:name`."""
    hosts: tuple[str, ...] | None = None
    """`host`, `host:port`, `*.domain`, an address or a network (`10.0.0.0/8`)."""
    sources: tuple[str, ...] | None = None
    """Types of sources, such as `files`; a source of a module by its whole target `module:name`."""
    options: tuple[str, ...] = ()
    """Names of further settings of clients that jobs may use, and beginnings of URLs (`jdbc:oracle:`); `*` stands for
    any characters."""

    def path_problem(self, path: str, base_dir: str = "/") -> str:
        """Check the path or URL of a file, a folder, or a pattern of files; return the problem or an empty text.

        Links in the path and in the allowed folders are followed, so that neither `..` nor a link leads out of them.

        Args:
            path: the text in the job file. Only the part of a pattern before its first placeholder (`{dataset}`, `*`)
                is checked: check each file that the pattern finds again.
            base_dir: folder that a relative local path starts from.
        """
        if self.paths is None:
            return ""
        if _is_inside(path, base_dir, self.paths):
            return ""
        return f"the path {path!r} is below none of `allow.paths` of gobblin.yaml{_remedy('its root')}"

    def variable_problem(self, name: str) -> str:
        """Check the name of an environment variable; return the problem or an empty text."""
        if self.environment is None:
            return ""
        # Clients put variables into a name with a reference, `SHOP_${OTHER}`; a pattern would allow the other one too.
        if "${" not in name and any(fnmatchcase(name, pattern) for pattern in self.environment):
            return ""
        return f"the environment variable {name} is not in `allow.environment` of gobblin.yaml{_remedy('its name')}"

    def module_problem(self, target: str) -> str:
        """Check a target `module:name`; return the problem or an empty text."""
        if self.modules is None:
            return ""
        module = target.partition(":")[0]
        if any(one in (target, module) or module.startswith(f"{one}.") for one in self.modules):
            return ""
        return f"the module of {target!r} is not in `allow.modules` of gobblin.yaml{_remedy('it')}"

    def source_problem(self, type_name: str) -> str:
        """Check the type of a source, by our own name of it; return the problem or an empty text."""
        if self.sources is None or type_name in self.sources:
            return ""
        return f"the source {type_name!r} is not in `allow.sources` of gobblin.yaml{_remedy('it')}"

    def host_problem(self, host: str, port: int | None = None) -> str:
        """Check a server; return the problem or an empty text.

        If `port` is None, list entries that name a port do not match.
        """
        if self.hosts is None or any(_fits(host, port, entry) for entry in self.hosts):
            return ""
        shown = host if port is None else f"{host}:{port}"
        return f"the host {shown!r} is not in `allow.hosts` of gobblin.yaml{_remedy('it')}"

    def url_problem(self, url: str, base_dir: str = "/") -> str:
        """Check the server of a URL, and its path if it names a file; return the problem or an empty text.

        Query parameters of a database URL that name another server or a file are checked too. No message holds the URL
        of a server, as it may hold a password.
        """
        bare, is_java = url.removeprefix("jdbc:"), url.startswith("jdbc:")
        scheme = bare.partition("://")[0].lower().partition("+")[0] if _SCHEME.match(bare) else ""
        if (is_java and not _JDBC.match(url)) or scheme not in _SCHEMES:
            # jdbc:oracle:thin:@host:1521:x, jdbc:h2:mem:x;INIT=..., duckdb:///x: nobody knows what such URLs may name.
            return self._unknown_url_problem(url)
        try:
            if _ODD.search(re.split("[/?#]", bare.partition("://")[2], maxsplit=1)[0]):
                raise ValueError
            parts = _java_parts(bare) if is_java else urlsplit(bare)
            host, port = parts.hostname or "", parts.port or DEFAULT_PORTS.get(scheme)
        except ValueError:
            problem = "the URL cannot be read, so its host cannot be checked against `allow.hosts` of gobblin.yaml"
            return problem if self.is_limited else ""
        if scheme in _DATABASES:
            return self._database_problem(bare, parts, base_dir, is_java=is_java)
        if scheme == "sqlite":
            return self._sqlite_problem(bare, base_dir)
        problem = self.path_problem(bare, base_dir) if scheme in _FILES else ""
        if scheme in _AZURE and "." in host and not host.endswith(_AZURE_HOSTS):
            problem = problem or self.host_problem(host, port)
        if problem or scheme in _WITHOUT_HOST or (scheme == "hdfs" and not host):
            return problem
        return self.addresses_problem(parts.netloc) if "," in parts.netloc else self.host_problem(host, port)

    def _sqlite_problem(self, url: str, base_dir: str) -> str:
        """Check the file and the parameters of a URL of SQLite."""
        server, _, rest = url.partition("://")[2].partition("/")
        if server and self.is_limited:  # SQLAlchemy passes over an empty user in `sqlite://@/../x.db`
            return "the URL of SQLite has more than a path, and `allow` of gobblin.yaml is set; write sqlite:///file.db"
        file, _, query = rest.partition("?")
        # SQLAlchemy decodes %2e since 2.1. sqlite:///file:/etc/x?uri=true opens /etc/x; the whole URL is below no root.
        files = (url if one.lower().startswith("file:") else one or "." for one in (file, unquote(file)))
        problem = next(filter(None, (self.path_problem(one, base_dir) for one in files)), "")
        return problem or self._parameters_problem(query, SQLITE, base_dir)

    def _unknown_url_problem(self, url: str) -> str:
        start = _START.match(url)
        if not self.is_limited or (start is not None and self._is_listed(start[0])):
            return ""
        if start is None:
            return "a text with `://` or `jdbc:` may name any host, which `allow` forbids; write the URL alone"
        return (
            f"URLs that begin with {start[0]!r} may name paths, hosts and code that `allow` of gobblin.yaml cannot "
            "check; who runs the project may add it to `allow.options`"
        )

    def _database_problem(self, bare: str, parts: SplitResult, base_dir: str, *, is_java: bool) -> str:
        """Check the server and the parameters of a database's URL."""
        host, port = parts.hostname or "", parts.port or DEFAULT_PORTS[bare.partition(":")[0].lower().partition("+")[0]]
        if self.is_limited and _is_ambiguous(bare, parts, is_java=is_java):
            return (
                "the URL can be read in two ways, by `@`, `#` or brackets; write %40 for `@` and %23 for `#` "
                "everywhere but before the host, as `allow` of gobblin.yaml is set"
            )
        query = parse_qsl(parts.query, keep_blank_values=True)
        ports = [value for name, value in query if name.lower() in ("port", "portnumber")]
        named = any(kind_of(DATABASE, name) in ("servers", "socket") for name, _ in query)
        if ports and not named:
            # It counts in place of the port before the path, or that one does: libraries differ.
            ports += [str(parts.port)] if parts.port else []
            servers = ",".join(f"[{host}]:{one}" if ":" in host else f"{host}:{one}" for one in ports)
            problem = self.addresses_problem(servers)
        elif named and not host:
            problem = ""
        else:
            problem = self.addresses_problem(parts.netloc) if "," in parts.netloc else self.host_problem(host, port)
        return problem or self._parameters_problem(parts.query, DATABASE, base_dir)

    def _parameters_problem(self, query: str, known: Settings, base_dir: str) -> str:
        pairs = parse_qsl(query, keep_blank_values=True)
        return next(filter(None, (self.setting_problem(known, *pair, base_dir) for pair in pairs)), "")

    def setting_problem(self, known: Settings, name: str, value: str, base_dir: str = "/") -> str:
        """Check a setting of a client; return the problem or an empty text.

        Args:
            known: settings that can be judged.
            name: name of the setting.
            value: its value.
            base_dir: folder that a relative local path starts from.
        """
        kind = kind_of(known, name)
        problem = ""
        if not self.is_limited or kind == "plain":
            pass
        elif kind == "path":
            problem = self.file_problem(value, base_dir) if (name, value) != ("sslrootcert", "system") else ""
        elif kind == "socket":
            problem = self._socket_problem(value, base_dir)
        elif kind == "servers":
            problem = self._servers_problem(value, base_dir)
        elif kind == "url":
            problem = self.url_problem(value, base_dir) if ":" in value else self._servers_problem(value, base_dir)
        elif kind == "code" or (kind == "class" and not _SHORT_NAME.fullmatch(value)):
            problem = self.class_problem(value)
        elif kind == "class" or (kind is not None and (_FORMS[kind].fullmatch(value) or self._is_listed(name))):
            pass
        elif self._is_listed(name):
            is_url = _SCHEME.match(value) is not None or value.startswith("jdbc:")
            problem = self.url_problem(value, base_dir) if is_url else ""
            problem = self.path_problem(value, base_dir) if "/" in value and not is_url else problem
        elif kind is not None:
            problem = (
                f"this value of {name!r} may name paths, hosts or code, and `allow` of gobblin.yaml is set; "
                f"who runs the project may add {name!r} to `allow.options`"
            )
        else:
            problem = (
                f"`allow` of gobblin.yaml does not know what the setting {name!r} may name; who runs the project may "
                "add it to `allow.options`"
            )
        return problem

    def file_problem(self, value: str, base_dir: str) -> str:
        """Check the path or URL of a file, and the server that it names; return the problem or an empty text."""
        if _SCHEME.match(value):
            return self.url_problem(value, base_dir) or self.path_problem(value, base_dir)
        if ":" in value:  # OpenSSL loads the library `engine` for a key in `engine:key`
            return f"the path {value!r} has a colon, which some clients take for more than a name; use one without"
        return self.path_problem(value, base_dir)

    def class_problem(self, name: str) -> str:
        """Check the name of a class or of a library; return the problem or an empty text."""
        target = ":".join(name.rsplit(".", 1))  # as `modules` names one class of a module
        return "" if name in _CLASSES or not self.module_problem(target) else self.module_problem(name)

    def _servers_problem(self, value: str, base_dir: str) -> str:
        """Check servers between commas: hosts, URLs of web servers, and sockets of this machine (`/...`, `@...`)."""
        each = [one.strip() for one in value.split(",")]
        sockets = [one for one in each if one.startswith(("/", "@"))]
        urls = [one for one in each if _WEB.match(one)]
        names = [one for one in each if one not in sockets and one not in urls]
        problems = (self._socket_problem(one, base_dir) for one in sockets)
        problem = next(filter(None, (*problems, *map(self.url_problem, urls))), "")
        return problem or (self.addresses_problem(",".join(names)) if names else "")

    def _socket_problem(self, path: str, base_dir: str) -> str:
        return self.path_problem(path, base_dir) or self.host_problem("localhost")

    def _is_listed(self, name: str) -> bool:
        return any(fnmatchcase(name.lower(), one.lower()) for one in self.options)

    def addresses_problem(self, addresses: str) -> str:
        """Check `host:port` entries between commas; return the first problem or an empty text."""
        each = (one.rpartition("@")[2] for one in addresses.split(","))
        return next(filter(None, map(self.address_problem, each)), "")

    def address_problem(self, address: str) -> str:
        """Check `host:port`, one entry of a list of brokers; return the problem or an empty text."""
        try:
            parts = urlsplit(f"//{address.strip()}")
            if _NOT_IN_HOSTS.search(address.strip()):  # a part alone would be checked, and clients may take the whole
                raise ValueError
            return self.host_problem(parts.hostname or "", parts.port)
        except ValueError:
            return self.host_problem(address)

    @property
    def is_open(self) -> bool:
        """Whether no list is set."""
        return not self.is_limited and self.sources is None

    @property
    def is_limited(self) -> bool:
        """Whether a list is set that any option of a job could lead past."""
        return any(one is not None for one in (self.paths, self.environment, self.modules, self.hosts))


EVERYTHING = AllowLists()
"""No list is set."""


def _is_ambiguous(url: str, parts: SplitResult, *, is_java: bool) -> bool:
    """Return whether libraries may find another host or other parameters in a database's URL than we do."""
    after = url.partition("://")[2][len(parts.netloc) :]
    if is_java:  # whose drivers read what follows `?` or `;` as we do, but for `#`
        after = re.split("[?;]", after, maxsplit=1)[0]
    # SQLAlchemy reads a password up to an `@` far behind, as in `//host:5432/x@evil`, and a `#` as any other sign.
    users, host = parts.netloc.rpartition("@")[::2]
    is_cut = "#" in (url.partition(";")[0] if url.startswith("sqlserver:") else url)
    return is_cut or "@" in after or "@" in users or bool(_SIGNS & {*host})


def _java_parts(url: str) -> SplitResult:
    """Return the parts of a database's URL for Java, with the settings of SQL Server (`;a={b}`) as its query."""
    if not url.startswith("sqlserver:"):
        return urlsplit(url)
    start, _, settings = url.partition(";")
    pairs = (one.partition("=")[::2] for one in settings.split(";") if one.strip())
    return urlsplit(start)._replace(query=urlencode([(name.strip(), value.strip(" {}")) for name, value in pairs]))


def _remedy(what: str) -> str:
    return f"; who runs the project may add {what} there"


def _is_inside(path: str, base_dir: str, roots: tuple[str, ...]) -> bool:
    fixed, pattern = _split(path)
    if ".." in _BETWEEN_NAMES.split(unquote(pattern)):
        return False  # the folder above a placeholder is not known yet
    if "\\" in path or _SHORT_URL.match(path):
        return False  # Hadoop reads `\..` in a pattern as `..`
    place = _place(fixed, base_dir)
    return place is not None and any(_is_below(place, _place(root, base_dir)) for root in roots)


def _split(path: str) -> tuple[str, str]:
    """Return the folders of a path before its first placeholder, and the rest."""
    found = _PATTERN.search(path)
    if found is None:
        return path, ""
    end = path.rfind("/", 0, found.start()) + 1
    return path[:end], path[end:]


def _place(path: str, base_dir: str) -> tuple[str, ...] | None:
    """Return a path as parts that can be compared.

    None for a remote path with `..`, which only its own file system could resolve, and for what cannot be read.
    """
    scheme = path.partition("://")[0].lower() if _SCHEME.match(path) else ""
    if scheme in ("", *_LOCAL):
        local = path if not scheme else "/" + unquote(path.partition("://")[2].partition("/")[2])
        joined = os.path.join(base_dir, local)  # noqa: PTH118 - pathlib would drop `..` after a link
        try:
            return ("file", *os.path.realpath(joined).split("/")[1:])
        except ValueError:  # a null character
            return None
    try:
        parts = urlsplit(path)
        host, port = (parts.hostname or "").rstrip("."), parts.port or DEFAULT_PORTS.get(scheme)
    except ValueError:
        return None
    names = [part for part in path.partition("://")[2].partition("/")[2].split("/") if part]
    if any(one in (".", "..") for part in names for one in unquote(part).split("/")):
        return None
    server = parts.netloc if scheme in _BUCKETS else f"{host}:{port or ''}"
    return ({"gcs": "gs"}.get(scheme, scheme), server, *names)


def names_below(path: str, root: str, base_dir: str) -> tuple[str, ...] | None:
    """Return the folders and the name of a path below a root, however both are written; None if it is not below it.

    None too if one of them is remote and has `..`, which only its own file system could resolve.
    """
    whole = (_HADOOPS_FILE.sub("file:///", _HADOOPS_S3.sub("s3://", one)) for one in (path, root))
    place, above = (_place(one, base_dir) for one in whole)
    if place is None or above is None:
        return None
    top = _trimmed(above)
    start, names = place[: len(top)], place[len(top) :]
    return names if start == top or _is_one_folder(start, top) else None


def _is_one_folder(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """True if two folders whose names differ in case only are one, as on file systems that ignore case."""
    if one[0] != "file" or [part.casefold() for part in one] != [part.casefold() for part in other]:
        return False
    try:
        return Path("/", *one[1:]).samefile(Path("/", *other[1:]))
    except OSError:
        return False


def _is_below(place: tuple[str, ...], root: tuple[str, ...] | None) -> bool:
    return root is not None and place[: len(_trimmed(root))] == _trimmed(root)


def _trimmed(root: tuple[str, ...]) -> tuple[str, ...]:
    while root and not root[-1]:
        root = root[:-1]  # "/" and a trailing "/" end in an empty part
    return root


def _fits(host: str, port: int | None, entry: str) -> bool:
    name, wanted = _host_and_port(entry)
    if wanted is not None and wanted != port:
        return False
    address = _address(host)
    if "/" in name or _address(name) is not None:
        try:
            network = ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False
        return address is not None and address.version == network.version and address in network
    if name == "*":
        return True
    ours = host.lower().rstrip(".")
    if _HOST.fullmatch(ours) is None:
        return False
    return ours.endswith(name[1:]) and ours != name[1:] if name.startswith("*.") else ours == name


def _host_and_port(entry: str) -> tuple[str, int | None]:
    text = entry.strip().lower()
    bracketed = re.fullmatch(r"\[([0-9a-f:.]+)\](?::(\d+))?", text)
    if bracketed is not None:
        return bracketed[1], int(bracketed[2]) if bracketed[2] else None
    name, colon, port = text.rpartition(":")
    if colon and port.isdecimal() and ":" not in name:
        return name.rstrip("."), int(port)
    return text.rstrip("."), None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
