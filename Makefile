# Everything that one does with this project. Any Python from 3.11 on will do: make demo PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHELL := bash
# The theme advertises another program otherwise.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
# Some machines forbid Python its bytecode cache; every start would then compile a thousand modules anew.
export PYTHONDONTWRITEBYTECODE :=
# In one list, so that all are installed in one go; the JDK brings the Java of Spark.
TEST_PROGRAMS := postgresql mariadb-server maven default-jdk-headless openssh-server mmdebstrap chromium pgbouncer
.DEFAULT_GOAL := help
.PHONY: help install lint types contracts system test test-spark test-e2e docs site docs-serve screenshots dagster-versions dagster-surface check demo demo-full service service-demo service-example bench bench-small bench-kafka bench-query bench-commit bench-service bench-all bench-smoke crash crash-storm crash-table dags edit-storm executor-storm merge-storm rename-storm set-back-storm service-storm target-storm clean

help: ## list all of these
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# -- installation: a stamp per set of packages, made anew when the pinned versions change --------------------------------
$(VENV)/user.stamp: pyproject.toml constraints.txt
	@scripts/install.sh $(PYTHON) $(VENV)
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt
	@scripts/install.sh $(PYTHON) $(VENV) dev
	@touch $@ $(VENV)/user.stamp

install: $(VENV)/dev.stamp ## make .venv with everything that development needs

# -- for users ------------------------------------------------------------------------------------------------------------
demo: $(VENV)/user.stamp ## run the demo on real flights in ./demo
	@scripts/ensure-java.sh
	@scripts/demo.sh

demo-full: $(VENV)/user.stamp ## the demo with all flights of 2013 (336,776 rows, 35 datasets) in ./demo-full
	@scripts/ensure-java.sh
	@[ -e demo-full/gobblin.yaml ] || $(BIN)/python -m gobblin_dagster.demo full demo-full
	@cd demo-full && ../$(BIN)/gobblin run

service: $(VENV)/user.stamp ## start the service on real flights, in ./service-demo; Ctrl-C ends it
	@scripts/ensure-java.sh
	@[ -e service-demo/gobblin.yaml ] || $(BIN)/gobblin init --service service-demo
	@cd service-demo && ../$(BIN)/gobblin serve

service-demo: $(VENV)/user.stamp ## the service in one go: start, create a flow, run it, show it, end
	@scripts/ensure-java.sh
	@scripts/service-demo.sh

service-example: install ## the service with three executors, on a broker and a PostgreSQL of its own, in ./service-example; then all ends
	@scripts/ensure-system.sh postgresql maven default-jdk-headless
	@rm -rf service-example
	@$(BIN)/python -m tests.services.service_example service-example

dags: install ## the DAG engine in all states of every DAG of four jobs, beyond what each run of the tests tries: some minutes
	@echo "+ GOBBLIN_ALL_DAGS=1 pytest tests/unit/service/orchestrator/test_all_dags.py"
	@GOBBLIN_ALL_DAGS=1 $(BIN)/python -m pytest -q -n0 tests/unit/service/orchestrator/test_all_dags.py

crash: $(VENV)/user.stamp ## kill a run in the middle of publishing, run again, count; then a small crash table. The large one: make crash N=100000
ifdef N
	@$(MAKE) --no-print-directory crash-table
else
	@scripts/ensure-java.sh
	@scripts/crash.sh
	@echo "+ python -m gobblin_dagster.testing.protocol.crash_table --quick --storms 200"
	@$(BIN)/python -m gobblin_dagster.testing.protocol.crash_table --quick --storms 200
endif

crash-table: install ## every single fault, and N random schedules (default 2000), on every state store and storage that can be started here; all pairs of faults too: PAIRS=1
	@scripts/ensure-system.sh postgresql maven default-jdk-headless || true # said in one sentence; rows that need them are left out by name
	@$(BIN)/python -m tests.services.crash_table --storms $(or $(N),2000) $(if $(PAIRS),--pairs)

crash-storm: install ## the tests that go through every schedule on more stores, shapes and protocols than `make test` does, and find more planted bugs: well over 15 minutes
	@scripts/ensure-system.sh postgresql maven default-jdk-headless || true # said in one sentence; tests that need them are skipped by name
	@$(BIN)/pytest -m storm -n 2

merge-storm: install ## kill and freeze merges, histories and child tables in Parquet snapshots, Delta and Iceberg at each point, cut the power under the first, and run N random schedules (default 20) of each
	@$(BIN)/python -m tests.faults.test_merge_storms every
	@$(BIN)/python -m tests.faults.test_merge_storms 0 $(or $(N),20)

set-back-storm: install ## set store and tables back to older copies among kills, startpoints and abandoned commits: N random schedules (default 100) for each kind of table
	@$(BIN)/python -m tests.property.test_set_back_storms 0 $(or $(N),100)

edit-storm: install ## edit a job file between runs as people do: branches, publishers, tables, formats, names, and states by hand; N random job files (default 100)
	@$(BIN)/python -m tests.property.test_edit_storms 0 $(or $(N),100)

target-storm: install ## commands in random order, killed at random moments, over sources, targets and state stores on servers that are started here: SECONDS=600 SEED=1 SERVERS="postgres mariadb s3 hdfs"; SERVERS=spark has Spark read all
	@scripts/ensure-system.sh postgresql mariadb-server maven default-jdk-headless
	@$(BIN)/python -m tests.property.targets $(or $(SECONDS),600) $(or $(SEED),1) $(or $(SERVERS),postgres mariadb s3 hdfs)

executor-storm: install ## kill service, workers and broker of examples/service 50 times, then count rows: KILLS=50 SEED=1 STORE=postgresql SPARK=1
	@scripts/ensure-system.sh postgresql maven default-jdk-headless
	@$(BIN)/python -m tests.services.executor_storm --kills $(or $(KILLS),50) --seed $(or $(SEED),1) --store $(or $(STORE),sqlite) $(if $(SPARK),--spark)

service-storm: install ## kill the service, its worker and Spark while flows run in Spark, then count flows, fire times and rows: KILLS=30 SEED=1 POSTGRES=1
	@scripts/ensure-java.sh
	@$(BIN)/python -m tests.services.service_storm --kills $(or $(KILLS),30) --seed $(or $(SEED),1) $(if $(POSTGRES),--postgres)

rename-storm: install ## rename and exchange flows, their templates and outputs while they run, on PostgreSQL, then count the rows of each place: SECONDS=60 SEED=1 SEEDS=1 KILLS=0.05
	@scripts/ensure-system.sh postgresql
	@$(BIN)/python -m tests.services.rename_storm --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) --seeds $(or $(SEEDS),1) --kills $(or $(KILLS),0)

bench: $(VENV)/user.stamp ## compare with hand-written PySpark; quick look: make bench ROWS=400000
	@scripts/ensure-java.sh
	@$(BIN)/python benchmarks/run.py $(if $(ROWS),--rows $(ROWS))

bench-small: $(VENV)/user.stamp ## the demo's next day, an idle run and a plan: each in a process of its own, and in a warm worker
	@scripts/ensure-java.sh
	@$(BIN)/python benchmarks/small_runs.py

bench-kafka: install ## the source `kafka` against Spark's own reader, on a real broker
	@scripts/ensure-java.sh
	@scripts/ensure-system.sh maven
	@$(BIN)/python benchmarks/kafka_source.py $(if $(ROWS),--rows $(ROWS))

bench-query: install ## the source `query` against Spark's JDBC reader, on a real PostgreSQL: one large table, then many small ones
	@scripts/ensure-java.sh
	@scripts/ensure-system.sh maven postgresql
	@$(BIN)/python benchmarks/query_source.py $(if $(ROWS),--rows $(ROWS))
	@$(BIN)/python benchmarks/many_tables.py $(if $(ROWS),--rows $(ROWS))

bench-commit: $(VENV)/user.stamp ## compare the commit protocol with bare renames; quick look: make bench-commit FILES=1000
	@$(BIN)/python benchmarks/commit.py $(if $(FILES),--files $(FILES))

bench-service: install ## the service on a real PostgreSQL: claims, a catalog of 100,000 flows, REST under load, warm runs; quick look: FLOWS=2000 SECONDS=10
	@scripts/ensure-java.sh
	@scripts/ensure-system.sh postgresql
	@$(BIN)/python benchmarks/service.py $(if $(FLOWS),--flows $(FLOWS)) $(if $(SECONDS),--seconds $(SECONDS))

bench-all: install ## all benchmarks in one page with plots, .work/bench/page.html; beside dlt: make bench-all DLT=<a Python that has it>
	@scripts/ensure-java.sh
	@scripts/ensure-system.sh maven postgresql || true # a benchmark whose server is missing is named on the page
	@$(BIN)/python benchmarks/all.py $(if $(DLT),--dlt $(DLT))

bench-smoke: install ## the quick benchmarks with little work: that they run, and that rows agree
	@scripts/ensure-java.sh
	@$(BIN)/python benchmarks/all.py --smoke --page .work/bench/smoke.html

# -- for developers -------------------------------------------------------------------------------------------------------
lint: install ## style, format, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: install ## mypy, strict
	$(BIN)/mypy # tests/typing reads its cache

contracts: install ## who may import whom
	$(BIN)/lint-imports

system: # what tests need of the system
	@scripts/ensure-system.sh $(TEST_PROGRAMS) || [ "$$CI" != true ] # said in one sentence each; tests that need them are skipped by name, and in CI nothing is skipped
	@scripts/ensure-java.sh

test: install system ## all tests; installs Java, PostgreSQL, PgBouncer, MariaDB, OpenSSH, Chromium and Maven where permitted
	scripts/in-memory.sh $(BIN)/pytest -n 3 --no-loadscope-reorder # tests wait for servers and disks: three processes keep two cores busy

test-spark: install ## tests that start Spark
	@scripts/ensure-java.sh
	$(BIN)/pytest -m "spark and not storm"

test-e2e: install ## tests that run commands as a user does
	@scripts/ensure-java.sh
	$(BIN)/pytest -m "e2e and not storm"

docs: site ## documentation in step with the code, no dead links; built as a site in ./site
	$(BIN)/pytest tests/architecture
	@echo "Open site/index.html, or serve it: make docs-serve"

site: install
	$(MKDOCS) build --strict

docs-serve: install ## serve the documentation on 127.0.0.1:8000; pages follow your changes
	$(MKDOCS) serve --dev-addr 127.0.0.1:$(or $(PORT),8000)

dagster-versions: install ## the tests of the Dagster layer with the oldest and the newest supported Dagster
	@scripts/dagster-versions.sh $(BIN)/python

dagster-surface: install ## what we use of Dagster, with the oldest and the newest supported Dagster: a part of those tests
	@scripts/dagster-versions.sh $(BIN)/python surface

screenshots: install ## take the pictures of Dagster's pages in README and docs anew, in Chromium
	@scripts/ensure-java.sh
	@scripts/ensure-system.sh chromium
	$(BIN)/python scripts/screenshot.py
	GOBBLIN_PICTURES=$(CURDIR)/docs/images $(BIN)/pytest -n0 tests/integration/test_dagster_browser.py

check: install ## what CI runs, in the same order; packages of the system are fetched beside what only computes
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=target system types dagster-surface site lint contracts
	@$(MAKE) --no-print-directory test

clean: ## delete everything that is made here: environment, caches, demo folders
	rm -rf $(VENV) demo demo-full service-example .work .gobblin build dist site *.egg-info spark-warehouse
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
