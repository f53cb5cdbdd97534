from __future__ import annotations

import json
import pickle
import time
from urllib.parse import quote, quote_plus, urlencode

import pytest

from gobblin_dagster.core.errors import ConvertError, TransientError
from gobblin_dagster.core.secrets import (
    as_written,
    give,
    has_literal_password,
    hidden,
    hide_environment,
    is_secret_name,
    known_in,
    known_values,
    remember,
    variable,
)
from gobblin_dagster.spec.env import expand

SECRET = "s3cr3t-Word!9"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"near '{SECRET}'", "near '${PW}'"),
        (f"{SECRET}{SECRET}", "${PW}${PW}"),
        (f"cut short: {SECRET[:6]}…", "cut short: ${PW}…"),
        (f"cut short: {SECRET[:6]}...", "cut short: ${PW}..."),
        (f"cut by MySQL: near 'x = '{SECRET[:6]}' at line 1", "cut by MySQL: near 'x = '${PW}' at line 1"),
        (f"(1064, 'near \\'{SECRET[:6]}\\' at line 2')", "(1064, 'near \\'${PW}\\' at line 2')"),
        (f"cut at the end {SECRET[:-1]}", "cut at the end ${PW}"),
        (f"a word that only begins alike: {SECRET[:6]}ive", f"a word that only begins alike: {SECRET[:6]}ive"),
        ("nothing", "nothing"),
    ],
)
def test_values_are_replaced_whole_and_where_they_were_cut_short(text: str, shown: str) -> None:
    remember({SECRET: "${PW}"})
    assert hidden(text) == shown


ODD = "Pa'ss\"w\\o%r/d é+$7"


@pytest.mark.parametrize(
    "text",
    [
        str([ODD]),
        str(({"a": [ODD]}, repr([ODD]), ODD.encode())),
        json.dumps({"url": repr(ODD)}),
        ascii([ODD]),
        f"GET /x?key={quote(ODD)}&z={quote_plus(ODD)}",
        f"GET /x?{urlencode({'key': ODD})}",
        f"GET /x?key={quote(ODD).replace('%C3%A9', '%c3%a9').replace('%2B', '%2b').replace('%5C', '%5c')}",
        "LINE 1: select '{}' as x".format(ODD.replace("'", "''")),
        json.dumps({"sql": "select '{}' as x".format(ODD.replace("'", "''"))}),
        'a,"{}"'.format(ODD.replace('"', '""')),
    ],
    ids=["list", "nested", "json", "ascii", "quoted", "encoded", "small", "sql", "sql in json", "csv"],
)
def test_values_are_hidden_as_libraries_quote_them(text: str) -> None:
    remember({ODD: "${PW}"})
    assert "ss" not in hidden(text)


@pytest.mark.parametrize("value", ["abc", "true", "NULL", "8080", "54321"])
def test_values_that_are_everywhere_are_not_hidden(value: str) -> None:
    remember({value: "${X}"})
    assert hidden(f"a {value} b") == f"a {value} b"


def test_password_of_a_url_is_hidden_by_itself_as_written_and_as_meant() -> None:
    remember({"postgresql://u:p%40ssword@h/db": "${URL}", "jdbc:x://h/db?user=u&password=word!9": "${JDBC}"})
    assert hidden("p%40ssword p@ssword word!9") == "${URL} ${URL} ${JDBC}"
    remember({"mysql://u:pass/wo?d#9@h/db": "${MY}", "mysql://h/db?passwd=other-word": "${TWO}"})
    assert hidden("pass/wo?d#9 other-word") == "${MY} ${TWO}"
    remember({"wo%40rd-of-mine": "${PART}"})  # for `postgresql://u:${PART}@h/db`
    assert hidden("wo%40rd-of-mine wo@rd-of-mine") == "${PART} ${PART}"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("LAKE_TOKEN", SECRET, "${LAKE_TOKEN}"),
        ("MY_KEY", SECRET, "${MY_KEY}"),
        ("STATE_URL", "postgresql://u:pass-w0rd@h/db", "postgresql://u:${STATE_URL}@h/db"),
        ("PGPASSWORD", "postgres", "postgres"),
        ("STAGE", "production-2", "production-2"),
        ("API_KEY_FILE", "keys-1.json", "keys-1.json"),
        ("GOOGLE_CREDENTIALS", "/etc/google-1.json", "/etc/google-1.json"),
        ("A_TOKEN", "123", "123"),
    ],
    # pytest writes the name of a test into the environment
    ids=["token", "key", "url", "word", "setting", "name of a file", "path", "short"],
)
def test_secrets_of_the_environment_are_hidden_also_if_no_file_names_them(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, shown: str
) -> None:
    monkeypatch.setenv(name, value)
    hide_environment()
    assert hidden(f"at {value}.") == f"at {shown}."
    assert not known_values()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("hunter22x", "(not shown, as it is not in capitals)"),
        ("HASH_KEY_2", "HASH_KEY_2"),
        ("columns", "columns"),
        ("pw1", "pw1"),
        ("other_pw1", "other_pw1"),
    ],
    ids=["secret", "capitals", "word", "short", "set"],
)
def test_secret_in_place_of_its_variables_name_is_hidden(
    monkeypatch: pytest.MonkeyPatch, name: str, shown: str
) -> None:
    monkeypatch.setenv("other_pw1", SECRET)
    assert (variable(name) is None) == (name != "other_pw1")
    assert hidden(f"at {name}.") == f"at {shown}."
    remember(known_in(name))  # as tasks do
    assert name not in known_values().values()


def test_every_error_of_ours_is_hidden_also_in_another_process() -> None:
    remember({SECRET: "${PW}"})
    error = ConvertError(dataset_urn="a", construct="converter 'sql'", problem=f"no column {SECRET}")
    assert SECRET not in str(error)
    assert "${PW}" in str(pickle.loads(pickle.dumps(error)))
    assert str(TransientError(problem=SECRET)) == "${PW}"
    assert repr(TransientError(problem=SECRET)) == "TransientError(problem='${PW}')"
    assert "problem='no column ${PW}'" in repr(error)


def test_job_takes_along_only_what_stands_in_it() -> None:
    remember({SECRET: "${PW}", "of another job": "${OTHER}", 'with "quotes"': "${Q}"})
    assert known_in('{"select": "s3cr3t-Word!9, with \\"quotes\\""}') == {SECRET: "${PW}", 'with "quotes"': "${Q}"}


def test_texts_are_written_with_references_that_give_them_again() -> None:
    remember({SECRET: "${PW}", f"{SECRET}-long": "${LONG:-none}", f"x://u:{SECRET}9@h": "${URL}", "abc": "${SHORT}"})
    texts = [SECRET, f"{SECRET}-long", f"Bearer {SECRET}{SECRET} $5 ${{X}}", f"x://u:{SECRET}9@h/db"]
    written = [as_written(text) or "" for text in texts]
    assert written == ["${PW}", "${LONG}", "Bearer ${PW}${PW} $$5 $${X}", "${URL}/db"]
    assert [expand(text, known_values()).text for text in written] == texts
    assert as_written("abc $5") is None


class Interrupted(str):
    """A text during whose search another thread loads a job with more variables."""

    def __contains__(self, part: object) -> bool:
        remember({f"{part}, again": "${NEW}"})
        return str(part) in str(self)


def test_texts_are_written_while_another_thread_loads_a_job() -> None:
    remember({SECRET: "${PW}"})
    assert as_written(Interrupted(f"Bearer {SECRET}")) == "Bearer ${PW}"


def test_password_in_a_value_is_not_taken_for_the_value() -> None:
    url = f"x://u:{SECRET}@h"
    remember({url: "${URL}"})
    remember(known_in(f'"{url}"'))
    assert known_values() == {"URL": url}


def test_variable_that_is_set_goes_before_one_that_was_given_and_a_given_one_is_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SET", "of the environment")
    asked: list[str] = []

    class Asked(dict[str, str]):
        def __getitem__(self, name: str) -> str:
            asked.append(name)
            return f"value of {name}"

    give(["SET", "GIVEN", "UNUSED"], Asked())
    assert asked == [], "values are looked up when they are needed"
    assert (variable("SET"), variable("GIVEN"), variable("OTHER")) == ("of the environment", "value of GIVEN", None)
    assert asked == ["GIVEN"]
    assert hidden("got value of GIVEN") == "got ${GIVEN}"


def test_names_of_secrets_are_known_however_they_are_written() -> None:
    secret = """
    password DB_PASSWORD passwd pwd sslpassword trustStorePassword es.net.http.auth.pass ssl.keystore.password
    passphrase token kafka.security.token accessToken gcs.oauth2.token sas_token adls.sas-token.shop PRIVATE-TOKEN
    X-Api-Key Authorization header.Authorization Set-Cookie account_key fs.azure.account.key.shop.dfs.core.windows.net
    AZURE_STORAGE_ACCESS_KEY fs.s3a.secret.key s3.secret-access-key private_key pem_private_key ssl.keystore.key
    ssl.key.pem sasl.oauthbearer.config adls.connection-string basic.auth.user.info client_secret VAULT_SECRET_ID salt
    Ocp-Apim-Subscription-Key x-functions-key jwt signature
    """
    shown = """
    key primary_key sort_key keyspace key.deserializer access_key_id AWS_ACCESS_KEY_ID fs.s3a.access.key ssl_key keytab
    fs.s3a.bucket.shop.access.key max_tokens token_count page_token nextPageToken tokenizer token_type
    token_column token_env password_file ssl.key.location ssl.ca.pem google_application_credentials
    azure_federated_token_file
    fs.s3a.security.credential.provider.path fs.s3a.aws.credentials.provider basic.auth.credentials.source
    sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.assertion.private.key.file gcs.oauth2.token-expires-at
    adls.sas-token-expires-at-ms.shop sasl.username encrypt.key.loc gobblin.yarn.token.renew.minutes compass bypass
    """
    assert [one for one in secret.split() if not is_secret_name(one)] == []
    assert [one for one in shown.split() if is_secret_name(one)] == []


def test_first_line_of_a_value_is_hidden_where_a_message_was_cut_behind_it() -> None:
    remember({"line1-Zq7\nline2-Zq8": "${WORDS}", "-----BEGIN KEY-----\nabcdef": "${PEM}", "{\n}": "${JSON}"})
    assert hidden('no host "line1-Zq7. Look') == 'no host "${WORDS}. Look'
    assert hidden("expected {, got -----BEGIN KEY-----.") == "expected {, got -----BEGIN KEY-----."


JAAS = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab='/k'"


def test_passwords_that_stand_in_a_text_are_told_from_what_only_looks_alike() -> None:
    literal = [
        "postgresql://u:word@h/d",
        "postgresql://u:wo/rd@h/d",
        "postgresql://${USER:-reader}:word@h/d",
        "postgresql://u:${PW:-word}@h/d",
        "postgresql://u:$${PW}@h/d",
        "jdbc:postgresql://h/d?user=u&sslpassword=$${PW}",
        "${URL:-postgresql://u:word@h/d}",
        "jdbc:postgresql://h/d?user=u&sslpassword=word",
        "jdbc:oracle:thin:scott/word@//h:1521/d",
        "AccountName=shop;AccountKey=word",
        "https://h/x?sv=1&sig=word",
        f"https://h/x?key=AIza{'Sy1' * 11}Za",
        "https://h/x?code=aB3" + "x" * 20 + "==",
        "https://h/x?appid=" + "0f" * 16,
        f"https://ghp_{'aB3' * 12}@h/x",
        f"Bearer eyJ{'h' * 10}.eyJ{'i' * 10}.{'j' * 10}",
        f"https://hooks.slack.com/services/T0/B0/{'x' * 24}",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
        "sqlite:///shop.db?key=word",
        "sqlite+pysqlcipher:////shop.db?cipher=x&pragma_key=word",
        "jdbc:sqlite:shop.db?hexkey=00ff",
        JAAS.replace("keyTab", "password"),
    ]
    fine = [
        "postgresql://u:${PW}@h/d",
        "postgresql://${USER:-reader}@h/d",
        "postgresql://u:${PW:-}@h/d",
        "postgresql://u:$$${PW}@h/d",
        "postgresql://u:${STAGE:-dev}${PW}@h/d",
        "${URL:-postgresql://h/d}",
        "https://h:8080/a@b",
        "hdfs://nn:8020/x@y",
        "http://[::1]:80/x@y",
        "orders?page_token=1",
        "sqlite:///shop.db?key=${PW}&mode=ro",
        "sqlite:///file:shop.db?monkey=x&uri=true",
        "lake/part?/key=7/*.csv",
        "AccountName=shop;AccountKey=${KEY}",
        "https://h/x?key=country_code_and_2020_year&code=7&appid=shop&auth=basic",
        "https://h/x?key=${KEY}&code=aB3${CODE}",
        "-----BEGIN PRIVATE KEY-----\n${KEY}\n-----END PRIVATE KEY-----",
        JAAS,
    ]
    assert [one for one in literal if not has_literal_password(one)] == []
    assert [one for one in fine if has_literal_password(one)] == []


@pytest.mark.parametrize("text", ["://a:", "-eyJ", "://:", "LoginModule" + "a" * 40])
def test_texts_of_any_length_are_searched_in_linear_time(text: str) -> None:
    begin = time.process_time()
    has_literal_password(text * (50_000 // len(text)))
    assert time.process_time() - begin < 1
