"""examples/k8s: the manifests fit the schemas of Kubernetes, JobSet and Kubeflow Trainer, and what remuster does there.

The schemas are k8s_fields.json (made by make_k8s_fields.py from the projects' published models). What they do not say
of podFailurePolicy, the API server's own rules, is checked beside them. Nothing here has been run on a cluster.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launcher_lines import Command
from plain_yaml import PlainYamlError, documents

from remuster.launcher import pods

FOLDER = Path(__file__).parents[2] / "examples" / "k8s"
SCHEMAS = json.loads((Path(__file__).parent / "k8s_fields.json").read_text())
FILES = {path.name: documents(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))}
MANIFESTS = {f"{name}:{one['kind']}": one for name, found in FILES.items() for one in found}
SHUTDOWN_S = 15  # after the last rank is dead: a slow store, records on a network disk

IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "quantity": lambda value: (
        type(value) is int or (isinstance(value, str) and re.fullmatch(r"[0-9.]+([KMGTPE]i?|[mk])?", value) is not None)
    ),
    "either": lambda value: type(value) in (int, str),
    "any": lambda value: True,
}


def faults(type_name: str, value: Any, at: str = "") -> Iterator[str]:
    """Yield what of ``value`` is not of the type."""
    if type_name in IS:
        if not IS[type_name](value):
            yield f"{at} is {value!r}, no {type_name}"
    elif type_name[0] in "[{":
        if not isinstance(value, list if type_name[0] == "[" else dict):
            yield f"{at} is no {type_name}"
            return
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from faults(type_name[1:-1], inner, f"{at}[{key}]")
    elif not isinstance(value, dict):
        yield f"{at} is no {type_name}"
    else:
        schema = SCHEMAS["types"].get(type_name) or pytest.fail(f"{at}: {type_name}: run make_k8s_fields.py")
        yield from (f"{at}.{name} is missing" for name in schema["required"] if name not in value)
        for key, inner in value.items():
            words = schema.get("words", {}).get(key)
            if key not in schema["fields"]:
                yield f"{at}.{key} is unknown"
            elif words and inner not in words:
                yield f"{at}.{key} is {inner!r}, none of {words}"
            else:
                yield from faults(schema["fields"][key], inner, f"{at}.{key}")


def all_faults(manifest: dict[str, Any]) -> list[str]:
    return list(faults(SCHEMAS["kinds"][manifest["kind"]], manifest))


class Pods:
    """The pods of one manifest, and the Job that makes them; ``jobset`` is what stands above, if something does."""

    def __init__(self, name: str) -> None:
        self.jobset: dict[str, Any] | None = None
        self.trainer: dict[str, Any] = {}
        job = next(one for one in FILES[name] if one["kind"] not in ("Service", "PersistentVolumeClaim"))
        if job["kind"] == "ClusterTrainingRuntime":
            self.trainer = next(one for one in FILES[name] if one["kind"] == "TrainJob")["spec"]["trainer"]
            job = job["spec"]["template"]
        if "replicatedJobs" in job["spec"]:
            self.jobset = job["spec"]
            (replicated,) = job["spec"]["replicatedJobs"]
            assert replicated.get("replicas", 1) == 1, "JOB_COMPLETION_INDEX would not number the nodes"
            job = replicated["template"]
        self.job = job["spec"]
        self.pod = self.job["template"]["spec"]
        (self.container,) = self.pod["containers"]
        self.rules = self.job["podFailurePolicy"]["rules"]

    def command(self) -> list[str]:
        source = self.trainer or self.container
        return [*source["command"], *source.get("args", ())]

    def environ(self, labels: dict[str, str]) -> dict[str, str]:
        """Return what Kubernetes, and Trainer's torch policy, make of ``env``."""
        made: dict[str, str] = {"JOB_COMPLETION_INDEX": "1"}
        for one in (self.trainer or self.container).get("env", ()):
            field = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            text = labels[field[len("metadata.labels['") : -2]] if field else one["value"]
            made[one["name"]] = re.sub(r"\$\((\w+)\)", lambda name: made[name[1]], text)
        if self.trainer:
            made |= {"PET_NNODES": str(self.trainer["numNodes"]), "PET_NODE_RANK": "1", "PET_MASTER_PORT": "29500"}
            made |= {
                "PET_NPROC_PER_NODE": str(self.trainer["numProcPerNode"]),
                "PET_MASTER_ADDR": "train-node-0-0.train",
            }
        return made

    def gpus(self) -> int:
        resources = self.trainer["resourcesPerNode"] if self.trainer else self.container["resources"]
        return resources["limits"]["nvidia.com/gpu"]


LABELS = {
    "batch.kubernetes.io/controller-uid": "0d9f4c1e-5f0b-4a43-9c6e-0a7d3f3f7f01",
    "jobset.sigs.k8s.io/jobset-uid": "0d9f4c1e-5f0b-4a43-9c6e-0a7d3f3f7f02",
    "jobset.sigs.k8s.io/restart-attempt": "2",
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_fits_its_schema(name: str) -> None:
    assert not all_faults(MANIFESTS[name])


@pytest.mark.parametrize(
    ("name", "path", "value", "says"),
    [
        ("indexed-job.yaml:Job", "spec.backofflimit", 1, ".spec.backofflimit is unknown"),
        ("indexed-job.yaml:Job", "spec.backoffLimit", "40", "is '40', no integer"),
        ("indexed-job.yaml:Job", "spec.completionMode", "indexed", "is 'indexed', none of"),
        ("indexed-job.yaml:Job", "spec.template", None, ".spec.template is missing"),
        ("indexed-job.yaml:Job", "spec.template.spec.containers", {}, "is no ["),
        ("indexed-job.yaml:Job", "spec.podFailurePolicy.rules", [{"action": "Retry"}], "is 'Retry', none of"),
        ("jobset.yaml:JobSet", "spec.failurePolicy.rules", [{"name": "x"}], ".action is missing"),
        ("jobset.yaml:JobSet", "spec.failurePolicy.rules", [{"name": "x", "action": "Restart"}], "'Restart', none of"),
        ("trainjob.yaml:TrainJob", "spec.trainer.numProcPerNode", "auto", "no integer"),
        ("trainjob.yaml:TrainJob", "spec.runtimeRef", None, ".spec.runtimeRef is missing"),
    ],
)
def test_what_does_not_fit_is_found(name: str, path: str, value: Any, says: str) -> None:
    broken = copy.deepcopy(MANIFESTS[name])
    *way, last = path.split(".")
    place = broken
    for key in way:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    assert any(says in fault for fault in all_faults(broken)), all_faults(broken)


JOBS = ("indexed-job.yaml", "jobset.yaml", "trainjob.yaml")


@pytest.mark.parametrize("name", JOBS)
def test_the_api_servers_own_rules(name: str) -> None:
    """Of podFailurePolicy (kubernetes.io, Jobs), and that what is named is there."""
    made = Pods(name)
    assert made.pod["restartPolicy"] == "Never"
    for rule in made.rules:
        assert ("onExitCodes" in rule) != ("onPodConditions" in rule)
        if "onExitCodes" in rule:
            codes = rule["onExitCodes"]
            assert codes["containerName"] == made.container["name"]
            assert codes["values"] == sorted({*codes["values"]})
            assert 0 not in codes["values"]
    assert {mount["name"] for mount in made.container["volumeMounts"]} == {one["name"] for one in made.pod["volumes"]}
    (claim,) = (one["persistentVolumeClaim"] for one in made.pod["volumes"] if "persistentVolumeClaim" in one)
    claims = [one for found in FILES.values() for one in found if one["kind"] == "PersistentVolumeClaim"]
    assert claim["claimName"] in [one["metadata"]["name"] for one in claims]
    assert not {"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} & {*made.container}


def after(made: Pods, code: int) -> str:
    """Return what becomes of a pod that has ended with ``code``: replaced, again (the whole job), or final."""
    by_code = [(at, rule["action"], rule["onExitCodes"]) for at, rule in enumerate(made.rules) if "onExitCodes" in rule]
    at, action = next((at, do) for at, do, on in by_code if (code in on["values"]) == (on["operator"] == "In"))
    if action != "FailJob":
        return "replaced"
    if made.jobset is None:
        return "final"
    said = f"Container c for pod default/train-1-x failed with exit code {code} matching FailJob rule at index {at}"
    for rule in made.jobset["failurePolicy"]["rules"]:
        patterns = rule.get("onJobFailureMessagePatterns", [""])
        if "PodFailurePolicy" in rule["onJobFailureReasons"] and any(re.search(one, said) for one in patterns):
            return {"RestartJobSet": "again", "FailJobSet": "final"}[rule["action"]]
    return "again"


@pytest.mark.parametrize("name", JOBS)
def test_what_an_exit_code_leads_to(name: str) -> None:
    made = Pods(name)
    requeue = "replaced" if made.jobset is None else "again"  # alone or as a whole: all of its pods end so
    contract = {69: requeue, 75: requeue, 137: "replaced", 143: "replaced"}
    for code in range(1, 256):
        assert after(made, code) == contract.get(code, "final"), code
    first = made.rules[0]
    assert (first["action"], first["onPodConditions"]) == ("Ignore", [{"type": "DisruptionTarget", "status": "True"}])


@pytest.mark.parametrize("name", JOBS)
def test_the_command_line_fits_its_pods(command: Command, name: str, tmp_path: Path) -> None:
    made = Pods(name)
    disk = str(tmp_path / "disk")
    program, *line = (word.replace("/checkpoints", disk) for word in made.command())
    assert (program, line[-1]) == ("remuster", "train.py")
    command.file("train.py")
    environ = made.environ(LABELS)
    if name == "indexed-job.yaml":
        environ["REMUSTER_ENDPOINT"] = "e"  # the test's machine has no pod's name: see the drill
    spec = command.spec(" ".join(line), **environ)
    assert spec.max_nodes == made.job.get("parallelism", made.trainer.get("numNodes")) == 4
    assert spec.nproc == made.gpus()
    assert spec.run_id in LABELS.values()
    assert not spec.new_run
    assert spec.grace_s + spec.kill_bound_s + SHUTDOWN_S <= made.pod["terminationGracePeriodSeconds"]
    assert {str(spec.checkpoint_dir), str(spec.log_dir)} == {f"{disk}/train", f"{disk}/logs"}
    assert "/checkpoints" in [mount["mountPath"] for mount in made.container["volumeMounts"]]
    if name == "jobset.yaml":
        assert (spec.endpoints, spec.launch_id) == ((("etcd.etcd.svc", 2379),), "2")
    if name == "trainjob.yaml":
        assert (spec.place, spec.master) == (1, ("train-node-0-0.train", 29500))
        assert spec.embedded is not None


def test_the_pods_of_the_indexed_job_find_pod_0() -> None:
    service, _, job = FILES["indexed-job.yaml"]
    name, pod = job["metadata"]["name"], job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert job["spec"]["completionMode"] == "Indexed"
    assert pods.head("3", f"{name}-3", f"{name}-3.{pod['subdomain']}.ns.svc.cluster.local") == (
        f"{name}-0.{service['metadata']['name']}.ns.svc.cluster.local"
    )


@pytest.mark.parametrize(
    "text",
    ["a: yes", "a: 1.0", "a: 010", "a: 12:30", "a: ~", "a: null", "a: 'b'", "a: &b c", "a: {b: c}", "a: |",
     "a:\n\tb: c", "a: b: c", "a: b\na: c", "a:", "- a\nb: c", "a: b\n  c: d", "a: [b", 'a: "b',
     "a: 0x10", "a: 1e3", "a: @b", "b"],
)  # fmt: skip
def test_what_yaml_reads_in_more_ways_is_refused(text: str) -> None:
    with pytest.raises(PlainYamlError):
        documents(text)


def test_plain_yaml() -> None:
    text = '# c\na: 1  # one\nb:\n  - c: "d # e"\n    f: [g, "h", 2]\n  - true\n---\n- - \n'
    with pytest.raises(PlainYamlError):
        documents(text)
    assert documents(text.rpartition("---")[0]) == [{"a": 1, "b": [{"c": "d # e", "f": ["g", "h", 2]}, True]}]
    assert documents("a: {}\n---\nb: c/d.e-f_g\n") == [{"a": {}}, {"b": "c/d.e-f_g"}]
