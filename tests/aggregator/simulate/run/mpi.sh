# For tests of fedge-simulate on several ranks, sourced behind command_line.sh.
command -v mpirun >/dev/null || fail "no mpirun: install openmpi-bin, or build with FEDGE_MPI=OFF"

# One machine, whoever runs the tests and however few its cores are.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl=self,vader OMPI_MCA_plm_rsh_agent=false
export OMPI_MCA_odls_base_sigkill_timeout=1 # from Ctrl-C to SIGTERM, and from there to SIGKILL
export TMPDIR=/tmp # its sockets' paths are short
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # Open MPI keeps memory to the end

# Everything that a run leaves but its times, pictures and checkpoints too.
left() {
    (cd "$1" && python3 - <<'PY'
import glob, json
TIMED = ("crc32", "elapsed_ms")
def plain(value):
    return {k: v for k, v in value.items() if "second" not in k and k not in TIMED} if isinstance(value, dict) else value
for name in ("summary.json", "rounds.jsonl", *sorted(glob.glob("checkpoints/*/state.json"))):
    for line in open(name):
        print(name, json.dumps(plain(json.loads(line)), sort_keys=True))
PY
        sha256sum model.safetensors partition.csv partition.svg rounds.svg
        find checkpoints -type f ! -name state.json -exec sha256sum {} + | sort -k 2)
}
