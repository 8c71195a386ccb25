"""The engine in another project: installed and found with find_package, or added with add_subdirectory."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess

import pytest

from server import GOLDEN, ROOT, STORYTELLER

BUILD = ROOT / "build" / "release"
EMBED = ROOT / "examples" / "embed"
SCRIPTED = ROOT / "tests" / "data" / "scripted"


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def configure_embed(folder, *configure):
    """Configures the example as a separate project. Returns the command that compiles its own source."""
    run("cmake", "-S", EMBED, "-B", folder, "-G", "Ninja", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *configure)
    commands = json.loads((folder / "compile_commands.json").read_text())
    [own] = [entry["command"] for entry in commands if "troupe_embed.dir" in entry["command"]]
    return own


def check_command(command):
    """A dependent gets the language, and a folder of headers, and nothing else."""
    assert "-std=gnu++20" in command or "-std=c++20" in command
    assert "-Werror" not in command and "-ffp-contract" not in command
    own_folders = [part for part in command.split() if part.startswith(("-I", str(ROOT)))
                   and not part.endswith(("/include", "main.cpp"))]
    assert own_folders == [], "a dependent must see only the folder that contains troupe/"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", folder)
    yield folder
    shutil.rmtree(folder)


def check_exports(prefix, program):
    """What the plug-in for GPUs, if there is one, needs of the program that loads it."""
    for listed in prefix.rglob("troupe-cuda.list"):
        needed = set(re.findall(r"(_Z\w+);", listed.read_text()))
        assert needed and needed <= set(re.findall(r"(_Z\w+)$", run("nm", "-D", "--defined-only", program), re.MULTILINE))
        assert (listed.parent / "troupe-cuda.so").is_file()


def test_find_package_finds_an_installed_engine(prefix, tmp_path):
    build = tmp_path / "build"
    check_command(configure_embed(build, "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}"))
    run("cmake", "--build", build, "--target", "troupe_embed")
    check_exports(prefix, build / "troupe_embed")
    output = run(build / "troupe_embed", GOLDEN)
    assert "[callback: 24 tokens]" in output
    assert re.search(r"\[question: \d+ tokens\]", output)


def test_the_programs_of_the_documentation_compile_and_run(prefix, tmp_path):
    """The snippet of the README: it answers to the end, and says what is wrong with a wrong path."""
    text = (ROOT / "README.md").read_text()
    program = re.search(r"```cpp\n(.*?)```", text, re.DOTALL).group(1)
    assert '"models/Qwen3-0.6B"' in program
    (tmp_path / "main.cpp").write_text(program.replace('"models/Qwen3-0.6B"', "std::getenv(\"MODEL\")", 1))
    (tmp_path / "CMakeLists.txt").write_text("""
cmake_minimum_required(VERSION 3.25)
project(my_program LANGUAGES CXX)
find_package(Troupe REQUIRED)
add_executable(my_program main.cpp)
target_link_libraries(my_program PRIVATE Troupe::engine)
""")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build" / "my_program", env={"MODEL": str(SCRIPTED)}) == "Hello, world!\n"
    wrong = subprocess.run([tmp_path / "build" / "my_program"], env={"MODEL": "/nowhere"}, capture_output=True,
                           text=True, timeout=300)
    assert wrong.returncode == 1
    assert "/nowhere" in wrong.stderr and len(wrong.stderr.splitlines()) == 1


def test_pkg_config_names_what_a_program_needs(prefix, tmp_path):
    """The engine and the server, linked without CMake; pkg-config adds no flags but of folders and libraries."""
    folder = next(prefix.rglob("troupe.pc")).parent
    environment = {**os.environ, "PKG_CONFIG_PATH": str(folder)}

    def flags(*words):
        return run("pkg-config", *words, env=environment).split()
    version = re.search(r"project\(troupe VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert flags("--modversion", "troupe") == [version]
    compiling = flags("--cflags", "troupe")
    assert all(flag.startswith("-I") for flag in compiling) and any("/include" in flag for flag in compiling)
    run("g++", "-std=c++20", "-O0", EMBED / "main.cpp", "-o", tmp_path / "embed", *compiling, *flags("--libs", "troupe"))
    assert "[callback: 24 tokens]" in run(tmp_path / "embed", GOLDEN)
    check_exports(prefix, tmp_path / "embed")
    serve = ROOT / "examples" / "serve" / "main.cpp"
    server_flags = flags("--cflags", "--libs", "troupe-server")
    assert not any(flag.startswith(("-W", "-f", "-O", "-std")) for flag in server_flags
                   if not flag.startswith("-Wl,--dynamic-list="))  # what the plug-in for GPUs needs of the program
    run("g++", "-std=c++20", "-O0", serve, "-o", tmp_path / "serve", *server_flags)
    done = subprocess.run([tmp_path / "serve", GOLDEN, "0"], input="", capture_output=True, text=True, timeout=300)
    assert "An actor heard 24 tokens" in done.stdout, done.stderr


def test_a_program_with_actors_and_a_network_of_its_own_answers_lines(prefix, tmp_path):
    build = tmp_path / "build"
    run("cmake", "-S", EMBED, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build, "--target", "troupe_embed_network")
    process = subprocess.Popen([build / "troupe_embed_network", GOLDEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    try:
        port = int(re.search(r"port (\d+)", process.stdout.readline())[1])

        def answers(questions):
            with socket.create_connection(("127.0.0.1", port), timeout=300) as connection:
                connection.sendall("".join(question + "\n" for question in questions).encode())
                lines = connection.makefile("rb")
                return [lines.readline() for _ in questions]
        two = answers(["Once upon a time", "There was a"])
        assert all(line.endswith(b"\n") for line in two) and len(b"".join(two)) > 10
        with socket.create_connection(("127.0.0.1", port)) as leaves:
            leaves.sendall(b"Once upon a time\n")
        with socket.create_connection(("127.0.0.1", port), timeout=300) as floods:
            floods.sendall(b"x" * 20000)
            told = b""
            with contextlib.suppress(ConnectionResetError):  # what nobody has read resets it
                while piece := floods.recv(4096):
                    told += piece
            assert b"too long\n" in told
        assert answers(["Once"])[0].endswith(b"\n")  # others go on
        process.stdin.close()
        assert process.wait(300) == 0
    finally:
        process.kill()


def test_the_sources_work_as_a_subdirectory_of_another_project(tmp_path):
    """Its own source is compiled against the headers as they are found there, and the program is made of the libraries."""
    build = tmp_path / "build"
    check_command(configure_embed(build, f"-DTROUPE_SOURCE={ROOT}"))
    run("cmake", "--build", build, "--target", "CMakeFiles/troupe_embed.dir/main.cpp.o")
    assert "libtroupe_engine.a" in run("ninja", "-C", build, "-t", "query", "troupe_embed")


@pytest.mark.skipif(not STORYTELLER.joinpath("config.json").is_file(), reason="the bundled storyteller is absent")
def test_an_installation_includes_the_model_and_configurations(prefix, tmp_path):
    text = run(prefix / "bin" / "troupe", "run", "--max-tokens", "3", "--quiet", "Hello", cwd=tmp_path, env={
        "PATH": os.environ["PATH"]})
    assert text.strip()
    assert prefix.joinpath("share", "troupe", "configs", "server.toml").is_file()
