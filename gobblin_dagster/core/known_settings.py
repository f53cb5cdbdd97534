"""Settings of clients that `allow` can judge, and what the value of each names.

Clients take hundreds of settings, and new versions add more. What is not in these tables may name a file, a server or
code, so a project with allow lists refuses it until its owner names it in `allow.options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, cast

Kind: TypeAlias = Literal["plain", "path", "socket", "servers", "url", "code", "class", "word", "name", "login"]
"""What a value names.

`plain`: nothing outside. `path`: a file or folder. `socket`: a socket of this machine. `servers`: `host:port` between
commas, or sockets. `url`: a URL. `code`: a class, a library or a command; `class`: a class, or a short name that an
installed package has for one. `word`: a part of a command, and `name`: a part of a host's name, so both have few
characters. `login`: a line of Java's JAAS, a class with its options."""
Settings: TypeAlias = Mapping[str, Kind]
"""Kinds by the name of a setting, in lower case; `*` in a name stands for any characters."""


def kind_of(settings: Settings, name: str) -> Kind | None:
    """Return what a setting names, in whatever case it is written; None if it is unknown."""
    lower = name.lower()
    if lower in settings:
        return settings[lower]
    return next((kind for one, kind in settings.items() if "*" in one and fnmatchcase(lower, one)), None)


def _table(**names: str) -> Settings:
    """Return kinds by name of setting; of two patterns that match a name, the first one counts."""
    return {name.lower(): cast("Kind", kind) for kind, text in names.items() for name in text.split()}


DATABASE = _table(
    path="sslcert sslkey sslrootcert sslcrl sslcrldir passfile ssl_ca ssl_capath ssl_cert ssl_key "
    "trustStore clientCertificate clientKey serverSslCert",
    socket="unix_socket unix_sock",
    servers="host hostaddr server serverName failoverPartner",
    code="driver socketFactory socketFactoryClass sslFactory sslHostnameVerifier trustManagerClass",
    plain="user username password passwd userName port portNumber "
    # libpq
    "sslmode sslnegotiation sslcompression sslsni sslcertmode sslpassword ssl_min_protocol_version "
    "ssl_max_protocol_version channel_binding gssencmode gssdelegation krbsrvname require_auth requirepeer "
    "connect_timeout client_encoding application_name fallback_application_name options keepalives keepalives_idle "
    "keepalives_interval keepalives_count tcp_user_timeout target_session_attrs load_balance_hosts "
    # PyMySQL and mysqlclient
    "charset collation use_unicode sql_mode init_command read_timeout write_timeout autocommit bind_address compress "
    "ssl_cipher ssl_check_hostname ssl_disabled ssl_mode ssl_verify_cert ssl_verify_identity "
    # Java's drivers of PostgreSQL, MySQL, MariaDB and SQL Server
    "ssl useSSL requireSSL verifyServerCertificate allowPublicKeyRetrieval enabledTLSProtocols tlsVersions "
    "loginTimeout connectTimeout socketTimeout cancelSignalTimeout tcpKeepAlive applicationName currentSchema "
    "targetServerType hostRecheckSeconds loadBalanceHosts prepareThreshold preparedStatementCacheQueries "
    "preparedStatementCacheSizeMiB defaultRowFetchSize adaptiveFetch readOnly readOnlyMode reWriteBatchedInserts "
    "stringtype binaryTransfer autosave useUnicode characterEncoding connectionCollation connectionTimeZone "
    "serverTimezone forceConnectionTimeZoneToSession preserveInstants zeroDateTimeBehavior tinyInt1isBit "
    "yearIsDateType "
    "transformedBitIsBoolean useCursorFetch rewriteBatchedStatements useCompression "
    "sendFractionalSeconds database databaseName encrypt trustServerCertificate trustStorePassword "
    "hostNameInCertificate applicationIntent multiSubnetFailover instanceName authentication accessToken "
    "integratedSecurity packetSize lockTimeout sendStringParametersAsUnicode selectMethod responseBuffering",
)
"""Parameters of database URLs, and properties that Spark hands to drivers. Left out, because nobody sees what they
bring: files of settings (`service`, `read_default_file`), other addresses (`dsn`), answers with files (`infile`)."""
SQLITE = _table(
    plain="mode cache timeout uri immutable nolock check_same_thread isolation_level detect_types cached_statements"
)
"""Parameters of SQLite's URLs."""

_KAFKA_PLAIN = (
    "*.ms *.bytes *.messages client.id client.rack client.dns.lookup group.id group.instance.id group.protocol "
    "group.remote.assignor partition.assignment.strategy security.protocol sasl.mechanism sasl.mechanisms "
    "sasl.username "
    "sasl.password sasl.kerberos.min.time.before.relogin sasl.oauthbearer.method sasl.oauthbearer.client.id "
    "sasl.oauthbearer.client.secret sasl.oauthbearer.scope sasl.oauthbearer.extensions sasl.oauthbearer.config "
    "ssl.*password ssl.*store.type ssl.key.pem ssl.certificate.pem ssl.ca.pem ssl.truststore.certificates "
    "ssl.keystore.certificate.chain ssl.keystore.key ssl.cipher.suites ssl.curves.list ssl.sigalgs.list ssl.protocol "
    "ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.ca.certificate.stores "
    "enable.* allow.auto.create.topics auto.offset.reset isolation.level check.crcs acks request.required.acks "
    "retries "
    "message.send.max.retries max.in.flight max.in.flight.requests.per.connection max.poll.records compression.codec "
    "compression.type compression.level partitioner broker.address.family broker.version.fallback "
    "api.version.request "
    "socket.*.enable socket.nagle.disable socket.max.fails delivery.report.only.error topic.blacklist debug "
    "log_level "
    "topic.metadata.refresh.sparse topic.metadata.refresh.fast.cnt queued.min.messages queued.max.messages.kbytes "
    "queue.buffering.max.kbytes queue.buffering.backpressure.threshold batch.num.messages batch.size"
)
KAFKA = _table(
    servers="bootstrap.servers metadata.broker.list",
    path="ssl.ca.location ssl.certificate.location ssl.key.location ssl.crl.location ssl.keystore.location "
    "ssl.truststore.location https.ca.location sasl.oauthbearer.assertion.private.key.file "
    "sasl.oauthbearer.assertion.jwt.template.file sasl.kerberos.keytab",
    word="sasl.kerberos.principal sasl.kerberos.service.name",
    url="sasl.oauthbearer.token.endpoint.url",
    code="plugin.library.paths sasl.kerberos.kinit.cmd ssl.engine.id ssl.engine.location ssl.providers",
    plain=_KAFKA_PLAIN,
)
"""Settings of librdkafka."""

SPARK: Settings = {
    **DATABASE,
    **{f"kafka.{name}": kind for name, kind in KAFKA.items()},
    **_table(
        path="path basePath rowValidationXSDPath avroSchemaUrl keytab fs.s3a.security.credential.provider.path "
        "es.net.ssl.truststore.location es.net.ssl.keystore.location",
        servers="sfURL fs.s3a.endpoint fs.s3a.proxy.host es.nodes es.net.proxy.http.host es.net.proxy.https.host",
        url="url",
        **{"class": "compression codec"},
        code="fs.*.impl fs.s3a.aws.credentials.provider kafka.interceptor.classes "
        "kafka.metric.reporters kafka.*.class kafka.security.providers kafka.partition.assignment.strategy",
        login="kafka.sasl.jaas.config",
        name="fs.s3a.endpoint.region",
        # CSV, JSON, XML, text, Parquet, ORC, Avro
        plain="sep delimiter encoding charset quote escape comment header inferSchema preferDate enforceSchema "
        "ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue nanValue positiveInf negativeInf dateFormat "
        "timestampFormat timestampNTZFormat enableDateTimeParsingFallback maxColumns maxCharsPerColumn "
        "inputBufferSize "
        "unescapedQuoteHandling mode columnNameOfCorruptRecord multiLine charToEscapeQuoteEscaping emptyValue locale "
        "lineSep samplingRatio singleVariantColumn extension columnPruning timeZone primitivesAsString "
        "prefersDecimal "
        "allowComments allowUnquotedFieldNames allowSingleQuotes allowNumericLeadingZeros allowUnquotedControlChars "
        "allowBackslashEscapingAnyCharacter allowNonNumericNumbers dropFieldIfAllNull ignoreNullFields "
        "inferTimestamp "
        "rowTag rootTag excludeAttribute attributePrefix valueTag ignoreSurroundingSpaces ignoreNamespace "
        "wildcardColName arrayElementName validateName useLegacyXMLParser wholetext mergeSchema datetimeRebaseMode "
        "int96RebaseMode avroSchema ignoreExtension positionalFieldMatching recursiveFieldMaxDepth "
        "enableStableIdentifiersForUnionType stableIdentifierPrefixForUnionType pathGlobFilter recursiveFileLookup "
        "ignoreCorruptFiles ignoreMissingFiles ignoreInvalidPartitionPaths modifiedBefore modifiedAfter "
        # databases: SQL runs there, with the rights of the database's user
        "dbtable query prepareQuery sessionInitStatement hint partitionColumn lowerBound upperBound numPartitions "
        "queryTimeout fetchsize batchsize customSchema isolationLevel pushDown* principal refreshKrb5Config "
        "connectionProvider preferTimestampNTZ "
        # Kafka
        "subscribe subscribePattern assign startingOffsets endingOffsets startingTimestamp endingTimestamp "
        "startingOffsetsByTimestamp endingOffsetsByTimestamp startingOffsetsByTimestampStrategy failOnDataLoss "
        "kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs minPartitions "
        "maxRecordsPerPartition includeHeaders groupIdPrefix "
        # Iceberg and Delta
        "snapshot-id as-of-timestamp start-snapshot-id end-snapshot-id branch tag split-size lookback file-open-cost "
        "vectorization-enabled batch-size versionAsOf timestampAsOf readChangeFeed readChangeData startingVersion "
        "endingVersion ignoreDeletes ignoreChanges "
        # S3, Elasticsearch, Snowflake
        "fs.s3a.access.key fs.s3a.secret.key fs.s3a.session.token fs.s3a.path.style.access "
        "fs.s3a.connection.ssl.enabled fs.s3a.requester.pays.enabled fs.s3a.proxy.port fs.s3a.proxy.username "
        "fs.s3a.proxy.password es.port es.resource es.resource.read es.nodes.wan.only es.net.http.auth.user "
        "es.net.http.auth.pass es.net.ssl es.read.* es.scroll.* sfUser sfPassword sfDatabase sfSchema "
        "sfWarehouse sfRole",
    ),
}
"""Options of Spark's formats."""

ICEBERG = _table(
    url="uri oauth2-server-uri rest.authorization-url s3.proxy-uri s3.signer.uri",
    path="warehouse hdfs.kerberos_ticket",
    servers="s3.endpoint glue.endpoint dynamodb.endpoint hdfs.host gcs.service.host adls.account-host "
    "adls.blob-storage-authority adls.dfs-storage-authority",
    code="py-* s3.retry-strategy-impl",
    name="*.region rest.signing-region rest.signing-name adls.account-name adls.tenant-id",
    plain="type token credential scope audience resource prefix echo pool_pre_ping init_catalog_tables header.* "
    "rest.sigv4-enabled snapshot-loading-mode downcast-ns-timestamp-to-us-on-write "
    "*.access-key-id *.secret-access-key *.session-token *.role-arn *.role-session-name *.session-name "
    "*.max-retries *.retry-mode *.connect-timeout *.request-timeout s3.anonymous s3.resolve-region "
    "s3.force-virtual-addressing s3.signer s3.signer.endpoint glue.id glue.skip-archive glue.skip-name-validation "
    "dynamodb.table-name hive.hive2-compatible hive.kerberos-authentication hive.kerberos-service-name hdfs.port "
    "hdfs.user gcs.project-id gcs.oauth2.token gcs.oauth2.token-expires-at gcs.access gcs.consistency "
    "gcs.cache-timeout gcs.requester-pays gcs.default-bucket-location gcs.version-aware "
    "adls.account-key adls.sas-token* adls.client-id adls.client-secret adls.anon "
    "adls.blob-storage-scheme adls.dfs-storage-scheme write.*",
)
"""Properties of pyiceberg's catalogs and of their storage."""

DELTA = _table(
    servers="aws_endpoint aws_endpoint_url endpoint endpoint_url aws_endpoint_url_s3 aws_endpoint_url_dynamodb "
    "aws_dynamodb_endpoint aws_metadata_endpoint metadata_endpoint aws_endpoint_url_sts proxy_url azure_endpoint "
    "azure_storage_endpoint azure_msi_endpoint azure_identity_endpoint azure_authority_host",
    path="google_service_account google_service_account_path service_account service_account_path "
    "google_application_credentials application_credentials azure_federated_token_file federated_token_file",
    name="*region *account_name *tenant_id *authority_id *bucket *bucket_name *container_name",
    plain="*access_key_id *secret_access_key *session_token *account_key *access_key *client_id *client_secret "
    "*sas_token *sas_key *bearer_token *_token *service_account_key "
    "*skip_signature *virtual_hosted_style_request *allow_http *allow_invalid_certificates *imdsv1_fallback "
    "*unsigned_payload *checksum_algorithm *conditional_put *copy_if_not_exists *s3_allow_unsafe_rename "
    "*s3_locking_provider *request_payer *s3_express *disable_tagging "
    "*use_fabric_endpoint *use_emulator delta_dynamo_* *timeout *pool_idle_timeout *pool_max_idle_per_host "
    "*max_retries *retry_timeout *http1_only *http2_only user_agent proxy_ca_certificate proxy_excludes",
)
"""Settings of deltalake's storages."""
