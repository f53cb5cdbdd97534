"""Tell whether two jobs read the same source, for startpoints that are for all jobs."""

from __future__ import annotations

import re

from gobblin_dagster.core.commit import body_digest, canonical_json
from gobblin_dagster.core.constructs import Source
from gobblin_dagster.core.traits import SourceTraits, traits_of
from gobblin_dagster.spec.job import JobSpec

_LOGIN = re.compile(r"//[^/@]*@")
_DIGITS = 16


def source_identity(job: JobSpec, source: type[Source]) -> str:
    """Return a text that is equal for jobs that read the same source: its type, and a digest of where the data lie.

    User names and passwords in URLs do not count, and are not part of the digest.

    Args:
        job: the job.
        source: the class of its source, whose trait `identity` names the options that count.
    """
    options = job.source.options
    names = traits_of(source, SourceTraits, "identity").identity or tuple(options)
    found = {name: options[name] for name in sorted(names) if name in options}
    # A job from Python may hold dates and other objects, which a job file cannot.
    text = canonical_json(found, default=str)
    return f"{job.source.type}:{body_digest(_LOGIN.sub('//', text))[:_DIGITS]}"
