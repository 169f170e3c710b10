"""Imports many modules of Python's standard library, and fails if one is not what it should be.

What it costs is looking up, reading and unmarshalling some hundred small files: the start of any
Python program, without the computation.
"""

import importlib
import sys

MODULES = """
    argparse ast asyncio base64 bisect calendar cmd codecs collections.abc concurrent.futures
    configparser contextlib copy csv ctypes dataclasses datetime decimal difflib dis email.message
    enum fileinput fractions ftplib functools glob gzip hashlib heapq hmac html.parser http.client
    http.server imaplib inspect ipaddress itertools json locale logging.config lzma mailbox
    mimetypes multiprocessing.pool numbers optparse pathlib pdb pickle pickletools platform plistlib
    pprint profile pstats queue random reprlib sched secrets selectors shelve shlex shutil smtplib
    socketserver sqlite3 ssl statistics string subprocess tarfile tempfile textwrap threading
    timeit tokenize traceback typing unittest.mock urllib.request uuid wave weakref
    xml.dom.minidom xml.etree.ElementTree xml.sax xmlrpc.client zipfile zoneinfo
"""


def main() -> int:
    """Returns 0 if all modules are there under their names, and come from more than 200 files."""
    wrong = [name for name in MODULES.split() if importlib.import_module(name).__name__ != name]
    files = sum(getattr(module, "__file__", None) is not None for module in sys.modules.values())
    if not wrong and files > 200:
        return 0
    print(f"error: not what they should be: {wrong}; modules from files: {files}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
