"""Writes docs/reference/gobblin-keys.md: each key of Gobblin's job files, the field it became, the test that shows it.

    python scripts/gobblin_keys.py           write the page again
    python scripts/gobblin_keys.py --check   exit code 1 where it is out of step

Keys and fields are those of the loader itself (`gobblin_dagster.spec.gobblin.keys`); here stand only the tests that
show what a field does. That each key becomes its field is shown by tests/unit/spec/gobblin/test_keys.py.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.spec.gobblin import classes
from gobblin_dagster.spec.gobblin.keys import SECTIONS, Key
from gobblin_dagster.spec.gobblin.lookup import fields_of, names_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "gobblin-keys.md"

HEAD = """# Gobblin's keys

`.pull`, `.job` and `.conf` files in the jobs folder, or below it, are jobs like YAML files: `gobblin check`, `plan` and
`run` read them, and `gobblin convert FILE` prints a file as an equal YAML job. The [last section](#how-files-are-read)
says how files are read.

The tables list all keys that are known, each with the field of our job file that it becomes. `source(query).tables`
means the option `tables` of the source if its type is `query`; `writer(*)` means any writer of files. **S** marks keys
that the documents on state, exactly-once and forks name, **C** keys in many users' files, **R** rare keys. `[.i]` means
that the index of a branch may follow the key. For keys that are not carried, the reason is given; `gobblin check`
reports such a key, unless its value changes nothing here. Keys marked **refused** are faults, because without them
other rows would be read, or rows would go elsewhere. Any other key is a fault too, reported with file, line and the
nearest known key. `tests/unit/spec/gobblin/test_keys.py` shows for each key that it becomes its field; the last column
names the test of what the field does.
"""

TAIL = """
## How files are read
- `.pull` and `.job` are properties in UTF-8, with `include = other.properties`; `.conf` is HOCON (`pip install
  'gobblin-dagster[hocon]'`). A key stands once in a file and in all that it includes; HOCON's `+=` and `include` are
  refused.
- Properties are read as Gobblin's library does, which differs from Java: blanks around commas are nothing (`a, b` is
  `a,b`; write `a\\, b`), a `\\` goes on in the next line also with blanks behind it, and comments and empty lines in
  between are left out. A reference to a list of the same file means its first item there, and is refused.
- Each folder from the jobs folder down to the file's may hold one `.properties` or `.configuration` file for all jobs
  below it. The nearest wins: job file, its folder, ..., the jobs folder, templates (`gobblin.template.uri`, a file
  below the jobs folder). A secure template (`gobblin.template.isSecure`) lets a job set only what its
  `gobblin.template.secure.overridableProperties` names: other keys of the job's file are faults.
- `${other.key}` means the text of this key in any of the files, `${env:NAME}` an environment variable. In HOCON,
  `${name}` is the key with this name, or else the environment variable; in quotes it is text, and refused. A key that
  is only referred to, or that a template requires, may have any name. Words by which other fields are chosen, such as
  `data.publisher.replace.final.dir`, take no environment variable: runs read those, and a file is understood before.
- Without an index, keys of converters, row policies and task policies apply before the fork; keys of writers,
  publishers and task policies apply to all branches without keys of their own. With one branch, `.0` and no index are
  the same.
- Each branch's rows are published below its own `data.publisher.final.dir`: `output.path` becomes the folder that all
  of them share, `path` of the branch the rest. Quarantine, staging and manifests are in the shared folder.
- `TextFileBasedSource` and `AvroFileSource` read all files of the folder and of those below it, whatever their ends. As
  there, only `TextFileBasedSource` reads a file again that was replaced or has grown (`read_changed: again`).
  `SimpleJsonSource` reads its files once; there, each run reads them all. All but
  `HadoopTextInputSource`, which leaves out names that begin with a dot or an underscore, read hidden files (`hidden`).
  Other than Gobblin, no source reads [unfinished files](sources.md), and no line ends in a carriage return. As there,
  `TextFileBasedSource` leaves out an empty line at the beginning of a file, and for the other sources of lines a single
  carriage return ends a line. A text writer writes only the value of Kafka's messages.
- Classes are Gobblin's own, by full or last name, or `module:Class` in Python. For your own Java classes, declare
  constructs to use instead in `classes` of gobblin.yaml; publishers and partitioners too:
  ```yaml
  classes:
    com.shop.MaskingConverter: {type: mask, columns: [email]}
    com.shop.OrdersSource: {type: "shop.orders:OrdersSource", keys: {region: orders.region}}
  ```
  `keys` sets options from keys of the job, which may have any name: here the option `region` gets the text of
  `orders.region`.
- Secrets must come from the environment: `source.conn.password=${env:DB_PASSWORD}`. Values in `ENC(...)`, and secrets
  in plain text, are refused and not shown.
- In names (`job.name`, `extract.namespace`), `_` replaces characters that are not allowed here, such as dots and
  dashes; the new name is reported.
"""

_LOADER = "tests/unit/spec/gobblin/test_job.py"
_CLASSES = "tests/unit/spec/gobblin/test_classes.py"
_RUN = "tests/unit/engine/run/test_job_run.py"
_RETRIES = "tests/unit/engine/task/test_retry.py"
_RETRY_FAILED = "tests/unit/engine/plan/test_retry_failed.py"
_READ_LIMITS = "tests/unit/engine/task/test_limited_reader.py"
_QUERY = "tests/unit/constructs/sources/query/test_source.py"
_OFFSETS = "tests/integration/kafka/test_offsets.py"
_TOPICS = "tests/integration/kafka/test_rows.py"
_POSITIONS = "tests/unit/constructs/sources/files/test_positions.py"
_FILES = "tests/unit/constructs/sources/files/test_new_files.py"
_DATED = "tests/unit/constructs/sources/files/test_source.py"
_VALUES = "tests/unit/constructs/converters/test_values.py"
_WRITERS = "tests/unit/constructs/writers/test_writers.py"
_PARTITIONS = "tests/unit/constructs/writers/test_partitions.py"
_SHAPE = "tests/unit/constructs/converters/test_shape_of_rows.py"
_STAGE = "tests/unit/engine/task/test_row_pipeline.py"
_FULL = "tests/unit/engine/run/test_full_extract.py"
_PARTIAL = "tests/unit/engine/run/test_partial.py"
_PACKS = "tests/unit/engine/plan/test_cost.py::test_packs_can_be_numbered_and_dataset_kept_together"
_FOLDERS = "tests/unit/engine/run/test_branch_paths.py::test_path_given_holds_for_its_branch_alone"
_QUEUES = (
    "tests/unit/engine/task/test_branch_queue.py::"
    "test_one_branch_needs_no_thread_and_several_get_one_each_as_the_job_says"
)
_MODES = "tests/unit/engine/commit/steps/test_permissions.py"

TESTS = {
    "job": f"{_LOADER}::test_names_are_made_fit_and_told",
    "description": "tests/unit/spec/gobblin/test_files.py::test_text_of_a_variable_stays_text_whatever_it_looks_like",
    "commit.policy": f"{_RUN}::test_policy_successful_failed_unit_leaves_a_gap_that_is_read_alone",
    "commit.failed_units_fail_run": f"{_PARTIAL}::test_failed_unit_fails_the_run_only_where_the_job_says_so",
    "commit.parallelism": "tests/unit/engine/commit/test_committer.py::test_slow_steps_are_spread_over_threads",
    "commit.delivery": (
        "tests/unit/engine/commit/test_delivery.py::test_at_least_once_publishes_the_same_without_write_ahead"
    ),
    "execution.retries.count": f"{_RETRIES}::test_retries_can_be_turned_off",
    "execution.retries.backoff_s": f"{_RETRIES}::test_waits_double_up_to_the_longest_and_are_slept_whole",
    "execution.retry_failed": f"{_RETRY_FAILED}::test_range_that_is_given_up_is_told_and_not_read_again",
    "execution.limit.rows": f"{_READ_LIMITS}::test_limit_ends_a_unit_with_the_batch_that_reaches_it",
    "execution.limit.seconds": f"{_READ_LIMITS}::test_limit_ends_a_unit_with_the_batch_that_reaches_it",
    "execution.limit.rows_per_second": f"{_READ_LIMITS}::test_rate_waits_between_batches",
    "execution.max_work_units": (
        "tests/unit/engine/plan/test_planner.py::test_work_units_are_shared_out_evenly_among_datasets"
    ),
    "execution.packs": _PACKS,
    "execution.packing": _PACKS,
    "converters(*).max_errors": f"{_STAGE}::test_more_bad_rows_than_allowed_fail_with_the_row_that_was_too_much",
    "output.path": _FOLDERS,
    "output.file_mode": f"{_MODES}::test_job_publishes_with_modes",
    "output.dir_mode": f"{_MODES}::test_job_publishes_with_modes",
    "output.group": f"{_MODES}::test_what_can_never_be_set_is_refused_before_anything_is_read",
    "extract.namespace": _FOLDERS,
    "extract.table": _FOLDERS,
    "extract.type": f"{_FULL}::test_each_run_reads_everything_and_takes_the_place_of_the_last",
    "extract.is_full": f"{_FULL}::test_full_extracts_side_by_side_where_the_publisher_says_so",
    "extract.primary_keys": f"{_FULL}::test_extract_says_what_it_is",
    "extract.delta_fields": f"{_FULL}::test_extract_says_what_it_is",
    "source.type": f"{_LOADER}::test_database_is_read_by_url_table_and_column",
    "source(query).url": (
        "tests/integration/test_query_postgres.py::test_every_common_type_arrives_the_same_by_both_ways"
    ),
    "source(query).tables": f"{_QUERY}::test_tables_by_name_and_pattern_become_datasets_and_exclude_wins",
    "source(query).watermark.column": f"{_QUERY}::test_first_plan_reads_from_the_lowest_to_the_step_after_the_highest",
    "source(query).watermark.type": f"{_QUERY}::test_each_watermark_type_reads_every_row_once",
    "source(query).primary_key": f"{_QUERY}::test_overlap_is_refused_where_rows_would_be_published_twice",
    "source(query).partition_interval": f"{_QUERY}::test_range_is_cut_and_bounded_as_the_options_say",
    "source(query).max_partitions": f"{_QUERY}::test_range_is_cut_and_bounded_as_the_options_say",
    "source(query).start": f"{_QUERY}::test_range_is_cut_and_bounded_as_the_options_say",
    "source(query).end": f"{_QUERY}::test_range_is_cut_and_bounded_as_the_options_say",
    "source(query).max_watermark": f"{_QUERY}::test_what_is_younger_than_the_limit_is_left_and_the_plan_says_so",
    "source(query).overlap": f"{_QUERY}::test_overlap_reads_again_without_moving_the_interval",
    "source(query).count_rows": f"{_QUERY}::test_range_is_cut_and_bounded_as_the_options_say",
    "source(query).query": f"{_QUERY}::test_query_is_one_dataset_named_by_the_extract",
    "source(query).exclude_columns": f"{_QUERY}::test_columns_left_out_are_not_read_but_the_watermark_column_always_is",
    "source(query).fetch_rows": f"{_POSITIONS}::test_query_reads_in_order_and_stands_behind_whole_values",
    "source(query).timezone": f"{_QUERY}::test_what_is_younger_than_the_limit_is_left_and_the_plan_says_so",
    "source(kafka).brokers": f"{_TOPICS}::test_broker_that_is_away_is_told",
    "source(kafka).value": f"{_TOPICS}::test_avro_messages_follow_their_schemas_in_the_registry",
    "source(kafka).topics": f"{_TOPICS}::test_topics_are_chosen_by_whole_name_and_excluding_wins",
    "source(kafka).exclude": f"{_TOPICS}::test_topics_are_chosen_by_whole_name_and_excluding_wins",
    "source(kafka).group": f"{_TOPICS}::test_group_makes_one_dataset_of_many_topics",
    "source(kafka).bootstrap": f"{_OFFSETS}::test_lookback_begins_before_the_end",
    "source(kafka).lookback": f"{_OFFSETS}::test_lookback_begins_before_the_end",
    "source(kafka).on_out_of_range": f"{_OFFSETS}::test_retention_that_passes_the_watermark_follows_the_policy",
    "source(files).path": f"{_DATED}::test_first_plan_offers_each_dataset_from_its_first_to_the_end_of_its_last_date",
    "source(files).timezone": f"{_DATED}::test_dates_begin_by_the_clock_of_their_zone",
    "source(files).start": f"{_DATED}::test_start_leaves_older_files_alone",
    "source(files).lead_time": f"{_FILES}::test_young_file_waits",
    "source(files).max_files_per_run": f"{_FILES}::test_run_takes_so_many_files_and_says_how_many_are_left",
    "converters": f"{_LOADER}::test_branch_keys_speak_of_their_branch_and_others_of_the_job",
    "converters(avro_bytes).avro_schema": f"{_VALUES}::test_avro_bytes_become_columns",
    "converters(drop).columns": "tests/unit/constructs/converters/test_drop.py::test_drop_leaves_columns_out",
    "converters(AvroFieldRetrieverConverter).select": f"{_CLASSES}::test_class_does_with_rows_what_gobblins_does",
    "converters(AvroFieldRetrieverConverter).where": f"{_CLASSES}::test_class_does_with_rows_what_gobblins_does",
    "converters(FlattenNestedKeyConverter).select": f"{_CLASSES}::test_class_does_with_rows_what_gobblins_does",
    "converters(csv_text).columns": f"{_VALUES}::test_csv_text_becomes_columns",
    "converters(csv_text).delimiter": f"{_VALUES}::test_csv_text_becomes_columns",
    "converters(csv_text).quote": f"{_VALUES}::test_csv_text_becomes_columns",
    "converters(json_text).columns": f"{_VALUES}::test_json_text_becomes_typed_columns",
    "converters(columns).columns": (
        "tests/unit/constructs/converters/test_columns.py::test_text_becomes_the_declared_type"
    ),
    "converters(encrypt).columns": f"{_VALUES}::test_decrypt_undoes_encrypt",
    "converters(select).columns": f"{_SHAPE}::test_select_picks_columns_and_fields_of_structs_in_order",
    "converters(AvroFilterConverter).column": f"{_SHAPE}::test_filter_keeps_rows_and_their_places",
    "converters(AvroFilterConverter).equals": f"{_SHAPE}::test_filter_keeps_rows_and_their_places",
    "converters(StringFilterConverter).matches": f"{_SHAPE}::test_filter_keeps_rows_and_their_places",
    "converters(split).delimiter": f"{_SHAPE}::test_split_drops_empty_parts_and_repeats_places",
    "converters(rename).columns": "tests/unit/constructs/converters/test_rename.py::test_rename_changes_names_only",
    "converters(sample).ratio": f"{_SHAPE}::test_sample_depends_on_the_row_alone",
    "fork.operator": "tests/e2e/test_examples.py::test_sensitive_data_is_purged_in_a_branch_of_its_own",
    "fork.branches": "tests/e2e/test_examples.py::test_sensitive_data_is_purged_in_a_branch_of_its_own",
    "fork.branches.name": f"{_LOADER}::test_branch_keys_speak_of_their_branch_and_others_of_the_job",
    "fork.branches.path": _FOLDERS,
    "fork.queue_capacity": _QUEUES,
    "fork.queue_timeout_s": _QUEUES,
    "task_policies": f"{_RUN}::test_enforced_task_policy_failure_publishes_nothing",
    "task_policies.enforce": f"{_RUN}::test_optional_task_policy_failure_is_recorded_and_published",
    "task_policies(row_count_range).tolerance": (
        "tests/unit/constructs/quality/test_task_policies.py::test_row_count_range"
    ),
    "row_policies": f"{_RUN}::test_rejected_rows_are_quarantined_with_reason_and_position",
    "row_policies.on_violation": f"{_STAGE}::test_gobblins_row_policy_types_are_understood_and_written_in_our_words",
    "row_policies(not_older).column": "tests/unit/constructs/quality/test_values.py::test_which_rows_pass",
    "row_policies(not_older).max_age": "tests/unit/constructs/quality/test_values.py::test_which_rows_pass",
    "writer.type": f"{_LOADER}::test_writer_is_told_by_format_or_class",
    "writer(avro).compression": "tests/unit/constructs/writers/test_orc_avro_text.py::test_avro_codecs_are_in_the_file",
    "writer(parquet).compression": f"{_WRITERS}::test_parquet_compression",
    "writer(*).file_name": f"{_WRITERS}::test_files_are_named_by_the_template",
    "writer(*).partition_by": f"{_PARTITIONS}::test_timestamps_become_folders_in_the_zone_asked_for",
    "publisher": (
        "tests/unit/engine/test_publishers.py::test_replace_publishes_all_work_units_together_and_nothing_older"
    ),
}
"""By field: the test that shows what it does."""


CLASSES = """
## Classes
What stands for classes of converters and policies in Gobblin's files, and all that each takes from keys. Columns of
Kafka's messages (`value`) and of lines (`line`) are known. In YAML a class has the options of the type that stands for
it. What Gobblin's classes change without a word when they give values types is refused here: numbers that do not fit,
fractions where whole numbers are declared, texts where JSON should have numbers. The text `1` is a boolean's true here,
and false there.

| Class | Stands for it | Takes |
| --- | --- | --- |
"""
_TABLES = (
    (ConstructKind.CONVERTER, "converters", classes.CONVERTERS),
    (ConstructKind.ROW_POLICY, "row_policies", classes.ROW_POLICIES),
    (ConstructKind.TASK_POLICY, "task_policies", classes.TASK_POLICIES),
)
_AT_HAND: Mapping[str, Mapping[str, None]] = {
    type_name: {"column": None, "columns": None}
    for type_name in ("avro_bytes", "bytes_to_text", "csv_text", "filter", "json_text", "split", "text_to_bytes")
}
"""Options that name the column of Kafka's messages or of lines."""


def render() -> str:
    """Return the page as it should be."""
    parts = [HEAD]
    for title, keys in SECTIONS.items():
        carried = [key for key in keys if key.field]
        rest = [key for key in keys if not key.field]
        parts.append(f"\n## {title}\n")
        if carried:
            parts.append("| Key | Mark | Field | Remark | Shown by |\n| --- | --- | --- | --- | --- |\n")
            parts += [_carried(key) for key in carried]
        if rest:
            parts.append(
                "\n| Not carried | Mark | Why |\n| --- | --- | --- |\n"
                if carried
                else "| Not carried | | Why |\n| --- | --- | --- |\n"
            )
            parts += [f"| {_name(key)} | {key.mark[0].upper()} | {_reason(key)} |\n" for key in rest]
    parts.append(CLASSES)
    for kind, slot, table in _TABLES:
        parts += [
            _class(kind, slot, name.rpartition(".")[2], found)
            for name, found in table.items()
            if name not in classes.PASSED
        ]
    parts += [
        f"| `{name.rpartition('.')[2]}` | nothing: {why} | |\n"
        for name, why in classes.PASSED.items()
        if name not in classes.CONVERTERS
    ]
    return "".join([*parts, TAIL])


def _class(kind: ConstructKind, slot: str, name: str, found: str) -> str:
    """Return the line of a class, with what its keys cannot say."""
    type_name = classes.IN_FILES.get(name, found)
    given = {**classes.DEFAULTS.get(name, {}), **_AT_HAND.get(type_name, {})}
    keys: dict[str, None] = {}
    for one in [*fields_of(slot, type_name), *fields_of(slot, name)]:
        option = one.rpartition(").")[2]
        # A class whose options are set by keys of another class of the same type does not read them.
        if name in classes.IN_FILES and type_name in one:
            continue
        given[option] = None
        keys |= dict.fromkeys(f"`{key}`" for key in names_of(one))
    options = registry.load(kind, type_name).Options.model_fields
    lacks = [f"`{option}`" for option, one in options.items() if one.is_required() and option not in given]
    told = [", ".join(keys), f"{', '.join(lacks)} by `classes` of gobblin.yaml" if lacks else ""]
    return f"| `{name}` | `{type_name}` | {'; '.join(filter(None, told))} |\n"


def _carried(key: Key) -> str:
    test = TESTS[key.field].removeprefix("tests/")
    return f"| {_name(key)} | {key.mark[0].upper()} | `{key.field}` | {_cell(key.note)} | `{test}` |\n"


def _reason(key: Key) -> str:
    return f"{'**refused**: ' if key.is_refused else ''}{_cell(key.note)}"


def _name(key: Key) -> str:
    return f"`{key.name}{'[.i]' if key.takes_branch else ''}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(render() != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(render(), encoding="utf-8")
