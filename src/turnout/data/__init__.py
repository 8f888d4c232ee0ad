"""Data sets: labelled images, availability traces, and a user's own files and tables.

Published files are searched in ``TURNOUT_DATA``, then in the user's cache, and otherwise
downloaded from official mirrors. The UCI digits are part of the package.
"""

from turnout.data.availability import flash_phones, parse_intervals, trace_from
from turnout.data.files import DataFile, MissingFileError, cache_folder, contents
from turnout.data.images import digits, fashion_mnist, load_images, mnist
from turnout.data.own import own_data, own_records
from turnout.data.records import ClientData, PredictionTarget, Records, deal

__all__ = [
    "ClientData",
    "DataFile",
    "MissingFileError",
    "PredictionTarget",
    "Records",
    "cache_folder",
    "contents",
    "deal",
    "digits",
    "fashion_mnist",
    "flash_phones",
    "load_images",
    "mnist",
    "own_data",
    "own_records",
    "parse_intervals",
    "trace_from",
]
