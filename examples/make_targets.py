"""Make the targets of the examples: python examples/make_targets.py [eggs sounds faces videos]

Everything is drawn or computed here, so it is free of rights. The same call writes the same bytes, except for the
videos, whose bytes depend on the encoder (`pip install av`). The files may be changed and used for experiments of your
own: the eggs differ in one number, the sounds and the videos in two, the faces in two.
"""  # noqa: INP001

import io
import math
import random
import sys
import wave
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EGGS = 20
RATE = 16_000


def egg(smoothness: float, *, seed: int = 7) -> bytes:
    """Return the drawing of an egg: 0 is as rough as a walnut, 1 as smooth as an egg. Only the roughness differs."""
    rng = random.Random(seed)
    waves = [(frequency, rng.uniform(0, 2 * math.pi), rng.uniform(0.5, 1)) for frequency in range(5, 25)]
    roughness = 0.45 * (1 - smoothness)
    points = []
    for step in range(360):
        angle = math.radians(step)
        bump = sum(size * math.sin(frequency * angle + phase) for frequency, phase, size in waves) / 8
        radius = 100 * (1 + roughness * bump)
        points.append(f"{120 + radius * math.sin(angle) * 0.8:.1f},{125 - radius * math.cos(angle) * 1.08:.1f}")
    return svg(f'<polygon points="{" ".join(points)}" fill="#d9cfc1" stroke="#5a5046" stroke-width="2"/>', 240, 250)


def face(eyes: float, mouth: float) -> bytes:
    """Return a face of simple shapes: `eyes` from 0 (close together) to 1, `mouth` from -1 (sad) to 1."""
    apart, bend = 22 + 36 * eyes, 34 * mouth
    shapes = (
        '<circle cx="120" cy="120" r="100" fill="#f2e2b8" stroke="#444" stroke-width="3"/>'
        f'<circle cx="{120 - apart:g}" cy="95" r="11" fill="#333"/><circle cx="{120 + apart:g}" cy="95" r="11" fill="#333"/>'
        f'<path d="M75 {160 - bend / 2:g} Q120 {160 + bend:g} 165 {160 - bend / 2:g}" fill="none" stroke="#333" stroke-width="5"/>'
    )
    return svg(shapes, 240, 240)


def svg(shapes: str, width: int, height: int) -> bytes:
    """Return a drawing of this size."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    return f"{head}{shapes}</svg>\n".encode()


def sound(brightness: float, attack_ms: float) -> bytes:
    """Return a tone of 0.6 s: `brightness` from 0 (a sine) to 1 (many overtones), and how long it takes to rise."""
    count = int(0.6 * RATE)
    strengths = [brightness ** (overtone - 1) for overtone in range(1, 13)]
    samples = bytearray()
    for place in range(count):
        seconds = place / RATE
        tone = sum(
            strength * math.sin(2 * math.pi * 220 * overtone * seconds)
            for overtone, strength in enumerate(strengths, 1)
        )
        rise, fall = min(1.0, 1000 * seconds / attack_ms), min(1.0, (count - place) / (0.1 * RATE))
        value = int(12_000 * rise * fall * tone / sum(strengths))
        samples += value.to_bytes(2, "little", signed=True)
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes(bytes(samples))
    return file.getvalue()


def video(speed: int, height: float) -> bytes:
    """Return two seconds of a bouncing ball: how many bounces it makes, and how high they are, from 0 to 1."""
    import av  # PyAV, with an encoder of WebM
    import numpy as np

    size, frames = 160, 50
    file = io.BytesIO()
    y, x = np.mgrid[0:size, 0:size]
    with av.open(file, "w", format="webm") as container:
        stream: Any = container.add_stream("libvpx", rate=25)
        stream.width, stream.height, stream.pix_fmt = size, size, "yuv420p"
        stream.options = {"crf": "30", "b": "60k", "threads": "1"}
        for frame in range(frames):
            phase = frame / frames * speed % 1
            bottom = 140 - 110 * height * 4 * phase * (1 - phase)
            ball = (x - 80) ** 2 + (y - bottom) ** 2 <= 14**2
            picture = np.full((size, size, 3), 235, np.uint8)
            picture[154:] = 120
            picture[ball] = (70, 90, 160)
            for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return file.getvalue()


def eggs() -> dict[str, bytes]:
    """Return eggs of twenty degrees of smoothness, by file name."""
    return {f"egg-{number:02}.svg": egg(number / (EGGS - 1)) for number in range(EGGS)}


def faces() -> dict[str, bytes]:
    """Return sixteen faces: four distances of the eyes by four mouths."""
    return {f"face-{a}{b}.svg": face(a / 3, 2 * b / 3 - 1) for a in range(4) for b in range(4)}


def sounds() -> dict[str, bytes]:
    """Return twelve tones: four degrees of brightness by three of attack."""
    attacks = (5, 80, 300)
    return {f"tone-{a}{b}.wav": sound(0.05 + 0.28 * a, attacks[b]) for a in range(4) for b in range(3)}


def videos() -> dict[str, bytes]:
    """Return nine films: three speeds by three heights."""
    return {f"ball-{a}{b}.webm": video(a + 1, 0.3 + 0.35 * b) for a in range(3) for b in range(3)}


MAKERS: Mapping[str, Callable[[], dict[str, bytes]]] = {
    "eggs": eggs,
    "faces": faces,
    "sounds": sounds,
    "videos": videos,
}


def write(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a ZIP whose bytes depend on its files alone."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, (2026, 11, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)


def main(names: list[str]) -> None:
    """Write the targets of these examples."""
    for name in names:
        write(HERE / name / "targets.zip", MAKERS[name]())
        print(HERE / name / "targets.zip")


if __name__ == "__main__":
    main(sys.argv[1:] or list(MAKERS))
