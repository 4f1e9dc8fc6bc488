"""Distillation: what is learnt, from whom, and into which network."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import CalibrationError, TrainingError, UnsupportedError, UsageError
from qgraph.rl.actor import ActorProgram
from qgraph.rl.compress import ChainPolicy, Compressor, losses
from qgraph.rl.compress.action_distributions import entropy, outputs_of, soft
from qgraph.rl.compress.distill import StudentPlace
from qgraph.rl.compress.distiller import Distiller
from qgraph.rl.compress.students import NETWORKS, StudentNetwork, initial, program_of
from qgraph.rl.head import Head
from qgraph.rl.learn.networks import actor_critic, network
from qgraph.rl.policy import floats
from qgraph.rl.policy.shift import divergences
from tests.helpers.actors import cnn, every_op, mlp, random_weights

ENDS = {"low": (-1.0, 0.0), "high": (1.0, 4.0)}
HEADS = {
    "argmax": Head("argmax"),
    "categorical": Head("categorical"),
    "clip": Head("clip", **ENDS),
    "scale": Head("scale", **ENDS),
    "gaussian": Head("gaussian", **ENDS, log_std=(-0.5, 0.3)),
    "squashed_gaussian": Head("squashed_gaussian", **ENDS),
}


def seen(n=512, size=5, seed=1):
    return np.random.default_rng(seed).normal(size=(n, size)).astype("f4")


def teacher(head=HEADS["categorical"], outputs=4):
    program = mlp(5, 32, 32, outputs, activation="tanh")
    weights = random_weights(program)
    return ChainPolicy(program, {**weights, "w2": 3 * weights["w2"]}, head)


def apart(a, b, x):
    """Mean KL of the actions, of b from a."""
    return float(divergences(soft(a.head), a.actor()(x), b.actor()(x)).mean())


@settings(max_examples=20)
@given(st.sampled_from(sorted(HEADS)), st.integers(0, 999))
def test_the_loss_has_the_divergence_and_entropy_of_numpy(kind, seed):
    rng, head = np.random.default_rng(seed), soft(HEADS[kind])
    p, q = rng.normal(size=(2, 6, 4 if kind == "squashed_gaussian" else 2)).astype("f4")
    tensors = tf.constant(p), tf.constant(q)
    found = losses.divergence(head, *tensors).numpy()
    assert found == pytest.approx(divergences(head, p, q), rel=1e-4, abs=1e-5)
    assert losses.entropy(head, tensors[0]).numpy() == pytest.approx(entropy(head, p), rel=1e-4)


def test_entropy_is_that_of_the_distribution():
    assert entropy(Head("categorical"), np.zeros((1, 8)))[0] == pytest.approx(np.log(8))
    draws = np.random.default_rng(0).normal(0, 0.7, 100_000)
    wanted = -np.log(np.exp(-(draws**2) / 0.98) / (0.7 * np.sqrt(2 * np.pi))).mean()
    head = Head("gaussian", (0.0,), (1.0,), (float(np.log(0.7)),))
    assert entropy(head, np.zeros((1, 1)))[0] == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize("kind", ["categorical", "argmax", "scale", "squashed_gaussian"])
def test_a_student_comes_to_act_as_its_teacher(kind):
    whole = teacher(HEADS[kind], 4 if kind == "squashed_gaussian" else 2)
    x = seen()
    chain = Compressor().distill("16", steps=300, rate=3e-3)
    untrained = ChainPolicy(*begun(whole), whole.head)
    small = chain(whole, x)
    assert small.weights["hidden_0/kernel"].shape == (5, 16)
    assert small.program.outputs == whole.program.outputs
    fresh = seen(seed=2)
    left = 0.5 if kind == "squashed_gaussian" else 0.2  # its deviations are learnt late
    assert apart(whole, small, fresh) < left * apart(whole, untrained, fresh)


def begun(whole):
    program = program_of(StudentNetwork.parse("16"), whole.program)
    return program, initial(program, whole, 0)


def test_a_student_continues_where_it_was():
    whole, x, memory = teacher(), seen(), {}
    chain = Compressor().distill("16", steps=60)
    found = [apart(whole, chain(whole, x, memory), x) for _ in range(3)]
    assert found[2] < found[1] < found[0]
    assert apart(whole, chain(whole, x), x) == pytest.approx(found[0], rel=1e-3)


def test_a_continued_run_takes_the_following_steps():
    whole, x, memory, other = teacher(), seen(), {}, {}
    first = Compressor().distill("16", steps=30, follow=2)
    first(whole, x, memory)
    powers = memory[str(first)][StudentPlace.STUDENT].adam.state["powers"]
    assert powers.numpy() == pytest.approx([0.9**31, 0.999**31])
    first(whole, x, memory)
    assert powers.numpy() == pytest.approx([0.9**33, 0.999**33])
    again = Compressor().distill(steps=30, follow=2)  # the input begins again each time
    for _ in range(2):
        again(whole, x, other)
        powers = other[str(again)][StudentPlace.OTHER].adam.state["powers"]
        assert powers.numpy() == pytest.approx([0.9**31, 0.999**31])


def test_of_values_of_actions_the_differences_are_learnt():
    whole = teacher(HEADS["argmax"])
    shifted = ChainPolicy(
        whole.program, {**whole.weights, "b2": whole.weights["b2"] + 50}, whole.head
    )
    chain, x = Compressor().distill("16", steps=100), seen()
    found, wanted = (chain(policy, x).actor()(x) for policy in (shifted, whole))
    assert found == pytest.approx(wanted, rel=1e-3, abs=1e-3)


def test_an_output_of_one_number_is_the_value_and_is_learnt_too():
    program = network((5,), (16,), 3, dueling=True)
    program = ActorProgram(
        program.shape, program.steps, ("advantage", "value"), program.weight_shapes
    )
    whole = ChainPolicy(program, random_weights(program), Head("categorical"))
    small = Compressor().distill("32", steps=500, rate=3e-3, value=1.0)(whole, seen())
    assert small.program.outputs == ("advantage", "value")
    x = seen(seed=2)
    found, wanted = small.actor().run(x)["value"], whole.actor().run(x)["value"]
    assert ((found - wanted) ** 2).mean() < 0.1 * wanted.var()
    assert outputs_of(whole.actor().run(x)).values.shape == (512,)


def test_what_is_not_finite_is_not_learnt():
    whole, x, memory = teacher(), seen(), {}
    chain = Compressor().distill("16", steps=30)
    first = chain(whole, x, memory)
    good = first.weights
    far = np.full_like(whole.weights["w2"], 3e38)
    wild = ChainPolicy(whole.program, {**whole.weights, "w2": far}, whole.head)
    with pytest.raises(TrainingError, match="the original policy has outputs that are not finite"):
        chain(wild, x, memory)
    left = memory["distill(16, steps=30)"][StudentPlace.STUDENT].weights()
    assert all(np.array_equal(left[name], good[name]) for name in good)
    assert apart(whole, chain(whole, x, memory), x) < apart(whole, first, x)


def test_a_student_that_came_to_nothing_is_as_it_was():
    whole, x, memory = teacher(), seen(), {}
    chain = Compressor().distill("16", steps=30, rate=1e30)
    with pytest.raises(TrainingError, match="the student's loss is"):
        chain(whole, x, memory)
    left = memory[str(chain)][StudentPlace.STUDENT].weights()
    assert all(np.array_equal(left[name], w) for name, w in begun(whole)[1].items())


def test_weights_that_a_last_step_makes_nan_are_not_kept():
    """The loss was computed before the step, and is finite."""
    whole, x, memory = teacher(), seen(), {}
    chain = Compressor().distill("16", steps=1)
    good = chain(whole, x, memory).weights
    student = memory[str(chain)][StudentPlace.STUDENT]
    descend = student._compiled

    def wild(*batch):
        loss = descend(*batch)
        for variable in student.policy.values():
            variable.assign(variable * np.nan)
        return loss

    student._compiled = wild
    with pytest.raises(TrainingError, match="its weights are not finite"):
        chain(whole, x, memory)
    left = student.weights()
    assert all(np.array_equal(left[name], w) for name, w in good.items())
    student._compiled = descend
    chain(whole, x, memory)


def test_a_pruned_policy_recovers():
    whole, x = teacher(), seen()
    pruned = Compressor().prune(0.5)(whole)
    recovered = Compressor().prune(0.5).distill(steps=300, rate=3e-3)(whole, x)
    assert recovered.program == pruned.program
    fresh = seen(seed=2)
    assert apart(whole, recovered, fresh) < 0.3 * apart(whole, pruned, fresh)


def test_normalisation_is_the_teachers_and_is_not_learnt():
    whole = ChainPolicy(every := normalised(), random_weights(every), Head("categorical"))
    small = Compressor().distill("8", steps=5)(whole, seen(64, 21))
    assert [step.op for step in small.program.steps] == ["affine", "clip", "dense", "dense"]
    for name in ("scale", "offset", "low", "high"):
        assert (small.weights[name] == whole.weights[name]).all()


def normalised():
    program = every_op()
    return ActorProgram(program.shape, program.steps, ("q",), program.weight_shapes)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_table_6(name):
    program = network((84, 84, 4), (64,), 6)
    made = program_of(StudentNetwork.parse(name), program)
    table = {  # channels (kernel) of convolutions, units
        "original": ([(32, 8), (64, 4), (64, 3)], 2048),
        "net1": ([(16, 8), (32, 4)], 256),
        "net2": ([(8, 8), (16, 4)], 128),
        "net3": ([(4, 8), (4, 4)], 32),
    }[name]
    kernels = [made.weight_shapes[s.weights[0]] for s in made.steps if s.op in ("conv", "dense")]
    assert [(shape[-1], shape[0]) for shape in kernels[:-2]] == table[0]
    assert [shape[-1] for shape in kernels[-2:]] == [table[1], 6]
    assert made.steps[0].op == "affine" and made.shapes()["output"] == (6,)


def test_layers_of_a_student_for_small_images():
    made = program_of(StudentNetwork.parse("8x3x1-4x2x2-64"), network((10, 10, 4), (128,), 3))
    shapes = made.shapes()
    assert shapes["conv_0"] == (8, 8, 8) and shapes["conv_1"] == (4, 4, 4)
    assert shapes["hidden_0"] == (64,) and shapes["output"] == (3,)


@pytest.mark.parametrize(
    "name", ["net9", "64-8x3x1-64", "8x3-64", "8x3x1", "0-64", "64-", "8x3x0-64", "64x", "9999999"]
)
def test_invalid_students(name):
    with pytest.raises(UsageError, match=f"unknown network `{name}`"):
        Compressor().distill(name)


def test_students_that_do_not_fit():
    whole = teacher()
    with pytest.raises(UnsupportedError, match=r"`distill\(net3\)`: the student is for images"):
        Compressor().distill("net3")(whole, seen())
    with pytest.raises(UnsupportedError, match="the student is for rows"):
        program_of(StudentNetwork.parse("8-8"), network((84, 84, 4), (8,), 2))
    with pytest.raises(UnsupportedError, match="are too small for the student"):
        program_of(StudentNetwork.parse("net3"), cnn(11))
    with pytest.raises(UnsupportedError, match="the student has outputs"):
        Compressor().distill(mlp(5, 8, 3))(whole, seen())
    with pytest.raises(UnsupportedError, match="the student takes observations"):
        Compressor().distill(mlp(6, 8, 4))(whole, seen())
    with pytest.raises(CalibrationError, match="needs observations"):
        Compressor().distill("8")(whole)
    with pytest.raises(CalibrationError, match="observations are"):
        Compressor().distill("8")(whole, seen(9, 4))


@pytest.mark.parametrize(
    ("name", "value"),
    [("rate", 0), ("rate", np.nan), ("rate", np.inf), ("temperature", -1.0), ("entropy", np.nan),
     ("entropy", -0.1), ("value", np.inf), ("seed", -1)],
)  # fmt: skip
def test_settings_that_make_no_sense(name, value):
    with pytest.raises(UsageError, match=f"{name} of a distillation is {value}"):
        Compressor().distill("8", **{name: value})
    with pytest.raises(UsageError, match="at least 1"):
        Compressor().distill("8", follow=0)


def test_a_student_of_ones_own():
    student = network((5,), (7,), 3)
    program = network((5,), (32, 32), 3)
    whole = ChainPolicy(program, random_weights(program), Head("categorical"))
    small = Compressor().distill(student, steps=5)(whole, seen())
    assert small.program is student


def judged(scale=40.0, level=200.0, head=HEADS["categorical"]):
    """A policy together with values far from 0."""
    policy, whole = actor_critic((5,), (32, 32), 4, 1)
    weights = random_weights(whole)
    weights["value/kernel"] = scale * weights["value/kernel"]
    weights["value/bias"] = np.full(1, level, "f4")
    return ChainPolicy(whole, weights, head, critic="value"), policy


def values_of(policy, x):
    return floats.run(policy.program, policy.weights, x)["value"]


def test_values_are_learnt_whatever_their_size():
    """Actions are learned too, because large values do not dominate the loss."""
    whole, _ = judged()
    alone, x, fresh = judged(0.0, 0.0)[0], seen(), seen(seed=2)
    chain = Compressor().distill("32", steps=500, rate=3e-3, value=1.0)
    small, deaf = chain(whole, x), chain(alone, x)
    wanted = values_of(whole, fresh)
    assert abs(wanted.mean()) > 100 and wanted.std() > 5
    assert ((values_of(small, fresh) - wanted) ** 2).mean() < 0.1 * wanted.var()
    assert apart(whole, small, fresh) < 2 * apart(alone, deaf, fresh)


def test_what_is_packed_has_no_critic():
    whole, policy = judged()
    small = Compressor().prune(0.5).distill(steps=2).quantize(8).pack()(whole, seen())
    assert small.program.outputs == ("output", "value") and small.actor_program.outputs == (
        "output",
    )
    assert small.actor().outputs == ("output",)
    alone = ChainPolicy(policy, {n: whole.weights[n] for n in policy.weight_shapes}, whole.head)
    assert (whole.pack(3) == alone.pack(3)).all()


def test_units_are_pruned_for_what_actors_run():
    """Large weights of the critic do not protect units that the policy hardly uses."""
    whole, policy = judged(scale=1e4)
    alone = ChainPolicy(policy, {n: whole.weights[n] for n in policy.weight_shapes}, whole.head)
    pruned, wanted = Compressor().prune(0.5)(whole), Compressor().prune(0.5)(alone)
    assert all((pruned.weights[name] == weight).all() for name, weight in wanted.weights.items())
    assert pruned.weights["value/kernel"].shape == (16, 1)


def student_of(whole):
    student = Distiller(whole.program, whole.head, 1e-3, 1.0, 0.0, 1.0)
    student.begin(whole.weights, 0)
    return student


def around(mean, deviation):
    """Values whose mean and deviation are these, exactly where they are whole numbers."""
    return np.tile(np.array([mean - deviation, mean + deviation], "f4"), 32)


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(-900, 900), st.integers(0, 9)), min_size=1, max_size=4))
def test_the_unit_of_values_changes_no_function(units):
    """Values move between calls; a student judges as before until it has learnt from them.

    Weights are equal where deviations are powers of two and means and bias whole numbers.
    """
    whole, _ = judged()
    student = student_of(whole)
    for mean, power in units:
        assert (student._rescale(around(mean, 2**power)) == around(0, 1)).all()
        left = student.weights()
        assert all((left[name] == weight).all() for name, weight in whole.weights.items())


def test_values_in_their_unit_are_those_of_the_teacher():
    """Equal, since a power of two scales every number on the way."""
    whole, _ = judged(level=0.0)
    student, x = student_of(whole), tf.constant(seen(64))
    before = student._run(x)["value"].numpy()
    student._rescale(around(0, 8))
    found = student._run(x)
    assert (8 * found["value"].numpy() == before).all()
    assert student._loss(x, found["output"], found["value"][:, 0]).numpy() == 0
    assert student._loss(x, found["output"], found["value"][:, 0] + 2).numpy() == 2


def test_values_that_do_not_differ_stay_finite():
    whole, _ = judged(scale=0.0)
    small = Compressor().distill("8", steps=50, rate=3e-3, value=1.0)(whole, seen())
    assert np.abs(values_of(small, seen(seed=2)) - 200).max() < 1


def test_a_student_with_values_continues_from_stored_weights():
    whole, _ = judged()
    x, memory = seen(), {}
    chain = Compressor().distill("8", steps=20, follow=5)
    chain(whole, x, memory)
    kept = {str(chain): {StudentPlace.KEPT: memory[str(chain)][StudentPlace.STUDENT].state()}}
    wanted, found = chain(whole, x, memory), chain(whole, x, kept)
    assert all((found.weights[name] == w).all() for name, w in wanted.weights.items())
