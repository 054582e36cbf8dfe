"""Predict how distributed deep-learning training scales, before buying the cluster.

>>> import poseidon_sim as ps
>>> cluster = ps.Cluster(nodes=8, gpu=ps.gpu("titan-x-maxwell"), network=ps.Network(bandwidth=5e9))
>>> run = ps.simulate("vgg19", cluster, ps.Poseidon(), batch_size=32)
>>> 6 < run.speedup <= 8
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from poseidon_sim.calibration import calibrate as calibrate
    from poseidon_sim.calibration import read_measurements as read_measurements
    from poseidon_sim.calibration.profile import profile_model as profile_model
    from poseidon_sim.cluster import Cluster as Cluster
    from poseidon_sim.cluster import Gpu as Gpu
    from poseidon_sim.cluster import Host as Host
    from poseidon_sim.cluster import Input as Input
    from poseidon_sim.cluster import Network as Network
    from poseidon_sim.cluster import NodeGroup as NodeGroup
    from poseidon_sim.cluster.catalog import gpu as gpu
    from poseidon_sim.cluster.catalog import link as link
    from poseidon_sim.cluster.catalog import list_gpus as list_gpus
    from poseidon_sim.cluster.catalog import list_links as list_links
    from poseidon_sim.collective import collective_algorithm as collective_algorithm
    from poseidon_sim.collective import list_collectives as list_collectives
    from poseidon_sim.errors import CheckError as CheckError
    from poseidon_sim.errors import InfeasibleError as InfeasibleError
    from poseidon_sim.errors import InputError as InputError
    from poseidon_sim.errors import PoseidonSimError as PoseidonSimError
    from poseidon_sim.errors import UnitError as UnitError
    from poseidon_sim.errors import UnknownNameError as UnknownNameError
    from poseidon_sim.errors import UnreadableFileError as UnreadableFileError
    from poseidon_sim.laws import check_strategy as check_strategy
    from poseidon_sim.metrics.convergence import Convergence as Convergence
    from poseidon_sim.metrics.convergence import fit_convergence as fit_convergence
    from poseidon_sim.metrics.convergence import read_curve as read_curve
    from poseidon_sim.metrics.convergence import time_to_accuracy as time_to_accuracy
    from poseidon_sim.plan.compute import layer_times as layer_times
    from poseidon_sim.plan.partition import OperatorGraph as OperatorGraph
    from poseidon_sim.plan.partition import makespan as makespan
    from poseidon_sim.plan.partition import partition as partition
    from poseidon_sim.planner import advise as advise
    from poseidon_sim.planner import compare as compare
    from poseidon_sim.planner import monte_carlo as monte_carlo
    from poseidon_sim.planner import sweep as sweep
    from poseidon_sim.scenario import Scenario as Scenario
    from poseidon_sim.scenario import load_scenario as load_scenario
    from poseidon_sim.simulation import Run as Run
    from poseidon_sim.simulation import record as record
    from poseidon_sim.simulation import simulate as simulate
    from poseidon_sim.strategy.adam import Adam as Adam
    from poseidon_sim.strategy.all_reduce import AllReduce as AllReduce
    from poseidon_sim.strategy.asc_wfbp import AscWfbp as AscWfbp
    from poseidon_sim.strategy.axonn import Axonn as Axonn
    from poseidon_sim.strategy.backup_workers import BackupWorkers as BackupWorkers
    from poseidon_sim.strategy.base import Strategy as Strategy
    from poseidon_sim.strategy.byte_scheduler import ByteScheduler as ByteScheduler
    from poseidon_sim.strategy.byteps import BytePs as BytePs
    from poseidon_sim.strategy.chainermn import ChainerMn as ChainerMn
    from poseidon_sim.strategy.ddl import Ddl as Ddl
    from poseidon_sim.strategy.ddp import Ddp as Ddp
    from poseidon_sim.strategy.decentralized_diffusion import DecentralizedDiffusion as DecentralizedDiffusion
    from poseidon_sim.strategy.easgd import Easgd as Easgd
    from poseidon_sim.strategy.fire_caffe import FireCaffe as FireCaffe
    from poseidon_sim.strategy.frnn import Frnn as Frnn
    from poseidon_sim.strategy.fsdp import Fsdp as Fsdp
    from poseidon_sim.strategy.gradientflow import GradientFlow as GradientFlow
    from poseidon_sim.strategy.horovod import Horovod as Horovod
    from poseidon_sim.strategy.local_sgd import LocalSgd as LocalSgd
    from poseidon_sim.strategy.megatron import Megatron as Megatron
    from poseidon_sim.strategy.merged_gradient import MergedGradient as MergedGradient
    from poseidon_sim.strategy.merged_gradient import merge_plan as merge_plan
    from poseidon_sim.strategy.multi_stream import MultiStream as MultiStream
    from poseidon_sim.strategy.one_bit import OneBit as OneBit
    from poseidon_sim.strategy.par_dnn import ParDnn as ParDnn
    from poseidon_sim.strategy.parameter_server import ParameterServer as ParameterServer
    from poseidon_sim.strategy.poplar import Poplar as Poplar
    from poseidon_sim.strategy.poseidon import Poseidon as Poseidon
    from poseidon_sim.strategy.poseidon import best_scheme as best_scheme
    from poseidon_sim.strategy.registry import list_strategies as list_strategies
    from poseidon_sim.strategy.registry import strategy_class as strategy_class
    from poseidon_sim.strategy.sufficient_factor import SufficientFactorBroadcast as SufficientFactorBroadcast
    from poseidon_sim.strategy.sync_easgd import SyncEasgd as SyncEasgd
    from poseidon_sim.strategy.theano_mpi import TheanoMpi as TheanoMpi
    from poseidon_sim.strategy.top_k import TopK as TopK
    from poseidon_sim.strategy.tpa_scd import TpaScd as TpaScd
    from poseidon_sim.workload.layer import Layer as Layer
    from poseidon_sim.workload.layer import Workload as Workload
    from poseidon_sim.workload.load import list_models as list_models
    from poseidon_sim.workload.load import load_model as load_model

#: public name -> module that holds it; modules are imported when a name is first used, so that importing is quick
_PUBLIC = {
    "OperatorGraph": "plan.partition",
    "makespan": "plan.partition",
    "partition": "plan.partition",
    "CheckError": "errors",
    "Cluster": "cluster",
    "Convergence": "metrics.convergence",
    "Gpu": "cluster",
    "Host": "cluster",
    "Input": "cluster",
    "InfeasibleError": "errors",
    "InputError": "errors",
    "Layer": "workload.layer",
    "layer_times": "plan.compute",
    "calibrate": "calibration",
    "Network": "cluster",
    "NodeGroup": "cluster",
    "PoseidonSimError": "errors",
    "Run": "simulation",
    "Scenario": "scenario",
    "Strategy": "strategy.base",
    "UnitError": "errors",
    "UnknownNameError": "errors",
    "UnreadableFileError": "errors",
    "Workload": "workload.layer",
    "advise": "planner",
    "best_scheme": "strategy.poseidon",
    "collective_algorithm": "collective",
    "check_strategy": "laws",
    "compare": "planner",
    "fit_convergence": "metrics.convergence",
    "gpu": "cluster.catalog",
    "link": "cluster.catalog",
    "list_collectives": "collective",
    "list_gpus": "cluster.catalog",
    "list_links": "cluster.catalog",
    "merge_plan": "strategy.merged_gradient",
    "list_models": "workload.load",
    "list_strategies": "strategy.registry",
    "load_model": "workload.load",
    "load_scenario": "scenario",
    "record": "simulation",
    "profile_model": "calibration.profile",
    "read_curve": "metrics.convergence",
    "read_measurements": "calibration",
    "simulate": "simulation",
    "strategy_class": "strategy.registry",
    "monte_carlo": "planner",
    "sweep": "planner",
    "time_to_accuracy": "metrics.convergence",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(f"poseidon_sim.{_PUBLIC[name]}"), name)
    else:  # strategies: every class that the registry finds
        value = import_module("poseidon_sim.strategy.registry").class_called(name) if name[:1].isupper() else None
        if value is None:
            raise AttributeError(f"module 'poseidon_sim' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    strategies = import_module("poseidon_sim.strategy.registry").class_names()
    return [*__all__, *strategies]
