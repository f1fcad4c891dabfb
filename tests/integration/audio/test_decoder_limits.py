"""What hostile or unlucky media cost: one child process, for a while."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from core.audio import spawn
from core.audio.decode import open_media
from core.audio.media import DecodeLimits
from core.audio.probe import probe
from core.errors import MediaGone, MediaTooLong, MediaUndecodable, ServiceUnavailable
from core.options import Channels
from tests.integration.audio.conftest import Decode
from tests.integration.audio.media_files import DATA, RATE_HZ


def child_ids() -> set[int]:
    """Process ids of the decoding children of this process's nursery, or of its own."""
    parents: dict[int, set[int]] = {}
    commands = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            command = (stat.parent / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(parent, set()).add(int(stat.parent.name))
        commands[int(stat.parent.name)] = command
    own = parents.get(os.getpid(), set())
    nurseries = {pid for pid in own if b"core.audio.nursery" in commands[pid]}
    forked = {pid for nursery in nurseries for pid in parents.get(nursery, set())}
    return forked | {pid for pid in own if b"core.audio.child" in commands[pid]}


@pytest.fixture(params=["forked", "started"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to have a child."""
    if request.param == "started":
        monkeypatch.setattr(spawn, "can_fork", lambda: False)
    return str(request.param)


needs_nursery = pytest.mark.skipif(not spawn.can_fork(), reason="only Linux has one")
both_kinds = pytest.mark.usefixtures("kind")


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    """Ten minutes of noise: more than pipes hold."""
    noise = np.random.default_rng(0).integers(-3000, 3000, 600 * RATE_HZ).astype(np.int16)
    sf.write(tmp_path / "long.wav", noise, RATE_HZ)
    return tmp_path / "long.wav"


@both_kinds
def test_leaving_early_ends_the_child(long_file: Path) -> None:
    with open_media(long_file, limits=DecodeLimits(), channels=Channels.MIX) as stream:
        next(iter(stream))
        assert len(child_ids()) == 1
    assert child_ids() == set()


def test_a_missing_file_is_gone(tmp_path: Path, decode: Decode) -> None:
    with pytest.raises(MediaGone):
        decode(tmp_path / "absent.wav")


def test_a_recording_that_is_too_long_is_refused_while_it_is_decoded(
    long_file: Path, decode: Decode
) -> None:
    with pytest.raises(MediaTooLong):
        decode(long_file, max_media_s=599)
    assert decode(long_file, max_media_s=600)[0].shape[1] == 600 * RATE_HZ


def test_twelve_hours_in_a_small_file_are_refused_by_their_samples(decode: Decode) -> None:
    with pytest.raises(MediaTooLong):
        decode(DATA / "flac_12h_silence.flac", max_media_s=3600)


@both_kinds
def test_a_decoder_that_may_not_use_memory_says_so(long_file: Path, decode: Decode) -> None:
    with pytest.raises(MediaUndecodable):
        decode(long_file, memory_bytes=1)


@both_kinds
@pytest.mark.parametrize("sent", [signal.SIGSEGV, signal.SIGABRT, signal.SIGXCPU])
def test_a_crash_of_the_child_is_the_medias_fault(long_file: Path, sent: signal.Signals) -> None:
    with open_media(long_file, limits=DecodeLimits(), channels=Channels.MIX) as stream:
        [child] = child_ids()
        os.kill(child, sent)
        with pytest.raises(MediaUndecodable):
            list(stream)


@both_kinds
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_killed_from_outside_is_worth_another_try(
    long_file: Path, sent: signal.Signals
) -> None:
    with open_media(long_file, limits=DecodeLimits(), channels=Channels.MIX) as stream:
        [child] = child_ids()
        os.kill(child, sent)
        with pytest.raises(ServiceUnavailable):
            list(stream)


@both_kinds
def test_a_child_that_hangs_is_given_up(long_file: Path) -> None:
    with open_media(long_file, limits=DecodeLimits(), channels=Channels.MIX) as stream:
        stream._child._limits = DecodeLimits(stall_s=1)  # only now: a start may take longer
        [child] = child_ids()
        os.kill(child, signal.SIGSTOP)
        with pytest.raises(MediaUndecodable, match="longer than allowed"):
            list(stream)
    assert child_ids() == set()


def test_a_slow_consumer_is_not_a_slow_decoder(long_file: Path) -> None:
    # The consumer takes longer than the decoder may.
    with open_media(long_file, limits=DecodeLimits(), channels=Channels.MIX) as stream:
        stream._child._limits = DecodeLimits(timeout_s=30, stall_s=2)
        blocks = iter(stream)
        next(blocks)
        threading.Event().wait(2.2)
        assert sum(block.shape[1] for block in blocks) > 590 * RATE_HZ


@pytest.mark.parametrize(
    "script",
    [
        "import sys; sys.exit('no luck')",
        "import sys; sys.stdout.buffer.write(b'nonsense at length')",
        "import sys; sys.stdout.buffer.write(b'B' + (2**31).to_bytes(4, 'little'))",
        "import os; os.write(1, b'Z' + bytes(4))",
        "import os, sys; sys.stderr.write('x' * 10**6); os.abort()",
    ],
)
def test_a_child_that_talks_nonsense_is_bad_media(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A broken decoder cannot be provoked, so another program stands in for it.
    fake = tmp_path / "core" / "audio"
    fake.mkdir(parents=True)
    (fake / "child.py").write_text(script)
    for folder in (fake, fake.parent):
        (folder / "__init__.py").touch()
    monkeypatch.setattr(spawn, "_ROOT", tmp_path)
    monkeypatch.setattr(spawn, "can_fork", lambda: False)
    with pytest.raises(MediaUndecodable):
        probe(DATA / "noextension", DecodeLimits())


def test_even_a_child_that_hangs_ends_with_its_parent(long_file: Path, kind: str) -> None:
    script = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from core.audio import spawn
        from core.audio.decode import open_media
        from core.audio.media import DecodeLimits
        from core.options import Channels
        spawn.can_fork = lambda: {kind == "forked"}
        limits = DecodeLimits()
        with open_media(Path({str(long_file)!r}), limits=limits, channels=Channels.MIX) as stream:
            print(stream._child._process.pid, flush=True)
            time.sleep(60)
    """)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, signal.SIGSTOP)  # it hangs: no broken pipe can end it
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and "Z" not in _state(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.02)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


@both_kinds
def test_the_child_can_open_nothing_and_knows_no_secrets(
    long_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTORIUM_DATABASE_URL", "secret")
    with open_media(long_file, limits=DecodeLimits(), channels=Channels.MIX):
        [child] = child_ids()
        proc = Path(f"/proc/{child}")
        assert b"secret" not in (proc / "environ").read_bytes()
        limits = (proc / "limits").read_text()
        assert limits.split("Max open files")[1].split()[:2] == ["3", "3"]
        assert limits.split("Max file size")[1].split()[:2] == ["0", "0"]
        assert sorted(entry.name for entry in (proc / "fd").iterdir()) == ["0", "1", "2"]


@needs_nursery
def test_a_nursery_that_dies_costs_its_children_and_no_later_ones(long_file: Path) -> None:
    limits = DecodeLimits()
    with open_media(long_file, limits=limits, channels=Channels.MIX) as stream:
        assert spawn._nursery is not None
        os.kill(spawn._nursery._process.pid, signal.SIGKILL)
        with pytest.raises(ServiceUnavailable):
            list(stream)
    for _ in range(2):  # the first finds out, the second has a new nursery
        assert probe(DATA / "noextension", limits).codec
    assert child_ids() == set()


@needs_nursery
def test_many_threads_share_one_nursery(long_file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        infos = list(pool.map(lambda _: probe(long_file, DecodeLimits()), range(24)))
    assert len(set(infos)) == 1
    nurseries = child_commands().count(b"core.audio.nursery")
    assert nurseries == 1
    assert child_ids() == set()


def child_commands() -> list[bytes]:
    """What runs as a child of this process: the module's name."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found += [name for name in arguments if name.startswith(b"core.audio.")]
    return found


@needs_nursery
def test_a_process_that_ends_leaves_no_nursery(long_file: Path) -> None:
    script = textwrap.dedent(f"""
        from pathlib import Path
        from core.audio import spawn
        from core.audio.media import DecodeLimits
        from core.audio.probe import probe
        probe(Path({str(long_file)!r}), DecodeLimits())
        print(spawn._nursery._process.pid)
    """)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not Path(f"/proc/{int(run.stdout)}").exists()


def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    minute = np.random.default_rng(0).integers(-3000, 3000, 60 * RATE_HZ).astype(np.int16)
    peaks = {}
    for minutes in (2, 20):
        path = tmp_path / f"{minutes}.wav"
        with sf.SoundFile(path, "w", RATE_HZ, 1, "PCM_16") as file:
            for _ in range(minutes):
                file.write(minute)
        peaks[minutes] = _peak_memory_kb(path)
    assert peaks[20][0] < peaks[2][0] + 20_000
    assert peaks[20][1] < peaks[2][1] + 20_000


def _peak_memory_kb(path: Path) -> tuple[int, int]:
    """Peak memory of a process that plans the windows of `path`, and of its child."""
    script = textwrap.dedent(f"""
        import resource
        from pathlib import Path
        from core.audio import spawn
        from core.audio.decode import open_media
        from core.audio.media import DecodeLimits
        from core.audio.plan import iter_windows
        from core.options import Channels
        spawn.can_fork = lambda: False  # only children of its own are in RUSAGE_CHILDREN
        limits = DecodeLimits()
        with open_media(Path({str(path)!r}), limits=limits, channels=Channels.MIX) as stream:
            for window, samples in iter_windows(stream, window_ms=30_000, vad=False):
                pass
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            print(resource.getrusage(who).ru_maxrss)
    """)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    own, child = map(int, run.stdout.split())
    return own, child


@pytest.mark.parametrize(
    "after",
    [bytes(64 << 20), b"LIST\x04\x00\x00\x00INFO" + bytes(1 << 20), b"\x00"],
    ids=["zeros", "a chunk and zeros", "one byte"],
)
def test_what_follows_the_sound_of_a_wav_costs_nothing(
    tmp_path: Path, decode: Decode, after: bytes
) -> None:
    path = tmp_path / "padded.wav"
    sf.write(path, np.full(RATE_HZ, 0.1), RATE_HZ)
    with path.open("ab") as file:
        file.write(after)

    started = time.process_time()
    samples, _info, warnings = decode(path)

    assert samples.shape == (1, RATE_HZ)
    assert warnings == ()
    assert time.process_time() - started < 5
