"""A real Kafka broker (KRaft, one node) on 127.0.0.1 for tests, ended by its own pid; it can be stopped and started
again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import admin as library
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.services import maven
from tests.services.certificates import Authority
from tests.services.ending import wait_or_kill
from tests.services.ports import free_port

ARTIFACTS = ("org.apache.kafka:kafka_2.13:4.1.0", "org.slf4j:slf4j-simple:1.7.36")
_START_S = 180
_ADMIN: Any = library
"""With classes that are public, though not in its `__all__`."""
_JAVA_OPTIONS = (
    "-Xms128m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def jars() -> Path | None:
    """Return the folder of the broker's jars; None where they cannot be had."""
    return maven.jars("kafka", ARTIFACTS) if shutil.which("java") else None


SASL_USER = "lake"
SASL_PASSWORD = "open-sesame"  # a test's


class KafkaBroker:
    """A broker with its data in one folder; every test uses topics of its own."""

    def __init__(self, libs: Path, home: Path) -> None:
        self._libs = libs
        self._home = home
        self._properties = home / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self.certificates = Authority(home / "certificates")
        self._ports = {name: free_port() for name in (*_LISTENERS, "CONTROLLER")}
        settings = _settings(home, self._ports) | _encryption(home, self.certificates)
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        self._java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c").wait(timeout=_START_S)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._ports['PLAINTEXT']}"

    @property
    def sasl_address(self) -> str:
        """Where a user and a password are asked for."""
        return f"127.0.0.1:{self._ports['SASL_PLAINTEXT']}"

    @property
    def ssl_address(self) -> str:
        """Where a client has to show a certificate of `certificates`."""
        return f"127.0.0.1:{self._ports['SSL']}"

    @property
    def sasl_ssl_address(self) -> str:
        """Where a user and a password are asked for, and the server shows a certificate."""
        return f"127.0.0.1:{self._ports['SASL_SSL']}"

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address})

    def start(self) -> None:
        """Start it, on its former data, and wait until it answers."""
        self._process = self._java("kafka.Kafka")
        deadline = time.monotonic() + _START_S
        while not _is_open(self._ports["PLAINTEXT"]):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not start: {(self._home / 'log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it and wait for its end."""
        if self._process is not None:
            self._process.send_signal(how)
            wait_or_kill(self._process)
            self._process = None

    def log_file(self, topic: str, partition: int = 0) -> Path:
        """The first segment of a partition's log."""
        return self._home / "data" / f"{topic}-{partition}" / f"{0:020}.log"

    def new_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic and wait until it is there."""
        made = self.admin.create_topics(
            [NewTopic(name, partitions, 1, config=dict(config or {}))], operation_timeout=30
        )
        for future in made.values():
            future.result()

    def configure(self, topic: str, setting: str, value: str) -> None:
        """Change a setting of a topic."""
        entry = _ADMIN.ConfigEntry(setting, value, incremental_operation=_ADMIN.AlterConfigOpType.SET)
        resource = _ADMIN.ConfigResource(_ADMIN.ResourceType.TOPIC, topic, incremental_configs=[entry])
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result()

    def forbid(self, topic: str) -> None:
        """Take all permissions on a topic from `SASL_USER`."""
        who = (f"User:{SASL_USER}", "*", _ADMIN.AclOperation.ALL, _ADMIN.AclPermissionType.DENY)
        rule = _ADMIN.AclBinding(_ADMIN.ResourceType.TOPIC, topic, _ADMIN.ResourcePatternType.LITERAL, *who)
        for future in self.admin.create_acls([rule]).values():
            future.result()

    def producer(self, **config: str) -> Producer:
        settings = {"bootstrap.servers": self.address, "acks": "all", "linger.ms": "5"}
        return Producer(settings | {name.replace("_", "."): value for name, value in config.items()})

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._home / "log").open("ab") as log:
            return subprocess.Popen(
                ["java", *_JAVA_OPTIONS, "-cp", f"{self._libs}/*", main, *arguments, str(self._properties)],
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "LOG_DIR": str(self._home)},
            )


@contextmanager
def running_kafka(libs: Path) -> Iterator[KafkaBroker]:
    """Start a broker in a folder of its own and end it afterwards."""
    home = Path(tempfile.mkdtemp(prefix="gobblin-kafka-"))
    try:
        broker = KafkaBroker(libs, home)
        try:
            broker.start()
            yield broker
        finally:
            broker.stop(signal.SIGKILL)  # its data is thrown away: nothing to put in order
    finally:
        shutil.rmtree(home, ignore_errors=True)


_LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")


def _settings(home: Path, ports: Mapping[str, int]) -> dict[str, str]:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    login += f' user_{SASL_USER}="{SASL_PASSWORD}";'
    listeners = {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()}
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "listeners": ",".join(listeners.values()),
        "advertised.listeners": ",".join(listeners[name] for name in _LISTENERS),
        "listener.security.protocol.map": ",".join(f"{n}:{n}" for n in _LISTENERS) + ",CONTROLLER:PLAINTEXT",
        # All may do all, but for what `forbid` takes away.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": f"{home}/data",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        # A killed broker may register again only when its former session has ended.
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
        # Retention and compaction work within a test's patience.
        "log.retention.check.interval.ms": "200",
        "log.cleaner.backoff.ms": "200",
        "log.segment.delete.delay.ms": "100",
        "log.initial.task.delay.ms": "200",
    }


def _encryption(home: Path, certificates: Authority) -> dict[str, str]:
    store = home / "certificates" / "keystore.pem"
    certificate, key = certificates.signed("server")
    store.write_bytes(key.read_bytes() + certificate.read_bytes())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.ssl.ssl.client.auth": "required",
    }


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
