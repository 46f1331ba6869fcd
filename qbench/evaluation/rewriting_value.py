"""What runs behind the quantizer, as one replaceable part of a request."""

from dataclasses import dataclass

from qbench.passes import Pipeline, Policy
from qbench.storage import digest_plain


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The pipeline that runs behind the quantizer, and what it may do to numbers."""

    pipeline: Pipeline
    policy: Policy

    @property
    def digest(self) -> str:
        """Of the pipeline and the policy."""
        return digest_plain([self.pipeline.digest, self.policy.value])
