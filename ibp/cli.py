"""cohort ibp analyze | encode | decode | verify."""

import argparse
import sys
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_output, replacing
from cohort_gnn.ibp.picture import draw_agreement
from cohort_gnn.ibp.profile import CODECS

STORED_AS = {"bfloat16": "uint16", "bits32": "uint32", "bits64": "uint64"}  # dtypes that .npy files do not have


def register(parser) -> None:
    """Adds the commands of `ibp`."""
    parser.description = "lossless compression of feature rows; docs/how-to/ibp.md describes it"
    commands = parser.add_subparsers(dest="ibp_command", required=True, metavar="COMMAND")
    _add_analyze(commands)
    _add_encode(commands)
    decode = commands.add_parser("decode", help="write the rows of an encoded file to a .npy file")
    decode.add_argument("file", type=Path, help="encoded rows, such as DIR/prepared/features.ibp")
    decode.add_argument("out", type=Path, help="FILE.npy to write")
    decode.add_argument("--batch-rows", type=_positive, default=65536, help="rows per step (default 65536)")
    decode.set_defaults(func=run_decode)
    verify = commands.add_parser("verify", help="check an encoded file: structure, checksums, every row")
    verify.add_argument("file", type=Path, help="encoded rows, such as DIR/prepared/features.ibp")
    verify.add_argument("--against", type=Path, help="compare the rows with this .npy file")
    verify.set_defaults(func=run_verify)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, found {text}")
    return int(text)


def _add_rows_options(parser, rows: str) -> None:
    parser.add_argument("rows", type=Path, help=rows)
    parser.add_argument("--bfloat16", action="store_true", help="read 16-bit integers as bfloat16")
    parser.add_argument(
        "--sample", type=float, default=0.01, help="share of rows to sample (default 0.01, at least 4096 rows)"
    )


def _add_analyze(commands) -> None:
    parser = commands.add_parser(
        "analyze", help="show how much each codec would save; with --png, also draw the invariant bits"
    )
    _add_rows_options(parser, "FILE.npy, or a folder of .npy files")
    parser.add_argument("--group", type=_positive, help="columns per group (default: one group with all columns)")
    parser.add_argument(
        "--png", type=Path, help="draw the invariant bits into this file; for a folder, into one picture per .npy file"
    )
    parser.set_defaults(func=run_analyze)


def _add_encode(commands) -> None:
    parser = commands.add_parser("encode", help="encode the rows of a .npy file")
    _add_rows_options(parser, "FILE.npy")
    parser.add_argument("out", type=Path, help="file to write")
    parser.add_argument(
        "--codec", default="auto", choices=CODECS, help="default: auto, the codec with the fewest bytes to fetch"
    )
    parser.add_argument("--mantissa-bits", type=int, help="codec planes: mantissa bits in plane A, 0 to 22 (default 3)")
    parser.add_argument("--layout", default="auto", help="auto, packed or slots")
    parser.add_argument("--profile", type=Path, help="encode with this saved profile")
    parser.add_argument("--save-profile", type=Path, help="also save the profile to this file")
    parser.set_defaults(func=run_encode)


def open_rows(path: Path, bfloat16: bool = False):
    """A mapped [rows, columns] array (a torch tensor for bfloat16)."""
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CohortError(str(path), "a readable .npy file without pickles", reason) from error
    if rows.ndim != 2 or not rows.flags.c_contiguous:
        raise CohortError(str(path), "a C-contiguous array [rows, columns]", f"shape {list(rows.shape)}")
    if not bfloat16:
        return rows
    if rows.dtype.itemsize != 2:
        raise CohortError(str(path), "16-bit elements with --bfloat16", str(rows.dtype))
    import torch

    writable = np.load(path, mmap_mode="c", allow_pickle=False)  # torch takes no read-only memory; nothing is written
    return torch.from_numpy(writable.view(np.int16)).view(torch.bfloat16)


def _files_with_rows(path: Path, bfloat16: bool) -> dict:
    """{file: its rows}: of a file, or of those in a folder that have rows; others are named on standard error."""
    if not path.is_dir():
        return {path: open_rows(path, bfloat16)}
    files = {}
    for file in sorted(path.glob("*.npy")):
        try:
            files[file] = open_rows(file, bfloat16)
        except CohortError as error:
            print(f"cohort: left out: {error}", file=sys.stderr)
    if not files:
        raise CohortError(str(path), "a folder with .npy files of rows [rows, columns]", "no such file in it")
    return files


def run_analyze(arguments) -> int:
    if arguments.png:
        demand_output(arguments.png, [arguments.rows])
    files = _files_with_rows(arguments.rows, arguments.bfloat16)
    for file, rows in files.items():
        print(f"{file}: {rows.shape[0]} rows x {rows.shape[1]} {rows.dtype}")
        for line in table_of(rows, arguments.group or rows.shape[1], arguments.sample):
            print(line)
        if png := arguments.png:
            png = png.with_name(f"{png.stem}_{file.stem}{png.suffix}") if len(files) > 1 else png
            draw_agreement(rows, png)
            print(f"picture: {png}")
    return 0


def table_of(rows, group: int, sample: float):
    """Lines of text: for each group of columns and codec, bytes saved and 128-byte lines a row; * marks the choice."""
    from cohort_gnn import ibp

    yield f"{'columns':>15} {'codec':>10} {'bytes/row':>10} {'saved %':>8} {'lines/row':>10} {'raw rows %':>10}"
    for first in range(0, rows.shape[1], group):
        part = rows[:, first : first + group]
        if group < rows.shape[1]:
            part = np.ascontiguousarray(part) if isinstance(part, np.ndarray) else part.contiguous()
        profile = ibp.fit(part, sample=sample)
        for candidate in profile.candidates:
            chosen = "*" if candidate["codec"] == profile.codec else " "
            saved = 100 * (1 - candidate["bytes_per_row"] / profile.row_bytes)
            columns = f"{first}-{first + part.shape[1] - 1}"
            yield (
                f"{columns:>15} {candidate['codec']:>9}{chosen} {candidate['bytes_per_row']:>10.1f} {saved:>8.2f} "
                f"{candidate['lines_per_row']:>10.2f} {100 * candidate['raw_share']:>10.1f}"
            )
        yield f"  {profile.why}"


def run_encode(arguments) -> int:
    from cohort_gnn import ibp

    read = [path for path in (arguments.rows, arguments.profile) if path]
    demand_output(arguments.out, read)
    if arguments.save_profile:
        demand_output(arguments.save_profile, [arguments.rows, arguments.out])
    rows = open_rows(arguments.rows, arguments.bfloat16)
    if arguments.profile:
        profile = ibp.Profile.load(arguments.profile)
    else:
        profile = ibp.fit(rows, arguments.codec, sample=arguments.sample, mantissa_bits=arguments.mantissa_bits)
        print(profile.why)
    if arguments.save_profile:
        profile.save(arguments.save_profile)
    written = ibp.encode(rows, profile, layout=arguments.layout, out=arguments.out)
    raw = rows.shape[0] * profile.row_bytes
    print(f"{arguments.out}: {written} bytes for {raw} bytes of rows ({100 * (1 - written / max(raw, 1)):.2f} % saved)")
    return 0


def _batches(encoded, batch_rows: int):
    """(first row, decoded rows) of consecutive batches; bfloat16 as uint16."""
    from cohort_gnn import ibp

    for first in range(0, encoded.num_rows, batch_rows):
        rows = ibp.fetch(encoded, np.arange(first, min(first + batch_rows, encoded.num_rows)))
        if not isinstance(rows, np.ndarray):
            import torch

            rows = rows.view(torch.int16).numpy().view(np.uint16)
        yield first, rows


def run_decode(arguments) -> int:
    from cohort_gnn import ibp

    demand_output(arguments.out, [arguments.file])
    encoded = ibp.load(arguments.file)
    dtype = np.dtype(STORED_AS.get(encoded.profile.dtype, encoded.profile.dtype))
    try:
        with replacing(arguments.out) as temporary:
            out = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=encoded.shape)
            for first, rows in _batches(encoded, arguments.batch_rows):
                out[first : first + len(rows)] = rows
    except OSError as error:
        raise CohortError(str(arguments.out), "a file that can be written", str(error)) from error
    print(f"{arguments.out}: {encoded.num_rows} rows x {encoded.shape[1]} {encoded.profile.dtype}")
    return 0


def run_verify(arguments) -> int:
    from cohort_gnn import ibp

    encoded = ibp.load(arguments.file)  # raises on damage
    expected = open_rows(arguments.against) if arguments.against else None
    if expected is not None and expected.shape != encoded.shape:
        raise CohortError(str(arguments.against), f"shape {list(encoded.shape)}", f"{list(expected.shape)}")
    if expected is not None:
        _demand_dtype(arguments.against, expected.dtype, encoded.profile.dtype)
    for first, rows in _batches(encoded, 65536):
        if expected is None:
            continue
        wanted = expected[first : first + len(rows)]
        differ = np.frombuffer(rows.tobytes(), np.uint8) != np.frombuffer(wanted.tobytes(), np.uint8)
        if differ.any():
            row, byte = divmod(int(differ.argmax()), encoded.profile.row_bytes)
            expected = f"the bytes of row {first + row} of {arguments.against}"
            raise CohortError(f"{arguments.file}: row {first + row}", expected, f"a difference in byte {byte}")
    profile = encoded.profile
    print(
        f"{arguments.file}: correct; {encoded.num_rows} rows x {profile.num_columns} {profile.dtype}, codec "
        f"{profile.codec}, {encoded.layout}, {encoded.stored_bytes} bytes of rows"
    )
    return 0


def _demand_dtype(path: Path, actual: np.dtype, dtype: str) -> None:
    """Raises CohortError unless an array of dtype `actual` can hold rows of a profile's `dtype`."""
    wanted = np.dtype(STORED_AS.get(dtype, dtype))
    if actual != wanted and (dtype not in STORED_AS or actual.itemsize != wanted.itemsize):
        raise CohortError(str(path), dtype if dtype not in STORED_AS else f"{dtype}, as {wanted}", str(actual))
