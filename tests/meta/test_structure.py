"""Structure of the package: layers, public names, and cost of an import."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import turnout

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(module.name for module in pkgutil.iter_modules(turnout.__path__))
PUBLIC = {
    "accounting": "UNKNOWNS Calibration ClientGuarantees Guarantee Ledger MonotonePair Odometer "
    "Pair PrivacyCurve Remaining RenyiFilter Side Stopping BudgetTerms Unknown calibrate "
    "calibrate_delta calibrate_noise calibrate_selection client_guarantees epsilon_upper "
    "gaussian_epsilon "
    "pair_of_table price published_epsilon remaining running selected selected_deltas "
    "selection_epsilon shuffled_method shuffled_price spent "
    "with_released_counts",
    "auditing": "Counted Event Findings FoundAt Game Guessed OneRun OutputGame Rates "
    "ReleaseGame RewardGame SimulationGame Statement epsilon_by_counts epsilon_by_guesses "
    "gaussian_mu_by_counts gaussian_mu_by_guesses messages_of play play_one_run projection_of "
    "released_by",
    "bandits": "BareSums Batch BatchedThompson CentralSums Channels ContextualEnvironment CoreSet "
    "Elimination LinUCB LinearEnvironment LocalBits LoggedEnvironment BatchMechanism Policy "
    "PrivateLinUCB Problem BatchRelease Run ShuffledBits best_features contextual_environment "
    "contextual_log core_set parameter_net phased_elimination read_log rounded_rewards "
    "simulate_bandit sphere_environment two_best_environment",
    "data": "ClientData DataFile MissingFileError Records PredictionTarget cache_folder contents "
    "deal digits fashion_mnist flash_phones load_images mnist own_data own_records "
    "parse_intervals trace_from",
    "estimation": "FrequencyEstimate FrequencyTally clip_and_normalise collect "
    "estimate_frequencies normalise project_simplex",
    "plans": "SCHEMES AvailabilitySection Plan PreparedPlan Question Sweep all_keys "
    "example_plan parse_query prepare read_plan solvable sweep",
    "randomizers": "FrequencyRandomizer GaussianRandomizer HadamardRandomizer LaplaceRandomizer "
    "KaryRandomizedResponse LocalHashing OneBitHadamard SubsetSelection "
    "UnaryEncoding",
    "randomness": "ByteStream OSRandomness SimulationRandomness SimulationStreams Source "
    "rounded_gaussian system_bytes",
    "refinement": "Cascade Direct Key KeyMismatchError Level LevelEstimate LimitedAnswers "
    "MultiLevel OneBit LayeredRelease Step enough_randomness estimate hadamard "
    "heavy_count key_entropy least_key_bits multi_level projective refine "
    "spread",
    "simulation": "Checkpoint CheckpointStore FileCheckpoints History Progress Simulation "
    "SimulationResult",
    "schemes": "ApproximateRandomizer AvailabilityCheckIn SampledBitResponse BoundedVariation "
    "AttainedVariation CheckIn "
    "DiscreteGaussianNoise EveryStep FixedAssignment NonAdaptiveRandomizer FixedSize GaussianNoise "
    "HadamardResponse KSubset "
    "KaryResponse LaplaceNoise PairRandomizer "
    "Participation PoissonSampling PrivacyUnit PureRandomizer Randomizer Relation "
    "ReleaseRule RepeatedMessages RoundedGaussianNoise "
    "Scheme SelfSampling SlidingWindow SpeakingOrder TableRandomizer TrustModel",
    "runs": "Finished InterruptedRunError Unwatched Watcher resume train",
}


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_public_names_of_each_package_equal_its_all_list(name):
    module = importlib.import_module(f"turnout.{name}")
    assert sorted(module.__all__) == sorted(PUBLIC[name].split())
    assert all(hasattr(module, public) for public in module.__all__)


def test_modules_import_only_from_lower_layers():
    program = str(Path(sys.executable).with_name("lint-imports"))
    done = subprocess.run(
        [program, "--no-cache"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout


def test_imports_between_files_are_acyclic():
    graph = grimp.build_graph("turnout", exclude_type_checking_imports=True, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError with the circle


def test_every_package_belongs_to_a_layer():
    pyproject = (ROOT / "pyproject.toml").read_text()
    layered = set(re.findall(r"turnout\.(\w+)", pyproject.split("[tool.importlinter]")[1]))
    assert layered >= set(PACKAGES) - {"testing", "__main__"}


def test_importing_the_package_loads_no_heavy_dependency():
    script = (
        "import sys, turnout\n"
        "heavy = {'torch', 'numpy', 'scipy', 'pydantic', 'matplotlib', 'dp_accounting', 'opacus',\n"
        "    'ray', 'sklearn'}\n"
        "assert not heavy & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_device_imports_only_needed_packages():
    """A device that does not train imports no accounting and no learning code."""
    script = (
        "import sys, turnout.service.device\n"
        "print(*(name for name in sys.modules if name.partition('.')[0] == 'turnout'))\n"
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = [name for name in done.stdout.split() if name != "turnout._version"]
    packages = {name.split(".")[1] for name in loaded if "." in name}
    assert packages == {"core", "participation", "protocol", "randomness", "schemes", "service"}
    assert len(loaded) <= 46, sorted(loaded)


@pytest.mark.parametrize(
    "name",
    ["core", "schemes", "randomness", "participation", "protocol", "randomizers", "estimation"],
)
def test_pure_modules_import_no_network_files_or_clock(name):
    imports = re.compile(r"^\s*(?:import|from) (os|io|pathlib|socket|time|datetime|urllib)\b", re.M)
    for path in (ROOT / "src" / "turnout" / name).rglob("*.py"):
        found = set(imports.findall(path.read_text()))
        # The operating system's randomness is what `randomness.system` is for; a private estimate
        # begins with the file that holds the column.
        begin = ("columns.py", "estimates.py", "many_samples.py", "searches.py")
        reads = path.parent.name == "private" and path.name in begin
        allowed = {"os"} if path.name == "system.py" else {"pathlib"} if reads else set()
        if path.name == "files.py":  # durable file writes for the higher packages
            allowed = {"os", "pathlib"}
        assert found <= allowed, path


def test_no_file_is_named_utils_or_longer_than_650_lines():
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py")]:
        assert path.name != "utils.py"
        assert len(path.read_text().splitlines()) <= 650, path
