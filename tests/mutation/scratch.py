"""A copy of the tree in which a line may be broken: how it is made and built."""

import filecmp
import shlex
import shutil
import subprocess
import sys


def copy_tree(root, tree):
    """The tracked and new files of [root] as they are, written to [tree] only where they differ."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    names = {name for name in listed if name and (root / name).is_file()}
    for old in [p for p in tree.rglob("*") if p.is_file()] if tree.exists() else []:
        if str(old.relative_to(tree)) not in names:
            old.unlink()
    for name in names:
        target = tree / name
        if not target.exists() or not filecmp.cmp(root / name, target, shallow=False):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target)
            shutil.copymode(root / name, target)


def configure(root, tree, build, kind="Release", sanitizers=""):
    """Configures [tree] in [build], with the libraries of [root]; ends the program where that fails."""
    command = ["cmake", "-S", tree, "-B", build, "-G", "Ninja", f"-DCMAKE_BUILD_TYPE={kind}"]
    command += [f"-DFEDGE_SANITIZE={sanitizers}", f"-DFEDGE_DEPS={root}/build/deps"]
    command += ["-DFEDGE_WERROR=OFF"]
    command += ["-DFEDGE_HAVE_FUZZ=OFF"]  # fuzzers find what nobody thought of: not asked here
    command += [f"-DFEDGE_{part}=ON" for part in ("TESTS", "NETWORK", "AGGREGATOR")]
    if shutil.which("ccache"):
        command += ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


class Builder:
    def __init__(self, build, jobs, wrap=""):
        self.command = shlex.split(wrap) + ["ninja", "-C", str(build), f"-j{jobs}"]

    def build(self, *targets):
        return subprocess.run([*self.command, *targets], capture_output=True, text=True)
