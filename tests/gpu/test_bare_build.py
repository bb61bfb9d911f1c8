"""What run.sh builds on a machine that has only nvcc, CMake and a C compiler: it can be configured, and every
file and target is there. test_bare_build.py SOURCES CMAKE GENERATOR

nvcc is a script of this test, so commands are listed and not run. With and without cJSON and zlib."""

import os
import stat
import subprocess
import sys
import tempfile

NVCC = "#!/bin/sh\n[ \"$1\" = --list-gpu-code ] && echo sm_90\n"
TARGETS = ("gpu_programs", "programs", "bench_reduce_fedge")
MADE = ("bench_gpu", "gpu_test_accumulator_cuda", "bench_reduce_fedge")


def make_toolkit(folder):
    for name, text in ("bin/nvcc", NVCC), ("include/cuda_runtime_api.h", ""), ("lib64/libcudart_static.a", ""):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path))
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    path = os.path.join(folder, "bin", "nvcc")
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def run(*command):
    done = subprocess.run(command, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def check(folder, data):
    sources, cmake, generator = sys.argv[1:]
    build = os.path.join(folder, f"build-{data}")
    said = run(cmake, "-S", sources, "-B", build, "-G", generator, "-DCMAKE_BUILD_TYPE=Release", "-DFEDGE_NETWORK=OFF",
               "-DFEDGE_TESTS=OFF", "-DFEDGE_CUDA=ON", f"-DFEDGE_IO={data}", "-DFEDGE_CUDA_ARCHITECTURES=90",
               f"-DFEDGE_NVCC={os.path.join(folder, 'cuda', 'bin', 'nvcc')}")
    assert "CUDA: on" in said and f"Simulator: {'on' if data == 'ON' else 'left out'}" in said, said
    listed = run(cmake, "--build", build, "--target", *TARGETS, "--", "-n")
    for program in (*MADE, *(("fedge-simulate",) if data == "ON" else ())):
        assert program in listed, (program, listed[-2000:])
    assert data == "ON" or "fedge-simulate" not in listed, listed[-2000:]


def main():
    with tempfile.TemporaryDirectory() as folder:
        make_toolkit(os.path.join(folder, "cuda"))
        for data in "ON", "OFF":
            check(folder, data)


if __name__ == "__main__":
    main()
