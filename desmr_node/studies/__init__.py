"""The paper's tables and figure, and what the project adds to them: by name, in the paper's order."""

from desmr_node.studies.convergence import CONVERGENCE
from desmr_node.studies.crime import CRIME
from desmr_node.studies.initial import INITIAL
from desmr_node.studies.iterations import ITERATIONS
from desmr_node.studies.liars import LIARS
from desmr_node.studies.rate import RATE
from desmr_node.studies.rounds import ROUNDS
from desmr_node.studies.simulated import HEAVY_TAIL, HETEROGENEITY, NODES, SPARSITY
from desmr_node.studies.study import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        ITERATIONS,
        HEAVY_TAIL,
        HETEROGENEITY,
        NODES,
        SPARSITY,
        INITIAL,
        CRIME,
        ROUNDS,
        CONVERGENCE,
        RATE,
        LIARS,
    )
}
