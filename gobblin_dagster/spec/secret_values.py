"""Values of variables: from the environment, or from a file or a command that `secrets` of gobblin.yaml names.

A value is looked up when it is first needed, and once per load of a project.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from gobblin_dagster.core.errors import InvalidSpecError, SpecFault
from gobblin_dagster.core.memory import address_space
from gobblin_dagster.spec.project import PROJECT_FILE, SecretSpec

COMMAND_LIMIT_S = 30
"""Seconds that a command may take."""


class Variables(Mapping[str, str]):
    """Environment variables and secrets by name; a variable that is set goes before a secret of its name.

    Args:
        environ: environment variables.
        secrets: where to find the others.
        root: folder of the project; commands run in it.

    Raises:
        InvalidSpecError: (when a value is asked for) the file cannot be read, the command fails, or there is no value.
    """

    def __init__(self, environ: Mapping[str, str], secrets: Mapping[str, SecretSpec], root: Path) -> None:
        self._environ, self._secrets, self._root = environ, secrets, root
        self._found: dict[str, str | InvalidSpecError] = {}

    def __getitem__(self, name: str) -> str:
        if name in self._environ:
            return self._environ[name]
        if name not in self._found:
            try:
                self._found[name] = self._look_up(name, self._secrets[name])
            except InvalidSpecError as error:
                self._found[name] = error  # a command that hangs would hang for each job file
        found = self._found[name]
        if isinstance(found, InvalidSpecError):
            raise found
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._environ or name in self._secrets

    def __iter__(self) -> Iterator[str]:
        return iter({**self._environ, **self._secrets})

    def __len__(self) -> int:
        return len({**self._environ, **self._secrets})

    def _look_up(self, name: str, secret: SecretSpec) -> str:
        try:
            text = (self._root / secret.file).read_text("utf-8") if secret.file else self._output(secret.command)
        except (OSError, UnicodeDecodeError) as error:
            what = getattr(error, "strerror", None) or "it is no text in UTF-8"
            raise self._error(name, f"{secret.file or secret.command[0]} cannot be used: {what}") from None
        except subprocess.TimeoutExpired:
            raise self._error(name, f"{secret.command[0]} did not end within {COMMAND_LIMIT_S} s") from None
        except subprocess.CalledProcessError as error:
            # What it printed may hold the secret.
            raise self._error(name, f"{secret.command[0]} ended with exit code {error.returncode}") from None
        if not (value := text.rstrip("\r\n")):
            raise self._error(name, f"{secret.file or secret.command[0]} gives no value")
        return value

    def _output(self, command: tuple[str, ...]) -> str:
        with address_space.lifted():
            done = subprocess.run(  # noqa: S603 - the project's own words, without a shell
                command,
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_LIMIT_S,
                check=True,
            )
        return done.stdout.decode("utf-8")

    def _error(self, name: str, problem: str) -> InvalidSpecError:
        return InvalidSpecError(file=PROJECT_FILE, faults=(SpecFault(f"secrets.{name}", problem),))
