"""What Nsight Compute says of 60 kernels of a training step of a CIFAR-10-sized CNN, in fp32 and in TF32:
profile_step.py SIMULATOR FOLDER

Leaves ncu-fp32.csv and ncu-tf32.csv in FOLDER, a row for each kernel: its duration, the bytes of DRAM, how busy the issue
slots and the FMA, ALU and tensor pipes were. The clocks are left as they are."""

import os
import subprocess
import sys
import tempfile

from cohorts import PFL, PRECISIONS, prepare_pfl, write

SKIPPED, COUNTED = 120, 60  # launches: those of the first steps bring the model and the examples
METRICS = ("gpu__time_duration.sum", "dram__bytes.sum", "sm__inst_issued.avg.pct_of_peak_sustained_active",
           "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
           "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
           "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active")


def main():
    simulator, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        job = prepare_pfl(simulator, folder, PFL)
        for precision in PRECISIONS:
            job["training"]["precision"] = precision
            write(os.path.join(folder, "job.json"), job)
            subprocess.run(["ncu", "--clock-control", "none", "--launch-skip", str(SKIPPED), "--launch-count", str(COUNTED),
                            "--metrics", ",".join(METRICS), "--csv", "--log-file",
                            os.path.join(out, f"ncu-{precision}.csv"), simulator, "--job", os.path.join(folder, "job.json"),
                            "--engine", "cuda", "--gpus", "0", "--quiet", "--rounds", "1", "--client-accuracy", "0"],
                           check=True)


if __name__ == "__main__":
    main()
