"""run.sh on a machine that only seems to have a GPU: test_run.py FOLDER_OF_RUN_SH

Tools and programs are scripts of this test. What is checked is the one limit of time for all parts: what
does not end in it is stopped, what comes behind is left out, and both are in the table."""

import json
import os
import stat
import subprocess
import sys
import tempfile

ROW = '{"bench": "gpu", "case": "a case", "value": 2.0, "unit": "GB/s"}'
TOOLS = {"nvidia-smi": "echo GPU 9.0", "nvcc": "echo nvcc", "cmake": "true", "compute-sanitizer": "true", "ncu": "true",
         "python3": "exit 0"}
TESTS = ("nccl", "kernels", "cohort_kernels", "cohort_kernels_other", "accumulator_cuda", "cohort", "cohort_slots", "silo",
         "silo_limits", "silo_states", "chosen_cuda", "tile_cuda", "cohort_layers", "cohort_sequences", "cohort_losses",
         "cohort_factors", "cohort_members", "accumulator_cuda_limits")


def script(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w", encoding="ascii") as file:
        file.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


class Machine:
    def __init__(self, folder, **programs):
        self.out = os.path.join(folder, "report")
        self.environment = {**os.environ, "PATH": os.path.join(folder, "tools") + ":" + os.environ["PATH"],
                            "FEDGE_BUILD": os.path.join(folder, "build"), "PYTHON": ""}
        for name, text in TOOLS.items():
            script(os.path.join(folder, "tools"), name, text)
        for name in (*(f"gpu_test_{test}" for test in TESTS), "bench_gpu", "bench_cohort", "bench_products", "bench_robust",
                     "fedge-simulate"):
            text = f"echo '{ROW}'" if name.startswith("bench") else "echo fine"
            text = f"echo '\"model_sha256\": \"{'a' * 64}\"'" if name == "fedge-simulate" else text
            script(os.path.join(folder, "build", "bin"), name, programs.get(name, text))

    def run(self, *arguments, out=None, where=None):
        done = subprocess.run(["bash", os.path.abspath(os.path.join(sys.argv[1], "run.sh")), "--out", out or self.out,
                               *arguments], env=self.environment, text=True, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, cwd=where)
        report = {}
        if os.path.exists(os.path.join(self.out, "gpu.json")):
            with open(os.path.join(self.out, "gpu.json"), encoding="utf-8") as file:
                report = json.load(file)
        return done, {test["name"]: test["result"] for test in report.get("tests", ())}, report


def all_in_time(folder):
    done, results, report = Machine(folder).run()
    assert done.returncode == 0, done.stdout
    assert set(results.values()) == {"passed"}, results
    assert {"nccl", "kernels", "same-training", "memcheck-silo"} <= set(results), results
    assert sum(row["case"] == "a case" for row in report["rows"]) >= 3, report


def a_failure(folder):
    done, results, _ = Machine(folder, gpu_test_silo="echo wrong sums; exit 1").run()
    assert done.returncode == 1 and "wrong sums" in done.stdout, done.stdout
    assert results["silo"] == "FAILED" and results["cohort_losses"] == "passed", results


def half_a_row(folder):
    """Of a bench that is ended while it writes."""
    machine = Machine(folder, bench_robust="printf '%s' '{\"bench\": \"gpu\", \"case\": \"half'")
    done, results, report = machine.run()
    assert done.returncode == 0 and results["bench-robust"] == "passed", done.stdout
    assert {row["case"] for row in report["rows"]} == {"a case"}, report
    with open(os.path.join(folder, "report", "gpu.md"), encoding="utf-8") as file:
        assert "| a case | 2 GB/s |  |  |" in file.read()


def too_little_time(folder):
    done, results, _ = Machine(folder, gpu_test_kernels="exec sleep 600").run("--seconds", "10")
    assert done.returncode == 0, done.stdout
    assert results["kernels"].startswith("not ended in") and results["nccl"] == "passed", results
    behind = [name for name in results if name not in TESTS]
    assert len(behind) > 20 and {results[name] for name in behind} == {"left out"}, results
    with open(os.path.join(folder, "report", "gpu.md"), encoding="utf-8") as file:
        assert "| bench-cohort | left out | 0 |" in file.read()


def without_a_simulator(folder):
    machine = Machine(folder)
    os.remove(os.path.join(folder, "build", "bin", "fedge-simulate"))
    done, results, _ = machine.run("--tests-only")
    assert done.returncode == 1 and results["same-model"] == "FAILED", done.stdout


def libraries_of_pip(folder):
    machine = Machine(folder, gpu_test_nccl='case "$LD_LIBRARY_PATH" in */nvidia/nccl/lib*) ;; *) exit 1 ;; esac')
    packages = os.path.join(folder, "packages")
    script(os.path.join(packages, "nvidia", "nccl", "lib"), "libnccl.so.2", "")
    script(os.path.join(folder, "tools"), "python3", f"PYTHONPATH={packages} exec {sys.executable} \"$@\"")
    script(os.path.join(folder, "build", "bin"), "fedge-simulate", "exit 1")
    _, results, _ = machine.run("--tests-only")
    assert results["nccl"] == "passed", results


def without_a_profile(folder):
    """Nsight Compute may not read the counters of a machine, which is no failure of the kernels."""
    machine = Machine(folder)
    script(os.path.join(folder, "tools"), "python3", 'case "$*" in *profile_step*) exit 9 ;; esac')
    done, results, _ = machine.run()
    assert done.returncode == 0 and "code 9" in results["profile"], done.stdout


def tests_only(folder):
    done, results, report = Machine(folder).run("--tests-only")
    assert done.returncode == 0 and not report["rows"] and "bench-cohort" not in results, results


def what_is_not_its_own_stays(folder):
    """In the folder of the table, which is the caller's, and of a run before only what is written anew."""
    machine = Machine(folder)
    os.mkdir(machine.out)
    others = ("README.md", "notes.txt", "package.json", "data.jsonl", "their.log", "their.tsv")
    for name in (*others, "silo.txt", "tests.tsv", "gpu.json"):
        with open(os.path.join(machine.out, name), "w", encoding="ascii") as file:
            file.write("kept\n")
    for out, where in ((".", machine.out), ("report", folder)):
        done, results, _ = machine.run("--tests-only", out=out, where=where)
        assert done.returncode == 0 and results["silo"] == "passed", done.stdout
        for name in others:
            with open(os.path.join(machine.out, name), encoding="ascii") as file:
                assert file.read() == "kept\n", name
        with open(os.path.join(machine.out, "silo.txt"), encoding="ascii") as file:
            assert file.read() == "fine\n"


def bad_words(folder):
    machine = Machine(folder)
    for words in ("--seconds", "soon"), ("--seconds",), ("--fast",):
        assert machine.run(*words)[0].returncode == 2, words
    script(os.path.join(folder, "tools"), "nvidia-smi", "exit 9")
    assert machine.run()[0].returncode == 3


def main():
    for case in (all_in_time, a_failure, half_a_row, too_little_time, tests_only, without_a_simulator,
                 libraries_of_pip, without_a_profile, what_is_not_its_own_stays,
                 bad_words):
        with tempfile.TemporaryDirectory() as folder:
            case(folder)


if __name__ == "__main__":
    main()
