"""The workflows publish only after all builds and tests, with the least permissions, and name no package registry."""

import re
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[3]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
TAGS_ONLY = "github.event_name == 'push'"
BEFORE_PUBLISHING = {"version", "test", "build", "image"}

# What each job may do beyond reading the repository. All other jobs may only read.
WRITES = {
    "pypi-client": {"id-token"},
    "pypi": {"id-token"},
    "npm": {"id-token"},
    "crate": {"id-token"},
    "maven": set(),
    "registry": {"packages", "id-token", "attestations"},
    "release": {"contents", "id-token", "attestations"},
}

ADDRESS = re.compile(r"[a-z][a-z0-9+]*://|\b(?:[a-z0-9-]+\.)+(?:io|org|com|net|dev|sh)\b", re.IGNORECASE)


def load(path):
    """A workflow, with all values as texts: YAML 1.1 reads the key `on` as a boolean."""
    return yaml.load(path.read_text("utf-8"), Loader=yaml.BaseLoader)  # makes only texts, lists and mappings


def jobs():
    return [(path.name, name, job) for path in WORKFLOWS for name, job in load(path)["jobs"].items()]


def steps():
    return [(f"{file}: {name}", step) for file, name, job in jobs() for step in job.get("steps", [])]


@pytest.fixture
def release():
    return load(REPOSITORY / ".github" / "workflows" / "release.yml")


def publishing(release):
    return {name: job for name, job in release["jobs"].items() if "environment" in job}


def test_no_workflow_names_an_address():
    assert ADDRESS.search("registry.example.org/memoryd") or ADDRESS.search("docker://memoryd")
    found = {path.name: ADDRESS.findall(path.read_text("utf-8")) for path in WORKFLOWS}
    # skopeo's way to name an image in a registry, whose host is a variable.
    assert found.pop("release.yml") == ["docker://", "docker://"]
    assert not any(found.values())


def test_every_action_is_pinned_by_a_commit():
    lines = [line.strip(" -") for path in WORKFLOWS for line in path.read_text("utf-8").splitlines()]
    used = [line for line in lines if line.startswith("uses:")]
    assert len(used) > 20
    for line in used:
        assert re.fullmatch(r"uses: (\./\S+|[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)", line), line


def test_an_action_has_the_same_version_everywhere():
    used = {tuple(step["uses"].split("@")) for _, step in steps() if "@" in step.get("uses", "")}
    assert len({action for action, _ in used}) == len(used)


def test_a_workflow_gives_no_permission_and_each_job_only_what_it_needs():
    assert {path.name: load(path)["permissions"] for path in WORKFLOWS} == {"ci.yml": {}, "release.yml": {}}
    for file, name, job in jobs():
        writes = {scope for scope, access in job["permissions"].items() if access == "write"}
        assert writes == WRITES.get(name, set()), f"{file}: {name}"
        assert set(job["permissions"].values()) <= {"read", "write"}, f"{file}: {name}"


def test_the_release_is_started_by_a_tag_and_a_dry_run_by_hand(release):
    assert release["on"] == {"push": {"tags": ["v*"]}, "workflow_dispatch": ""}
    assert release["concurrency"]["cancel-in-progress"] == "false"


def test_publishing_needs_all_builds_and_tests_and_a_tag(release):
    found = publishing(release)
    assert set(found) == set(WRITES)
    for name, job in found.items():
        assert set(job["needs"]) >= BEFORE_PUBLISHING, name
        assert job["if"] == TAGS_ONLY, name


def test_a_dry_run_builds_and_tests_everything(release):
    conditions = {name: job.get("if") for name, job in release["jobs"].items() if name not in WRITES}
    assert conditions == dict.fromkeys(BEFORE_PUBLISHING)


def test_the_release_on_github_comes_last(release):
    assert set(release["jobs"]["release"]["needs"]) == BEFORE_PUBLISHING | set(WRITES) - {"release"}


def test_memoryd_is_published_after_its_client(release):
    assert "pypi-client" in release["jobs"]["pypi"]["needs"]


def test_each_project_has_its_own_environment(release):
    found = [job["environment"] for job in publishing(release).values()]
    assert len(set(found)) == len(found)


def test_the_tag_is_compared_with_the_files_before_anything_else(release):
    scripts = [step["run"] for step in release["jobs"]["version"]["steps"] if step.get("if") == TAGS_ONLY]
    assert any("release.versions --tag" in script for script in scripts)
    assert {name: job.get("needs") for name, job in release["jobs"].items() if name in BEFORE_PUBLISHING} == {
        "version": None,
        "test": "version",
        "build": "version",
        "image": "version",
    }


def test_the_tests_of_the_release_are_those_of_ci(release):
    assert release["jobs"]["test"]["uses"] == "./.github/workflows/ci.yml"
    ci = load(REPOSITORY / ".github" / "workflows" / "ci.yml")
    assert "workflow_call" in ci["on"]
    linux = " ".join(step.get("run", "") for step in ci["jobs"]["linux"]["steps"])
    macos = " ".join(step.get("run", "") for step in ci["jobs"]["macos"]["steps"])
    assert [target for target in ("setup", "lint", "test", "clients") if f"make {target}" not in linux] == []
    assert [target for target in ("setup", "test") if f"make {target}" not in macos] == []


def test_secrets_are_only_used_in_an_environment():
    for file, name, job in jobs():
        assert "environment" in job or "secrets." not in str(job), f"{file}: {name}"


def test_code_of_pull_requests_never_runs_with_permissions():
    for path in WORKFLOWS:
        assert "pull_request_target" not in load(path)["on"], path.name


def test_scripts_contain_no_expressions():
    """An expression is replaced before the shell parses the script, so that its value could be code."""
    assert [where for where, step in steps() if "${{" in step.get("run", "")] == []


def test_no_checkout_leaves_the_token_in_the_repository():
    found = [step for _, step in steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert len(found) > 3
    assert all(step["with"]["persist-credentials"] == "false" for step in found)


def test_every_job_has_a_time_limit_and_a_fixed_system():
    for file, name, job in jobs():
        if "uses" not in job:
            assert int(job["timeout-minutes"]) <= 90, f"{file}: {name}"
            assert re.fullmatch(r"(ubuntu|macos)-[\d.]+", job["runs-on"]), f"{file}: {name}"


def test_the_make_targets_exist():
    files = [REPOSITORY / "Makefile", *REPOSITORY.glob("clients/*/client.mk"), *REPOSITORY.glob("service/*/*.mk")]
    targets = {name for file in files for name in re.findall(r"^([a-z-]+):", file.read_text("utf-8"), re.MULTILINE)}
    calls = [call for _, step in steps() for call in re.findall(r"^\s*make (.+)$", step.get("run", ""), re.MULTILINE)]
    used = {target for call in calls for target in call.split()}
    assert {"setup", "dist", "sbom"} <= used
    assert used - targets - {"clients/rust/Cargo.lock"} == set()


def test_the_image_is_built_for_both_processors_with_provenance_and_sbom(release):
    (build,) = [step for step in release["jobs"]["image"]["steps"] if "build-push-action" in step.get("uses", "")]
    options = build["with"]
    assert options["platforms"] == "linux/amd64,linux/arm64"
    assert (options["provenance"], options["sbom"]) == ("mode=max", "true")
    assert "push" not in options
    assert (REPOSITORY / options["file"]).exists()
