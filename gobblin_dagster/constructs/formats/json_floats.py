"""Let pyarrow read the NaN and infinities of published JSON lines, which stand there as text among numbers.

JSON has no other form for them; pyarrow refuses text among numbers, but reads `NaN` and `Infinity` without quotes. So
the lines that hold such a text at the place of a float are written again while they are read, in memory.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.fs as pafs

from gobblin_dagster.constructs.types.arrow import has_part, is_list
from gobblin_dagster.constructs.types.json_shapes import dump_exactly, load_exactly

_FLOATS: Mapping[str, float] = {name: float(name) for name in ("nan", "-nan", "inf", "-inf")}
"""By the texts of the writer `jsonl`, which are DuckDB's."""
_TEXTS = tuple(f'"{name}"'.encode() for name in _FLOATS)
_CHUNK_BYTES = 1 << 20
_LONGEST_LINE = 32 << 20
"""Bytes of a line that is not looked into: pyarrow refuses shorter ones."""


def with_plain_floats(filesystem: pafs.FileSystem, types: Mapping[str, pa.DataType | None]) -> pafs.FileSystem:
    """Return a file system whose JSON lines have NaN and infinities without quotes; the same one without floats.

    Args:
        filesystem: where the files are; those that end in `.gz` are packed.
        types: types of the columns, also of nested ones.
    """
    floats = {name: kind for name, kind in types.items() if kind is not None and has_part(kind, pa.types.is_floating)}
    return pafs.PyFileSystem(_PlainFloats(filesystem, pa.struct([*floats.items()]))) if floats else filesystem


@dataclass(frozen=True)
class _PlainFloats(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Reads files of another file system; writes none."""

    inner: pafs.FileSystem
    floats: pa.StructType
    """The columns with floats."""

    def get_type_name(self) -> str:
        return f"json-floats+{self.inner.type_name}"

    def normalize_path(self, path: str) -> str:
        return str(self.inner.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        return list(self.inner.get_file_info(paths))

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        return list(self.inner.get_file_info(selector))

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self.open_input_stream(path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        blocks = self._blocks(self.inner.open_input_stream(path))
        return pa.PythonFile(_Blocks(_packed(blocks) if path.endswith(".gz") else blocks), mode="r")

    def _blocks(self, stream: pa.NativeFile) -> Iterator[bytes]:
        """Yield the content in parts; a text of a float is never cut."""
        with closing(stream):
            rest = b""
            while chunk := stream.read(_CHUNK_BYTES):
                whole, end, rest = (rest + chunk).rpartition(b"\n")
                if end:
                    yield self._plain(whole) + end
                elif len(rest) > _LONGEST_LINE:
                    yield rest
                    rest = b""
            yield self._plain(rest)

    def _plain(self, block: bytes) -> bytes:
        if not _has_text(block):
            return block
        return b"\n".join(self._plain_line(line) if _has_text(line) else line for line in block.split(b"\n"))

    def _plain_line(self, line: bytes) -> bytes:
        try:
            record = load_exactly(line)
            plain = _as_floats(record, self.floats)
            return line if plain == record else dump_exactly(plain, allow_nan=True).encode()
        except (ValueError, RecursionError):  # pyarrow explains it
            return line

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotImplementedError("published files are only read here")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refuse
    open_output_stream = open_append_stream = _refuse


class _Blocks(io.RawIOBase):
    """A stream of blocks; it can only be read from its beginning to its end."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        size = min(len(into), len(self._rest))
        into[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def read(self, size: int | None = -1) -> bytes:
        """Return as many bytes as wanted, less at the end only: pyarrow takes fewer for the end."""
        if size is None or size < 0:
            return bytes(self.readall() or b"")
        found = bytearray(size)
        filled = 0
        with memoryview(found) as view:
            while filled < size and (read := self.readinto(view[filled:])):
                filled += read
        return bytes(found[:filled])


def _has_text(content: bytes) -> bool:
    return any(text in content for text in _TEXTS)


def _packed(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks as a stream of gzip, which pyarrow unpacks by the file's name; nothing is compressed."""
    packer = zlib.compressobj(level=0, wbits=31)
    for block in blocks:
        yield packer.compress(block)
    yield packer.flush()


def _as_floats(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON in which texts at the places of floats are floats."""
    if isinstance(value, str):
        return _FLOATS.get(value, value) if pa.types.is_floating(kind) else value
    if isinstance(value, list) and is_list(kind):
        return [_as_floats(one, kind.value_type) for one in value]
    if isinstance(value, dict) and pa.types.is_map(kind):
        return {name: _as_floats(one, kind.item_type) for name, one in value.items()}
    if isinstance(value, dict) and pa.types.is_struct(kind):
        kinds = {field.name: field.type for field in kind}
        return {name: _as_floats(one, kinds.get(name, pa.null())) for name, one in value.items()}
    return value
