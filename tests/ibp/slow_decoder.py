"""A slow decoder of files of encoded rows, written from ibp/FORMAT.md alone. It knows nothing of the library."""

import struct

ELEMENT_BYTES = {1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 8}
VERSIONS = {4: 2, 5: 3, 6: 4}  # of codecs; the others: 1
FLOAT_BITS = {2: (5, 10), 3: (8, 7), 4: (8, 23)}  # exponent, mantissa
HEADER = struct.Struct("<8sII6Q4IQI32xI")
PROFILE = struct.Struct("<8sI4B4I2Q")
BLOCK = 1048576


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Bits:
    """A bit stream, least significant bit first."""

    def __init__(self, data: bytes):
        self.number, self.position = int.from_bytes(data, "little"), 0

    def take(self, count: int) -> int:
        value = (self.number >> self.position) & ((1 << count) - 1)
        self.position += count
        return value


class Profile:
    def __init__(self, data: bytes):
        fields = PROFILE.unpack_from(data)
        assert fields[0] == b"IBPPROF1" and fields[1] == VERSIONS.get(fields[2], 1)
        self.codec, self.dtype, self.chunk_bytes, self.code_bits = fields[2:6]
        self.num_columns, self.slot_bytes, self.threshold, self.value_bits = fields[6:10]
        self.constant, self.value_prefix = fields[10:12]
        self.element_bytes = ELEMENT_BYTES[self.dtype]
        self.row_bytes = self.num_columns * self.element_bytes
        assert struct.unpack_from("<I", data, len(data) - 4)[0] == crc32c(data[:-4])
        tables = data[PROFILE.size : -4]
        if self.codec == 1:
            self.num_chunks = -(-self.row_bytes // self.chunk_bytes)
            words = struct.unpack(f"<{2 * self.num_chunks}Q", tables)
            self.mask, self.value = words[: self.num_chunks], words[self.num_chunks :]
        elif self.codec in (2, 4, 5):
            self.base, self.steps = list(tables[: self.num_columns]), list(tables[self.num_columns :])
            assert (len(self.base), len(self.steps)) == (self.num_columns, 10 if self.codec == 5 else 0)
        elif self.codec == 6:
            self.elements = list(struct.unpack(f"<{1 << self.code_bits}Q", tables))
            assert self.elements == sorted(self.elements) and self.elements[-1] < 1 << 8 * self.element_bytes
        else:
            assert tables == b""
        if self.codec == 5:
            assert self.threshold < self.row_bytes
            assert self.code_bits == 2 and self.dtype in (2, 3)
            assert len({1, 2, 3, *self.steps}) == 13 and max(self.steps) < 2 ** FLOAT_BITS[self.dtype][0]
        if self.codec == 4:
            self.mantissa_bits = self.chunk_bytes
            self.rest_bits = 23 - self.mantissa_bits
            self.plane_b_stride = -(-self.num_columns * self.rest_bits // 128) * 16
            assert self.dtype == 4 and self.slot_bytes > 0


def decode_invariant(profile: Profile, data: bytes) -> bytes:
    words = -(-profile.num_chunks // 32)
    participation = int.from_bytes(data[: 4 * words], "little")
    stream, row, bits = Bits(data[4 * words :]), b"", 8 * profile.chunk_bytes
    for j in range(profile.num_chunks):
        if participation >> j & 1:
            chunk = profile.value[j]
            for bit in range(bits):
                if not profile.mask[j] >> bit & 1:
                    chunk |= stream.take(1) << bit
        else:
            chunk = stream.take(bits)
        row += chunk.to_bytes(profile.chunk_bytes, "little")
    return row[: profile.row_bytes]


def decode_exponent(profile: Profile, data: bytes) -> bytes:
    exponent_bits, mantissa_bits = FLOAT_BITS[profile.dtype]
    stream, fields = Bits(data), []
    for _ in range(profile.num_columns):
        mantissa, code, sign = stream.take(mantissa_bits), stream.take(profile.code_bits), stream.take(1)
        fields.append((mantissa, code, sign))
    stream.position = -(-stream.position // 8) * 8
    row = b""
    for j, (mantissa, code, sign) in enumerate(fields):
        exponent = profile.base[j] + code - 1 if code else stream.take(exponent_bits)
        element = sign << (exponent_bits + mantissa_bits) | exponent << mantissa_bits | mantissa
        row += element.to_bytes(profile.element_bytes, "little")
    return row


def decode_layers(profile: Profile, data: bytes) -> bytes:
    exponent_bits, mantissa_bits = FLOAT_BITS[profile.dtype]
    stream, fields, steps = Bits(data), [], {}
    for j in range(profile.num_columns):
        mantissa, code, sign = stream.take(mantissa_bits), stream.take(2), stream.take(1)
        fields.append((mantissa, sign))
        if code:
            steps[j] = code
    stream.position = -(-stream.position // 8) * 8
    for first in range(0, profile.num_columns, 256):
        for bits, of_codes in ((2, profile.steps[:3]), (3, profile.steps[3:]), (exponent_bits, None)):
            for j in range(first, min(first + 256, profile.num_columns)):
                if j not in steps:
                    code = stream.take(bits)
                    if of_codes is None or code:
                        steps[j] = code if of_codes is None else of_codes[code - 1]
    row = b""
    for j, (mantissa, sign) in enumerate(fields):
        exponent = (profile.base[j] + steps[j] - 1) % 2**exponent_bits
        row += (sign << 15 | exponent << mantissa_bits | mantissa).to_bytes(2, "little")
    return row


def decode_planes(profile: Profile, data: bytes, plane_b: bytes | None) -> bytes:
    """Both planes of a row, or, without plane B, the row as plane A alone tells it."""
    stream, fields = Bits(data), []
    for _ in range(profile.num_columns):
        fields.append((stream.take(profile.mantissa_bits), stream.take(profile.code_bits), stream.take(1)))
    stream.position = -(-stream.position // 8) * 8
    rest, row = None if plane_b is None else Bits(plane_b), b""
    for j, (mantissa, code, sign) in enumerate(fields):
        exponent = profile.base[j] + code - 1 if code else stream.take(8)
        low = rest.take(profile.rest_bits) if rest else (1 << profile.rest_bits - 1 if exponent else 0)
        row += (sign << 31 | exponent << 23 | mantissa << profile.rest_bits | low).to_bytes(4, "little")
    return row


def decode_sparse(profile: Profile, data: bytes) -> bytes:
    header, stream = struct.unpack_from("<I", data)[0], Bits(data[4:])
    count, kind, bitmap = header & 0xFFFFFF, header >> 24 & 3, header >> 26 & 1
    element_bits = 8 * profile.element_bytes
    constant = stream.take(element_bits) if kind == 1 else profile.constant
    if bitmap:
        groups = [g for g in range(-(-profile.num_columns // 32)) if stream.take(1)]
        columns = [32 * g + b for g in groups for word in [stream.take(32)] for b in range(32) if word >> b & 1]
    else:
        index_bits = max(1, (profile.num_columns - 1).bit_length())
        columns = [stream.take(index_bits) for _ in range(count)]
    assert columns == sorted(set(columns)) and len(columns) == count
    row = bytearray(profile.row_bytes)
    for column in columns:
        element = constant
        if kind == 2:
            element = profile.value_prefix << profile.value_bits | stream.take(profile.value_bits)
        elif kind == 3:
            element = stream.take(element_bits)
        at = column * profile.element_bytes
        row[at : at + profile.element_bytes] = element.to_bytes(profile.element_bytes, "little")
    return bytes(row)


def decode_dictionary(profile: Profile, data: bytes) -> bytes:
    stream = Bits(data)
    elements = [profile.elements[stream.take(profile.code_bits)] for _ in range(profile.num_columns)]
    return b"".join(element.to_bytes(profile.element_bytes, "little") for element in elements)


DECODERS = {
    1: decode_invariant,
    2: decode_exponent,
    3: decode_sparse,
    5: decode_layers,
    6: decode_dictionary,
}


def find_row(layout, directory, data, overflow, num_rows, stride, profile, i):
    """(bytes of the row, whether it is raw)."""
    if layout == 0:
        (entry,) = struct.unpack_from("<Q", directory, 8 * i)
        at, length = (entry & (1 << 40) - 1) * 4, (entry >> 40 & 0xFFFF) * 4
        return data[at : at + length], entry >> 63 == 1
    if layout == 1:
        (length,) = struct.unpack_from("<H", directory, 2 * i)
        at = i * profile.row_bytes
        return data[at : at + (4 * length or profile.row_bytes)], length == 0
    words = -(-num_rows // 32)
    (flags,) = struct.unpack_from("<I", directory, 4 * (i // 32))
    if not flags >> i % 32 & 1:
        return data[i * stride : (i + 1) * stride], False
    (rank,) = struct.unpack_from("<I", directory, 4 * (words + i // 32))
    rank += (flags & (1 << i % 32) - 1).bit_count()
    at = rank * (-(-profile.row_bytes // 16) * 16)
    return overflow[at : at + profile.row_bytes], True


def decode_file(image: bytes, plane_a_alone: bool = False) -> tuple[Profile, list[bytes]]:
    """The profile and every row of a file."""
    magic, version, layout, num_rows, *lengths, stride, longest, directory_crc, checksum_crc, b_bytes, b_stride, crc = (
        HEADER.unpack_from(image)
    )
    assert magic == b"IBPROWS1" and crc32c(image[:124]) == crc
    lengths.insert(2, b_bytes)
    sections, at = [], 128
    for length in lengths:
        at = -(-at // 128) * 128
        sections.append(image[at : at + length])
        at += length
    assert at == len(image)
    profile_bytes, data, plane_b, overflow, directory, checksums = sections
    profile = Profile(profile_bytes)
    assert version == VERSIONS.get(profile.codec, 1)
    if profile.codec == 4:
        assert (layout, stride, b_stride) == (2, profile.slot_bytes, profile.plane_b_stride)
        assert b_bytes == num_rows * b_stride
    else:
        assert (b_bytes, b_stride) == (0, 0)
    assert crc32c(directory) == directory_crc and crc32c(checksums) == checksum_crc
    blocks = [part[first : first + BLOCK] for part in (data, plane_b, overflow) for first in range(0, len(part), BLOCK)]
    assert [crc32c(block) for block in blocks] == list(struct.unpack(f"<{len(blocks)}I", checksums))
    rows = []
    for i in range(num_rows):
        stored, raw = find_row(layout, directory, data, overflow, num_rows, stride, profile, i)
        assert raw or layout == 2 or len(stored) <= longest
        if raw:
            rows.append(stored[: profile.row_bytes])
        elif profile.codec == 4:
            rest = None if plane_a_alone else plane_b[i * b_stride : (i + 1) * b_stride]
            rows.append(decode_planes(profile, stored, rest))
        else:
            rows.append(DECODERS[profile.codec](profile, stored))
    return profile, rows
