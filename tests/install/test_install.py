"""What "cmake --install" leaves serves programs outside of this tree: by pkg-config and by CMake, with the
static and with the shared libraries."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "docs"))
import commands  # noqa: E402
BUILD = os.environ["FEDGE_BINARY_DIR"]
PATIENCE_S = 600
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
# Symbols of what is bundled, which a user's program may have too.
CLASH = """
#include <fedge/client.h>
#include <stdio.h>
int mbedtls_ssl_read(void), lws_create_context(void), fedge_crc32(void), cjson(void);
int mbedtls_ssl_read(void) { return 1; }
int lws_create_context(void) { return 2; }
int fedge_crc32(void) { return 3; }
int main(void)
{
    fedge_client *client;
    fedge_error err;
    fedge_client_callbacks callbacks = {.struct_size = sizeof(callbacks)};
    fedge_client_config config = {.struct_size = sizeof(config)};
    if (fedge_client_new(&config, &callbacks, &client, &err) != FEDGE_INVALID_ARGUMENT)
        return 1;
    puts(err.message);
    return mbedtls_ssl_read() + lws_create_context() + fedge_crc32() != 6;
}
"""
BOTH = """
#include <fedge/train.h>
#include <fedge/client.h>
#include <string.h>
int main(void)
{
    fedge_client_report report = {0};
    fedge_error err;
    struct fedge_site *site;
    if (fedge_client_site_load("/nowhere/client.json", &site, &err) != FEDGE_NOT_FOUND || site)
        return 2;
    return fedge_client_metric(&report, "loss", 1, &err) || !fedge_layer_type_name(FEDGE_LAYER_LINEAR) ||
           strcmp(fedge_version(), FEDGE_VERSION);
}
"""


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          timeout=PATIENCE_S, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[:2000]}")
    return done.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="fedge-install-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = os.path.join(cls.folder, "a prefix")
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.lib = os.path.join(cls.prefix, "lib")

    def place(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.place(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.place(name)

    def pkg_config(self, *words):
        out = run("pkg-config", *words, env={**os.environ, "PKG_CONFIG_PATH": f"{self.lib}/pkgconfig"})
        return [word.replace("\\ ", " ") for word in re.split(r"(?<!\\)\s+", out.strip())]

    def compile(self, source, package, name, *options):
        """Without any option but those of pkg-config."""
        program = self.place(name)
        run("cc", "-std=c11", *STRICT, source, *options, *self.pkg_config("--cflags", "--libs", package), "-o",
            program)
        return program

    def by_cmake(self, example, static):
        """Builds a copy of an example's folder, far from this tree."""
        kind = "static" if static else "shared"
        source, build = self.place(f"{example}-{kind}"), self.place(f"{example}-{kind}-build")
        shutil.copytree(os.path.join(SOURCE, "examples", example), source)
        run("cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DFEDGE_USE_STATIC_LIBS={'ON' if static else 'OFF'}")
        run("cmake", "--build", build)
        return os.path.join(build, example.replace("_", "-"))

    def four_ways(self, example, library):
        source = os.path.join(SOURCE, "examples", example, "main.c")
        programs = {
            "pkg-config, shared": self.compile(source, f"fedge-{library}", f"{example}-1"),
            "pkg-config, static": self.compile(source, f"fedge-{library}-static", f"{example}-2"),
            "CMake, shared": self.by_cmake(example, static=False),
            "CMake, static": self.by_cmake(example, static=True),
        }
        for how, program in programs.items():
            needed = run("readelf", "-d", program)
            with self.subTest(f"{example}: {how}"):
                self.assertEqual(f"libfedge_{library}.so" in needed, "shared" in how)
        return programs

    def environment(self):
        return {**os.environ, "LD_LIBRARY_PATH": self.lib, "FEDGE_BIN_DIR": f"{self.prefix}/bin"}

    def test_own_trainer_takes_part(self):
        programs = self.four_ways("own_trainer", "client")
        run("bash", f"{SOURCE}/tests/client/test_own_trainer.sh", *programs.values(), env=self.environment())

    def test_edge_only_learns(self):
        for program in self.four_ways("edge_only", "train").values():
            run(program, env=self.environment())

    def do_as_said(self, path, heading="", into=None, change=lambda command: command):
        """The commands of a page's section, or of the comment at an example's top, in a folder with the example's file;
        gives the folder and what they said."""
        folder = into or tempfile.mkdtemp(dir=self.folder)
        prefix = os.path.join(folder, "prefix")  # without the space, which a shell takes for the end of a word
        if not into:
            os.symlink(self.prefix, prefix)
            os.symlink(os.path.join(SOURCE, "examples"), os.path.join(folder, "examples"))
        environment = {**self.environment(), "PATH": f"{prefix}/bin:{os.environ['PATH']}",
                       "PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}
        found = commands.of_section(SOURCE, path, heading)
        self.assertTrue(found)
        script = "\n".join(map(change, found))
        said = run("timeout", str(PATIENCE_S), "bash", "-e", "-c", script, cwd=folder, env=environment)
        return folder, said

    def own(self, source):
        """Builds it as strictly as its compiler can, then as its comment says, and has two rounds of it."""
        run("cc", "-std=c11", *STRICT, "-c", f"{SOURCE}/{source}", *self.pkg_config("--cflags", "fedge-strategy"), "-o",
            os.devnull)
        folder, said = self.do_as_said(source, change=lambda command: command.replace(
            "cc -shared", f"cp {SOURCE}/{source} . && cc -shared").replace("--job", "--rounds 2 --job"))
        self.assertIn("complete after 2 rounds", said)
        self.assertNotIn("plugin-unused", said)
        return folder

    def by_the_manual(self, folder, name, heading, job):
        """The same with a job of one's own, as docs/strategies.md says."""
        for part in os.listdir(os.path.join(folder, name)):
            if os.path.isfile(os.path.join(folder, name, part)):
                shutil.copy(os.path.join(folder, name, part), folder)
        with open(os.path.join(folder, "job.json"), "r+", encoding="utf-8") as file:
            job = {**json.load(file), **job}
            file.seek(0)
            file.truncate()
            json.dump(job, file)
        shutil.rmtree(os.path.join(folder, "run"), ignore_errors=True)
        _, said = self.do_as_said("docs/strategies.md", heading, into=folder, change=lambda command: command.replace(
            "--clients 10", "--clients 30 --rounds 2"))
        self.assertIn("complete after 2 rounds", said)
        self.assertNotIn("plugin-unused", said)

    def test_a_strategy_is_built_and_trains(self):
        folder = self.own("examples/own_strategy/strategy.c")
        with open(f"{folder}/run/job.json", encoding="utf-8") as file:
            self.assertEqual(json.load(file)["strategy"]["type"], "NormalisedAvg")
        self.by_the_manual(folder, "run", "## A strategy of your own", {"strategy": {"type": "NormalisedAvg"}})

    def test_metrics_are_built_and_counted(self):
        folder = self.own("examples/own_metric/metric.c")
        for heading in (None, "### A metric of your own"):
            if heading:
                self.by_the_manual(folder, "synthetic", heading, {})
            with open(f"{folder}/run/rounds.jsonl", encoding="utf-8") as file:
                self.assertIn('"metrics":{"top5_accuracy":', file.read())

    def test_the_readmes_own_trainer(self):
        """With a port that is free."""
        folder, _ = self.do_as_said("README.md", "## Your own trainer, in C", change=lambda command: command.replace(
            " &", " --listen 127.0.0.1:0 --http off --port-file ports &\nuntil [ -s ports ]; do sleep 0.05; done\n"
            "read -r port _ <ports", 1).replace("localhost:9092", "localhost:$port") if "aggregator" in command
            else command.replace("localhost:9092", "localhost:$port"))
        self.assertEqual(len(glob.glob(f"{folder}/state/runs/*/model.safetensors")), 1)

    def test_the_manuals_ways_to_link(self):
        folder, _ = self.do_as_said("docs/guides/own-trainer.md", "## Link it", change=lambda command: command.replace(
            "cc main.c", "cc examples/own_trainer/main.c"))
        self.assertTrue(os.path.exists(f"{folder}/own-trainer"))
        _, said = self.do_as_said("examples/edge_only/README.md", "# The training library alone", change=lambda command:
                                  command.replace("cc main.c", "cc examples/edge_only/main.c"))
        self.assertIn("learnt", said)

    def test_headers_need_nothing_else(self):
        include = f"-I{self.prefix}/include"
        for headers in (["client"], ["train"], ["strategy"], ["metric"], ["client", "train"],
                        ["train", "client", "strategy", "metric"]):
            text = "".join(f"#include <fedge/{name}.h>\n" for name in headers) + "int main(void) { return 0; }\n"
            for compiler, standard, suffix in (("cc", "c11", "c"), ("c++", "c++11", "cpp")):
                with self.subTest(f"{compiler}: {headers}"):
                    source = self.write(f"headers.{suffix}", text)
                    run(compiler, f"-std={standard}", *STRICT, include, "-c", source, "-o", self.place("headers.o"))

    def test_cpp_finds_the_functions(self):
        source = self.write("link.cpp", "#include <fedge/client.h>\n#include <fedge/train.h>\n"
                            "int main() { fedge_client_free(nullptr); return !fedge_layer_type_name(FEDGE_LAYER_RELU); }\n")
        program = self.place("link-cpp")
        run("c++", *STRICT, source, *self.pkg_config("--cflags", "--libs", "fedge-client"), "-o", program)
        run(program, env=self.environment())

    def declared(self, *headers):
        """Functions that the libraries must define: all but those that the headers define themselves."""
        names, inlined = set(), set()
        for header in headers:
            with open(f"{self.prefix}/include/fedge/{header}.h", encoding="utf-8") as file:
                text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
            text = re.sub(r"#ifdef __clang_analyzer__.*?\n#endif", "", text, flags=re.DOTALL)
            text = re.sub(r"(?m)^#(?:[^\n]*\\\n)*[^\n]*", "", text)
            names |= set(re.findall(r"\b(fedge_\w+)\(", text))
            inlined |= set(re.findall(r"(?m)^static inline [^\n(]*\b(fedge_\w+)\(", text))
        return names - inlined

    def test_only_what_the_headers_declare_is_seen(self):
        for library, headers in (("client", ("client", "train")), ("train", ("train",))):
            wanted = self.declared(*headers)
            self.assertGreater(len(wanted), 40)
            for options, file in ((["-D"], f"libfedge_{library}.so"), ([], f"libfedge_{library}.a")):
                out = run("nm", "-P", "-g", *options, f"{self.lib}/{file}")
                defined = {line.split()[0] for line in out.splitlines() if re.match(r"\S+ [^UwN] ", line)}
                needed = set(re.findall(r"(?m)^(\S+) U", out))
                with self.subTest(file):
                    self.assertEqual(defined, wanted)
                    self.assertEqual({name for name in needed if re.match("fedge|mbedtls|psa|lws", name)}, set())

    def test_a_program_may_have_the_bundled_symbols_too(self):
        source = self.write("clash.c", CLASH)
        for package in ("fedge-client", "fedge-client-static"):
            with self.subTest(package):
                program = self.compile(source, package, package)
                self.assertIn("must be given", run(program, env=self.environment()))

    def test_both_libraries_go_together(self):
        source = self.write("both.c", BOTH)
        for first, second in (("client", "train"), ("train", "client")):
            for kind in ("", "-static"):
                with self.subTest(f"{first} {second} {kind}"):
                    program = self.compile(source, f"fedge-{first}{kind}", "both",
                                           *self.pkg_config("--libs", f"fedge-{second}{kind}"))
                    run(program, env=self.environment())

    def test_nothing_is_installed_while_something_is_missing(self):
        """The quickstart builds three programs. Here the rules look for all in a folder that has but one of them."""
        built = self.place("quickstart")
        os.makedirs(os.path.join(built, "bin"))
        shutil.copy(f"{self.prefix}/bin/fedge-keys", f"{built}/bin")
        for script in ("cmake_install.cmake", "built.cmake"):
            with open(os.path.join(BUILD, script), encoding="utf-8") as file:
                self.write(f"quickstart/{script}", file.read().replace(BUILD, built))
        prefix = self.place("nothing")
        with self.assertRaisesRegex(AssertionError, r"(?s)not built yet: .*fedge-simulate.*cmake\s--build") as said:
            run("cmake", f"-DCMAKE_INSTALL_PREFIX={prefix}", "-P", f"{built}/cmake_install.cmake")
        self.assertNotIn("fedge-keys,", str(said.exception))
        self.assertFalse(os.path.exists(prefix))

    def test_versions_are_one(self):
        version = self.pkg_config("--modversion", "fedge-client")[0]
        source = self.write("version.c", '#include <fedge/train.h>\n#include <stdio.h>\n'
                            'int main(void) { return puts(FEDGE_VERSION) < 0; }\n')
        self.assertEqual(run(self.compile(source, "fedge-train-static", "version")).strip(), version)
        for program in ("aggregator", "client", "keys", "simulate"):
            self.assertEqual(run(f"{self.prefix}/bin/fedge-{program}", "--version").split("\n")[0], f"fedge-{program} {version}")
            self.assertTrue(os.path.exists(f"{self.prefix}/share/man/man1/fedge-{program}.1"))

    def test_files_do_not_name_the_place_where_they_were_built(self):
        count = 0
        for folder, _, names in os.walk(self.prefix):
            for name in names:
                if re.search(r"\.(pc|cmake|h|service)$|^fedge-\w+\.1$", name):
                    count += 1
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        text = file.read()
                    with self.subTest(name):
                        self.assertNotIn(SOURCE, text)
        self.assertGreaterEqual(count, 14)

    def test_the_script_that_starts_ranks_is_found(self):
        """By its place beside the installed program, which gives it a file that names no machine."""
        hosts = self.write("hosts", "# none\n")
        said = subprocess.run([f"{self.prefix}/bin/fedge-aggregator", "--supervise", "--hosts", hosts, *(
            word for name in ("job", "state", "identity", "trust", "registry") for word in (f"--{name}", "none"))],
            env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual((said.returncode, said.stdout), (3, f"fedge-aggregator: {hosts} names no machine\n"))

    def test_units_start_the_installed_programs(self):
        for program in ("fedge-aggregator", "fedge-client"):
            with open(f"{self.prefix}/share/doc/fedge/systemd/{program}.service", encoding="utf-8") as file:
                self.assertIn(f"\nExecStart={self.prefix}/bin/{program} ", file.read())


if __name__ == "__main__":
    unittest.main()
