"""The lists of what job files may touch: default open, closed when set, and no way round them by spelling."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.core.allow import AllowLists

OPEN = AllowLists()


def test_without_lists_everything_is_allowed() -> None:
    assert OPEN.is_open
    said = (OPEN.path_problem("/etc/shadow"), OPEN.variable_problem("X"), OPEN.module_problem("os:system"))
    assert (*said, OPEN.host_problem("h"), OPEN.url_problem("http://h/x"), OPEN.source_problem("files")) == ("",) * 6


def test_empty_lists_allow_nothing_and_say_which_list_to_change() -> None:
    closed = AllowLists(paths=(), environment=(), modules=(), hosts=(), sources=())
    for problem, name in (
        (closed.path_problem("/etc/shadow"), "paths"),
        (closed.variable_problem("X"), "environment"),
        (closed.module_problem("os:system"), "modules"),
        (closed.host_problem("h", 1), "hosts"),
        (closed.source_problem("files"), "sources"),
    ):
        assert f"`allow.{name}` of gobblin.yaml; who runs the project may add it" in problem.replace(
            "its root", "it"
        ).replace("its name", "it")


def test_sources_are_allowed_by_their_whole_name() -> None:
    lists = AllowLists(sources=("files", "shop.sources:Orders"))
    named = ("files", "shop.sources:Orders", "file", "Files", "shop.sources", "shop.sources:Orders2")
    assert [not lists.source_problem(one) for one in named] == [True, True, False, False, False, False]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Make an allowed folder with links out of it and into it, beside one that only begins alike."""
    for name in ("lake/in", "lake2", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "lake" / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "way-in").symlink_to(tmp_path / "lake")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("{0}/lake", True),
        ("{0}/lake/in/x.csv", True),
        ("{0}/lake/not/there/yet", True),
        ("lake/in", True),
        ("file://{0}/lake/in", True),
        ("file://localhost{0}/lake/in", True),
        ("FILE://{0}/lake/in", True),
        ("{0}/way-in/in", True),
        ("{0}/lake/{{dataset}}/*.csv", True),
        ("lake/in/{{dataset:**}}/x.csv", True),
        ("{0}/lake2", False),
        ("{0}/lake/../elsewhere", False),
        ("lake/in/../../elsewhere", False),
        ("{0}/lake/out", False),
        ("{0}/lake/out/../in", False),
        ("{0}/lake/{{dataset}}/../../elsewhere/x", False),
        ("{0}/lake/{{dataset}}/%2e%2e/x", False),
        ("{0}/{{dataset}}/x", False),
        ("{0}/la*/x", False),
        ("file://{0}/lake/%2e%2e/elsewhere", False),
        ("/etc/passwd", False),
        ("s3://bucket{0}/lake", False),
        ("{0}/lake/{{a,../elsewhere}}/x", False),
        ("{0}/lake/{{..,a}}/elsewhere", False),
        ("{0}/lake/\\../elsewhere", False),
        ("file:{0}/elsewhere/x", False),
        ("hdfs:/x", False),
        ("{0}/lake/\0/../../elsewhere", False),
        ("", False),
    ],
)
def test_local_paths_are_judged_by_where_they_lead(lake: Path, path: str, is_allowed: bool) -> None:
    for root in (f"{lake}/lake", f"{lake}/lake/", "lake", f"file://{lake}/lake", "way-in"):
        lists = AllowLists(paths=(root,))
        assert (lists.path_problem(path.format(lake), str(lake)) == "") is is_allowed, root


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("s3://bucket/landing/x.csv", True),
        ("S3://bucket/landing", True),
        ("s3://bucket/landing/{dataset}/*.csv", True),
        ("s3://bucket/landing2/x.csv", False),
        ("s3://bucket/landing/../x.csv", False),
        ("s3://bucket/landing/%2E%2e/x.csv", False),
        ("s3://bucket2/landing/x.csv", False),
        ("s3://bucket/Landing/x.csv", False),
        ("s3://bucket/{dataset}/x.csv", False),
        ("s3://BUCKET/landing/x.csv", False),
        ("abfss://in@shop.dfs.core.windows.net/x.csv", True),
        ("abfss://private@shop.dfs.core.windows.net/x.csv", False),
        ("sftp://reader@Files.Shop/in/x", True),
        ("sftp://files.shop:22/in/x", True),
        ("sftp://files.shop:2222/in/x", False),
        ("hdfs://files.shop/in/x", False),
        ("gcs://data/x", True),
        ("landing/x.csv", False),
    ],
)
def test_far_paths_are_judged_by_scheme_host_and_whole_names(path: str, is_allowed: bool) -> None:
    lists = AllowLists(
        paths=("s3://bucket/landing/", "abfss://in@shop.dfs.core.windows.net", "sftp://files.shop/in", "gs://data")
    )
    assert (lists.path_problem(path, "/project") == "") is is_allowed


def test_short_urls_are_no_relative_paths_below_an_allowed_project(tmp_path: Path) -> None:
    lists = AllowLists(paths=(str(tmp_path),))
    assert lists.path_problem("a:b/x.csv", str(tmp_path)) == ""
    assert all(lists.path_problem(one, str(tmp_path)) for one in ("file:/etc/passwd", "FILE:/etc/x", "hdfs:/etc"))


def test_root_of_all_files_allows_all_local_paths() -> None:
    assert AllowLists(paths=("/",)).path_problem("/etc/passwd") == ""
    assert AllowLists(paths=("/",)).path_problem("s3://b/x") != ""


@pytest.mark.parametrize(
    ("host", "port", "is_allowed"),
    [
        ("db.shop", 5432, True),
        ("DB.Shop.", 1, True),
        ("db.shop.evil", 5432, False),
        ("a.internal", None, True),
        ("a.b.internal", None, True),
        ("internal", None, False),
        ("evilinternal", None, False),
        ("broker", 9092, True),
        ("broker", 9093, False),
        ("broker", None, False),
        ("10.1.2.3", 80, True),
        ("11.1.2.3", 80, False),
        ("::ffff:10.1.2.3", 80, True),
        ("[fd00::1]", 80, True),
        ("fd00:0:0::1", 80, True),
        ("fd01::1", 80, False),
        ("::1", 9000, True),
        ("::1", 9001, False),
        ("0xa010203", 80, False),
        ("167838211", 80, False),
        ("", None, False),
    ],
)
def test_hosts_are_judged_by_name_network_and_port(host: str, port: int | None, is_allowed: bool) -> None:
    lists = AllowLists(hosts=("db.shop", "*.Internal", "broker:9092", "10.0.0.0/8", "fd00::/16", "[::1]:9000"))
    assert (lists.host_problem(host, port) == "") is is_allowed


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("postgresql://u:p@db.shop/x", True),
        ("postgresql+psycopg2://u:p@DB.shop:5432/x", True),
        ("postgresql://u:p@db.shop:5433/x", False),
        ("jdbc:postgresql://db.shop:5432/x", True),
        ("jdbc:oracle:thin:@db.shop:1521:x", False),
        ("http://db.shop:5432@evil/x", False),
        ("https://[::1]/x", False),
        ("postgresql://u@db.shop,evil/x", False),
        ("http://db.shop:99999/x", False),
        ("postgresql://db.shop/x?sslmode=require", True),
        ("postgresql://db.shop/x?host=evil", False),
        ("postgresql:///x?service=evil", False),
        ("postgresql:///x?host=evil,db.shop:5432", False),
        ("postgresql:///x?host=db.shop:5432", True),
        ("postgresql:///x?host=db.shop:5432/evil", False),
        ("postgresql:///x?host=db.shop:5432%23evil", False),
        ("postgresql://db.shop/x?port=5433", False),
        ("postgresql://db.shop/x?port=5432", True),
        ("postgresql://db.shop:5433/x?port=5432", False),
        ("postgresql://db.shop/x?port=5432,5433", False),
        ("oracle://db.shop:5432/?dsn=evil", False),
        ("postgresql+pg8000://db.shop:5432/x?unix_sock=/tmp/s", False),
        ("http://evil\\@db.shop:5432/x", False),
        ("http://evil\t.db.shop:5432/x", False),
        ("s3://bucket/x", True),
        ("abfss://in@shop.dfs.core.windows.net/x", True),
        ("abfss://in@evil.example/x", False),
        ("abfss://in@evil-core.windows.net/x", False),
        ("sqlite:///x.db", True),
    ],
)
def test_urls_are_judged_by_the_server_that_they_reach(url: str, is_allowed: bool) -> None:
    problem = AllowLists(hosts=("db.shop:5432",)).url_problem(url)
    assert (problem == "") is is_allowed
    assert "u:p" not in problem


@pytest.mark.parametrize(
    "url",
    ["postgresql:///x?host=evil,db.internal", "http://evil\\.internal/x", "mysql:///x?host=evil/.internal"],
)
def test_entries_with_a_star_take_plain_names_alone(url: str) -> None:
    assert AllowLists(hosts=("*.internal",)).url_problem(url)


def test_jdbc_urls_without_a_server_are_below_no_root() -> None:
    lists = AllowLists(paths=(".", "/"))
    assert "'jdbc:derby:'" in lists.url_problem("jdbc:derby:/etc/x;create=true")
    assert lists.url_problem("jdbc:postgresql://db/x") == ""


def test_file_of_sqlite_is_a_path(tmp_path: Path) -> None:
    lists = AllowLists(paths=("data",))
    assert lists.url_problem("sqlite:///data/x.db", str(tmp_path)) == ""
    assert "`allow.paths`" in lists.url_problem("sqlite:////etc/x.db", str(tmp_path))
    assert "`allow.paths`" in lists.url_problem("sqlite:///../x.db", str(tmp_path))
    project = AllowLists(paths=(str(tmp_path),))
    assert "`allow.paths`" in project.url_problem("sqlite:///file:/etc/x.db?mode=ro&uri=true", str(tmp_path))


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///data%2f..%2f..%2fx.db",
        "sqlite:///data/%2e%2e/x.db",
        "sqlite:///%2fetc/x.db",
        "sqlite:///data/../../x.db%2f..%2fdata/x.db",
        "sqlite://@/../x.db",
        "sqlite://:@//etc/x.db",
        "sqlite+pysqlite://:0/../x.db",
        "sqlite:///data%2ffile:%2fx.db/%2e%2e/%2e%2e/%2e%2e/x.db",
    ],
)
def test_file_of_sqlite_leads_out_by_no_encoding_and_no_empty_user(tmp_path: Path, url: str) -> None:
    lists = AllowLists(paths=(str(tmp_path / "data"),))
    assert lists.url_problem(url, str(tmp_path)) != ""
    assert lists.url_problem("sqlite:///data/x%20y.db", str(tmp_path)) == ""


def test_remote_paths_climb_by_no_encoded_slash() -> None:
    lists = AllowLists(paths=("hdfs://node/landing",))
    assert lists.path_problem("hdfs://node/landing/a%2f..%2f..%2fetc") != ""
    assert lists.path_problem("hdfs://node/landing/a%2f..b") == ""


@pytest.mark.parametrize(
    ("query", "is_allowed"),
    [
        ("sslmode=verify-full&sslrootcert=/ok/ca.pem", True),
        ("sslrootcert=/etc/shadow", False),
        ("sslkey=/ok/../etc/key", False),
        ("passfile=pgpass", False),
        ("read_default_file=/etc/my.cnf", False),
        ("local_infile=1&init_command=LOAD DATA LOCAL INFILE 'gobblin.yaml' INTO TABLE t", False),
        ("allowLoadLocalInfile=true", False),
    ],
)
def test_files_that_a_database_url_names_are_paths(query: str, is_allowed: bool) -> None:
    lists = AllowLists(paths=("/ok",))
    assert (lists.url_problem(f"postgresql://u:p@db.shop/x?{query}", "/project") == "") is is_allowed
    assert lists.url_problem(f"http://db.shop/x?{query}") == ""


SHOP = AllowLists(
    paths=("/ok",), modules=("org.shop",), hosts=("db.shop", "localhost:1"), options=("wallet_*", "jdbc:oracle:")
)


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("postgresql://db.shop/x?sslrootcert=ca.pem", False),
        ("postgresql://db.shop/x?sslrootcert=system&sslmode=verify-full", True),
        ("postgresql://db.shop/x?sslkey=/ok/../ok/engine:key", False),
        ("postgresql://db.shop/x?servicefile=/ok/services", False),
        ("postgresql://db.shop/x?service=shop", False),
        ("postgresql:///x?host=/ok", False),
        ("mysql://db.shop/x?ssl_ca=ca.pem", False),
        ("mysql://db.shop/x?unix_socket=/run/mysqld.sock", False),
        ("mysql://db.shop/x?read_default_file=/ok/my.cnf", False),
        ("mysql://db.shop/x?plugin_dir=/ok", False),
        ("mssql+pyodbc://db.shop/x?driver=/ok/evil.so", False),
        ("postgresql://u:a%40b@db.shop/x?sslmode=require&wallet_name=w", True),
        ("postgresql://u:p=(a;b)@db.shop/x", True),
        # SQLAlchemy connects to evil.
        ("postgresql://db.shop:5432/x@evil/db", False),
        ("postgresql://db.shop:5432/x?user=a@evil/db", False),
        ("postgresql://db.shop/x#?host=evil", False),
        ("postgresql://db.shop/x?sslmode=require#&host=evil", False),
        ("duckdb:////ok/x", False),
        ("duckdb://db.shop/x", False),
        ("jdbc:postgresql://db.shop/x?ssl=true&ApplicationName=shop", True),
        ("jdbc:postgresql://db.shop/x?socketFactory=org.evil.Context&socketFactoryArg=x", False),
        ("jdbc:postgresql://db.shop/x?sslfactory=org.shop.Factory", True),
        ("jdbc:postgresql://db.shop/x?sslfactory=org.shopping.Factory", False),
        ("jdbc:postgresql://db.shop/x?loggerFile=log", False),
        ("jdbc:mysql://(host=evil,port=1)/x", False),
        ("jdbc:mysql://db.shop/x?autoDeserialize=true", False),
        ("jdbc:mysql:loadbalance://db.shop/x", False),
        ("jdbc:sqlserver://db.shop:1433;databaseName=x;user=a@b;password={a&b#};encrypt=true", True),
        ("jdbc:sqlserver://db.shop:1433;trustStore={/etc/x}", False),
        ("jdbc:sqlserver://db.shop:1433;serverName=evil", False),
        ("jdbc:sqlserver://db.shop:1433;trustStore=ca.jks", False),
        ("jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'http://evil/x.sql'", False),
        ("jdbc:oracle:thin:@//db.shop:1521/x", True),
        ("sqlite:////ok/x.db?mode=ro", True),
        ("sqlite:////ok/x.db?vfs=evil", False),
    ],
)
def test_database_urls_have_parameters_that_are_known(url: str, is_allowed: bool) -> None:
    assert (SHOP.url_problem(url, "/project") == "") is is_allowed
    assert OPEN.url_problem(url) == ""


def test_unknown_parameters_and_urls_are_refused_with_what_the_owner_may_add() -> None:
    remedy = "; who runs the project may add it to `allow.options`"
    for lists in (AllowLists(paths=()), AllowLists(environment=()), AllowLists(modules=()), AllowLists(hosts=("db",))):
        said = lists.url_problem("postgresql://db/x?service=shop")
        assert "'service'" in said
        assert said.endswith(remedy)
        said = lists.url_problem("jdbc:h2:mem:x;INIT=y")
        assert "'jdbc:h2:'" in said
        assert said.endswith(remedy)
    assert AllowLists(sources=()).url_problem("postgresql://db/x?service=shop") == ""


def test_brokers_are_judged_one_by_one() -> None:
    lists = AllowLists(hosts=("broker:9092",))
    assert [bool(lists.address_problem(one)) for one in ("broker:9092", " Broker:9092 ", "other:9092", "a b:x")] == [
        False,
        False,
        True,
        True,
    ]


def test_modules_and_variables_are_judged_by_whole_names() -> None:
    lists = AllowLists(modules=("shop", "tools.text:clean"), environment=("SHOP_*", "LAKE"))
    allowed = ("shop:f", "shop.rows:f", "tools.text:clean")
    assert [lists.module_problem(one) for one in allowed] == ["", "", ""]
    assert all(map(lists.module_problem, ("shopping:f", "tools.text:dirty", "os:system", "shop2.x:f")))
    assert [lists.variable_problem(one) for one in ("SHOP_URL", "LAKE")] == ["", ""]
    assert all(map(lists.variable_problem, ("LAKE2", "STATE_URL", "shop_url")))


def test_pattern_allows_no_reference_inside_of_a_name() -> None:
    lists = AllowLists(environment=("SHOP_*", "*"))
    assert lists.variable_problem("SHOP_URL") == ""
    assert lists.variable_problem("SHOP_${BAD}").startswith("the environment variable SHOP_${BAD} is not in")
