"""Small files and ZIPs of targets, made on the spot."""

import io
import struct
import wave
import zipfile
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

WAV = b"RIFF" + struct.pack("<I", 36) + b"WAVEfmt " + bytes(28)


def picture(colour: int = 0, kind: str = "PNG", size: tuple[int, int] = (4, 3)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (colour, 0, 0)).save(file, kind)
    return file.getvalue()


def broken_picture() -> bytes:
    """A PNG with a good header and garbage behind it."""
    whole = picture(size=(400, 300))
    return whole[:33] + bytes(range(256)) * 4


def sound(samples: bytes, rate: int) -> bytes:
    """A WAV file of 16-bit samples."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, rate, 0, "NONE", ""))
        writer.writeframes(samples)
    return file.getvalue()


def write_zip(
    path: Path, files: Iterable[tuple[str | zipfile.ZipInfo, bytes]], method: int = zipfile.ZIP_DEFLATED
) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return path
