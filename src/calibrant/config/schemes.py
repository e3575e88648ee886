"""The sixteen schemes: four switches, their names, and the chain of stages that each one needs."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from itertools import product

from calibrant import InputError


@dataclass(frozen=True)
class Scheme:
    """Which of the four ideas are switched on.

    >>> scheme = Scheme.parse("SCBNN-OCM")
    >>> scheme.bayesian, scheme.calibrated, scheme.ocm, scheme.selective
    (True, True, True, True)
    >>> [str(link) for link in scheme.chain]
    ['CBNN', 'CBNN-OCM', 'SCBNN-OCM']
    """

    bayesian: bool = False
    calibrated: bool = False
    ocm: bool = False
    selective: bool = False

    @classmethod
    def parse(cls, name: str | Scheme) -> Scheme:
        """The scheme called `name`, in any case; a wrong name is refused with its nearest right one."""
        if isinstance(name, Scheme):
            return name
        known = {str(scheme): scheme for scheme in cls.all()}
        wanted = str(name).strip().upper()
        if wanted not in known:
            near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.0)[0]
            raise InputError(f"scheme {str(name)!r} does not exist; did you mean {near}? There are {', '.join(known)}")
        return known[wanted]

    @classmethod
    def all(cls) -> tuple[Scheme, ...]:
        """All sixteen, the plain ones first.

        >>> " ".join(str(scheme) for scheme in Scheme.all()[:8])
        'FNN CFNN BNN CBNN FNN-OCM CFNN-OCM BNN-OCM CBNN-OCM'
        """
        switches = product((False, True), repeat=4)
        return tuple(
            cls(bayesian=bayesian, calibrated=calibrated, ocm=ocm, selective=selective)
            for selective, ocm, bayesian, calibrated in switches
        )

    @property
    def parent(self) -> Scheme | None:
        """The scheme whose result this one starts from; None for the four that are fitted from the beginning."""
        if self.selective:
            return replace(self, selective=False)
        return replace(self, ocm=False) if self.ocm else None

    @property
    def chain(self) -> tuple[Scheme, ...]:
        """The scheme itself and all that it starts from, first the one that is fitted."""
        return (*self.parent.chain, self) if self.parent else (self,)

    @property
    def base(self) -> Scheme:
        """The fitted scheme at the start of the chain."""
        return self.chain[0]

    @property
    def family(self) -> str:
        """`"bayesian"` or `"frequentist"`: the key of settings that differ between the two."""
        return "bayesian" if self.bayesian else "frequentist"

    def __str__(self) -> str:
        letters = ("S" if self.selective else "") + ("C" if self.calibrated else "") + ("B" if self.bayesian else "F")
        return f"{letters}NN{'-OCM' if self.ocm else ''}"
