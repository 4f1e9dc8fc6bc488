"""The engine gives the codes that numpy gives: every op, fused or not, at each level."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph import kernels
from qgraph.errors import GraphError, LoadError, UnsupportedError, UsageError
from qgraph.program import Program, run
from tests.helpers.forms import random_codes
from tests.helpers.generators.programs import programs
from tests.helpers.program_builder import ProgramBuilder, every_op

if kernels.native_engine() is None:
    pytest.skip("the native extension isn't built", allow_module_level=True)

from qgraph.backends.engine import Engine, levels

LEVELS = levels()


def differences(found, wanted):
    assert found.keys() == wanted.keys()
    return [name for name in wanted if not np.array_equal(found[name], wanted[name])]


def made_by(program: Program) -> list[str]:
    return [step.output for step in program.steps]


@settings(max_examples=60)
@given(
    programs(),
    st.integers(0, 1 << 30),
    st.sampled_from([1, 1, 2, 5]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from(LEVELS),
)
def test_every_tensor_is_what_numpy_makes(program, seed, samples, threads, level) -> None:
    codes = random_codes(program, seed, samples)
    every = run(program, codes, {*made_by(program), *program.exits})
    exits = {name: every[name] for name in program.exits}
    for fuse in (False, True):
        engine = Engine.of(program, threads, level, fuse)
        assert not differences(engine.run_codes(codes), exits)
        assert not differences(engine.run_codes(codes, every), every)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("threads", "fuse"), [(1, False), (2, True), (3, True)])
def test_every_op(level, threads, fuse) -> None:
    program = every_op()
    engine = Engine.of(program, threads, level, fuse)
    for samples in (1, 5, 2, 1):
        codes = random_codes(program, samples, samples)
        assert not differences(engine.run_codes(codes), run(program, codes))


def test_tensors_that_are_kept_are_not_fused_away() -> None:
    """Any tensors can be requested, alone, in any order, after other runs."""
    program = every_op()
    engine = Engine.of(program)
    codes = random_codes(program, samples=2)
    every = run(program, codes, made_by(program))
    for name in np.random.default_rng(0).permutation(made_by(program)):
        assert not differences(engine.run_codes(codes, [name]), {name: every[name]})


def test_a_program_of_one_shape() -> None:
    """A program that mixes samples has one shape, and constants may be as large as tensors."""
    builder = ProgramBuilder()
    x = builder.entry((3, 4))
    turned = builder.step("transpose", x, perm=(1, 0))
    most = builder.step("reduce_max", turned, axes=(0, 1), keepdims=False)
    both = builder.step("concat", x, builder.constant(np.arange(8).reshape(2, 4)), axis=0)
    program = builder.program(turned, most, both, batch_free=False)
    codes = {x: np.arange(-6, 6).reshape(3, 4)}
    assert not differences(Engine.of(program).run_codes(codes), run(program, codes))


def test_memory_is_shared_by_tensors_that_do_not_meet() -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 1024))
    for _ in range(20):
        x = builder.step("clip", x, low=-100, high=100)
    program = builder.program()
    assert Engine.of(program, fuse=False).memory() == 2 * 1024
    assert Engine.of(program, fuse=False).memory(4) == 8 * 1024
    with pytest.raises(LoadError, match="memory"):
        Engine.of(program, memory=1 << 12).run_codes({"t0": np.zeros((9, 1024), int)})


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("samples", [1, 2, 6, 7, 13])
def test_many_samples_go_through_slice_by_slice(samples, threads) -> None:
    """Large tensors are run a few samples at a time, with different samples on each thread."""
    builder = ProgramBuilder()
    x = builder.entry((1, 1 << 19))
    for _ in range(3):
        x = builder.step("clip", x, low=-100, high=100)
    term = builder.constant(np.arange(1 << 19) % 7)
    x = builder.step("add", x, term)
    program = builder.program()
    codes = random_codes(program, samples=samples)
    engine = Engine.of(program, threads, fuse=False)
    every = run(program, codes, made_by(program))
    assert not differences(engine.run_codes(codes), {x: every[x]})
    assert not differences(engine.run_codes(codes, every), every)
    assert not differences(engine.run_codes(codes, [term]), {term: program.constants[term]})
    assert engine.memory(64) <= threads * (4 << 20) < 64 * engine.memory()


def test_codes_that_do_not_fit_are_refused() -> None:
    program = every_op()
    engine = Engine.of(program)
    codes = random_codes(program, samples=2)
    image = codes["image"]
    for wrong in (image[:, :5], image.astype(float), image + 1000, image[:0], image[0]):
        with pytest.raises(GraphError, match="image"):
            engine.run_codes({**codes, "image": wrong})
    with pytest.raises(GraphError, match="image"):
        engine.run_codes({n: c for n, c in codes.items() if n != "image"})
    with pytest.raises(GraphError, match="no tensor of this name"):
        engine.run_codes(codes, ["image/of/nobody"])
    inner = replace(program.tensors["image"], high=100)
    narrow = replace(program, tensors={**program.tensors, "image": inner})
    with pytest.raises(GraphError, match=r"0\.\.100"):
        Engine.of(narrow).run_codes({**codes, "image": np.full_like(image, 101).astype(np.uint8)})


def test_what_the_engine_does_not_run_is_named() -> None:
    builder = ProgramBuilder()
    x, w = builder.entry((1, 3)), builder.entry((3, 2), name="weights")
    made = builder.step("matmul", x, w)
    with pytest.raises(UnsupportedError, match=f"{made}: .*constant weights"):
        Engine.of(builder.program(batch_free=False))
    deep = ProgramBuilder()
    deep.entry((1,) * 9, name="deep")
    with pytest.raises(UnsupportedError, match="deep"):
        Engine.of(deep.program("deep"))


@pytest.mark.parametrize(
    "options", [{"threads": 0}, {"threads": 1000}, {"level": "mmx"}], ids=lambda o: str(*o.values())
)
def test_invalid_options_are_refused(options) -> None:
    with pytest.raises(UsageError):
        Engine.of(every_op(), **options)
