# For tests of fedge-simulate on several ranks, sourced behind command_line.sh.
command -v mpirun >/dev/null || fail "no mpirun: install openmpi-bin, or build with FEDGE_MPI=OFF"

# One machine, whoever runs the tests and however few its cores are.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl=self,vader OMPI_MCA_plm_rsh_agent=false
export OMPI_MCA_odls_base_sigkill_timeout=1 # from Ctrl-C to SIGTERM, and from there to SIGKILL
export TMPDIR=/tmp # its sockets' paths are short
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # Open MPI keeps memory to the end

# Everything that a run leaves but its times.
left() {
    (cd "$1" && python3 - <<'PY'
import json
def plain(value):
    return {k: v for k, v in value.items() if "second" not in k and k != "crc32"} if isinstance(value, dict) else value
for name in ("summary.json", "rounds.jsonl"):
    for line in open(name):
        print(json.dumps(plain(json.loads(line)), sort_keys=True))
PY
        sha256sum model.safetensors partition.csv)
}
