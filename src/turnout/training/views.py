"""Records as models see them, computed once for all runs of a search."""

from __future__ import annotations

from dataclasses import replace

from turnout.core.errors import ParameterError
from turnout.data import ClientData, Records
from turnout.plans import Plan
from turnout.training.workload import UnseenPhase, Workload

_AS_THEY_ARE = "pixels"


class Views:
    """The data of a workload by the name of a feature, each computed when it is first needed."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._seen: dict[str, ClientData] = {_AS_THEY_ARE: workload.data}

    def workload(self, plan: Plan) -> Workload:
        """The workload of a plan, its features computed already and none left to compute.

        Raises:
            ParameterError: a feature that the inputs do not have.
        """
        name = plan.model.features
        if name not in self._seen:
            data = self._workload.data
            train, test = (
                _featured(self._workload, name, records) for records in (data.train, data.test)
            )
            self._seen[name] = replace(data, train=train, test=test)
        model = plan.model.model_copy(update={"features": _AS_THEY_ARE})
        plan = plan.model_copy(update={"model": model})
        return replace(self._workload, plan=plan, data=self._seen[name])


def _featured(workload: Workload, name: str, records: Records) -> Records:
    # Imported here: they load PyTorch.
    from turnout.learning.features import build_features
    from turnout.training.featuring import features_of

    try:
        features = build_features(name, workload.folder)
        return Records(features_of(features, records.inputs, UnseenPhase()), records.labels)
    except ParameterError as error:
        raise ParameterError("model.features", name, error.expected) from None
