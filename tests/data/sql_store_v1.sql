BEGIN TRANSACTION;
CREATE TABLE gobblin_dataset_states (
	job TEXT NOT NULL, 
	dataset_urn TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (job, dataset_urn)
);
INSERT INTO "gobblin_dataset_states" VALUES('job','a',3,'{"committed":{"ranges":{"":[[0,60]]},"type":"long","version":1},"dataset_urn":"a","failed_ranges":[],"format":"DatasetState/1","generation":0,"given_up":null,"job":"job","oldest_snapshot":1,"origin":{},"pace":{"bytes_read":70.0,"ms":1050.0,"rows":10.0},"rollbacks":[],"run_id":"person-000000000000","schemas":{"main":"n: int64"},"snapshot":2,"totals":{"branch_rows":{"main":20},"bytes_written":48,"files":2,"files_removed":0,"rows_filtered":1,"rows_quarantined":2,"rows_read":20,"rows_rejected":2,"rows_untaken":0},"updated_at":"2026-11-21T10:00:00Z","version":3}');
CREATE TABLE gobblin_leases (
	job TEXT NOT NULL, 
	dataset_urn TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	run_id TEXT, 
	host TEXT, 
	boot TEXT, 
	pid BIGINT, 
	started TEXT, 
	until DATETIME, 
	PRIMARY KEY (job, dataset_urn)
);
INSERT INTO "gobblin_leases" VALUES('job','a',3,'run-3','elsewhere','boot',1,'1','2026-11-21 11:01:00.000000');
CREATE TABLE gobblin_runs (
	run_id TEXT NOT NULL, 
	job TEXT NOT NULL, 
	started_at DATETIME NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (run_id, job)
);
INSERT INTO "gobblin_runs" VALUES('run-1','job','2026-11-21 08:00:00.000000','{"datasets":{"a":{"error":"the server hung up","failed_ranges":["[10, 20)"],"high":"10","low":"0","outcome":"committed","quarantined":2,"rows":10}},"ended_at":"2026-11-21T08:00:02Z","format":"RunRecord/1","job":"job","run_id":"run-1","started_at":"2026-11-21T08:00:00Z","status":"partial"}');
INSERT INTO "gobblin_runs" VALUES('run-2','job','2026-11-21 08:00:00.000000','{"datasets":{"a":{"error":"","failed_ranges":[],"high":"10","low":"40","outcome":"committed","quarantined":0,"rows":10}},"ended_at":"2026-11-21T08:00:02Z","format":"RunRecord/1","job":"job","run_id":"run-2","started_at":"2026-11-21T08:00:00Z","status":"succeeded"}');
CREATE TABLE gobblin_schema_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT gobblin_schema_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "gobblin_schema_version" VALUES('0002');
CREATE TABLE gobblin_sequences (
	number INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	job TEXT NOT NULL, 
	dataset_urn TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	version_read BIGINT NOT NULL, 
	state TEXT NOT NULL, 
	body TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	redo_failures INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	reported BOOLEAN NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (id)
);
INSERT INTO "gobblin_sequences" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','job','a','run-1',0,'committed','{"after":{"committed":{"ranges":{"":[[0,10]]},"type":"long","version":1},"dataset_urn":"a","failed_ranges":["[10, 20)"],"format":"DatasetState/1","generation":0,"given_up":null,"job":"job","oldest_snapshot":1,"origin":{},"pace":{"bytes_read":100.0,"ms":1500.0,"rows":10.0},"rollbacks":[],"run_id":"run-1","schemas":{"main":"n: int64"},"snapshot":1,"totals":{"branch_rows":{"main":10},"bytes_written":19,"files":1,"files_removed":0,"rows_filtered":1,"rows_quarantined":2,"rows_read":10,"rows_rejected":2,"rows_untaken":0},"updated_at":"2026-11-21T08:00:00Z","version":1},"format":"CommitSequence/2","identity":{"dataset_urn":"a","id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","job":"job","run_id":"run-1","version_read":0},"moved":{"branches":["main"],"rows":[[0,10]]},"output_root":"/lake","report":{"actual_high":{"components":{"":10},"type":"long","version":1},"bytes_written":19,"dataset_urn":"a","expected_high":{"components":{"":20},"type":"long","version":1},"failed_ranges":["[10, 20)"],"failures":[{"branch":null,"code":"source","message":"the server hung up","transient":true}],"files":1,"files_removed":0,"format":"DatasetResult/1","low":{"components":{"":0},"type":"long","version":1},"notes":["2 files are late","a column is new"],"outcome":"committed","policies":[{"branch":"main","detail":"10 rows","enforced":true,"policy":"row_count","result":"passed"}],"queues":{"main":{"capacity":8,"fill_ratio":0.25,"get_wait_s":0.2,"gets":4,"largest":2,"put_wait_s":0.1,"puts":4,"seconds":1.5}},"rejected":{"amount":2},"rows_by_branch":{"main":10},"rows_filtered":1,"rows_quarantined":2,"rows_read":10,"rows_untaken":0,"seconds":1.5,"sequence_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","snapshot":1},"staging_dirs":["/lake/_gobblin/staging/run-1/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],"steps":[{"sha256":"29dd21f55e4611d4c787c2148e39b4e341d4c10701dd03eed360aa55035bdb34","size_bytes":19,"source":"/lake/_gobblin/staging/run-1/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/main/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-1.txt","target":"/lake/main/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-1.txt","type":"rename_file","version":1}]}','6093b700213555826aa757d4a5ccae37b16811b0616ad22610b02260a49d4cf0','2026-11-21 08:00:00.000000',0,'',1);
INSERT INTO "gobblin_sequences" VALUES(2,'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','job','a','run-1',1,'committed','{"after":{"committed":{"ranges":{"":[[0,10],[40,50]]},"type":"long","version":1},"dataset_urn":"a","failed_ranges":[],"format":"DatasetState/1","generation":0,"given_up":null,"job":"job","oldest_snapshot":1,"origin":{},"pace":{"bytes_read":70.0,"ms":1050.0,"rows":10.0},"rollbacks":[],"run_id":"run-1","schemas":{"main":"n: int64"},"snapshot":2,"totals":{"branch_rows":{"main":20},"bytes_written":48,"files":2,"files_removed":0,"rows_filtered":1,"rows_quarantined":2,"rows_read":20,"rows_rejected":2,"rows_untaken":0},"updated_at":"2026-11-21T08:00:00Z","version":2},"format":"CommitSequence/2","identity":{"dataset_urn":"a","id":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","job":"job","run_id":"run-1","version_read":1},"moved":{"branches":["main"],"rows":[[0,10]]},"output_root":"/lake","report":{"actual_high":{"components":{"":10},"type":"long","version":1},"bytes_written":29,"dataset_urn":"a","expected_high":{"components":{"":50},"type":"long","version":1},"failed_ranges":[],"failures":[],"files":1,"files_removed":0,"format":"DatasetResult/1","low":{"components":{"":40},"type":"long","version":1},"notes":["begins at 40, by the startpoint upcoming of anna@host: the feed began anew."],"outcome":"committed","policies":[],"queues":{},"rejected":{},"rows_by_branch":{"main":10},"rows_filtered":0,"rows_quarantined":0,"rows_read":10,"rows_untaken":0,"seconds":0.0,"sequence_id":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","snapshot":2,"startpoint":{"created_at":"2026-11-21T08:00:00Z","dataset_urn":"a","expires_at":"2026-11-28T08:00:00Z","format":"Startpoint/1","id":"55555555555555555555555555555555","job":"job","pinned":{"ranges":{"":[[0,40]]},"type":"long","version":1},"position":{"kind":"upcoming"},"who":"anna@host","why":"the feed began anew"}},"staging_dirs":["/lake/_gobblin/staging/run-1/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"],"startpoint":"55555555555555555555555555555555","steps":[{"sha256":"209ac98e22caee62012a86ba162d387dbb0f6b0654b1003fe0a7d9a023a872b5","size_bytes":29,"source":"/lake/_gobblin/staging/run-1/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb/main/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-3.txt","target":"/lake/main/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-3.txt","type":"rename_file","version":1}]}','fa79d0e47db844ceab6c8a04c77dc36a2e9ff772b3fe7ad54c0b0e1b0874cdba','2026-11-21 08:00:00.000000',0,'',0);
INSERT INTO "gobblin_sequences" VALUES(3,'000000000000000000000000000000a1','job','a','person-000000000000',2,'committed','{"after":{"committed":{"ranges":{"":[[0,60]]},"type":"long","version":1},"dataset_urn":"a","failed_ranges":[],"format":"DatasetState/1","generation":0,"given_up":null,"job":"job","oldest_snapshot":1,"origin":{},"pace":{"bytes_read":70.0,"ms":1050.0,"rows":10.0},"rollbacks":[],"run_id":"person-000000000000","schemas":{"main":"n: int64"},"snapshot":2,"totals":{"branch_rows":{"main":20},"bytes_written":48,"files":2,"files_removed":0,"rows_filtered":1,"rows_quarantined":2,"rows_read":20,"rows_rejected":2,"rows_untaken":0},"updated_at":"2026-11-21T10:00:00Z","version":3},"format":"CommitSequence/2","identity":{"dataset_urn":"a","id":"000000000000000000000000000000a1","job":"job","run_id":"person-000000000000","version_read":2},"moved":{"branches":[],"rows":[]},"output_root":"/lake","report":{"actual_high":{"components":{"":60},"type":"long","version":1},"bytes_written":0,"change":{"action":"set","who":"anna@host","why":"snow fell into the file"},"dataset_urn":"a","expected_high":null,"failed_ranges":[],"failures":[],"files":0,"files_removed":0,"format":"DatasetResult/1","low":{"components":{"":10},"type":"long","version":1},"notes":["set by anna@host: snow fell into the file"],"outcome":"committed","policies":[],"queues":{},"rejected":{},"rows_by_branch":{},"rows_filtered":0,"rows_quarantined":0,"rows_read":0,"rows_untaken":0,"seconds":0.0,"sequence_id":"000000000000000000000000000000a1","snapshot":2},"staging_dirs":[],"steps":[]}','5c0dcbb23bf0d016676fc6fcbf7449869650d269bd27b6fda3ec3a0ebe763061','2026-11-21 10:00:00.000000',0,'',1);
INSERT INTO "gobblin_sequences" VALUES(4,'cccccccccccccccccccccccccccccccc','job','a','run-1',3,'prepared','{"after":{"committed":{"ranges":{"":[[0,65]]},"type":"long","version":1},"dataset_urn":"a","failed_ranges":[],"format":"DatasetState/1","generation":0,"given_up":null,"job":"job","oldest_snapshot":1,"origin":{},"pace":{"bytes_read":49.0,"ms":735.0,"rows":8.5},"rollbacks":[],"run_id":"run-1","schemas":{"main":"n: int64"},"snapshot":3,"totals":{"branch_rows":{"main":25},"bytes_written":62,"files":3,"files_removed":0,"rows_filtered":1,"rows_quarantined":2,"rows_read":25,"rows_rejected":2,"rows_untaken":0},"updated_at":"2026-11-21T08:00:00Z","version":4},"format":"CommitSequence/2","identity":{"dataset_urn":"a","id":"cccccccccccccccccccccccccccccccc","job":"job","run_id":"run-1","version_read":3},"moved":{"branches":["main"],"rows":[[0,5]]},"output_root":"/lake","report":{"actual_high":{"components":{"":65},"type":"long","version":1},"bytes_written":14,"dataset_urn":"a","expected_high":{"components":{"":65},"type":"long","version":1},"failed_ranges":[],"failures":[],"files":1,"files_removed":0,"format":"DatasetResult/1","low":{"components":{"":60},"type":"long","version":1},"notes":[],"outcome":"committed","policies":[],"queues":{},"rejected":{},"rows_by_branch":{"main":5},"rows_filtered":0,"rows_quarantined":0,"rows_read":5,"rows_untaken":0,"seconds":0.0,"sequence_id":"cccccccccccccccccccccccccccccccc","snapshot":3},"staging_dirs":["/lake/_gobblin/staging/run-1/cccccccccccccccccccccccccccccccc"],"steps":[{"sha256":"cbcfc75dcfd82856b5934b048b4caec3791247f7e01d839c38f12ee0a6b20427","size_bytes":14,"source":"/lake/_gobblin/staging/run-1/cccccccccccccccccccccccccccccccc/main/cccccccccccccccccccccccccccccccc-4.txt","target":"/lake/main/cccccccccccccccccccccccccccccccc-4.txt","type":"rename_file","version":1}]}','4f6d2c1867eabc06f0c5bc80c39b593d5f6261892ed90c4a9294f91cc7db7791','2026-11-21 08:00:00.000000',0,'',0);
CREATE TABLE gobblin_snapshot_files (
	job TEXT NOT NULL, 
	dataset_urn TEXT NOT NULL, 
	path TEXT NOT NULL, 
	snapshot BIGINT NOT NULL, 
	branch TEXT NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	sha256 TEXT NOT NULL, 
	rows BIGINT NOT NULL, 
	PRIMARY KEY (job, dataset_urn, path)
);
INSERT INTO "gobblin_snapshot_files" VALUES('job','a','/lake/main/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-1.txt',1,'main',19,'29dd21f55e4611d4c787c2148e39b4e341d4c10701dd03eed360aa55035bdb34',10);
INSERT INTO "gobblin_snapshot_files" VALUES('job','a','/lake/main/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-3.txt',2,'main',29,'209ac98e22caee62012a86ba162d387dbb0f6b0654b1003fe0a7d9a023a872b5',10);
CREATE TABLE gobblin_snapshot_removals (
	job TEXT NOT NULL, 
	dataset_urn TEXT NOT NULL, 
	path TEXT NOT NULL, 
	snapshot BIGINT NOT NULL, 
	PRIMARY KEY (job, dataset_urn, path, snapshot)
);
CREATE TABLE gobblin_startpoints (
	job TEXT NOT NULL, 
	dataset_urn TEXT NOT NULL, 
	id TEXT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (job, dataset_urn)
);
INSERT INTO "gobblin_startpoints" VALUES('job','a','66666666666666666666666666666666','{"created_at":"2026-11-21T11:00:00Z","dataset_urn":"a","expires_at":"2026-11-28T11:00:00Z","format":"Startpoint/1","id":"66666666666666666666666666666666","job":"job","pinned":null,"position":{"kind":"oldest"},"who":"anna@host","why":"all of it again"}');
CREATE UNIQUE INDEX gobblin_sequences_one_blocking ON gobblin_sequences (job, dataset_urn) WHERE state IN ('prepared', 'aborting', 'quarantined');
CREATE INDEX gobblin_sequences_unreported ON gobblin_sequences (job) WHERE state = 'committed' AND reported IS 0;
CREATE INDEX gobblin_sequences_by_job ON gobblin_sequences (job, number);
CREATE INDEX gobblin_runs_by_job ON gobblin_runs (job, started_at);
COMMIT;
