"""The bytes of a CSV file as its fast reader can take them.

arro3 reads numbers as Python does, to the last bit, but refuses blanks around them and text that is not
UTF-8, even in columns nobody asked for; and a NUL in a cell that it refuses ends the process. What is changed
here belongs to no number, and commas, quotes and line breaks stay where they are.
"""

import codecs
import io
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK = 2**17
#: NUL and everything beyond ASCII, of which no number is made, as question marks.
_ASCII = bytes([ord("?"), *range(1, 128), *[ord("?")] * 128])


class PlainText(io.RawIOBase):
    """A stream without the byte order mark, blanks around cells, and bytes that are not ASCII."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self._rest = stream.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)
        self._block = io.BytesIO()

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: "Buffer") -> int:
        """The next bytes, as many as there is room for; none at the end."""
        count = self._block.readinto(buffer)
        while not count and (lines := self._lines()):
            self._block = io.BytesIO(_plain(lines))
            count = self._block.readinto(buffer)
        return count

    def _lines(self) -> bytes:
        """Some whole lines; what a line break in quotes cuts in two is cut at that line break."""
        lines = self._rest
        while block := self._stream.read(_BLOCK):
            end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
            if end:
                self._rest = block[end:]
                return lines + block[:end]
            lines += block
        self._rest = b""
        return lines


def _plain(lines: bytes) -> bytes:
    if b"\0" in lines or not lines.isascii():
        lines = lines.translate(_ASCII)
    return _without_padding(lines) if b" " in lines or b"\t" in lines else lines


def _without_padding(lines: bytes) -> bytes:
    """Runs of blanks at the edge of a cell are left out, those inside (New York) stay."""
    text = np.frombuffer(b"\n" + lines + b"\n", dtype=np.uint8)
    blank = (text == ord(" ")) | (text == ord("\t"))
    changes = np.flatnonzero(blank[1:] != blank[:-1])
    before, last = changes[::2], changes[1::2]
    ends = text[before], text[last + 1]
    breaks = [(end == ord("\n")) | (end == ord("\r")) for end in ends]
    if np.any(breaks[0] & breaks[1]):
        return lines  # a row of one blank cell, which must not vanish
    padding = breaks[0] | breaks[1] | (ends[0] == ord(",")) | (ends[1] == ord(","))
    # A blank before a quote makes it part of the text: without the blank it would hide commas.
    padding &= ends[1] != ord('"')
    if padding.all():
        return lines.translate(None, b" \t")
    kept = np.ones(len(text), dtype=bool)
    kept[np.flatnonzero(blank)] = np.repeat(~padding, last - before)
    return text[kept][1:-1].tobytes()
