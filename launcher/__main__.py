"""``python -m remuster.launcher`` is the command, as ``python -m torch.distributed.run`` is torchrun."""

from .entry import main

if __name__ == "__main__":
    main()
