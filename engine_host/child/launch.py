"""The script a child interpreter starts with: `python -I -S launch.py <control descriptor>`."""

import importlib
import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    importlib.import_module("child.main").main(int(sys.argv[1]))
