"""Downloading a data set's archive, checked before it takes its place."""

from pathlib import Path

from feddst.data.progress import Meter
from feddst.errors import DataError


def fetch(url: str, folder: Path, md5: str) -> Path:
    """Download `url` into `folder` and return its path; a file with another checksum is not kept."""
    name = url.rsplit("/", 1)[-1]
    by_hand = f"put {name} into {folder} by hand, or set data.root or FEDDST_DATA to where it is"
    try:
        import pooch
    except ImportError:
        raise DataError(f"cannot download {url}: pooch is not installed; {by_hand}") from None
    try:
        with Meter(name, in_bytes=True) as meter:
            downloader = pooch.HTTPDownloader(progressbar=meter)
            return Path(pooch.retrieve(url, f"md5:{md5}", name, folder, downloader=downloader))
    except ValueError:
        raise DataError(f"refused {url}: its md5 is not {md5}; {by_hand}") from None
    except OSError as error:  # requests' errors too; their long texts repeat the address
        raise DataError(f"cannot download {url} ({type(error).__name__}); {by_hand}") from None
