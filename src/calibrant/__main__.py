"""`python -m calibrant`, which is also how torchrun starts it: `torchrun --nproc-per-node 2 -m calibrant train ...`."""

from calibrant.cli import main

if __name__ == "__main__":
    main()
