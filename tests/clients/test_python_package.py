"""The Python package as it is published: what is in it, and that it works with the oldest and the newest libraries."""

import tarfile
import zipfile

import pytest

from certificates import needs_openssl
from clients.python_venvs import AGES, CLIENT, build, install, python_of, run
from clients.runner import REPOSITORY, running
from clients.table import cases, missing, run_case

pytestmark = pytest.mark.clients

# Each shape of call and of answer; the rest of the table does not depend on the libraries.
PART = (
    "a search finds what stands in a file",
    "every violation of a request is told",
    "an explicit zero is not a field that is unset",
    "integers of 64 bits keep every digit",
    "a field that the contract does not have is told",
    "emoji and characters beyond the basic plane come back as they are",
    "an append without a key gets one from the client, another each time",
    "a deadline that passed is told as such",
    "a sync is followed to its end",
    "a watch that is cancelled midway leaves the client usable",
    "a call without a token is refused over TCP",
    "a daemon that restarts between calls is found again",
    "an entry is stored once, recalled and forgotten",
    "discovery: the address comes from MEMORYD_ADDRESS",
)
VERSIONS = """
import google.protobuf, grpc, memoryd, memoryd.client, memoryd.messages
print(grpc.__version__, google.protobuf.__version__, memoryd.__file__)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module", params=AGES)
def python(request, built):
    """An interpreter that has the package from its wheel, beside libraries of this age."""
    interpreter = python_of(request.param)
    install(interpreter, built[0])
    return interpreter


def test_the_wheel_holds_stubs_types_protos_and_the_retry_policy(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
        policy = wheel.read("memoryd/service_config.json")
        (metadata,) = [wheel.read(name).decode() for name in names if name.endswith("/METADATA")]
        protos = {name: wheel.read(name) for name in names if name.endswith(".proto")}
    source = CLIENT / "src"
    ours = {
        str(file.relative_to(source))
        for file in source.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == ours
    assert {"memoryd/py.typed", "memoryd/v1/memory_service_pb2.pyi", "memoryd/v1/memory_service_pb2_grpc.py"} <= names
    assert policy == (REPOSITORY / "clients" / "service_config.json").read_bytes()
    assert protos == {
        f"memoryd/v1/{file.name}": file.read_bytes() for file in (REPOSITORY / "protos").rglob("v1/*.proto")
    }
    needed = {line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Requires-Dist")}
    assert needed == {"grpcio>=1.66.2", "protobuf>=5.27.2"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_source_distribution_is_whole(built, tmp_path):
    with tarfile.open(built[1]) as source:
        source.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    assert {"README.md", "LICENSE", "pyproject.toml", "examples", "src"} <= {each.name for each in folder.iterdir()}


@pytest.mark.parametrize("where", ["/", "an empty folder"])
def test_the_package_is_imported_from_any_folder(python, where, tmp_path):
    said = run(python, "-c", VERSIONS, cwd="/" if where == "/" else tmp_path)
    grpc, protobuf, place = said.split()
    versions = dict(line.split("==") for line in run(python, "-m", "pip", "freeze").splitlines() if "==" in line)
    assert (grpc, protobuf) == (versions["grpcio"], versions["protobuf"])
    assert not place.startswith(str(REPOSITORY / "clients")), "the installed package is meant"


@needs_openssl
@pytest.mark.timeout(300)
@pytest.mark.parametrize("variant", [(), ("--asyncio",)], ids=["blocking", "asyncio"])
def test_the_oldest_and_the_newest_libraries_do_what_the_table_says(python, variant, daemons, tmp_path_factory):
    wanted = [(case, over) for case, over in cases() if case["name"] in PART and not missing(case)]
    assert len({case["name"] for case, _ in wanted}) >= len(PART) - 1, "a case of this part was renamed"
    command = (str(python), str(CLIENT / "runner.py"), *variant)
    with running(command, tmp_path_factory) as runners:
        for case, over in wanted:
            run_case(case, over, runners, daemons, tmp_path_factory.mktemp("s"))
