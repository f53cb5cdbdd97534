"""One place has many names: of drivers, servers and ports, folders, links and mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gobblin_dagster.core.same_place import PlaceIdentity, do_meet, is_same_place, written_servers

LOCAL = "postgresql://127.0.0.1:5432/d#public.t"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("kafka://PLAINTEXT://LOCALHOST:9092/t", "kafka://a:1, 127.0.0.1/t", True),
        ("kafka://[::1]:9092/t", "kafka://localhost/t", True),
        ("kafka://a/t", "kafka://a/T", False),
        (LOCAL, "postgresql+psycopg2://Localhost./d#public.t", True),
        (LOCAL, "postgres://::1:5432/d#public.t", True),
        (LOCAL, "postgresql://[::ffff:127.0.0.1]:5432/d#public.t", True),
        (LOCAL, "postgresql:///d?host=/var/run/postgresql#public.t", True),
        (LOCAL, "postgresql://:5432/d#public.t", True),
        (LOCAL, "postgresql://127.0.0.1:5433/d#public.t", False),
        (LOCAL, "postgresql://127.0.0.2:5432/d#public.t", False),
        (LOCAL, "postgresql:///d?host=b#public.t", False),
        (LOCAL, "postgresql://127.0.0.1:5432/d#public.T", False),
        ("postgresql://a:1,b:2/d#public.t", "postgresql://b:2/d#public.t", True),
        ("mysql://h:3306/a#d.t", "mariadb+pymysql://H./b#d.t", True),
        ("mysql://h:3306/a#default.n.t", "mysql://h:3306/b#default.n.t", False),
        ("sqlite://://a/x.db#main.t", "sqlite:////a/b/../x.db#main.T", True),
        ("sqlite:////a/x.db#default.n.t", "sqlite:////a/x.db?timeout=3#n.t", True),
        ("sqlite:////a/x.db#default.n.t", "sqlite:////a/x.db#default.n.T", False),
        ("http://h:8181#n.t", "http://H:8181/#n.t", True),
        ("https://h/c?warehouse=a#n.t", "https://h:443/c#n.t", True),
        ("https://h?warehouse=s3://b/a#n.t", "https://h?warehouse=s3://b/c#n.t", False),
        ("s3a://b/x/", "s3://b/x", True),
        ("s3://b/x", "s3://c/x", False),
        ("hdfs:///x", "hdfs://n/x", False),
        ("/a/x", "/a/./y/../x/", True),
        ("/a/x\0", "/a/x", False),
        ("file:///a/x%20y", "/a/x y", True),
        ("file:/a/x", "file:///a/x", True),
        ("hdfs://n:8020/x", "hdfs://N/x", True),
        ("${X} (0123456789abcdef)", "${Y} (fedcba9876543210 0123456789abcdef)", True),
        ("${X} (0123456789abcdef)", "${X} (fedcba9876543210)", False),
    ],
)
def test_place_is_compared_by_what_it_is(monkeypatch: pytest.MonkeyPatch, one: str, other: str, is_same: bool) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    monkeypatch.delenv("PGPORT", raising=False)
    assert is_same_place(one, other) is is_same_place(other, one) is is_same


def test_server_by_another_name_may_be_the_same() -> None:
    local, far = PlaceIdentity.of(LOCAL), PlaceIdentity.of("postgresql://db.example/other#T")
    assert local.may_be(far)
    assert not local.may_be(PlaceIdentity.of("postgresql://db.example/d#public.u"))
    assert not local.may_be(PlaceIdentity.of("mysql://db.example/d#public.t"))
    assert not PlaceIdentity.of("/a/t").may_be(PlaceIdentity.of("/b/t"))


def test_file_is_one_place_by_each_of_its_links(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    (tmp_path / "linked.db").symlink_to("x.db")
    os.link(tmp_path / "x.db", tmp_path / "hard.db")
    here = f"sqlite:///{tmp_path}/x.db#main.t"
    for name in ("linked.db", "hard.db", "none/../x.db"):
        assert is_same_place(here, f"sqlite:///{name}#main.t", str(tmp_path)), name
    assert not do_meet([here], ["sqlite:///y.db#main.t"], str(tmp_path))


def test_folder_holds_what_is_below_it_by_whatever_link(tmp_path: Path) -> None:
    (tmp_path / "lake/n").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("lake")
    lake = PlaceIdentity.of(str(tmp_path / "lake"))
    assert lake.holds(PlaceIdentity.of(str(tmp_path / "linked/n/not/yet")))
    assert not lake.holds(PlaceIdentity.of(str(tmp_path / "lake2/n")))
    assert PlaceIdentity.of("s3://b/lake").holds(PlaceIdentity.of("s3a://b/lake/n"))
    assert not PlaceIdentity.of("s3://b/lake").holds(PlaceIdentity.of("s3://b/lake2"))


def test_database_without_a_host_is_where_its_client_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPORT", raising=False)
    monkeypatch.setenv("PGHOST", "db.example")
    assert written_servers("postgresql", {}) == "db.example:5432"
    assert written_servers("postgresql", {"host": ("a", "b"), "port": "1,2"}) == "a:1,b:2"
    assert written_servers("mysql", {}, "LOCALHOST") == "localhost:3306"
