"""``python -m remuster`` is the command."""

from .launcher.entry import main

if __name__ == "__main__":
    main()
