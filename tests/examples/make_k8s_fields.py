"""Write k8s_fields.json: the types of Kubernetes, JobSet and Kubeflow Trainer that examples/k8s uses, with all fields.

Not a test. Run it when an example needs a type that is not there yet, in an environment of its own:

    pip install kubeflow-trainer-api==2.3.0 PyYAML && python tests/examples/make_k8s_fields.py

That package has models made from the projects' OpenAPI documents (Apache-2.0), Kubernetes' own types among them. A
field is written as its type: a word of JSON's, another type's name, [one] for a list of it, {one} for an object of it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from kubeflow_trainer_api import models

HERE = Path(__file__).parent
ROOTS = {
    "Job": models.IoK8sApiBatchV1Job,
    "Service": models.IoK8sApiCoreV1Service,
    "PersistentVolumeClaim": models.IoK8sApiCoreV1PersistentVolumeClaim,
    "JobSet": models.JobsetV1alpha2JobSet,
    "ClusterTrainingRuntime": models.TrainerV1alpha1ClusterTrainingRuntime,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}
EITHER = {"IoK8sApimachineryPkgApiResourceQuantity": "quantity", "IoK8sApimachineryPkgUtilIntstrIntOrString": "either"}


def written(schema: dict[str, Any]) -> str:
    """Return how a field of this schema is written."""
    for one in schema.get("anyOf", ()):
        if one.get("type") != "null":
            return written(one)
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return EITHER.get(name, name)
    if schema.get("type") == "array":
        return f"[{written(schema['items'])}]"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"{{{written(inner)}}}" if isinstance(inner, dict) else "{any}"
    return schema.get("type", "any")


def words(field: dict[str, Any]) -> list[str]:
    """Return the values that a field's description allows, where it lists them."""
    text = field.get("description", "")
    listed = re.search(r"Valid values are ([A-Z]\w+(?:, \w+)+)", text)
    return re.findall(r'- `"(\w+)"`', text) or (listed[1].split(", ") if listed else [])


class Fields:
    def __init__(self, schemas: dict[str, Any]) -> None:
        self.schemas = schemas
        self.types: dict[str, Any] = {}

    def take(self, name: str, value: Any) -> None:
        """Add type ``name`` and those of its fields that ``value`` has."""
        if name.startswith("["):
            for one in value:
                self.take(name[1:-1], one)
        elif name.startswith("{"):
            for one in value.values():
                self.take(name[1:-1], one)
        elif name in self.schemas:
            schema = self.schemas[name]
            fields = {key: written(field) for key, field in schema.get("properties", {}).items()}
            entry: dict[str, Any] = {"required": schema.get("required", []), "fields": fields}
            allowed = {key: found for key, field in schema.get("properties", {}).items() if (found := words(field))}
            self.types[name] = {**entry, "words": allowed} if allowed else entry
            for key, inner in value.items():
                self.take(fields[key], inner)


def main() -> None:
    schemas: dict[str, Any] = {}
    for root in ROOTS.values():
        whole = root.model_json_schema()
        schemas |= whole.get("$defs", {}) | {root.__name__: whole}
    fields = Fields(schemas)
    for path in sorted((HERE.parents[1] / "examples" / "k8s").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            fields.take(ROOTS[document["kind"]].__name__, document)
    out = {
        "source": "kubeflow-trainer-api 2.3.0 (Apache-2.0), by make_k8s_fields.py",
        "kinds": {kind: root.__name__ for kind, root in ROOTS.items()},
        "types": {name: fields.types[name] for name in sorted(fields.types)},
    }
    (HERE / "k8s_fields.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
