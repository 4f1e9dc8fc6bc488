"""The C of a policy chooses the actions of the policy in Python, bit for bit."""

import ctypes
import re
import subprocess
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qgraph.backends.c.c_form import STRICT
from qgraph.errors import UsageError
from qgraph.ir.graph import Graph
from qgraph.rl.deploy import deploy
from qgraph.rl.deploy.example_process import FLAGS
from qgraph.rl.head import Head
from tests.helpers.c_programs import SANITIZED, needs_compiler
from tests.helpers.deployed import (
    FOUND,
    HEADS,
    SIZE,
    actions_in_c,
    assert_same_actions,
    library,
    network,
    observed,
    policy_of,
    with_head,
)

pytestmark = needs_compiler
FUSED = ("-std=gnu99", "-O3", "-march=native")  # multiply-add is fused by default


def extreme() -> np.ndarray:
    """Observations at the ends of float32, of codes, and near halves of steps."""
    ends = np.float32([0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, 1e30, 2.0**-15, 1.5, -2.5])
    halves = (np.arange(-40, 40) + 0.5).astype(np.float32) * np.float32(2.0**-12)
    values = np.concatenate([ends, halves, np.nextafter(halves, 1), np.nextafter(halves, -1)])
    return np.random.default_rng(3).choice(values, (100, SIZE)).astype(np.float32)


@pytest.mark.parametrize(
    ("head", "normalized"), [*((head, True) for head in HEADS), ("clip", False)]
)
def test_every_head(head, normalized, tmp_path):
    policy = with_head(head, normalized)
    made = deploy(policy, tmp_path / "c")
    seen = np.concatenate([observed(100, 1), extreme()])
    assert_same_actions(policy, made, seen)
    taken = np.stack([policy(one) for one in seen])
    assert len(np.unique(taken.reshape(len(seen), -1), axis=0)) > 2


@pytest.mark.parametrize("command", FOUND)
@pytest.mark.parametrize("flags", [("-O0",), FLAGS, FUSED, SANITIZED], ids=" ".join)
def test_every_compiler(command, flags, tmp_path):
    if flags == SANITIZED and command == "clang":
        pytest.skip("its sanitizers are a package of their own; gcc runs them")
    policy = with_head("squashed_gaussian")
    made = deploy(policy, tmp_path / "c")
    seen = np.concatenate([observed(200, 1), extreme()])
    assert_same_actions(policy, made, seen, flags=flags, command=command)


@pytest.mark.parametrize("command", FOUND)
def test_a_product_rounds_before_it_is_added(command, tmp_path):
    """The sum of large numbers cancels, so that a fused multiply-add gives another code."""
    graph = Graph("far")
    x = graph.input("seen", "float32", (None, 1))
    x = graph.add("mul", x, graph.const(np.float32([1.1])))
    x = graph.add("add", x, graph.const(np.float32([-1.1e6])))
    graph.outputs = {"out": graph.add("matmul", x, graph.const(np.float32([[1, -1]])))}
    seen = np.linspace(999_990, 1_000_010, 300, dtype=np.float32)[:, None]
    policy = policy_of(graph, Head("clip", (-99, -99), (99, 99)), seen)
    made = deploy(policy, tmp_path / "c")
    assert_same_actions(policy, made, seen, flags=FUSED, command=command)


@pytest.fixture(scope="module")
def walker(tmp_path_factory):
    policy = with_head("scale")
    return policy, deploy(policy, tmp_path_factory.mktemp("walker") / "c")


@settings(max_examples=40, deadline=None)
@given(arrays(np.float32, (6, SIZE), elements=st.floats(width=32)))
def test_any_observation_has_the_same_action_or_is_refused(walker, seen):
    policy, made = walker
    for one, action in zip(seen, actions_in_c(made, seen), strict=True):
        if np.isfinite(one).all():
            assert action.tobytes() == policy(one).tobytes()
        else:
            assert action is None
            with pytest.raises(UsageError):
                policy(one)


def test_a_refused_observation_leaves_the_action(walker):
    _, made = walker
    act = library(made, "").policy_act
    action = (ctypes.c_float * 4)(1, 2, 3, 4)
    seen = (ctypes.c_float * SIZE)(0, 0, float("nan"), 0, 0)
    assert act(seen, action) == 1 and list(action) == [1, 2, 3, 4]
    assert act((ctypes.c_float * SIZE)(), action) == 0 and list(action) != [1, 2, 3, 4]


def test_a_sum_that_overflows_saturates_as_in_python(tmp_path):
    """x * 1e30 is infinite for finite x; a difference of infinities is NaN and refused."""
    graph = Graph("wide")
    x = graph.input("seen", "float32", (None, 1))
    x = graph.add("mul", x, graph.const(np.float32([1e30])))
    x = graph.add("minimum", x, graph.const(np.float32(2)))
    x = graph.add("maximum", x, graph.const(np.float32(-2)))
    graph.outputs = {"out": graph.add("matmul", x, graph.const(np.float32([[1, -1]])))}
    policy = policy_of(graph, Head("clip", (-1, -1), (1, 1)), np.linspace(-1, 1, 99)[:, None])
    made = deploy(policy, tmp_path / "c")
    assert_same_actions(policy, made, np.float32([[3e38], [-3e38], [1e-30], [-1e-30], [0]]))


def test_images_of_bytes(tmp_path):
    graph, rng = Graph("watcher"), np.random.default_rng(0)
    x = graph.input("seen", "uint8", (None, 6, 6, 2))
    x = graph.add("cast", x, attrs={"dtype": "float32"})
    x = graph.add("div", x, graph.const(np.float32(255)))
    kernel = graph.const(rng.normal(size=(3, 3, 2, 4)).astype("f"))
    window = {"strides": (2, 2), "padding": "valid", "dilations": (1, 1)}
    x = graph.add("relu", graph.add("conv2d", x, kernel, attrs=window))
    x = graph.add("reshape", x, attrs={"shape": (-1, 16)})
    graph.outputs = {
        "out": graph.add("matmul", x, graph.const(rng.normal(size=(16, 3)).astype("f")))
    }
    seen = rng.integers(0, 256, (260, 6, 6, 2))
    policy = policy_of(graph, Head("argmax"), seen[:200].astype(np.uint8))
    made = deploy(policy, tmp_path / "c")
    assert (
        made.facts.observed == "uint8_t" and "6 x 6 x 2" in (made.folder / "policy.h").read_text()
    )
    assert_same_actions(policy, made, seen[200:])
    assert len({int(policy(one)) for one in seen[200:]}) > 1


def test_images_of_floats_with_a_bias_for_each_channel(tmp_path):
    graph, rng = Graph("watcher"), np.random.default_rng(0)
    x = graph.input("seen", "float32", (None, 4, 4, 3))
    x = graph.add("sub", x, graph.const(np.float32([0.3, 0.5, 0.1])))
    x = graph.add("mul", x, graph.const(np.float32([1.7, 2.3, 0.9])))
    kernel = graph.const(rng.normal(size=(4, 4, 3, 4)).astype("f"))
    window = {"strides": (1, 1), "padding": "valid", "dilations": (1, 1)}
    x = graph.add("conv2d", x, kernel, attrs=window)
    graph.outputs = {"out": graph.add("reshape", x, attrs={"shape": (-1, 4)})}
    seen = rng.random((260, 4, 4, 3)).astype(np.float32)
    policy = policy_of(graph, Head("clip", (-1.0,) * 4, (1.0,) * 4), seen[:200])
    assert_same_actions(policy, deploy(policy, tmp_path / "c"), seen[200:])


def test_a_dueling_head_sums_outputs_in_float(tmp_path):
    graph, rng = Graph("dueling"), np.random.default_rng(0)
    x = graph.input("seen", "float32", (None, SIZE))
    value, advantage = (
        graph.add("matmul", x, graph.const((rng.normal(size=(SIZE, n)) * by).astype("f")))
        for n, by in ((1, 30), (3, 0.01))
    )
    graph.outputs = {"out": graph.add("add", value, advantage, name="sum")}
    policy = policy_of(graph, None, observed())
    assert len(policy.program.exits) == 2
    assert_same_actions(policy, deploy(policy, tmp_path / "c"), observed(300, 1))


def test_the_memory_has_the_bytes_that_the_header_states(walker):
    _, made = walker
    inside = library(made, "int bytes(void);\nint bytes(void) { return sizeof(policy_memory); }")
    assert inside.bytes() == made.facts.memory
    header = (made.folder / "policy.h").read_text()
    assert re.search(rf"#define POLICY_MEMORY_BYTES {made.facts.memory}\n", header)


def test_two_policies_are_linked_into_one_program(walker, tmp_path):
    _, made = walker
    other = deploy(with_head("argmax"), tmp_path / "other", name="pilot")
    files = [made.folder / f"{name}.c" for name in ("policy", "policy_network")]
    files += [other.folder / f"{name}.c" for name in ("pilot", "pilot_network", "pilot_example")]
    command = [FOUND[0], "-std=c99", *files, "-I", made.folder, "-o", tmp_path / "both"]
    subprocess.run(command, check=True)


def block(page: str, title: str) -> str:
    """The indented lines below a title."""
    part = page[page.index(title) :].split("\n## ")[0]
    return textwrap.dedent("\n".join(x for x in part.split("\n") if not x or x[0] == " ")).strip()


def test_the_commands_and_the_firmware_of_the_readme_work(walker):
    policy, made = walker
    page = (made.folder / "README.md").read_text()
    script = block(page, "## Try it").replace("cc ", f"{FOUND[0]} ", 1)
    done = subprocess.run(script, shell=True, cwd=made.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = np.asarray(done.stdout.split(), np.float32)
    np.testing.assert_array_equal(found, policy(np.zeros(SIZE)))
    (made.folder / "policy_example").unlink()
    firmware = made.folder.parent / "firmware.c"
    declared = "void read_sensors(float *seen);\nvoid drive(const float *action);\n"
    declared += "void control_step(void);\n"
    firmware.write_text(declared + block(page, "## In firmware"))
    words = [FOUND[0], *STRICT, "-c", "-I", made.folder, firmware, "-o", f"{firmware}.o"]
    subprocess.run(words, check=True)
    bare = ["-DPOLICY_NO_STATIC_MEMORY", "-DPOLICY_NETWORK_NO_STATIC_ARENA"]
    for name in ("policy", "policy_network"):
        source = made.folder / f"{name}.c"
        words = [FOUND[0], *STRICT, *bare, "-c", source, "-o", f"{firmware}.{name}.o"]
        subprocess.run(words, check=True)


@pytest.mark.parametrize(
    ("text", "told"), [("1 2 3", "has 5 numbers"), ("1 2 x 4 5", "has 5 numbers"), ("", "")]
)
def test_the_example_reports_text_that_is_no_observation(walker, text, told):
    _, made = walker
    actions_in_c(made, observed(1))
    (program,) = made.folder.parent.glob("c-None-O2*")
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=False)
    assert told in done.stderr and done.returncode == (1 if told else 0)


def test_names_of_nodes_cannot_end_comments_or_hide_functions(tmp_path):
    graph = network()
    graph.name = "*/ #error \\"
    policy = policy_of(graph, HEADS["clip"], observed())
    assert_same_actions(policy, deploy(policy, tmp_path / "c"), observed(20, 1))
