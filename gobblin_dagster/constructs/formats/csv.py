"""CsvFormat: read delimited text, block by block, with pyarrow.

A column has its declared type, else the type that the source inferred for the dataset, else it is text: a schema never
depends on the data of a block. Quoted values may contain line breaks; measured, this costs nothing. Reading uses a
single thread, as pyarrow's streaming reader always does, which keeps row numbers exact; a task has one core.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from gobblin_dagster.constructs.formats.base import (
    FileReader,
    FormatError,
    InputFile,
    OpenStream,
    TypeSample,
    columns_of,
    kind_of,
    listed_names,
    matching,
    require_columns,
    require_columns_of_first,
)
from gobblin_dagster.constructs.formats.csv_published import PublishedCsv
from gobblin_dagster.constructs.formats.csv_quotes import QuoteCounter, fault_of_quotes
from gobblin_dagster.constructs.formats.csv_spelling import DateFormat, DecimalPoint, Spelling
from gobblin_dagster.constructs.formats.encodings import EncodingName, without_signature
from gobblin_dagster.constructs.formats.peek import Again, LookedAt, without_comments
from gobblin_dagster.constructs.types.arrow import TypeName, arrow_type, exact_cast
from gobblin_dagster.constructs.types.exact_text import MisfitError, cast_texts, exact_values
from gobblin_dagster.constructs.types.inference import Fractions
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.traits import Widening
from gobblin_dagster.core.utils.duplicates import repeated
from gobblin_dagster.core.utils.text import first_line, lift_limit_of_csv
from gobblin_dagster.spec.job import SpecModel

_FAULTY_COLUMN = re.compile(r"In CSV column #(\d+): Row #(\d+): (.*)")
_BAD_ROW = re.compile(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+): (.*)")
"""What pyarrow says of a row that is no UTF-8 either: it cannot give such a row to `_note_bad_row`."""
_NUMBER = re.compile(r"\s*[-+]?[0-9]*\.?[0-9]+\s*|NaN")
_SEPARATOR_LINE = re.compile(r"sep=.?")
_INFINITE = r"(?i)^\s*[+-]?inf(inity)?\s*$"
_LEAST_HEADER = 1 << 20
"""Bytes of a header that are read however small the blocks are."""
_NAMING = frozenset({"header", "column_names"})
"""Options that exclude each other: a dialect that gives one of them gives both."""


def _in_ascii(char: str) -> str:
    if not char.isascii():
        raise ValueError(f"expected a character of ASCII, got {char!r}")
    return char


Char = Annotated[str, StringConstraints(min_length=1, max_length=1), AfterValidator(_in_ascii)]


class CsvDialect(SpecModel):
    """How the text of a CSV file is written."""

    delimiter: Char = ","
    """Character between values."""
    quote: Char | None = '"'
    """Character around values with delimiters or line breaks; doubled inside values. null: quotes have no meaning."""
    escape: Char | None = None
    """Character before one that has no special meaning; default: none."""
    header: bool = True
    """Whether the first row has the column names."""
    column_names: tuple[str, ...] = ()
    """Names of the columns, in order, for files without a header."""
    encoding: EncodingName = "utf-8"
    """Encoding of the text, by its Python name."""
    comment: Char | None = None
    """First character of lines before the header that are left out, e.g. `"#"`. Default: none are."""
    decimal_point: DecimalPoint = "."
    """Character before the fraction of a number, `.` or `,`."""
    date_format: DateFormat | None = None
    """Form of days, also before times, e.g. `%d.%m.%Y`: `%d`, `%m`, `%Y`, and one of `.`, `/`, `-` between. Default:
    `2024-01-31`, which is read in any case."""

    @property
    def spelling(self) -> Spelling:
        """How numbers and days are written."""
        return Spelling(self.decimal_point, self.date_format)

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.header == bool(self.column_names):
            raise ValueError("expected either a header or `column_names` (with `header: false`)")
        signs = [one for one in (self.delimiter, self.quote, self.escape) if one is not None]
        if len({*signs}) < len(signs) or {*signs} & {"\n", "\r"}:
            raise ValueError(
                "`delimiter`, `quote` and `escape` must be different characters, and no line breaks; a quote that is "
                "doubled inside of a value needs no `escape`"
            )
        return self


class CsvOptions(CsvDialect):
    """Options of the format `csv`."""

    dialects: Mapping[str, CsvDialect] = Field(default_factory=dict)
    """Other options of the ones above for the datasets whose urn matches a glob, e.g. `{"germany/*": {delimiter: ";",
    decimal_point: ","}}`; of several globs that match, later ones win."""
    null_values: tuple[str, ...] = ("",)
    """Texts that mean null; in quotes they are texts, unless `quoted_nulls` is set. None may hold the `escape`."""
    quoted_nulls: bool = False
    """Whether quoted `null_values` mean null too, for programs that quote everything, as R does."""
    columns: Mapping[str, TypeName] = Field(default_factory=dict)
    """Types by column name, e.g. `{year: int32, time_hour: timestamp}`; types of other columns are inferred."""
    dataset_columns: Mapping[str, Mapping[str, TypeName]] = Field(default_factory=dict)
    """More `columns` for the datasets whose urn matches a glob, e.g. `{"shop/*": {zip: string}}`; of several globs that
    match, later ones win."""
    infer: bool = True
    """Whether types of undeclared columns are inferred, for each dataset once, from a sample of its first files; the
    plan says which. false: columns that are new are text. Datasets that were published keep their types either way."""
    infer_fractions: Fractions = "float64"
    """Type tried first for numbers with fractions: `float64`, or `decimal`, which also keeps zeros at the end."""
    include: tuple[str, ...] = ()
    """Columns to read, in this order; default: all. Fewer are faster."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        declared = [*self.columns, *(name for columns in self.dataset_columns.values() for name in columns)]
        if self.include and (unread := [name for name in declared if name not in self.include]):
            raise ValueError(f"`columns` declares {', '.join(unread)}, which `include` leaves out")
        # Arrow takes escapes away before it compares: \N would be the text N, and \\N, which is the text \N, be null.
        dialects: list[CsvDialect] = [self, *self.dialects.values()]
        for escape in filter(None, (one.escape for one in dialects)):
            if escaped := [null for null in self.null_values if escape in null]:
                raise ValueError(
                    f"`null_values` has {escaped[0]!r} with the `escape` {escape!r}, which is taken away before values "
                    f"are compared: it would be read as {escaped[0].replace(escape, '')!r}; leave `escape` out"
                )
        return self

    def of_dataset(self, dataset_urn: str) -> CsvOptions:
        """Return the options with the dialect of a dataset."""
        own: dict[str, Any] = {}
        for dialect in matching(dataset_urn, self.dialects):
            given = dialect.model_fields_set
            own |= {name: getattr(dialect, name) for name in (given | _NAMING if given & _NAMING else given)}
        return self.model_copy(update=own) if own else self


class CsvFormat:
    """Reads delimited text.

    Source: gobblin-core `CsvToJsonConverter` on `TextFileBasedSource`. Differs: a row with too few or too many values
    is an error with its row number; it is never filled up or cut.
    """

    Options = CsvOptions
    Published = PublishedCsv

    def __init__(self, options: CsvOptions, context: ConstructContext) -> None:
        self._options = options.of_dataset(context.dataset_urn)
        self._context = context
        self._block_bytes = context.block_bytes
        self._declared = columns_of(context.dataset_urn, options.columns, options.dataset_columns)
        self._inferred: Mapping[str, str] = {}

    @property
    def infers(self) -> bool:
        return self._options.infer

    def sample(self, settled: Collection[str]) -> TypeSample:
        # Only plans of new columns need it; idle runs count their modules.
        from gobblin_dagster.constructs.formats.csv_sample import CsvSample  # noqa: PLC0415

        return CsvSample(self._open_texts, self._options.infer_fractions, settled, self._options.spelling)

    def widening(self, known: Mapping[str, str], allowed: Collection[Widening]) -> TypeSample:
        from gobblin_dagster.constructs.formats.csv_sample import CsvWidening  # noqa: PLC0415  # as above

        inferred = {name: kind for name, kind in known.items() if name not in self._declared}
        return CsvWidening(self._open_texts, inferred, allowed, self._options.spelling)

    def with_types(self, types: Mapping[str, str]) -> CsvFormat:
        typed = CsvFormat(self._options, self._context)
        typed._inferred = {name: kind for name, kind in types.items() if name not in self._declared}
        return typed

    def open(self, file: InputFile, schema: pa.Schema | None) -> FileReader:
        return CsvReader(file, self._options, self._block_bytes, self._wanted(schema), self._inferred)

    def _open_texts(self, file: InputFile, wanted: Collection[str] | None = None) -> FileReader:
        """Open the columns without a declared type as texts; only those of `wanted`, if it is given."""

        def texts(header: list[str]) -> pa.Schema:
            require_columns(self._options.include, header, "named in `include`")
            names = [name for name in self._options.include or header if name not in self._declared]
            names = [name for name in names if wanted is None or name in wanted]
            return pa.schema([(name, pa.string()) for name in names])

        return CsvReader(file, self._options, self._block_bytes, texts)

    def count_rows(self, file: InputFile) -> int:
        first_column = CsvReader(
            file, self._options, self._block_bytes, lambda header: pa.schema([(header[0], pa.binary())])
        )
        with closing(first_column) as reader:
            return sum(batch.num_rows for batch in reader.batches())

    def _wanted(self, schema: pa.Schema | None) -> Callable[[list[str]], pa.Schema]:
        """Return a function that returns the schema to read, given a file's header."""
        options = self._options

        def wanted(header: list[str]) -> pa.Schema:
            require_columns(self._declared, header, "declared in `columns`")
            require_columns(options.include, header, "named in `include`")
            if schema is not None:
                require_columns_of_first(schema.names, header, options.include)
                return schema
            types = {name: arrow_type(kind) for name, kind in {**self._inferred, **self._declared}.items()}
            return pa.schema([(name, types.get(name, pa.string())) for name in options.include or header])

        return wanted


class CsvReader:
    """Reads one CSV file."""

    def __init__(
        self,
        file: InputFile,
        options: CsvOptions,
        block_bytes: int,
        wanted: Callable[[list[str]], pa.Schema],
        inferred: Mapping[str, str] | None = None,
    ) -> None:
        self._file, self._options, self._block_bytes = file, options, block_bytes
        self._bad_row: Any = None
        self._quotes: QuoteCounter | None = None
        self._spelling = options.spelling
        self._text = self._opened()
        try:
            looked_at = LookedAt(self._text.stream)
            self._header, self._has_rows = self._read_header(looked_at)
            self._again = looked_at.again()
            self.schema = wanted(self._header)
            self._inferred = frozenset(inferred or ())
            self._exact = [at for at, field in enumerate(self.schema) if self._is_exact(field)]
        except BaseException:
            self._text.close()
            raise

    def _opened(self) -> OpenStream:
        """Open the file behind the comments at its beginning."""
        text = self._file.open_text()
        if self._options.comment is not None:
            text.stream = _native(without_comments(text.stream, self._options.comment, self._options.encoding))
        return text

    def _is_exact(self, field: pa.Field) -> bool:
        """Return whether a column is read as text and converted here.

        pyarrow takes days in ISO's form only, and lets decimals of many digits and hexadecimal numbers wrap around.
        """
        is_day = pa.types.is_date(field.type) or pa.types.is_timestamp(field.type)
        is_odd = _may_wrap(field.type) or (is_day and self._options.date_format is not None)
        return field.name in self._inferred or is_odd

    @property
    def bytes_read(self) -> int:
        return self._text.bytes_read

    def batches(self) -> Iterator[pa.RecordBatch]:
        if not self._has_rows or not self.schema.names:
            if self._options.quote and self._options.header:
                self._require_sound_quotes()  # all rows may have become a part of the header
            return
        fields, rows = list(self.schema), 0
        for at in self._exact:
            fields[at] = fields[at].with_type(pa.string())
        as_read = pa.schema(fields)
        floats = {field.name for field in as_read if pa.types.is_floating(field.type)}
        with self._explained():
            for read in self._arrow_reader(self._again, as_read):
                # Before the batch is passed on: the value that the rest of the file became fails other checks too.
                self._check_quotes()
                batch = self._typed(read, rows)
                rows += batch.num_rows
                for column in [name for name in floats if pc.any(pc.is_inf(batch.column(name))).as_py()]:
                    self._refuse_overflow(column)
                    floats.remove(column)
                yield batch
        self._check_quotes()

    def close(self) -> None:
        self._text.close()

    def _typed(self, batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
        """Convert the columns with inferred types; raises FormatError for a text that such a type would alter."""
        columns = list(batch.columns)
        for at in self._exact:
            kind = self.schema.field(at).type
            try:
                if _may_wrap(kind) and self.schema.field(at).name not in self._inferred:
                    columns[at] = cast_texts(self._spelling.usual(pc.utf8_trim_whitespace(columns[at]), kind), kind)
                elif not pa.types.is_string(kind):
                    columns[at] = exact_values(self._spelling.usual(columns[at], kind), kind)
            except MisfitError as misfit:
                text = columns[at][misfit.index].as_py()
                raise FormatError(self._problem_of(text, self.schema.field(at)), rows + misfit.index + 1) from misfit
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _problem_of(self, text: str, field: pa.Field) -> str:
        problem = f"column {field.name!r}: {text[:80]!r} does not fit {field.type}"
        if field.name in self._inferred:
            return (
                f"{problem}, the type inferred from the dataset's first rows. Declare it, e.g. `columns: "
                f"{{{field.name}: string}}`, or name texts that mean null in `null_values`."
            )
        if _may_wrap(field.type):
            return problem + (self._null_hint(f"invalid value '{text}'") or ".")
        return f"{problem}, as of `columns` and `date_format: {self._options.date_format}`."

    def _read_header(self, stream: LookedAt) -> tuple[list[str], bool]:
        """Return the column names, and whether any row follows."""
        options = self._options
        encoding = without_signature(options.encoding)
        text = io.TextIOWrapper(io.BufferedReader(stream), encoding=encoding, errors="surrogateescape", newline="")
        names = list(options.column_names)
        try:
            if not names:
                with stream.bounded(self._most_header, self._no_header()):
                    names = next((row for row in self._rows(text) if row), [])
                "".join(names).encode()
            has_rows = self._has_more(text, stream)
        except UnicodeError as error:
            what = kind_of(stream.beginning)
            hint = f"it looks like {what}" if what else "set `encoding`, if it is a text"
            raise FormatError(f"its first line is no text in {options.encoding}; {hint}.") from error
        except csv.Error as error:
            raise FormatError(f"its header is no CSV in {options.encoding}: {first_line(error)}.") from error
        if not names or (not options.header and not has_rows):
            raise FormatError("is empty; a CSV file has at least its header. Was its upload interrupted?")
        if options.header and not options.column_names and _SEPARATOR_LINE.fullmatch(options.delimiter.join(names)):
            raise FormatError("begins with Excel's line `sep=`, which is no header; remove this line.")
        if any("\0" in name for name in names):
            raise FormatError(
                "its header holds NUL, as a file does whose writing was interrupted by a crash, or a text in UTF-16 "
                "(`encoding: utf-16-le`)."
            )
        twice = repeated(names)
        if "" in twice:
            nameless = [str(number) for number, name in enumerate(names, 1) if not name]
            raise FormatError(
                f"its header gives no name to the columns {', '.join(nameless[:5])} of {len(names)}; name each column, "
                "or "
                "remove delimiters at the ends of lines."
            )
        if twice:
            numbers = all(map(_NUMBER.fullmatch, names))
            remedy = " Are these values? Then set `header: false` and `column_names`." if numbers else ""
            raise FormatError(f"its header repeats the column(s) {listed_names(twice)}.{remedy}")
        return names, has_rows

    @property
    def _most_header(self) -> int:
        """Bytes up to the header's end at most: pyarrow reads none beyond a block of letters, each four in UTF-32."""
        return max(4 * self._block_bytes, _LEAST_HEADER)

    def _no_header(self) -> FormatError:
        return FormatError(
            f"has no header in its first {self._most_header:,} bytes: its first line is longer, a quote in it is "
            "not closed, or all lines are empty. Longer headers need a greater `execution.block_bytes`."
        )

    def _has_more(self, text: io.TextIOWrapper, stream: LookedAt) -> bool:
        """Return whether a line with a row follows, or more empty lines than are kept in memory."""
        before = stream.size
        while line := text.readline(4096):
            if line.strip("\r\n") or stream.size - before > self._most_header:
                return True
        return False

    def _rows(self, text: io.TextIOWrapper) -> Iterator[list[str]]:
        options = self._options
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE
        lift_limit_of_csv()
        return csv.reader(
            text, delimiter=options.delimiter, quotechar=options.quote, escapechar=options.escape, quoting=quoting
        )

    def _arrow_reader(self, text: pa.NativeFile | Again, schema: pa.Schema) -> Any:
        options, encoding = self._options, self._options.encoding
        is_counted = options.quote is not None or options.escape is not None
        if is_counted and encoding != "utf-8":
            text, encoding = pa.transcoding_input_stream(_native(text), encoding, "utf8"), "utf-8"
        if is_counted:
            self._quotes = QuoteCounter(text, options.delimiter, options.quote, options.escape)
        return arrow_csv.open_csv(
            _native(self._quotes if is_counted else text),
            read_options=arrow_csv.ReadOptions(
                use_threads=False,
                block_size=self._block_bytes,
                column_names=list(options.column_names) or None,
                encoding="utf8" if encoding == "utf-8" else encoding,
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                escape_char=options.escape or False,
                newlines_in_values=True,
                invalid_row_handler=self._note_bad_row,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=schema,
                include_columns=schema.names,
                null_values=list(options.null_values),
                decimal_point=options.decimal_point,
                strings_can_be_null=True,
                quoted_strings_can_be_null=options.quoted_nulls,
            ),
        )

    def _check_quotes(self) -> None:
        """Check the quotes once, as soon as the file was read to its end."""
        if self._quotes is not None and self._quotes.is_suspicious:
            self._quotes = None
            self._require_sound_quotes()

    def _require_sound_quotes(self) -> None:
        options = self._options
        assert options.quote is not None  # noqa: S101  # quotes are counted only if there is a quote character
        with closing(self._opened()) as text:
            lines = io.TextIOWrapper(text.stream, without_signature(options.encoding), "replace", newline="")
            fault = fault_of_quotes(lines, options.delimiter, options.quote, options.escape)
        if fault is not None:
            row = fault[0] - int(options.header)
            raise FormatError(fault[1], row) if row else FormatError(f"its header: {fault[1]}")

    def _note_bad_row(self, row: Any) -> str:
        self._bad_row = row
        return "error"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise pyarrow's errors as FormatError, with the row's number."""
        try:
            yield
        except (pa.ArrowInvalid, UnicodeError) as error:
            if (bad := self._bad_row) is not None:
                problem = f"expected {bad.expected_columns} values, got {bad.actual_columns}: {bad.text[:80]!r}"
                raise FormatError(problem, row=bad.number - int(self._options.header)) from error
            message = first_line(error)
            if match := _BAD_ROW.match(message):
                problem = (
                    f"expected {match[2]} values, got {match[3]}: {match[4][:80]!r}, which is no "
                    f"{self._options.encoding} either; set `encoding`."
                )
                raise FormatError(problem, row=int(match[1]) - int(self._options.header)) from error
            if "straddling" in message or "out of sync" in message:
                message = (
                    f"a row is longer than a block of {self._block_bytes} bytes; correct an unbalanced quote, or raise "
                    "`execution.block_bytes`."
                )
            if match := _FAULTY_COLUMN.match(message):
                column, row = self._header[int(match[1])], int(match[2]) - int(self._options.header)
                hint = (
                    f", expected {self._options.encoding}; set `encoding`."
                    if "UTF8" in message
                    else self._null_hint(match[3])
                )
                raise FormatError(f"column {column!r}: {match[3]}{hint}", row) from error
            raise FormatError(message) from error

    def _null_hint(self, message: str) -> str:
        """Return a hint for a quoted text that would mean null without quotes; empty for other values."""
        options = self._options
        if options.quoted_nulls or not any(message.endswith(f"invalid value '{null}'") for null in options.null_values):
            return ""
        return "; to read quoted `null_values` as null, set `quoted_nulls: true`."

    def _refuse_overflow(self, column: str) -> None:
        """Read one column again as text; raises FormatError for a number that is too large and became infinite."""
        kind, rows = self.schema.field(column).type, 0
        with closing(self._opened()) as text:
            for batch in self._arrow_reader(text.stream, pa.schema([(column, pa.string())])):
                texts = self._spelling.usual(batch.column(0), kind)
                is_large = pc.is_inf(exact_cast(pc.utf8_trim_whitespace(texts), kind))
                at = pc.index(pc.and_not(is_large, pc.match_substring_regex(texts, _INFINITE)), value=True).as_py()
                if at >= 0:
                    raise FormatError(f"column {column!r}: {texts[at]} is too large for {kind}.", rows + at + 1)
                rows += batch.num_rows


def _may_wrap(kind: pa.DataType) -> bool:
    """Return whether pyarrow's own reader makes another number of some texts, as -1 of `0xFF`."""
    return bool(pa.types.is_decimal(kind) or pa.types.is_signed_integer(kind))


def _native(stream: Any) -> pa.NativeFile:
    return stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="r")
