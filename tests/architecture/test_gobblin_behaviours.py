"""What Gobblin's own tests check of compilers, flow graph, orchestrator, DAG engine and executors, and our tests of it.

The behaviours are those of gobblin-service and gobblin-runtime; what we do otherwise on purpose says so.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COMPILER, TOPOLOGY, ORCHESTRATOR = "unit/service/compiler", "unit/service/topology", "unit/service/orchestrator"

BEHAVIOURS: dict[str, tuple[str, str]] = {
    # Topology catalog and flow graph
    "specs that the configuration names are loaded with uri and capabilities": (
        f"{TOPOLOGY}/test_files.py",
        "test_files_of_a_folder_make_one_topology",
    ),
    "put and delete of a spec change what the compiler sees": (
        f"{TOPOLOGY}/test_stored.py",
        "test_stored_files_and_those_of_the_folder_are_one_topology_on_every_node",
    ),
    "listeners hear of changes": (
        f"{TOPOLOGY}/test_catalog.py",
        "test_listeners_hear_of_each_change_once_and_after_it",
    ),
    "an edge needs both nodes; deleting a node with edges is refused, where Gobblin deletes them": (
        f"{TOPOLOGY}/test_stored.py",
        "test_file_with_which_the_topology_has_a_fault_is_refused_and_not_stored",
    ),
    "an edge has a template and executors": (
        f"{TOPOLOGY}/test_graph.py",
        "test_edge_is_run_by_the_first_of_its_executors_that_is_enabled",
    ),
    "a bad file survives, and changes nothing": (
        f"{TOPOLOGY}/test_catalog.py",
        "test_topology_stays_as_it_was_while_a_file_has_a_fault",
    ),
    "a dataset is contained in a descriptor; any is a wildcard": (
        f"{TOPOLOGY}/test_model.py",
        "test_dataset_fits_a_constraint_if_each_field_does_and_any_matches",
    ),
    "an executor is chosen by its capabilities": (f"{TOPOLOGY}/test_model.py", "test_capability_covers_types_of_nodes"),
    # Compilers
    "identity: a template becomes a job with the flow's values": (
        f"{COMPILER}/test_identity.py",
        "test_each_template_becomes_a_job_after_the_one_before",
    ),
    "identity: without an executor there is no job": (
        f"{COMPILER}/test_identity.py",
        "test_service_without_executors_compiles_nothing",
    ),
    "several hops: a chain of jobs, each with its edge's template and executor": (
        f"{COMPILER}/test_multi_hop.py",
        "test_each_hop_becomes_a_job_after_the_one_before_byte_for_byte_the_same_each_time",
    ),
    "an edge is deleted: the way is another one; the second one, and there is none": (
        f"{COMPILER}/test_multi_hop.py",
        "test_way_is_another_one_after_an_edge_went_away_and_none_after_the_second",
    ),
    "several destinations: an end each; hops that they have in common run once, where Gobblin shares nothing": (
        f"{COMPILER}/test_multi_hop.py",
        "test_ways_to_several_destinations_share_the_jobs_that_they_begin_with",
    ),
    "sub-paths: parallel chains, or one that carries all": (
        f"{COMPILER}/test_multi_hop.py",
        "test_sub_paths_are_parallel_chains_or_one",
    ),
    "a substitution that has no value names the key": (
        f"{COMPILER}/test_multi_hop.py",
        "test_value_that_is_missing_names_key_template_line_and_node",
    ),
    "a source or destination that is missing is named": (
        f"{COMPILER}/test_ways.py",
        "test_node_that_is_not_there_is_named_with_the_nearest",
    ),
    "names of jobs begin with group and flow; over-long ones are shortened": (
        f"{COMPILER}/test_multi_hop.py",
        "test_names_of_jobs_stay_unique_and_short",
    ),
    "two jobs of one name are refused, where Gobblin chains them": (
        f"{COMPILER}/test_identity.py",
        "test_two_templates_of_one_name_are_refused",
    ),
    "DAGs of several flows are put one after the other: ends before starts": (
        f"{COMPILER}/test_children.py",
        "test_children_may_have_children_that_come_after_the_same_jobs",
    ),
    "a user gives the path, and excludes edges": (
        f"{COMPILER}/test_multi_hop.py",
        "test_path_of_the_flow_and_excluded_edges_change_the_way",
    ),
    "explain: the way and every refused edge; nothing is stored": (
        f"{COMPILER}/test_multi_hop.py",
        "test_explanation_tells_way_and_every_refused_edge",
    ),
    "each job has the uri of its executor: one that takes Gobblin's job specs gets keys": (
        f"{COMPILER}/test_multi_hop.py",
        "test_executor_of_a_gobblin_cluster_gets_the_keys_of_the_job",
    ),
    # Orchestrator
    "launch: jobs without parents are given to executors, the flow runs once": (
        f"{ORCHESTRATOR}/test_orchestrator.py",
        "test_jobs_run_one_after_the_other_and_the_flow_leaves_the_catalog",
    ),
    "a flow that does not compile at launch fails with the reason": (
        f"{ORCHESTRATOR}/test_orchestrator.py",
        "test_flow_that_compiles_no_more_fails_with_the_reason_and_others_go_on",
    ),
    "concurrent executions: the flow's setting decides, and a refused one has a message": (
        f"{ORCHESTRATOR}/test_orchestrator.py",
        "test_second_execution_follows_the_flows_rule",
    ),
    "a flow without a way is tried again when a topology appears": (
        f"{ORCHESTRATOR}/test_topology_changes.py",
        "test_flow_without_a_way_waits_and_runs_once_as_soon_as_there_is_one",
    ),
    "an edge of a scheduled flow goes away: the flow takes another way": (
        f"{ORCHESTRATOR}/test_topology_changes.py",
        "test_scheduled_flow_takes_another_way_when_its_edge_goes_away_if_it_says_so",
    ),
    # DAG engine
    "success: what follows a job is submitted together": (
        f"{ORCHESTRATOR}/test_dag.py",
        "test_every_dag_ends_whatever_fails_and_whichever_ends_first",
    ),
    "failure: FINISH_RUNNING stops after running jobs": (
        f"{ORCHESTRATOR}/test_dag.py",
        "test_finish_running_lets_running_jobs_end_and_starts_no_other",
    ),
    "failure: FINISH_ALL_POSSIBLE goes on with independent branches": (
        f"{ORCHESTRATOR}/test_all_dags.py",
        "test_dags_of_more_jobs_keep_all_promises_in_all_orders_of_all_events",
    ),
    "retry: a job is submitted again up to job.maxAttempts": (
        f"{ORCHESTRATOR}/test_dag.py",
        "test_job_is_tried_again_while_it_has_attempts_left",
    ),
    "resume: only what is not complete runs again, generation + 1": (
        f"{ORCHESTRATOR}/test_orchestrator.py",
        "test_resume_runs_what_is_left_under_a_new_generation",
    ),
    "kill of a flow: all jobs end, none is tried again": (
        f"{ORCHESTRATOR}/test_dag.py",
        "test_kill_cancels_what_waits_and_stops_what_runs_once",
    ),
    "kill of a job: just it": (
        f"{ORCHESTRATOR}/test_dag.py",
        "test_killed_job_takes_those_after_it_along_and_leaves_the_others",
    ),
    "kill of what is not there is told": (
        f"{ORCHESTRATOR}/test_orchestrator.py",
        "test_unknown_executions_are_not_found",
    ),
    "start deadline: a job that never started is tried again, then cancelled": (
        f"{ORCHESTRATOR}/test_deadlines.py",
        "test_job_that_does_not_start_is_tried_again_then_given_up",
    ),
    "start deadline: a job that started has met it": (
        f"{ORCHESTRATOR}/test_deadlines.py",
        "test_job_that_started_has_met_its_start_deadline",
    ),
    "finish deadline: all jobs end": (
        f"{ORCHESTRATOR}/test_deadlines.py",
        "test_execution_that_takes_too_long_is_killed_also_over_a_restart",
    ),
    "a malformed deadline must not stall the engine": (
        f"{ORCHESTRATOR}/test_deadlines.py",
        "test_flow_with_settings_that_no_longer_count_stops_no_other",
    ),
    "quotas: a run over the limit is refused": (
        f"{ORCHESTRATOR}/test_quotas.py",
        "test_flow_that_does_not_wait_is_refused_and_nothing_is_stored",
    ),
    "quotas: retries do not count twice": (f"{ORCHESTRATOR}/test_quotas.py", "test_retry_does_not_count_twice"),
    "quotas: load at start never refuses": (
        f"{ORCHESTRATOR}/test_quotas.py",
        "test_restart_neither_loses_nor_invents_counts",
    ),
    "events out of order: an older one changes nothing": (
        f"{ORCHESTRATOR}/test_dag.py",
        "test_late_double_and_foreign_events_change_nothing",
    ),
    "an attempt that failed is PENDING_RETRY until the next one begins": (
        f"{ORCHESTRATOR}/test_dag.py",
        "test_job_is_tried_again_while_it_has_attempts_left",
    ),
    "quotas: executions over the limit wait in order, those of others do not": (
        f"{ORCHESTRATOR}/test_quotas.py",
        "test_executions_beyond_the_quota_of_their_group_wait_in_order",
    ),
    # Executors
    "capabilities of a worker: it takes the jobs that it can run, and leaves the others": (
        "unit/service/executors/test_claims.py",
        "test_worker_leaves_jobs_that_it_cannot_run_and_takes_those_behind_them",
    ),
    "restart: what runs goes on, no duplicates": (
        "contract/test_executors.py",
        "test_kill_at_any_step_loses_no_job_and_runs_none_that_was_reported",
    ),
    "at least once, with an execution id that removes duplicates": (
        "contract/test_executors.py",
        "test_order_that_comes_again_begins_nothing",
    ),
    "health of executors": (
        "contract/test_executors.py",
        "test_executor_tells_where_it_is_and_why_jobs_would_wait",
    ),
    "a message that cannot be decoded is set aside": (
        "integration/kafka/test_executor.py",
        "test_jobs_run_once_though_the_broker_was_away_and_messages_are_no_orders",
    ),
    "an executor is lost: its jobs move once": (
        f"{ORCHESTRATOR}/test_moves.py",
        "test_job_of_a_lost_executor_moves_once_and_its_copy_is_dropped",
    ),
}
"""Left out: retention edges (Gobblin's test is disabled, and no job of ours deletes what a flow has brought),
descriptors of volumes, Hive, SQL and Iceberg (a dataset has a platform and a path), and metrics of adhoc jobs, which we
do not turn off."""


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_behaviour_of_gobblin_has_a_test(behaviour: str) -> None:
    file, name = BEHAVIOURS[behaviour]
    assert re.search(rf"^def {name}\(", (TESTS / file).read_text(encoding="utf-8"), re.M), f"{file} has no {name}"
