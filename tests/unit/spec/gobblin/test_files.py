"""What a job of Gobblin's takes from its file, its folders, what it includes, and templates."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from gobblin_dagster.spec.gobblin import entries, lookup
from gobblin_dagster.spec.gobblin.hocon import read_hocon
from gobblin_dagster.spec.load import job_files
from tests.unit.spec.gobblin.files import KAFKA, faults, faults_of, load, load_file, write


def test_properties_take_what_java_takes(tmp_path: Path) -> None:
    text = (
        KAFKA + "# a comment\n! another\ntopic.whitelist : a.*,\\\n    b\\u00e9\n\n  job.description  caf\\u00e9 = x\n"
    )
    job = load(tmp_path, text).spec
    assert job.source.options["topics"] == ["a.*", "bé"]
    assert job.description == "café = x"


def test_values_over_thousands_of_lines_are_joined(tmp_path: Path) -> None:
    text = "job.description=a,\\\n  " + "b,\\\n\t" * 20_000 + "c\nwrong=1\n"
    begin = time.process_time()
    assert faults(tmp_path, KAFKA + text) == [
        "20007 wrong: is no key that is known; see docs/reference/gobblin-keys.md"
    ]
    assert time.process_time() - begin < 5  # seconds; joined one by one they take 30


@pytest.mark.parametrize(
    ("given", "topics"),
    [
        ("a, \\\n b", ["a", "b"]),
        ("a,\\ \n b", ["a", "b"]),  # a blank behind the backslash
        ("a,\\\n#b,\\\nc", ["a", "c"]),
        ("a,\\\n! b\n\n \t\n c", ["a", "c"]),
        ("a,\\\\\njob.description=\\\\", ["a", "\\"]),
    ],
    ids=["joined", "blank", "comment", "empty lines", "escaped"],
)
def test_values_go_on_as_gobblin_joins_them(tmp_path: Path, given: str, topics: list[str]) -> None:
    text = KAFKA + f"converter.classes=AvroFieldsPickConverter\nconverter.avro.fields={given}\njob.runonce=false\n"
    (spec,) = load(tmp_path, text).spec.converters
    assert spec.options["columns"] == topics


def test_value_that_goes_on_behind_the_end_of_the_file_is_a_fault(tmp_path: Path) -> None:
    problem = "the value goes on at the end of the file, and Gobblin leaves it out; remove `\\`"
    found = faults(tmp_path, KAFKA + "job.description=a\\\n \\\n\n  #b\\")
    assert found == [f"5 : is not a valid properties file: {problem}"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("Oslo, Norway", "Oslo,Norway"),
        ("Oslo\\, Norway", "Oslo, Norway"),
        ("a\\\\, b", "a, b"),
        (", a", ", a"),
        ("a\xa0", "a\xa0"),
        ("a\\bc", "a\bc"),
        ("\\'\\x\\u0041", "'xA"),
    ],
)
def test_values_are_those_that_gobblins_library_reads(tmp_path: Path, given: str, text: str) -> None:
    """Each measured with commons-configuration 1.10."""
    text_of = (
        KAFKA + f"converter.classes=AvroFilterConverter\nconverter.filter.field=city\nconverter.filter.value={given}\n"
    )
    (spec,) = load(tmp_path, text_of).spec.converters
    assert spec.options["equals"] == text


def test_reference_to_a_list_of_the_same_file_is_a_fault(tmp_path: Path) -> None:
    given = "topic.whitelist=${own.topics}\n"
    (found,) = faults(tmp_path, KAFKA + given + "own.topics=a, b\n")
    assert found.startswith(
        "5 topic.whitelist: '${own.topics}' refers to a list, of which Gobblin takes the first item"
    )
    assert load(tmp_path, KAFKA + given + "own.topics=a\n").spec.source.options["topics"] == ["a"]
    (found,) = faults(tmp_path, KAFKA + "job.description=$${job.name}\n")
    assert found == "5 job.description: `$${` makes a reference text in Gobblin; write no reference"


@pytest.mark.parametrize(
    ("line", "text"),
    [("a ", "a"), ("\\t.", "\t."), (".\\t  ", ".\t"), ("\\t", "\t"), ("a\\\\ ", "a\\"), ("a,\\\n  b \t", "a,b")],
)
def test_spaces_behind_a_value_are_left_out_unless_they_are_escaped(tmp_path: Path, line: str, text: str) -> None:
    lines = f"converter.classes=StringSplitterConverter\nconverter.string.splitter.delimiter={line}\n"
    (spec,) = load(tmp_path, KAFKA + lines).spec.converters
    assert spec.options["delimiter"] == text


def test_references_are_replaced_deeply_and_dollars_stay(tmp_path: Path) -> None:
    text = KAFKA.replace("/lake", "${root}/lake") + "root=/data/${zone}\nzone=eu\ntopic.whitelist=a$,$5\n"
    job = load(tmp_path, text).spec
    assert job.output.path == "/data/eu/lake"
    assert job.source.options["topics"] == ["a$", "$5"]


@pytest.mark.parametrize("given", ["${${name}}", "x${env:${name}}y", "${a${name}", "${job.${name}.dir}"])
def test_reference_inside_of_a_reference_is_a_fault(tmp_path: Path, given: str) -> None:
    (found,) = faults(tmp_path, KAFKA + f"name=zone\njob.description={given}${{name}}\n")
    assert found.startswith("6 job.description: '")
    assert "is a reference inside of a reference; write the name of the key itself" in found


def test_references_to_variables_are_read_like_those_of_yaml(tmp_path: Path) -> None:
    text = KAFKA.replace("localhost:9092", "${env:HOST}:9092") + "task.maxretries=${env:TRIES}\n"
    job = load(tmp_path, text, HOST="10.0.0.1", TRIES="7").spec
    assert job.source.options["brokers"] == "10.0.0.1:9092"
    assert job.execution.retries.count == 7


def test_text_of_a_variable_stays_text_whatever_it_looks_like(tmp_path: Path) -> None:
    job = load(tmp_path, KAFKA + "job.description=${env:NUMBER}\n", NUMBER="42").spec
    assert job.description == "42"


def test_references_that_lead_nowhere_are_told_all_at_once(tmp_path: Path) -> None:
    text = KAFKA + "a=${b}\nb=${a}\njob.description=${job.nam} ${env:A-B} ${sys:user.home} ${env:UNSET_HERE}\n"
    found = faults(tmp_path, text)
    assert "7 job.description: '${job.nam}' refers to a key that no file has; did you mean 'job.name'?" in found
    assert "7 job.description: '${env:A-B}' names no environment variable" in found
    assert any("there are no system properties here" in fault for fault in found)
    assert any("5 a: '${" in fault and "in a circle" in fault for fault in found)


def test_references_that_bring_more_than_any_job_needs_are_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "MAX_BROUGHT", 10_000)
    keys = "".join(f"k{number}=${{k{number + 1}}}${{k{number + 1}}}\n" for number in range(18))
    found = faults(tmp_path, KAFKA + "k18=x\njob.description=${k0}\n" + keys)
    assert "6 job.description: the references in it, and before it, bring more than 10,000 characters" in found
    assert load(tmp_path, KAFKA + "job.description=" + "${k0}" * 9 + f"\nk0={'x' * 900}\n").spec.description


def test_hints_are_given_for_as_many_unknown_keys_as_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MAX_HINTS", 1)
    found = faults(tmp_path, KAFKA + "job.nam=x\njob.nme=x\n")
    assert "5 job.nam: is no key that is known; did you mean 'job.name'?" in found
    assert "6 job.nme: is no key that is known; see docs/reference/gobblin-keys.md" in found


def test_variable_that_is_not_set_is_told_with_the_key(tmp_path: Path) -> None:
    assert faults(tmp_path, KAFKA + "job.description=${env:GONE}\n") == [
        "5 job.description (description): environment variable GONE is not set; set it, or remove ${env:GONE}"
    ]


def test_variable_is_named_as_the_file_writes_it(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, KAFKA + "task.maxretries=${env:MANY}\n", MANY="lots of them")
    assert fault.endswith("expected a whole number, got ${env:MANY}")
    hocon = "".join(f'{key} = "{text}"\n' for key, _, text in (line.partition("=") for line in KAFKA.splitlines()))
    (fault,) = faults(tmp_path, hocon + "task.maxretries=${MANY}\n", name="a.conf", MANY="lots of them")
    assert fault.endswith("expected a whole number, got ${MANY}")
    (fault,) = faults(tmp_path, hocon + "job.description=${GONE}\n", name="a.conf")
    assert fault.endswith("environment variable GONE is not set; set it, or remove ${GONE}")


def test_key_that_stands_twice_is_a_fault(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, KAFKA + "job.name=other\n")
    assert fault == "5 job.name: the key appears twice, first in line 1; Gobblin joins both with a comma: write it so"


def test_folders_add_keys_and_the_nearest_wins(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "shop/eu/orders.pull": KAFKA.replace("/lake", "${root}/${zone}"),
            "shop/eu/eu.properties": "zone=eu\ntask.maxretries=3\n",
            "shop/shop.properties": "zone=shop\nroot=/top\ntask.maxretries=4\njob.commit.policy=successful\n",
            "all.properties": "root=/all\njob.description=of ${job.name}\n",
            "shop/other/other.properties": "job.description=never seen\n",
        },
    )
    job = load_file(path, tmp_path).spec
    assert job.output.path == "/top/eu"
    assert job.execution.retries.count == 3
    assert (job.commit.policy, job.description) == ("successful", "of orders")


def test_fault_of_an_inherited_key_names_its_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"orders.pull": KAFKA, "all.properties": "\ngobblin.runtime.delivery.semantics=never\nwriter.codek=x\n"},
    )
    wrong = "expected 'exactly_once' or 'at_least_once', got 'never'"
    assert faults_of(path, tmp_path) == [
        f"all.properties:2 gobblin.runtime.delivery.semantics (commit.delivery): {wrong}",
        "all.properties:3 writer.codek: is no key that is known; did you mean 'writer.codec.type'?",
    ]


def test_folder_with_two_common_files_is_a_fault(tmp_path: Path) -> None:
    path = write(tmp_path, {"orders.pull": KAFKA, "a.properties": "", "b.configuration": ""})
    assert faults_of(path, tmp_path) == [
        "b.configuration:1 : a folder may have one file with common keys, got a.properties, b.configuration; "
        "put all keys into one of them"
    ]


def test_common_file_that_is_a_link_to_nothing_is_a_fault(tmp_path: Path) -> None:
    path = write(tmp_path, {"orders.pull": KAFKA})
    (path.parent / "team.properties").symlink_to("gone.properties")
    assert faults_of(path, tmp_path) == ["team.properties:1 : cannot be read: No such file or directory"]


def test_included_files_are_part_of_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "orders.pull": KAFKA + "include = common/kafka.inc.properties\nincludeoptional = nowhere.properties\n",
            "common/kafka.inc.properties": "bootstrap.with.offset=earliest\n",
        },
    )
    assert load_file(path, tmp_path).spec.source.options["bootstrap"] == "earliest"


def test_include_that_is_missing_or_a_circle_is_a_fault(tmp_path: Path) -> None:
    assert "there is no file" in faults(tmp_path, KAFKA + "include=gone.properties\n")[0]
    path = write(tmp_path, {"circle.pull": KAFKA + "include=circle.pull\n"})
    assert any("is included in a circle" in fault for fault in faults_of(path, tmp_path))


@pytest.mark.parametrize("order", [1, -1], ids=["above", "below"])
def test_key_that_stands_in_an_included_file_too_is_a_fault(tmp_path: Path, order: int) -> None:
    lines = "".join(["include=base.job\n", "topic.whitelist=mine\n"][::order])
    path = write(tmp_path, {"orders.pull": lines + KAFKA, "base.job": "topic.whitelist=.*\n"})
    (fault,) = faults_of(path, tmp_path)
    assert "topic.whitelist: the key appears twice, first in line" in fault
    assert "base.job" in fault


def test_secure_template_lets_a_job_set_what_it_says_and_nothing_else(tmp_path: Path) -> None:
    template = (
        'gobblin.template.isSecure = true\ngobblin.template.secure.overridableProperties = "job.name,topic.whitelist"\n'
    ) + "\n".join(f'{key} = "{text}"' for key, _, text in (line.partition("=") for line in KAFKA.splitlines()[1:]))
    files = {
        "orders.pull": "job.name=orders\ntopic.whitelist=a\ngobblin.template.uri=t.template\n",
        "t.template": template,
        "all.properties": "data.publisher.final.dir=/other\nsomething.else=1\n",
    }
    job = load_file(write(tmp_path, files), tmp_path).spec
    assert (job.output.path, job.source.options["topics"]) == ("/lake", ["a"])
    files["orders.pull"] += "data.publisher.final.dir=/other\n"
    (fault,) = faults_of(write(tmp_path, files), tmp_path)
    assert fault.endswith("is secure and allows job.name, topic.whitelist; remove it")


def test_template_adds_what_the_job_does_not_say(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "orders.pull": KAFKA + "gobblin.template.uris=base.template,resource:///templates/kafka.template\n",
            "base.template": "task.maxretries = 3\njob { commit.policy = successful }\n",
            "templates/kafka.template": 'gobblin.template.inherit = "deep.template"\ntask.maxretries = 4\n'
            'gobblin.template.required_attributes = "kafka.brokers,job.name"\n',
            "deep.template": "job.description = deep\nkafka.brokers = never\n",
        },
    )
    job = load_file(path, tmp_path).spec
    assert job.execution.retries.count == 4  # the later template wins
    assert (job.commit.policy, job.description) == ("successful", "deep")
    assert job.source.options["brokers"] == "localhost:9092"


def test_template_that_is_missing_or_lacks_a_key_is_a_fault(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "orders.pull": KAFKA + "gobblin.template.uri=a.template\njob.template=gone.template\n",
            "a.template": "gobblin.template.required_attributes = topic.whitelist\n",
        },
    )
    found = faults_of(path, tmp_path)
    assert any("6 job.template: there is no template 'gone.template'" in fault for fault in found)
    assert any("the template needs 'topic.whitelist', which no file has" in fault for fault in found)


HOCON = """\
job.name = orders
source.class = "gobblin.source.extractor.extract.kafka.KafkaSimpleSource"
kafka { brokers = "localhost:9092", offset.lookback = 10 }
bootstrap.with.offset = offset_lookback
topic.whitelist = ["a.*", b]
root = /data
data.publisher.final.dir = ${root}"/lake"
job.description = ${?NOTE}
task.maxretries = ${TRIES}
"""


def test_hocon_is_read_with_blocks_lists_and_references(tmp_path: Path) -> None:
    loaded = load(tmp_path, HOCON, name="orders.conf", TRIES="5", NOTE="told")
    job = loaded.spec
    assert job.source.options["topics"] == ["a.*", "b"]
    assert (job.source.options["bootstrap"], job.source.options["lookback"]) == ("lookback", 10)
    assert (job.output.path, job.description, job.execution.retries.count) == ("/data/lake", "told", 5)
    assert load(tmp_path, HOCON, name="orders.conf", TRIES="5").spec.description == ""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("2024.10", "2024.10"),
        ("007", "007"),
        ("[1.50,\n 2.50 # 3.50\n 4, 0010]", "1.50,2.50,4,0010"),
        ("1e3", "1e3"),
        ("12", "12"),
        ("0.5", "0.5"),
        ("version 1.10", "version 1.10"),
        ('"a = 1.50"', "a = 1.50"),
        ('"\\u00e4\\u0022\\u005c\t\\/"', 'ä"\\\t/'),
        ('"a\\\\.b"', "a\\.b"),
        ("10 s", "10 s"),
        ('True "x" false  y', "True x false  y"),
        ("a/b//c\n", "a/b"),
        ('"http://x:1"/y', "http://x:1/y"),
        ("[[1, 007], {a: x}]", '[[1, "007"], {"a": "x"}]'),
    ],
)
def test_hocon_texts_are_kept_as_they_are_written(given: str, text: str) -> None:
    ((key, found, _),) = read_hocon(f"a {{ b = {given} }}\n", lambda _: False, lambda _: False)
    assert (key, found) == ("a.b", text)


def test_no_key_of_hocon_is_lost_whatever_its_letters() -> None:
    text = 'ä.é = 1\n"\\t" = 2\n"a\\"b" { "c.d" = 3 }\n"" = 4\n'
    found = {key: value for key, value, _ in read_hocon(text, lambda _: False, lambda _: False)}
    assert found == {"ä.é": "1", "\t": "2", 'a"b.c.d': "3", "": "4"}


def test_null_in_hocon_hides_the_value_of_a_farther_file(tmp_path: Path) -> None:
    path = write(tmp_path, {"orders.conf": HOCON + "fork.branches = null\n", "all.properties": "fork.branches=2\n"})
    assert len(load_file(path, tmp_path, TRIES="1").spec.fork.branches) == 1


def test_hocon_refers_to_keys_of_a_common_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "orders.conf": HOCON.replace("root = /data\n", "").replace('${root}"/lake"', '${lake.root}"/lake"'),
            "all.configuration": "lake { root = /common, root.ROOT_VALUE = /common }\n".replace("root = /common, ", ""),
        },
    )
    assert load_file(path, tmp_path, TRIES="1").spec.output.path == "/common/lake"


def test_hocon_faults_name_the_line(tmp_path: Path) -> None:
    assert faults(tmp_path, HOCON + "writer.codek = 1\n", name="orders.conf", TRIES="1") == [
        "10 writer.codek: is no key that is known; did you mean 'writer.codec.type'?"
    ]
    (fault,) = faults(tmp_path, "job.name = a\nb : {\n", name="broken.conf")
    assert "is not valid HOCON" in fault
    (fault,) = faults(tmp_path, 'a = 1\ninclude url("http://127.0.0.1/x")\n', name="far.conf")
    assert fault.startswith("2 : `include` is not followed")
    (fault,) = faults(tmp_path, 'b = "+=" # +=\na += 1\na += 2\n', name="more.conf")
    assert fault.startswith("2 : `+=` is not followed")
    for given in ("b = hdfs://nn/x", "b : x=y", "b = [1, s3://x]", "{ b { c = 1:2 } }", "b = # c\n\nc = 1"):
        (fault,) = faults(tmp_path, f"a = 1\n{given}\n", name="marks.conf")
        assert re.match(r"[24] : a text with `[:=]` needs quotes, ", fault)
    (fault,) = faults(tmp_path, 'a = 1\nb = "${a}/x"\n', name="quoted.conf")
    assert fault.startswith("2 : a reference in quotes is text in HOCON")


@pytest.mark.parametrize(
    "line",
    [
        'data.publisher { include "{}" }',
        'a = 1, INCLUDE file("{}")',
        'data { publisher { include url("file://{}") } }',
        'a = [ include required("{}") ]',
        'data { a = x//y, include "{}" }',
        'data { a = \\", include "{}", b = \\" }',  # no string: its quotes are escaped
    ],
    ids=["block", "comma", "url", "list", "slashes", "escape"],
)
def test_hocon_takes_in_no_file_wherever_it_names_one(tmp_path: Path, line: str) -> None:
    (tmp_path / "secret.conf").write_text("secret { key = s3cr3t }\n")
    text = f"{HOCON}{line}\n".replace("{}", str(tmp_path / "secret.conf"))
    found = faults(tmp_path, text, name="orders.conf", TRIES="1")
    assert "secret.key" not in "".join(found)
    assert any("`include` is not followed" in fault or "is not valid HOCON" in fault for fault in found)


def test_word_include_in_a_text_or_a_comment_of_hocon_names_no_file(tmp_path: Path) -> None:
    text = f'# include "x.conf"\n{HOCON}job.description = """please\ninclude "this" """\n'
    assert "include" in load(tmp_path, text, name="orders.conf", TRIES="1").spec.description


def test_file_that_is_no_text_is_a_fault(tmp_path: Path) -> None:
    path = write(tmp_path, {"orders.pull": ""})
    path.write_bytes(b"job.name=\xff\xfe\n")
    assert "is not UTF-8" in faults_of(path, tmp_path)[0]


OUT = """\
gobblin.template.uri=out.template
job.name=orders
source.class=org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource
kafka.brokers=localhost:9092
"""


def test_reference_in_hocon_is_the_jobs_key_before_it_is_a_variable(tmp_path: Path) -> None:
    template = {"out.template": "data.publisher.final.dir = ${output}\n"}
    path = write(tmp_path, {"orders.pull": OUT + "output=/RIGHT\n"} | template)
    assert load_file(path, tmp_path, output="/WRONG").spec.output.path == "/RIGHT"
    path = write(tmp_path, {"orders.pull": OUT} | template)
    assert load_file(path, tmp_path, output="/SET").spec.output.path == "/SET"


def test_reference_in_hocon_means_the_nearest_files_key(tmp_path: Path) -> None:
    template = 'output = /DEFAULT\ndata.publisher.final.dir = ${output}"/lake"\n'
    for text in (template, f"# braces\n{{ {template} }} # }}\n"):
        path = write(tmp_path, {"orders.pull": OUT + "output=/RIGHT\n", "out.template": text})
        assert load_file(path, tmp_path).spec.output.path == "/RIGHT/lake"
    path = write(tmp_path, {"orders.pull": OUT, "out.template": template})
    assert load_file(path, tmp_path).spec.output.path == "/DEFAULT/lake"


def test_optional_reference_is_a_key_a_variable_or_nothing(tmp_path: Path) -> None:
    template = "data.publisher.final.dir = /default\ndata.publisher.final.dir = ${?output}\n"
    cases: tuple[tuple[str, dict[str, str], str], ...] = (
        ("output=/KEY\n", {"output": "/VARIABLE"}, "/KEY"),
        ("", {"output": "/VARIABLE"}, "/VARIABLE"),
        ("", {}, "/default"),
    )
    for own, environ, expected in cases:
        path = write(tmp_path, {"orders.pull": OUT + own, "out.template": template})
        assert load_file(path, tmp_path, **environ).spec.output.path == expected


def test_files_are_found_whatever_the_case_of_their_ends(tmp_path: Path) -> None:
    path = write(tmp_path, {"X.PULL": KAFKA, "ALL.PROPERTIES": "task.maxretries=3\n"})
    assert load_file(path, tmp_path).spec.execution.retries.count == 3
    write(tmp_path, {"Y.Yaml": ""})
    assert [found.name for found in job_files(tmp_path / "jobs")] == ["X.PULL", "Y.Yaml"]


def test_hocon_that_cannot_be_read_here_is_the_fault_of_its_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hocon", None)
    (fault,) = faults(tmp_path, HOCON, name="orders.conf")
    assert fault.startswith("1 : cannot be read: ")
    assert "gobblin-dagster[hocon]" in fault
    assert load(tmp_path, KAFKA).spec.job == "orders"


def test_key_that_a_template_requires_may_have_any_name(tmp_path: Path) -> None:
    template = {
        "out.template": 'gobblin.template.required_attributes = "output,shop"\ndata.publisher.final.dir = ${output}\n'
    }
    path = write(tmp_path, {"orders.pull": OUT + "output=/lake\nshop=eu\n"} | template)
    assert load_file(path, tmp_path).warnings == ()


def test_templates_in_a_circle_are_told_so(tmp_path: Path) -> None:
    files = {
        "orders.pull": OUT + "data.publisher.final.dir=/lake\n",
        "out.template": "gobblin.template.inherit = out.template\n",
    }
    path = write(tmp_path, files)
    assert faults_of(path, tmp_path) == [
        "out.template:1 gobblin.template.inherit: the template 'out.template' inherits itself in a circle"
    ]
