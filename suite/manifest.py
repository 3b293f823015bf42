"""What the JSON of a submission may say: typed, bounded, and without unknown keys, since it comes from strangers."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, StrictBool, StrictFloat, StrictInt, StringConstraints, model_validator

from tilearena.dataset import Recording
from tilearena.records import SLUG, Record
from tilearena.score import Key
from tilearena.splits import MODELS_TRAIN_SPEC

SCHEMA_VERSION: Literal[2] = 2
MAX_RESULTS = 64
MAX_TEXT = 500
#: Other devices of one product that a result may train on.
MAX_DEVICES = 64
#: The seed of what is submitted: who could choose it would submit the luckiest of many folds and intervals.
SEED = 0

Slug = Annotated[str, StringConstraints(pattern=SLUG)]
Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
#: One line; no character that steers a terminal or turns the direction of text.
Text = Annotated[
    str,
    StringConstraints(max_length=MAX_TEXT, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"),
]
Submitter = Annotated[Text, Field(min_length=1, max_length=200)]
Number = Annotated[StrictInt | StrictFloat, Field(ge=-(1 << 53), le=1 << 53, allow_inf_nan=False)]


class Names(Record):
    """The names that place a result: a ``Key`` whose strings are safe as parts of a path."""

    spec: Slug
    space: Slug
    device: Slug
    predictor: Slug
    version: Slug
    train_spec: Slug


class Fingerprints(Record):
    """What a result was computed from. ``train`` equals ``test`` where a split trains in the tested recording.

    ``others`` are the further recordings that train, by device; only the split ``device`` has some.
    """

    test: Hash
    train: Hash
    repeat: Hash | None
    spec: Hash
    space: Hash
    others: Annotated[dict[Slug, Hash], Field(default_factory=dict, max_length=MAX_DEVICES)]

    @classmethod
    def of(cls, test: Recording, train: Recording, repeat: Recording | None, others: Sequence[Recording] = ()) -> Self:
        """The fingerprints of these recordings and of the tested spec and space."""
        return cls(
            test=test.header.fingerprint,
            train=train.header.fingerprint,
            repeat=repeat.header.fingerprint if repeat else None,
            spec=test.header.spec_fingerprint,
            space=test.header.space_fingerprint,
            others={other.header.device.slug: other.header.fingerprint for other in others},
        )


class Result(Record):
    """The claims about one key; ``figures`` has the counts and figures of ``Score.flat``, null where unknown.

    ``code_fingerprint`` is of the predictor's source (`tilearena.plugin_code`), null where there is none.
    ``isolated`` says whether the recordings were out of the predictor's reach (`tilearena.out_of_reach`) while it was
    fitted and ranked, null where that is unknown.
    """

    key: Key
    fingerprints: Fingerprints
    picks_fingerprint: Hash
    code_fingerprint: Hash | None
    seed: Annotated[StrictInt, Field(ge=0, lt=1 << 32)]
    status: Literal["ok", "failed"]
    reason: Text
    figures: Annotated[dict[Slug, Number | None], Field(max_length=200)]
    isolated: StrictBool | None = None

    @model_validator(mode="after")
    def _safe_names(self) -> Self:
        Names.model_validate(self.key.model_dump(include=set(Names.model_fields)))
        return self

    @property
    def label(self) -> str:
        """``dtype/protocol/split``, with op, space and training spec where they are not the usual ones."""
        key = self.key
        usual = {"op": "gemm", "space": "paper9"}
        rest = [getattr(key, name) for name, value in usual.items() if getattr(key, name) != value]
        trained = [key.train_spec] if key.split == "models" and key.train_spec != MODELS_TRAIN_SPEC else []
        return "/".join([*rest, key.dtype, key.protocol, key.split, *trained])


class Manifest(Record):
    """The JSON file."""

    schema_version: Literal[2] = SCHEMA_VERSION
    kind: Literal["submission"] = "submission"
    predictor: Slug
    version: Slug
    device: Slug
    spec: Slug
    submitter: Submitter
    created_at: AwareDatetime
    tilearena: Annotated[Text, Field(max_length=64)]
    results: Annotated[tuple[Result, ...], Field(min_length=1, max_length=MAX_RESULTS)]

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
        for i, result in enumerate(self.results):
            for name in ("predictor", "version", "device", "spec"):
                if getattr(result.key, name) != getattr(self, name):
                    raise ValueError(f"results.{i}.key.{name} differs from the submission's {name}")
        labels = [result.label for result in self.results]
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            raise ValueError(f"the result {twice[0]} is there twice")
        return self
